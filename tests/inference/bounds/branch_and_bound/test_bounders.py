"""Properties of every bounder and of the search: sound at every node, monotone, exact at the end, in any memory."""

from typing import NamedTuple

import numpy as np
import pytest
from support import naive
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.row_searches import relaxation_of, start_searches, tasks_of

from dmcmc.inference.bounds.branch_and_bound.bounder import (
    JOB_ROW,
    LEAF,
    NOT_PROCESSED,
    OUT_OF_RANGE,
    UNFINISHED,
    run_batches,
)
from dmcmc.inference.bounds.branch_and_bound.dual_bounder import CpuDualBounder, entry_bytes
from dmcmc.inference.bounds.branch_and_bound.open_nodes import node_bytes
from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearch,
    BoundarySearchRequest,
    run_boundary_searches,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.mini_bucket_bounder import MiniBucketBounder
from dmcmc.inference.bounds.semidefinite.agent_buffers import CpuArrays
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.runtime.deadline import NO_DEADLINE

INFINITY = float("inf")


class Case(NamedTuple):
    """A search with a bounder, and the state whose bounds it lowers."""

    local: LocalProblem
    state: DualState
    search: BoundarySearch


def dual(local, capacity, memory_limit=None):
    """Return a search with dual ascent at the nodes."""
    state = DualState(local, triangles=True)
    bounder = CpuDualBounder(state, capacity * entry_bytes(state.layout.hidden, state.width))
    return Case(local, state, BoundarySearch(state, bounder, memory_limit=memory_limit))


def semidefinite(local, capacity, memory_limit=None):
    """Return a search with semidefinite bounds at the nodes, by the compiled kernels of the CPU."""
    relaxation = relaxation_of(local)
    start_searches(tasks_of([relaxation]), capacity, memory_limit=memory_limit, arrays=CpuArrays())
    return Case(local, relaxation.state, relaxation.per_row.search)


def mini_bucket(local, capacity, memory_limit=None):
    """Return a search with mini-bucket messages; a small capacity leaves space for few variables in a message."""
    state = DualState(local, triangles=True)
    bounder = MiniBucketBounder(state, 1 << 20 if capacity > 100 else 1 << 10)
    return Case(local, state, BoundarySearch(state, bounder, memory_limit=memory_limit))


BOUNDERS = pytest.mark.parametrize("bounder", [dual, semidefinite, mini_bucket])


def small(hard=0.0, seed=2):
    return dense_agent(seed, hidden=3, max_domain=4, interface=1, hard=hard, density=1.0)


def utilities_of(local):
    """Return the utilities of all assignments, (rows, values of each hidden variable)."""
    tables = [(factor.scope, naive.utilities(factor.table)) for factor in local.factors]
    dense = naive.join(tables, [*local.interface, *local.hidden], local.domains)
    return dense.reshape(local.rows, *(int(local.domains[v]) for v in local.hidden))


def best_within(utilities, mask):
    """Return the largest utility of the assignments with allowed values only; minus infinity if there is none."""
    values = [np.flatnonzero(allowed) for allowed in mask]
    return max(utilities[np.ix_(*values)].ravel().tolist(), default=-INFINITY)


def open_nodes(search):
    """Return the row, mask and bound of each open node."""
    nodes = search._frontier.open_nodes
    return list(zip(nodes.row.tolist(), nodes.masks(len(search.bounder.allowed)), nodes.bound.tolist(), strict=True))


def rounds(case, nodes=8):
    """Yield the batch, the results and the frontier's bounds of each round of a search without cutoffs."""
    cutoffs, search = np.full(case.local.rows, -INFINITY), case.search
    search.begin(cutoffs, cutoffs, None)
    for _ in range(400):
        if search.exhausted:
            break
        chosen, batch = search.next_batch(nodes)
        (results,) = run_batches([(search.bounder, batch)], NO_DEADLINE)
        search.record(chosen, batch, results)
        yield batch, results, search._frontier.bounds()[1]
    search.end()


@BOUNDERS
@pytest.mark.parametrize("hard", [0.0, 0.2])
@pytest.mark.parametrize("capacity", [8, 200])
def test_every_bounder_is_sound_at_every_node(bounder, hard, capacity):
    case, scale, leaves = bounder(small(hard), capacity), None, 0
    all_utilities = utilities_of(case.local)
    for batch, results, _ in rounds(case):
        scale = case.search.bounder.scale
        for job, mask, bound, remaining, variable, parts in zip(batch.jobs, batch.masks, *results, strict=True):
            utilities = all_utilities[job[JOB_ROW]]
            best = best_within(utilities, mask)
            assert bound != NOT_PROCESSED
            assert bound == OUT_OF_RANGE or scale.decode(int(bound)) >= best
            assert not (remaining & ~mask).any()
            if variable >= 0:
                assert best_within(utilities, remaining) == best  # without a cutoff, only infeasible values are removed
                numbers = parts[remaining[variable]]
                assert sorted(set(numbers.tolist())) == list(range(int(numbers.max()) + 1))
                assert 2 <= numbers.max() + 1 <= case.search.bounder.max_branches
            elif variable == LEAF:
                leaves += 1
                assert (remaining.sum(axis=1) == 1).all()
                assert scale.decode(int(bound)) == best_within(utilities, remaining) == best
            else:
                assert variable == UNFINISHED or bound in (MINUS_INFINITY, OUT_OF_RANGE) or bound < job[3]
    assert leaves and scale is not None


@BOUNDERS
def test_the_bounds_of_the_frontier_never_rise_and_branches_lie_below_their_nodes(bounder):
    case, before, ceilings = bounder(small(), 200), None, []
    for _, _, bounds in rounds(case):
        assert before is None or (bounds <= before).all()
        before = bounds
        nodes = open_nodes(case.search)
        for row, mask, bound in nodes:
            for other_row, other, ceiling in ceilings:
                if row == other_row and not (mask & ~other).any():
                    assert bound <= ceiling
        ceilings = nodes


@BOUNDERS
@pytest.mark.parametrize("hard", [0.0, 0.2])
@pytest.mark.parametrize(("capacity", "fits"), [(200, True), (8, True), (200, False)])
def test_a_memory_limit_changes_no_bound_of_a_search_that_ends(bounder, hard, capacity, fits):
    local = small(hard, seed=4)
    allowed = bounder(local, capacity).search.bounder.allowed
    case = bounder(local, capacity, None if fits else local.rows * node_bytes(*allowed.shape))
    assert case.search._frontier.max_open == local.rows or fits
    for _ in rounds(case):
        pass
    assert case.search.exhausted and case.search.all_branched
    found = np.array([case.search.bounder.scale.decode(int(bound)) for bound in case.state.bounds])
    assert naive.same_numbers(found, naive.row_values(local).ravel())
    rows, hidden = case.search.leaves()
    for row, values in zip(rows.tolist(), hidden, strict=True):
        assert utilities_of(local)[(row, *values)] == naive.row_values(local).ravel()[row]


@BOUNDERS
def test_agents_share_batches(bounder):
    cases = [bounder(small(seed=seed), 200) for seed in (2, 4)]
    cutoffs = [np.full(case.local.rows, -INFINITY) for case in cases]
    requests = [BoundarySearchRequest(case.search, own, own) for case, own in zip(cases, cutoffs, strict=True)]
    run_boundary_searches(requests, batches=400)
    assert all(case.search.exhausted for case in cases)
    for case in cases:
        found = np.array([case.search.bounder.scale.decode(int(bound)) for bound in case.state.bounds])
        assert naive.same_numbers(found, naive.row_values(case.local).ravel())
