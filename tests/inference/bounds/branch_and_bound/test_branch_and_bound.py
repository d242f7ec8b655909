"""Branch and bound over rows: sound at any time, closes rows below their thresholds, ends with the exact values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.branch_and_bound import row_search as row_search_module
from dmcmc.inference.bounds.branch_and_bound.bounder import (
    JOB_FIELDS,
    JOB_ROW,
    JOB_SOURCE,
    JOB_TARGET,
    LEAF,
    NO_VARIABLE,
    NOT_PROCESSED,
    BatchResult,
    SearchBatch,
    run_batches,
)
from dmcmc.inference.bounds.branch_and_bound.dual_bounder import (
    CpuDualBounder,
    entry_bytes,
)
from dmcmc.inference.bounds.branch_and_bound.open_nodes import node_bytes, with_exact_leaves
from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearch,
    BoundarySearchRequest,
    run_boundary_searches,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.search_rows import create_boundary_search
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline

PAIRS = [(0, 1), (0, 2), (1, 2), (2, 3), (1, 3), (3, 4), (0, 4), (2, 4), (1, 4)]


def agent(seed, hard=0.2, magnitude=99, floats=False, higher_order=False, max_domain=12):
    """Return an agent with one interface variable and four hidden ones."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(2, max_domain, 5)
    scopes = [*PAIRS, (2,), *[(0, 2, 3)] * higher_order]
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), magnitude, hard, floats=floats)) for s in scopes]
    return LocalProblem(0, (4,), (0, 1, 2, 3), tuple(factors), domains.astype(np.int64))


def decoded(state):
    return [state.layout.scale.decode(int(bound)) for bound in state.bounds]


def no_cutoff(local):
    return np.full(local.rows, -math.inf)


def test_a_node_closed_while_its_tables_are_restored_closes_its_branches():
    for seed in range(40):
        local = agent(seed, 0.3, floats=True)
        exact = np.array(naive.row_values(local).ravel().tolist())
        state = DualState(local, triangles=True)
        search = BoundarySearch(state, CpuDualBounder(state, 4 * entry_bytes(state.layout.hidden, state.width)))
        for low in (-math.inf, -9.0, -1.0):
            run_boundary_searches([BoundarySearchRequest(search, exact + low, exact + low)], batches=8)
            assert (np.array(decoded(state)) >= exact - 1e-9).all()


@settings(max_examples=25)
@given(st.integers(0, 9999), st.sampled_from([0.0, 0.3, 0.6]), st.booleans(), st.booleans(), st.data())
def test_bounds_are_sound_at_any_time_and_closed_rows_stay_below_their_thresholds(
    seed, hard, floats, higher_order, data
):
    local = agent(seed, hard, floats=floats, higher_order=higher_order)
    exact = naive.row_values(local).ravel().tolist()
    state = DualState(local, triangles=True)
    capacity = data.draw(st.integers(3, 20))
    search = BoundarySearch(state, CpuDualBounder(state, capacity * entry_bytes(state.layout.hidden, state.width)))
    thresholds = np.array([data.draw(st.sampled_from([-math.inf, *[u + k for k in (-9, 0, 1, 9)]])) for u in exact])
    for waves in (1, 1, 2, 8):
        run_boundary_searches([BoundarySearchRequest(search, thresholds, thresholds)], batches=waves)
        for bound, value, threshold in zip(decoded(state), exact, thresholds, strict=True):
            assert bound >= value - 1e-9 or (floats and value < threshold)


