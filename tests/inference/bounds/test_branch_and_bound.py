"""Search in rows: its bounds are sound, close what cannot reach a threshold, and end with what rows are worth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.branch_and_bound import frontier
from dmcmc.inference.bounds.branch_and_bound import row_search as branching
from dmcmc.inference.bounds.branch_and_bound.engine import CpuEngine, run_waves
from dmcmc.inference.bounds.branch_and_bound.node_buffers import (
    JOB_SOURCE,
    JOB_TARGET,
    STUCK,
    UNDONE,
    Found,
    Wave,
    slot_bytes,
)
from dmcmc.inference.bounds.branch_and_bound.row_search import Request, RowSearch, search_rows
from dmcmc.inference.bounds.branch_and_bound_rows import row_search
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import NO_STOP, Stop

PAIRS = [(0, 1), (0, 2), (1, 2), (2, 3), (1, 3), (3, 4), (0, 4), (2, 4), (1, 4)]


def agent(seed, hard=0.2, magnitude=99, floats=False, star=False, most=12):
    """An agent with an interface variable, five variables in all."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(2, most, 5)
    scopes = [*PAIRS, (2,), *[(0, 2, 3)] * star]
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), magnitude, hard, floats=floats)) for s in scopes]
    return LocalProblem(0, (4,), (0, 1, 2, 3), tuple(factors), domains.astype(np.int64))


def decoded(state):
    return [state.layout.scale.decode(int(bound)) for bound in state.bounds]


def nothing(local):
    return np.full(local.rows, -math.inf)


def test_what_is_closed_when_its_tables_come_back_closes_its_branches():
    for seed in range(40):
        local = agent(seed, 0.3, floats=True)
        worth = np.array(naive.row_values(local).ravel().tolist())
        state = DualState(local, triangles=True)
        work = RowSearch(state, CpuEngine(state, 4 * slot_bytes(state.layout.hidden, state.width)))
        for low in (-math.inf, -9.0, -1.0):
            search_rows([Request(work, worth + low, worth + low)], waves=8)
            assert (np.array(decoded(state)) >= worth - 1e-9).all()


@settings(max_examples=25)
@given(st.integers(0, 9999), st.sampled_from([0.0, 0.3, 0.6]), st.booleans(), st.booleans(), st.data())
def test_bounds_are_sound_at_any_time_and_closed_rows_stay_below_their_thresholds(seed, hard, floats, star, data):
    local = agent(seed, hard, floats=floats, star=star)
    worth = naive.row_values(local).ravel().tolist()
    state = DualState(local, triangles=True)
    slots = data.draw(st.integers(3, 20))
    work = RowSearch(state, CpuEngine(state, slots * slot_bytes(state.layout.hidden, state.width)))
    thresholds = np.array([data.draw(st.sampled_from([-math.inf, *[u + k for k in (-9, 0, 1, 9)]])) for u in worth])
    for waves in (1, 1, 2, 8):
        search_rows([Request(work, thresholds, thresholds)], waves=waves)
        for bound, value, threshold in zip(decoded(state), worth, thresholds, strict=True):
            assert bound >= value - 1e-9 or (floats and value < threshold)


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_rows_end_with_what_they_are_worth(seed, star):
    local = agent(seed, star=star)
    state = DualState(local, triangles=True)
    work = row_search(state, 1 << 24)
    search_rows([Request(work, nothing(local), nothing(local))], waves=400)
    assert work.exhausted
    assert naive.same_numbers(np.array(decoded(state)), naive.row_values(local).ravel())


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize("hard", [0.0, 0.3])
def test_rows_that_are_closed_leave_an_assignment_that_is_worth_as_much(hard, star):
    """As long as one is asked for only once: what has been told is not told again."""
    local = agent(3, hard, star=star)
    work, worth = row_search(DualState(local, triangles=True), 1 << 24), naive.row_values(local).ravel().tolist()
    told: dict[int, float] = {}
    for _ in range(400):
        search_rows([Request(work, nothing(local), nothing(local))], waves=1)
        for row, values in zip(*(work.leaves() or ((), ())), strict=True):
            here = naive.attained(local, [*values.tolist(), int(row)])
            assert here > told.get(int(row), -math.inf)
            told[int(row)] = here
    assert work.exhausted and work.leaves() is None
    assert {row: value for row, value in enumerate(worth) if value > -math.inf} == told


@pytest.mark.parametrize("most", [1 << 17, 4])
def test_agents_share_waves_and_nodes_go_depth_first_where_many_are_open(monkeypatch, most):
    monkeypatch.setattr(frontier, "MOST_NODES", most)
    locals_ = [agent(seed) for seed in (5, 6)]
    states = [DualState(local, triangles=True) for local in locals_]
    searches = [row_search(state, 1 << 24) for state in states]
    search_rows(
        [Request(one, nothing(local), nothing(local)) for one, local in zip(searches, locals_, strict=True)], waves=400
    )
    assert all(one.exhausted and one.earning is not None for one in searches)
    for state, local in zip(states, locals_, strict=True):
        assert naive.same_numbers(np.array(decoded(state)), naive.row_values(local).ravel())


