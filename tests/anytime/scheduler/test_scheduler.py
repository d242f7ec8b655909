"""Test the scheduler's policy on made-up improvers and numbers: what it learns, how it divides time, when it ends."""

import ast
import inspect
import math
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.anytime.improvers import registry
from dmcmc.anytime.scheduler import proposal, scheduler, tuning
from dmcmc.anytime.scheduler import scheduler as credit
from dmcmc.anytime.scheduler.proposal import Allocation, Effect, MeasuredGain, Needs, Properties, Proposal
from dmcmc.anytime.scheduler.scheduler import Scheduler, SchedulingState

PROPERTIES = {
    "exact": Properties(first_part=1.0, gains_at_end=True),
    "chains": Properties(effect=Effect.LOWER_TABLES, minimum_quantum=0.5, first_part=0.25),
    "bounds": Properties(effect=Effect.BOUNDS, first_part=0.65, idle_part=0.02),
    "tree": Properties(effect=Effect.BOUNDS, first_part=0.65, idle_part=0.02),
    "search": Properties(Needs.ALL_RANKS, Effect.ASSIGNMENTS, first_part=0.25, idle_part=0.06),
    "larger": Properties(Needs.ALL_RANKS),
    "gpu": Properties(Needs.GPU, Effect.ASSIGNMENTS, first_part=0.25),
    "engine": Properties(Needs.PROCESS, Effect.ASSIGNMENTS | Effect.BOUNDS),
}
SEARCH = Proposal("search", math.inf)


def started(state=None, owner=(0, 0, 0, 0), **properties):
    """Return a scheduler after its first record, and properties changed by name."""
    made = Scheduler(owner, PROPERTIES | properties)
    made.record(state or SchedulingState(10.0, 90.0, 0.0, 100.0), [])
    return made


def seconds_of(allocations):
    """Return the seconds of all allocations by improver."""
    return {
        improver: sum(one.seconds for one in allocations if one.improver == improver)
        for improver in {one.improver for one in allocations}
    }


def agent_proposals(agent, gain, cost=None):
    """Return the proposals for a sampled agent, with its elimination if that has a cost."""
    proposals = [Proposal("chains", gain, agent), Proposal("bounds", gain, agent)]
    return proposals if cost is None else [Proposal("exact", gain, agent, cost), *proposals]


def test_the_scheduler_names_no_improver_and_has_few_constants():
    for module in (scheduler, credit, proposal, tuning):
        text = inspect.getsource(module)
        strings = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
        assert not strings & set(registry.BUILT_IN), module.__name__
        assert "improver_names" not in text and "dmcmc.anytime.improvers" not in text.split('"""', 2)[2].split('"""')[0]
    constants = [name for name in vars(tuning) if name.isupper()]
    assert len(constants) <= 10
    numbers = [node for node in ast.walk(ast.parse(inspect.getsource(scheduler))) if isinstance(node, ast.Constant)]
    assert {n.value for n in numbers if isinstance(n.value, int | float) and not isinstance(n.value, bool)} <= {
        0,
        1,
        1e-9,
    }


def test_an_improver_that_has_not_been_tried_has_the_part_that_it_declares():
    assert started().expected_parts(["chains", "bounds", "new"]) == {"chains": 0.25, "bounds": 0.65, "new": 0.5}


def test_expected_parts_are_those_of_the_last_slices(monkeypatch):
    monkeypatch.setattr(tuning, "WINDOW_SLICES", 2)
    made = started()
    for slice_number, closed in enumerate((50.0, 20.0, 10.0)):
        gap = 100.0 * (1 - 0.1 * slice_number)
        made.record(SchedulingState(10.0, 90.0, 0.0, gap), [])
        state = SchedulingState(14.0, 86.0, 0.0, gap - closed)
        made.record(state, [MeasuredGain("bounds", 4.0, closed_gap=closed)])
    assert made.expected_parts(["bounds"])["bounds"] == pytest.approx((20 / 90 + 10 / 80) / 2)


def test_an_improver_without_gains_is_tried_ever_less_often_while_others_gain():
    made, parts = started(), []
    for number in range(1, 21):
        made.record(SchedulingState(10.0 + number, 80.0, 0.0, 100.0), [])
        gains = [MeasuredGain("chains", 1.0), MeasuredGain("bounds", 1.0, closed_gap=5.0)]
        made.record(SchedulingState(12.0 + number, 78.0, 0.0, 95.0), gains)
        parts.append(made.expected_parts(["chains", "bounds"]))
    assert all(part["bounds"] == pytest.approx(0.1) for part in parts)
    assert [part["chains"] for part in parts[1:]] == pytest.approx([tuning.EXPLORATION * 0.1 / n for n in range(2, 21)])
    for _ in range(2):  # now nothing gains
        made.record(SchedulingState(50.0, 50.0, 0.0, 95.0), [MeasuredGain("bounds", 1.0)])
    assert made.expected_parts(["chains", "bounds"]) == {"chains": 0.04, "bounds": 0.02}