@pytest.mark.parametrize("higher_order", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_an_exhausted_search_returns_the_exact_row_values(seed, higher_order):
    local = agent(seed, higher_order=higher_order)
    state = DualState(local, triangles=True)
    search = create_boundary_search(state, 1 << 24)
    run_boundary_searches([BoundarySearchRequest(search, no_cutoff(local), no_cutoff(local))], batches=400)
    assert search.exhausted
    assert naive.same_numbers(np.array(decoded(state)), naive.row_values(local).ravel())


@pytest.mark.parametrize("higher_order", [False, True])
@pytest.mark.parametrize("hard", [0.0, 0.3])
def test_closed_rows_yield_an_assignment_that_attains_their_bound(hard, higher_order):
    """Each reported assignment is better than the ones reported before for the same row."""
    local = agent(3, hard, higher_order=higher_order)
    search, exact = (
        create_boundary_search(DualState(local, triangles=True), 1 << 24),
        naive.row_values(local).ravel().tolist(),
    )
    reported: dict[int, float] = {}
    for _ in range(400):
        run_boundary_searches([BoundarySearchRequest(search, no_cutoff(local), no_cutoff(local))], batches=1)
        for row, values in zip(*(search.leaves() or ((), ())), strict=True):
            utility = naive.attained(local, [*values.tolist(), int(row)])
            assert utility > reported.get(int(row), -math.inf)
            reported[int(row)] = utility
    assert search.exhausted and search.leaves() is None
    assert {row: value for row, value in enumerate(exact) if value > -math.inf} == reported


@pytest.mark.parametrize("fits", [True, False])
def test_agents_share_batches_and_a_memory_limit_changes_no_bound(fits):
    locals_ = [agent(seed) for seed in (5, 6)]
    states = [DualState(local, triangles=True) for local in locals_]
    searches = list[BoundarySearch]()
    for state in states:
        bounder = CpuDualBounder(state, 1 << 24)
        rows_only = state.bounds.size * node_bytes(*bounder.allowed.shape)
        searches.append(BoundarySearch(state, bounder, memory_limit=None if fits else rows_only))
    requests = [
        BoundarySearchRequest(one, no_cutoff(local), no_cutoff(local))
        for one, local in zip(searches, locals_, strict=True)
    ]
    dives = 0
    for _ in range(400):
        dives += any(one._frontier.size > one._frontier.max_open for one in searches)
        run_boundary_searches(requests, batches=1)
        if all(one.exhausted for one in searches):
            break
    assert all(one.exhausted and one.gain_per_node is not None for one in searches) and (dives > 0) != fits
    for state, local in zip(states, locals_, strict=True):
        assert naive.same_numbers(np.array(decoded(state)), naive.row_values(local).ravel())


def test_rows_that_do_not_fit_into_the_memory_are_not_searched():
    state = DualState(agent(5), triangles=True)
    bounder = CpuDualBounder(state, 1 << 24)
    memory_limit = (state.bounds.size - 1) * node_bytes(*bounder.allowed.shape)
    search = BoundarySearch(state, bounder, memory_limit=memory_limit)
    run_boundary_searches([BoundarySearchRequest(search, no_cutoff(state.local), no_cutoff(state.local))], batches=1)
    assert search.exhausted and search.nodes == 0


def test_a_search_with_a_larger_gain_per_node_gets_more_nodes(monkeypatch):
    searches = [create_boundary_search(DualState(agent(seed), triangles=True), 1 << 24) for seed in (1, 2, 3)]
    assert row_search_module._nodes_per_search(searches) == [21, 21, 21]
    gains = dict(zip(searches, (3.0, 0.0, None), strict=True))
    monkeypatch.setattr(BoundarySearch, "gain_per_node", property(gains.get))
    first, second, third = row_search_module._nodes_per_search(searches)
    assert first > third > second > 1 and first + second + third <= searches[0].bounder.batch_size


def test_a_row_below_its_threshold_keeps_its_exact_value():
    local = agent(5, hard=0.0)
    exact = naive.row_values(local).ravel().astype(np.int64)
    state = DualState(local, triangles=True)
    search = create_boundary_search(state, 1 << 24)
    run_boundary_searches([BoundarySearchRequest(search, exact + 1, exact)], batches=400)
    assert search.exhausted and decoded(state) == exact.tolist()


def test_threads_do_not_change_bounds_and_few_entries_keep_them_sound():
    local = agent(7, hard=0.0, max_domain=16)
    states = [DualState(local, triangles=True, backend=Backend(threads=threads)) for threads in (1, 2, 2)]
    capacities = [400, 400, 3]
    for state, capacity in zip(states, capacities, strict=True):
        bounder = CpuDualBounder(state, capacity * entry_bytes(state.layout.hidden, state.width))
        run_boundary_searches(
            [BoundarySearchRequest(BoundarySearch(state, bounder), no_cutoff(local), no_cutoff(local))], batches=3
        )
        assert bounder.capacity == capacity
    assert states[0].bounds.tolist() == states[1].bounds.tolist()
    assert all(w >= u for w, u in zip(decoded(states[2]), naive.row_values(local).ravel().tolist(), strict=True))


def _completed(found, batch):
    """Return results of the first jobs of a batch, with the other jobs unprocessed."""
    n_unprocessed = len(batch.jobs) - len(found.bounds)
    return BatchResult(
        np.append(found.bounds, np.full(n_unprocessed, NOT_PROCESSED)),
        np.concatenate([found.masks, batch.masks[len(found.bounds) :]]),
        np.append(found.variables, np.full(n_unprocessed, NO_VARIABLE)),
        np.concatenate([found.parts, np.zeros((n_unprocessed, found.parts.shape[1]), dtype=np.uint8)]),
    )


def test_nodes_restore_their_tables_before_they_branch_and_no_entry_is_lost():
    local = agent(7, hard=0.0, max_domain=16)
    state, capacity = DualState(local, triangles=True), 24
    search = BoundarySearch(state, CpuDualBounder(state, capacity * entry_bytes(state.layout.hidden, state.width)))
    search.begin(no_cutoff(local), no_cutoff(local), None)
    restored, unprocessed_with_entry = 0, 0
    for round_index in range(24):
        before = search._frontier.open_nodes
        chosen, batch = search.next_batch(8)
        entries_before = before.entry.copy()
        sizes, sources = np.diff(batch.groups), batch.jobs[batch.groups[:-1], JOB_SOURCE]
        branching = before.variable[chosen] >= 0
        assert sizes.tolist() == np.where(branching, np.where(entries_before[chosen] < 0, 3, 2), 1).tolist()
        stored = branching & (entries_before[chosen] >= 0)
        assert (sources[stored] == entries_before[chosen][stored]).all()
        for first in batch.groups[:-1][sizes == 3]:
            restore, one, other = batch.jobs[first : first + 3]
            assert restore[JOB_SOURCE] == -1 and one[JOB_SOURCE] == other[JOB_SOURCE] == restore[JOB_TARGET]
            assert other[JOB_TARGET] == restore[JOB_TARGET] != one[JOB_TARGET]
            assert (batch.masks[first] == (batch.masks[first + 1] | batch.masks[first + 2])).all()
            restored += 1
        # In every other round, half of the groups stay unprocessed.
        ends = batch.groups[: len(sizes) // (1 + round_index % 2) + 1]
        (found,) = run_batches(
            [(search.bounder, SearchBatch(batch.jobs[: ends[-1]], ends, batch.masks[: ends[-1]]))], NO_DEADLINE
        )
        unprocessed = {(before.row[k], before.mask[k].tobytes()): entries_before[k] for k in chosen[len(ends) - 1 :]}
        search.record(chosen, batch, _completed(found, batch))
        after = search._frontier.open_nodes
        for row, mask, entry in zip(after.row, after.mask, after.entry, strict=True):
            if (row, mask.tobytes()) in unprocessed:
                assert entry == unprocessed[row, mask.tobytes()]
                unprocessed_with_entry += entry >= 0
        held = [entry for entry in after.entry.tolist() if entry >= 0]
        assert sorted([*held, *search._frontier.entries.free]) == list(range(capacity))
    assert restored > 5 and unprocessed_with_entry > 5
    search.end()
    assert all(w >= u for w, u in zip(decoded(state), naive.row_values(local).ravel().tolist(), strict=True))


def test_a_search_without_memory_is_exhausted():
    state = DualState(agent(1), triangles=True)
    search = create_boundary_search(state, 0)
    before = state.bounds.copy()
    run_boundary_searches([BoundarySearchRequest(search, no_cutoff(state.local), no_cutoff(state.local))], batches=3)
    assert search.exhausted and (state.bounds == before).all()


def test_a_past_deadline_leaves_bounds_sound():
    local = agent(3, hard=0.0, max_domain=16)
    state = DualState(local, triangles=True, backend=Backend(threads=2, stop=Deadline(until=0.0)))
    before = state.bounds.copy()
    run_boundary_searches(
        [BoundarySearchRequest(create_boundary_search(state, 1 << 24), no_cutoff(local), no_cutoff(local))], seconds=1.0
    )
    assert (state.bounds <= before).all()
    assert all(w >= u for w, u in zip(decoded(state), naive.row_values(local).ravel().tolist(), strict=True))


def test_a_leaf_has_its_exact_utility_however_its_bound_was_rounded():
    local = agent(4, hard=0.0)
    state = DualState(local, triangles=True)
    n, width = len(local.hidden), int(max(local.domains))
    values = np.array([[1, 0, 1, 0], [0, 1, 0, 1]])
    masks = np.zeros((2, n, width), dtype=np.bool_)
    for job in range(2):
        masks[job, np.arange(n), values[job]] = True
    jobs = np.zeros((2, JOB_FIELDS), dtype=np.int64)
    jobs[:, JOB_ROW] = [0, local.rows - 1]
    inflated = state.bounds[jobs[:, JOB_ROW]] + 1
    parts = np.zeros((2, width), dtype=np.uint8)
    results = BatchResult(inflated, masks, np.array([LEAF, LEAF]), parts)
    exact = with_exact_leaves(local, state.layout.scale, SearchBatch(jobs, np.array([0, 1, 2]), masks), results)
    for job, row in enumerate(jobs[:, JOB_ROW].tolist()):
        digits = np.unravel_index(row, local.interface_shape)
        of = dict(zip(local.interface, digits, strict=True)) | dict(zip(local.hidden, values[job], strict=True))
        utility = sum(float(f.table[tuple(of[v] for v in f.scope)]) for f in local.factors)
        assert state.layout.scale.decode(int(exact.bounds[job])) == utility <= state.layout.scale.ceiling
    branch = results._replace(variables=np.array([0, 1]))
    assert with_exact_leaves(local, state.layout.scale, SearchBatch(jobs, np.array([0, 1, 2]), masks), branch) is branch


@pytest.mark.parametrize("floats", [False, True])
def test_a_leaf_with_a_forbidden_entry_is_infeasible(floats):
    local = agent(4, hard=1.0, floats=floats)
    width = int(max(local.domains))
    masks = np.zeros((1, len(local.hidden), width), dtype=np.bool_)
    masks[0, :, 0] = True
    batch = SearchBatch(np.zeros((1, JOB_FIELDS), dtype=np.int64), np.array([0, 1]), masks)
    results = BatchResult(np.array([7]), masks, np.array([LEAF]), np.zeros((1, width), dtype=np.uint8))
    scale = DualState(agent(4, hard=0.0, floats=floats), triangles=False).layout.scale
    assert with_exact_leaves(local, scale, batch, results).bounds.tolist() == [MINUS_INFINITY]
