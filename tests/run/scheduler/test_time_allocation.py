"""Test how a time slice is divided over proposals, on made-up numbers."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.run.scheduler.improver_statistics import ImproverStatistics
from dmcmc.run.scheduler.proposal import BOUND, EXACT_ELIMINATION, LOCAL_SEARCH, RECOMBINATION, SAMPLING, Proposal
from dmcmc.run.scheduler.time_allocation import SliceBudget, allocate_slice

RATES = ImproverStatistics().expected_rates
IMPROVERS = (EXACT_ELIMINATION, SAMPLING, BOUND)


def agent_proposals(agent, gain, cost=None):
    """Return the proposals for a sampled agent, with its elimination if that has a cost."""
    proposals = [Proposal(SAMPLING, gain, agent), Proposal(BOUND, gain, agent)]
    return proposals if cost is None else [Proposal(EXACT_ELIMINATION, gain, agent, cost), *proposals]


def taken(allocations, improver):
    """Return the seconds of one improver's allocations by agent."""
    return {one.agent: one.seconds for one in allocations if one.improver == improver}


@st.composite
def situations(draw):
    """Draw proposals for some agents on some ranks, and a time budget."""
    n, proposals = draw(st.integers(0, 6)), []
    gains = st.one_of(st.floats(0, 1e6), st.just(math.inf))
    for agent in range(n):
        cost = draw(st.one_of(st.none(), st.floats(1e-4, 100)))
        proposals += [one for one in agent_proposals(agent, draw(gains), cost) if draw(st.booleans())]
    if draw(st.booleans()):
        proposals.append(Proposal(LOCAL_SEARCH, draw(gains)))
    if draw(st.booleans()):
        proposals.append(Proposal(RECOMBINATION, draw(gains), None, draw(st.floats(0, 100))))
    owner = [draw(st.integers(0, 2)) for _ in range(n)]
    left = draw(st.floats(-1, 100))
    return proposals, owner, SliceBudget(draw(st.floats(0.25, 100)), left, draw(st.floats(0, 1)), draw(gains))


@given(situations(), st.randoms())
def test_no_rank_gets_more_than_the_remaining_time_and_the_order_of_proposals_does_not_matter(situation, shuffled):
    proposals, owner, time = situation
    allocations = allocate_slice(proposals, owner, RATES, time)
    search_seconds = sum(one.seconds for one in allocations if one.improver == LOCAL_SEARCH)
    for rank in set(owner):
        rank_seconds = sum(g.seconds for g in allocations if g.agent is not None and owner[g.agent] == rank)
        assert rank_seconds + search_seconds <= max(0.0, time.seconds_left) * (1 + 1e-9)
    assert all(one.seconds >= 0 for one in allocations)
    assert {(g.improver, g.agent) for g in allocations} <= {(o.improver, o.agent) for o in proposals}
    eliminated = taken(allocations, EXACT_ELIMINATION)
    assert not eliminated.keys() & (taken(allocations, SAMPLING).keys() | taken(allocations, BOUND).keys())
    again = list(proposals)
    shuffled.shuffle(again)
    assert allocate_slice(again, owner, RATES, time) == allocations


def test_sampled_agents_are_eliminated_as_soon_as_that_ends_the_run():
    proposals = [one for agent in range(4) for one in agent_proposals(agent, 2.0, 0.6)]
    allocations = allocate_slice(proposals, [0] * 4, RATES, SliceBudget(5.0, 14.0, gap=8.0))
    assert taken(allocations, EXACT_ELIMINATION) == dict.fromkeys(range(4), 0.6) and len(allocations) == 4


def test_ranks_work_at_the_same_time():
    proposals = [one for agent in range(4) for one in agent_proposals(agent, 2.0, 4.0)]
    assert len(allocate_slice(proposals, [0, 1, 2, 3], RATES, SliceBudget(5.0, 6.0, gap=100.0))) == 4
    slow = RATES | {SAMPLING: 0.05, BOUND: 0.1}
    assert (
        len(taken(allocate_slice(proposals, [0] * 4, slow, SliceBudget(5.0, 6.0, gap=100.0)), EXACT_ELIMINATION)) == 1
    )