def test_work_that_gains_at_its_end_keeps_its_part():
    made = started()
    made.record(SchedulingState(20.0, 80.0, 0.0, 100.0), [MeasuredGain("exact", 10.0)])
    assert made.expected_parts(["exact"]) == {"exact": 1.0}


@pytest.mark.parametrize(("gain", "part"), [(0.0, 0.05 * 0.65), (10.0, 0.1), (90.0, 0.9)])
def test_a_search_is_judged_by_its_gains_before_the_gap_was_known(gain, part):
    made = Scheduler([0], PROPERTIES)
    gains = [MeasuredGain("chains", 1.0), MeasuredGain("search", 1.0, objective_gain=gain)]
    made.record(SchedulingState(1.0, 9.0, 100.0, 200.0), gains)
    parts = made.expected_parts(["bounds", "search", "chains"])
    assert parts == {"bounds": 0.65, "chains": 0.25, "search": pytest.approx(part)}


def test_without_a_feasible_assignment_all_work_gets_equal_time():
    made = started(SchedulingState(1.0, 9.0, None, 10.0))
    allocations = made.decide([Proposal("chains", math.inf, 0), Proposal("bounds", math.inf, 0), SEARCH])
    assert seconds_of(allocations) == {k: pytest.approx(1 / 3) for k in ("chains", "bounds", "search")}


def test_a_gain_in_little_time_is_not_extrapolated_without_limit():
    made = started()
    gains = [MeasuredGain("tree", 0.001, closed_gap=1.0), MeasuredGain("bounds", 10.0)]
    made.record(SchedulingState(20.0, 80.0, 0.0, 99.0), gains)
    assert made.expected_parts(["tree"])["tree"] == pytest.approx(0.01 / tuning.MIN_SHARE)


def test_slices_grow_and_fill_the_time_to_its_end():
    made, now, seconds, total = Scheduler([0], PROPERTIES), 0.1, [], 20.0
    while True:
        made.record(
            SchedulingState(now, total - now, 0.0, 10.0), [MeasuredGain("chains", seconds[-1])] if seconds else []
        )
        allocations = made.decide([Proposal("chains", 10.0, 0), Proposal("bounds", 10.0, 0), SEARCH])
        if not allocations:
            break
        seconds.append(sum(one.seconds for one in allocations))
        now += seconds[-1]
    assert sum(seconds) == pytest.approx(19.9) and 4 <= len(seconds) <= 8 and seconds[0] == pytest.approx(0.25)
    assert all(shorter <= longer * (1 + 1e-9) for shorter, longer in pairwise(seconds[:-1]))


@pytest.mark.parametrize(
    ("closed_part", "options", "seconds"),
    [(0.1, {"resumable": True}, 2.0), (0.0, {"resumable": True}, 10.0), (0.1, {}, 10.0), (0.0, {"awaited": True}, 0.5)],
)
def test_slices_are_short_while_resumable_work_gains_or_other_work_waits(closed_part, options, seconds):
    made = started(SchedulingState(8.0, 12.0, 0.0, 10.0))
    made.record(SchedulingState(10.0, 10.0, 0.0, 10 - closed_part), [MeasuredGain("tree", 2.0, closed_gap=closed_part)])
    allocations = made.decide([Proposal("tree", 10.0, 0, **options), Proposal("bounds", 10.0, 0)])
    assert sum(one.seconds for one in allocations) == pytest.approx(seconds)


@pytest.mark.parametrize(("tree", "bounds", "kept"), [(0.5, 0.1, "tree"), (0.1, 0.5, "bounds")])
def test_of_two_improvers_that_exclude_each_other_the_one_that_gains_more_works(tree, bounds, kept):
    made = started()
    gains = [MeasuredGain("tree", 5.0, closed_gap=tree), MeasuredGain("bounds", 5.0, closed_gap=bounds)]
    made.record(SchedulingState(20.0, 80.0, 0.0, 100.0 - tree - bounds), gains)
    both = [Proposal("tree", 9.0, 0, excludes=("bounds",)), Proposal("bounds", 9.0, 0)]
    assert set(seconds_of(made.decide(both))) == {kept}
    other_agent = Proposal("bounds" if kept == "tree" else "tree", 9.0, 1)
    assert (other_agent.improver, 1) in {(one.improver, one.agent) for one in made.decide([*both, other_agent])}