def test_who_earns_more_for_a_node_has_more_nodes():
    searches = [row_search(DualState(agent(seed), triangles=True), 1 << 24) for seed in (1, 2, 3)]
    assert branching._division(searches) == [21, 21, 21]
    for one, gained in zip(searches, (6.0, 0.0), strict=False):
        one._gained, one._worked = gained, 2.0
    first, second, third = branching._division(searches)
    assert first > third > second > 1 and first + second + third <= searches[0].engine.width


def test_a_row_that_cannot_be_better_is_left_with_what_it_is_worth():
    local = agent(5, hard=0.0)
    worth = naive.row_values(local).ravel().astype(np.int64)
    state = DualState(local, triangles=True)
    work = row_search(state, 1 << 24)
    search_rows([Request(work, worth + 1, worth)], waves=400)
    assert work.exhausted and decoded(state) == worth.tolist()


def test_threads_and_slots_that_are_few_change_nothing_that_is_proven():
    local = agent(7, hard=0.0, most=16)
    states = [DualState(local, triangles=True, backend=Backend(threads=threads)) for threads in (1, 2, 2)]
    room = [400, 400, 3]
    for state, slots in zip(states, room, strict=True):
        engine = CpuEngine(state, slots * slot_bytes(state.layout.hidden, state.width))
        search_rows([Request(RowSearch(state, engine), nothing(local), nothing(local))], waves=3)
        assert engine.slots == slots
    assert states[0].bounds.tolist() == states[1].bounds.tolist()
    assert all(w >= u for w, u in zip(decoded(states[2]), naive.row_values(local).ravel().tolist(), strict=True))


def _completed(found, wave):
    """What is found of the first jobs of a wave whose others are left undone."""
    rest = len(wave.jobs) - len(found.bounds)
    return Found(
        np.append(found.bounds, np.full(rest, UNDONE)),
        np.concatenate([found.masks, wave.masks[len(found.bounds) :]]),
        np.append(found.variables, np.full(rest, STUCK)),
        np.concatenate([found.firsts, np.zeros((rest, found.firsts.shape[1]), dtype=np.bool_)]),
    )


def test_nodes_without_tables_have_them_back_before_they_branch_and_no_slot_is_lost():
    local = agent(7, hard=0.0, most=16)
    state, slots = DualState(local, triangles=True), 24
    work = RowSearch(state, CpuEngine(state, slots * slot_bytes(state.layout.hidden, state.width)))
    work.begin(nothing(local), nothing(local), None)
    begun, kept = 0, 0
    for turn in range(24):
        before = work._tree._open
        chosen, wave = work.wave(8)
        own = before.slot.copy()
        sizes, sources = np.diff(wave.groups), wave.jobs[wave.groups[:-1], JOB_SOURCE]
        branching = before.variable[chosen] >= 0
        assert sizes.tolist() == np.where(branching, np.where(own[chosen] < 0, 3, 2), 1).tolist()
        assert (sources[branching & (own[chosen] >= 0)] == own[chosen][branching & (own[chosen] >= 0)]).all()
        for first in wave.groups[:-1][sizes == 3]:
            back, one, other = wave.jobs[first : first + 3]
            assert back[JOB_SOURCE] == -1 and one[JOB_SOURCE] == other[JOB_SOURCE] == back[JOB_TARGET]
            assert other[JOB_TARGET] == back[JOB_TARGET] != one[JOB_TARGET]
            assert (wave.masks[first] == (wave.masks[first + 1] | wave.masks[first + 2])).all()
            begun += 1
        ends = wave.groups[: len(sizes) // (1 + turn % 2) + 1]  # every other time the rest is left undone
        (found,) = run_waves([(work.engine, Wave(wave.jobs[: ends[-1]], ends, wave.masks[: ends[-1]]))], NO_STOP)
        undone = {(before.row[k], before.mask[k].tobytes()): own[k] for k in chosen[len(ends) - 1 :]}
        work.take(chosen, wave, _completed(found, wave))
        for row, mask, slot in zip(work._tree._open.row, work._tree._open.mask, work._tree._open.slot, strict=True):
            if (row, mask.tobytes()) in undone:
                assert slot == undone[row, mask.tobytes()]
                kept += slot >= 0
        held = [slot for slot in work._tree._open.slot.tolist() if slot >= 0]
        assert sorted([*held, *work._tree._free]) == list(range(slots))
    assert begun > 5 and kept > 5
    work.end()
    assert all(w >= u for w, u in zip(decoded(state), naive.row_values(local).ravel().tolist(), strict=True))


def test_a_search_without_room_has_nothing_to_do():
    state = DualState(agent(1), triangles=True)
    work = row_search(state, 0)
    before = state.bounds.copy()
    search_rows([Request(work, nothing(state.local), nothing(state.local))], waves=3)
    assert work.exhausted and (state.bounds == before).all()


def test_time_that_is_over_leaves_bounds_as_they_are_or_better(monkeypatch):
    monkeypatch.setattr(branching, "SWEEPS", 2)
    local = agent(3, hard=0.0, most=16)
    state = DualState(local, triangles=True, backend=Backend(threads=2, stop=Stop(until=0.0)))
    before = state.bounds.copy()
    search_rows([Request(row_search(state, 1 << 24), nothing(local), nothing(local))], seconds=1.0)
    assert (state.bounds <= before).all()
    assert all(w >= u for w, u in zip(decoded(state), naive.row_values(local).ravel().tolist(), strict=True))