def test_an_elimination_longer_than_a_slice_is_accepted_alone_if_nothing_gains_more_per_second():
    proposals = agent_proposals(0, 100.0, 3.0)
    allocations = allocate_slice(proposals, [0], RATES, SliceBudget(0.25, 3.5, gap=100.0))  # other work gains more
    assert taken(allocations, EXACT_ELIMINATION) == {}
    low_rates = RATES | {SAMPLING: 0.001, BOUND: 0.001}
    assert taken(allocate_slice(proposals, [0], low_rates, SliceBudget(0.25, 3.5, gap=100.0)), EXACT_ELIMINATION) == {
        0: 3.0
    }
    assert (
        taken(allocate_slice(proposals, [0], low_rates, SliceBudget(0.25, 2.5, gap=100.0)), EXACT_ELIMINATION) == {}
    )  # there is no time for it


def test_work_that_reaches_an_allowed_gap_sooner_goes_first():
    proposals = agent_proposals(0, 100.0, 5.0)
    assert taken(allocate_slice(proposals, [0], RATES, SliceBudget(1.0, 10.0, gap=100.0)), EXACT_ELIMINATION) == {
        0: 5.0
    }
    assert (
        taken(
            allocate_slice(proposals, [0], RATES, SliceBudget(1.0, 10.0, needed_part=0.2, gap=100.0)), EXACT_ELIMINATION
        )
        == {}
    )


def test_a_gap_of_no_agent_is_divided_over_all_agents():
    proposals = [*agent_proposals(0, 0.0), *agent_proposals(1, 0.0)]
    assert len(allocate_slice(proposals, [0, 0], RATES, SliceBudget(1.0, 10.0, gap=5.0))) == 4


def test_time_is_divided_in_proportion_to_the_agents_gaps():
    proposals = [*agent_proposals(0, 30.0), *agent_proposals(1, 10.0), *agent_proposals(2, 0.0)]
    allocations = allocate_slice(proposals, [0] * 3, RATES, SliceBudget(4.0, 100.0, gap=100.0))
    for improver in (SAMPLING, BOUND):
        seconds = taken(allocations, improver)
        assert seconds.keys() == {0, 1} and seconds[0] == pytest.approx(3 * seconds[1])
    assert sum(one.seconds for one in allocations) == pytest.approx(4.0)


def test_unknown_gains_are_replaced_by_weights():
    proposals = [replace(Proposal(SAMPLING, math.inf, agent), weight=float(agent + 1)) for agent in range(2)]
    seconds = taken(allocate_slice(proposals, [0, 0], RATES, SliceBudget(3.0, 100.0, gap=100.0)), SAMPLING)
    assert seconds == {0: pytest.approx(1.0), 1: pytest.approx(2.0)}


def test_the_local_search_gets_all_time_if_there_is_no_other_proposal():
    (allocation,) = allocate_slice([Proposal(LOCAL_SEARCH, 5.0)], [], RATES, SliceBudget(2.0, 100.0, gap=100.0))
    assert (allocation.improver, allocation.seconds) == (LOCAL_SEARCH, 2.0)
    allocations = allocate_slice(
        [Proposal(LOCAL_SEARCH, 5.0), *agent_proposals(0, 5.0)], [0], RATES, SliceBudget(2.0, 100.0, gap=100.0)
    )
    assert 0 < taken(allocations, LOCAL_SEARCH)[None] < 1.0 and sum(g.seconds for g in allocations) == pytest.approx(
        2.0
    )


@pytest.mark.parametrize("gain", [0.0, math.inf])
def test_nothing_is_allocated_without_proposals_gains_or_time(gain):
    assert allocate_slice([], [], RATES, SliceBudget(1.0, 10.0, gap=100.0)) == ()
    assert allocate_slice(agent_proposals(0, 0.0, 1.0), [0], RATES, SliceBudget(1.0, 10.0, gap=0.0)) == ()
    assert allocate_slice(agent_proposals(0, gain, 1.0), [0], RATES, SliceBudget(1.0, 0.0, gap=100.0)) == ()


def test_a_recombination_is_accepted_if_it_gains_most():
    proposals = [*agent_proposals(0, 1.0), Proposal(RECOMBINATION, 50.0, None, 2.0)]
    assert taken(allocate_slice(proposals, [0], RATES, SliceBudget(1.0, 10.0, gap=100.0)), RECOMBINATION) == {None: 2.0}
    assert taken(allocate_slice(proposals, [0], RATES, SliceBudget(1.0, 1.0, gap=100.0)), RECOMBINATION) == {}
    assert (
        taken(
            allocate_slice([replace(o, gain=50.0) for o in proposals], [0], RATES, SliceBudget(1.0, 10.0, gap=100.0)),
            RECOMBINATION,
        )
        == {}
    )