def test_a_process_goes_on_during_other_work_and_is_waited_for_if_there_is_none():
    made, engine = started(), Proposal("engine", math.inf)
    assert made.decide([engine, Proposal("bounds", 9.0, 0)])[-1] == Allocation("engine", None, 0.0)
    assert made.decide([engine]) == (Allocation("engine", None, 90.0),)


def test_the_part_of_the_gpu_follows_the_expected_gain():
    parts = []
    for first_part in (0.25, 0.05):
        made = started(gpu=Properties(Needs.GPU, Effect.ASSIGNMENTS, first_part=first_part))
        seconds = seconds_of(made.decide([Proposal("bounds", 30.0, 0), SEARCH, Proposal("gpu", math.inf)]))
        assert seconds["bounds"] + seconds["search"] == pytest.approx(10.0)
        parts.append(seconds["gpu"])
    assert 0 < parts[1] < parts[0] < 10.0
    assert seconds_of(made.decide([SEARCH, Proposal("gpu", math.inf)]))["gpu"] == 10.0


def test_the_last_agents_are_eliminated_if_that_ends_the_run_even_if_estimates_were_too_low():
    made = Scheduler([0] * 4, PROPERTIES)
    made.record(SchedulingState(5.0, 14.9, 90.0, 98.0), [MeasuredGain("exact", 4.6, 4.6)])
    proposals = [one for agent in range(4) for one in agent_proposals(agent, 2.0, 0.6)]
    assert [one.improver for one in made.decide(proposals)] == ["exact"] * 4
    made.record(SchedulingState(6.2, 13.7, 90.0, 96.0), [MeasuredGain("exact", 1.2, 0.6, 2.0)])
    assert [one.improver for one in made.decide(proposals[3:])] == ["exact"] * 3


def test_an_elimination_competes_with_the_joint_gain_of_open_ended_work():
    made = started(SchedulingState(10.0, 100.0, 0.0, 100.0), bounds=Properties(first_part=0.2))
    accepted = {
        cost: "exact" in seconds_of(made.decide([Proposal("bounds", 100.0, 0), Proposal("exact", 100.0, 0, cost)]))
        for cost in (15.0, 90.0)
    }
    assert accepted == {15.0: True, 90.0: False}


def test_work_that_reaches_an_allowed_gap_sooner_goes_first():
    proposals = agent_proposals(0, 100.0, 5.0)
    for allowed, expected in ((0.0, {"exact"}), (80.0, {"chains", "bounds"})):
        made = started(SchedulingState(1.0, 10.0, 0.0, 100.0, allowed))
        assert set(seconds_of(made.decide(proposals))) == expected


def test_ranks_work_at_the_same_time():
    proposals = [one for agent in range(4) for one in agent_proposals(agent, 25.0, 4.0)]
    slow = {name: replace(PROPERTIES[name], first_part=0.05) for name in ("chains", "bounds")}
    state = SchedulingState(5.0, 6.0, 0.0, 100.0)
    assert len(started(state, (0, 1, 2, 3)).decide(proposals)) == 4
    assert [one.improver for one in started(state, **slow).decide(proposals)].count("exact") == 1


def test_time_is_divided_in_proportion_to_the_agents_gaps():
    proposals = [*agent_proposals(0, 30.0), *agent_proposals(1, 10.0), *agent_proposals(2, 0.0)]
    allocations = started(SchedulingState(4.0, 100.0, 0.0, 100.0)).decide(proposals)
    for improver in ("chains", "bounds"):
        seconds = {one.agent: one.seconds for one in allocations if one.improver == improver}
        assert seconds.keys() == {0, 1} and seconds[0] == pytest.approx(3 * seconds[1])
    assert sum(one.seconds for one in allocations) == pytest.approx(4.0)


def test_unknown_gains_and_a_gap_of_no_agent_are_divided_by_weights():
    proposals = [Proposal("chains", math.inf, agent, weight=float(agent + 1)) for agent in range(2)]
    seconds = {one.agent: one.seconds for one in started(SchedulingState(3.0, 97.0, 0.0, 100.0)).decide(proposals)}
    assert seconds == {0: pytest.approx(1.0), 1: pytest.approx(2.0)}
    assert len(started().decide([*agent_proposals(0, 0.0), *agent_proposals(1, 0.0)])) == 4


def test_work_on_the_whole_problem_that_several_ranks_propose_is_done_once():
    made = started(owner=(0, 1))
    allocations = made.decide([SEARCH, SEARCH, Proposal("bounds", 9.0, 0), Proposal("bounds", 9.0, 1)])
    assert [one.improver for one in allocations].count("search") == 1


@pytest.mark.parametrize(("explained", "lag", "accepted"), [(1.0, 0.0, True), (90.0, 0.0, False), (1.0, 5.0, False)])
def test_a_larger_combination_gains_what_no_agent_explains_unless_the_last_one_lags_behind(explained, lag, accepted):
    made = started(SchedulingState(1.0, 9.0, 0.0, 100.0, lag=lag))
    allocations = made.decide([*agent_proposals(0, explained), Proposal("larger", math.inf, None, 2.0)])
    assert (allocations == (Allocation("larger", None, 2.0),)) == accepted


def test_short_quanta_of_work_that_starts_anew_are_saved_up():
    made, quanta = started(SchedulingState(1.0, 99.0, 0.0, 100.0)), []
    gains = [MeasuredGain("chains", 0.1, closed_gap=0.05), MeasuredGain("bounds", 0.9, closed_gap=9.0)]
    for _ in range(9):
        made.record(SchedulingState(1.0, 99.0, 0.0, 100.0), [])
        made.record(SchedulingState(2.0, 98.0, 0.0, 90.0), gains)
        seconds = seconds_of(made.decide(agent_proposals(0, 90.0)))
        quanta.append(seconds.get("chains", 0.0))
        assert sum(seconds.values()) == pytest.approx(2.0)
    assert quanta[:3] == [0.0, 0.0, quanta[2]] and quanta == pytest.approx(3 * quanta[:3])
    assert quanta[2] > 0.75 * tuning.MIN_SHARE * 2.0


def test_a_lone_search_runs_longer_with_an_open_gap():
    made = started(SchedulingState(2.0, 998.0, 5.0, 9.0))
    made.record(SchedulingState(60.0, 940.0, 5.0, 9.0), [])
    (allocation,) = made.decide([SEARCH])
    assert allocation.seconds == pytest.approx(60.0) and not made.converged
    made.record(SchedulingState(300.0, 700.0, 5.0, 9.0), [])
    assert made.decide([SEARCH]) == () and made.converged


def test_a_lone_search_without_bound_runs_ten_times_as_long_as_the_incumbent_took():
    made = started(SchedulingState(0.1, 1000.0, 5.0))
    made.record(SchedulingState(4.0, 996.0, 7.0), [])
    made.record(SchedulingState(30.0, 970.0, 7.0), [])
    (allocation,) = made.decide([SEARCH])
    assert allocation.seconds == pytest.approx(14.0)
    made.record(SchedulingState(44.0, 956.0, 7.0), [])
    assert made.decide([SEARCH]) == () and made.converged
    endless = started(SchedulingState(500.0, 500.0, None))  # an infeasible run continues
    assert endless.decide([SEARCH]) and not endless.converged


@st.composite
def situations(draw):
    """Draw proposals for some agents on some ranks, and a state."""
    n, proposals = draw(st.integers(0, 6)), []
    gains = st.one_of(st.floats(0, 1e6), st.just(math.inf))
    for agent in range(n):
        cost = draw(st.one_of(st.none(), st.floats(1e-4, 100)))
        proposals += [one for one in agent_proposals(agent, draw(gains), cost) if draw(st.booleans())]
    if draw(st.booleans()):
        proposals.append(Proposal("search", draw(gains)))
    if draw(st.booleans()):
        proposals.append(Proposal("larger", draw(gains), None, draw(st.floats(0, 100))))
    owner = [draw(st.integers(0, 2)) for _ in range(n)]
    bound = draw(st.one_of(st.none(), st.floats(0, 1e6)))
    return proposals, owner, SchedulingState(draw(st.floats(0, 100)), draw(st.floats(-1, 100)), 0.0, bound)


@given(situations(), st.randoms())
def test_no_rank_gets_more_than_the_remaining_time_and_the_order_of_proposals_does_not_matter(situation, shuffled):
    proposals, owner, state = situation
    allocations = started(state, owner).decide(proposals)
    search_seconds = seconds_of(allocations).get("search", 0.0)
    for rank in set(owner):
        rank_seconds = sum(a.seconds for a in allocations if a.agent is not None and owner[a.agent] == rank)
        # relative rounding errors, and those of numbers too small to be normal
        assert rank_seconds + search_seconds <= max(0.0, state.left) * (1 + 1e-9) + sys.float_info.min
    assert all(one.seconds >= 0 for one in allocations)
    assert {(a.improver, a.agent) for a in allocations} <= {(p.improver, p.agent) for p in proposals}
    eliminated = {a.agent for a in allocations if a.improver == "exact"}
    assert not eliminated & {a.agent for a in allocations if a.improver in ("chains", "bounds")}
    again = list(proposals)
    shuffled.shuffle(again)
    found = started(state, owner).decide(again)
    assert {a[:2]: pytest.approx(a.seconds) for a in found} == {a[:2]: a.seconds for a in allocations}
