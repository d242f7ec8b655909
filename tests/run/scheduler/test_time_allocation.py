"""How a slice of time is divided among offers: on made-up numbers."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.run.scheduler.improver_statistics import Ledger
from dmcmc.run.scheduler.proposal import BOUND, COMBINE, ELIMINATE, SAMPLE, SEARCH, Offer
from dmcmc.run.scheduler.time_allocation import Time, divide_slice

HOPES = Ledger().hopes
KINDS = (ELIMINATE, SAMPLE, BOUND)


def agent_offers(agent, gain, price=None):
    """What a sampled agent offers; its elimination if that has a price."""
    offers = [Offer(SAMPLE, gain, agent), Offer(BOUND, gain, agent)]
    return offers if price is None else [Offer(ELIMINATE, gain, agent, price), *offers]


def taken(grants, kind):
    return {grant.agent: grant.seconds for grant in grants if grant.kind == kind}


@st.composite
def situations(draw):
    """Any offers of some agents on some ranks, and any time."""
    n, offers = draw(st.integers(0, 6)), []
    gains = st.one_of(st.floats(0, 1e6), st.just(math.inf))
    for agent in range(n):
        price = draw(st.one_of(st.none(), st.floats(1e-4, 100)))
        offers += [offer for offer in agent_offers(agent, draw(gains), price) if draw(st.booleans())]
    if draw(st.booleans()):
        offers.append(Offer(SEARCH, draw(gains)))
    if draw(st.booleans()):
        offers.append(Offer(COMBINE, draw(gains), None, draw(st.floats(0, 100))))
    owner = [draw(st.integers(0, 2)) for _ in range(n)]
    left = draw(st.floats(-1, 100))
    return offers, owner, Time(draw(st.floats(0.25, 100)), left, draw(st.floats(0, 1)), draw(gains))


@given(situations(), st.randoms())
def test_no_rank_is_given_more_than_is_left_and_the_order_of_offers_does_not_matter(situation, shuffled):
    offers, owner, time = situation
    grants = divide_slice(offers, owner, HOPES, time)
    together = sum(grant.seconds for grant in grants if grant.kind == SEARCH)
    for rank in set(owner):
        own = sum(g.seconds for g in grants if g.agent is not None and owner[g.agent] == rank)
        assert own + together <= max(0.0, time.left) * (1 + 1e-9)
    assert all(grant.seconds >= 0 for grant in grants)
    assert {(g.kind, g.agent) for g in grants} <= {(o.kind, o.agent) for o in offers}
    eliminated = taken(grants, ELIMINATE)
    assert not eliminated.keys() & (taken(grants, SAMPLE).keys() | taken(grants, BOUND).keys())
    again = list(offers)
    shuffled.shuffle(again)
    assert divide_slice(again, owner, HOPES, time) == grants


def test_agents_left_to_sampling_are_eliminated_as_soon_as_that_ends_the_run():
    offers = [offer for agent in range(4) for offer in agent_offers(agent, 2.0, 0.6)]
    grants = divide_slice(offers, [0] * 4, HOPES, Time(5.0, 14.0, gap=8.0))
    assert taken(grants, ELIMINATE) == dict.fromkeys(range(4), 0.6) and len(grants) == 4


def test_ranks_work_at_the_same_time():
    offers = [offer for agent in range(4) for offer in agent_offers(agent, 2.0, 4.0)]
    assert len(divide_slice(offers, [0, 1, 2, 3], HOPES, Time(5.0, 6.0, gap=100.0))) == 4
    slow = HOPES | {SAMPLE: 0.05, BOUND: 0.1}
    assert len(taken(divide_slice(offers, [0] * 4, slow, Time(5.0, 6.0, gap=100.0)), ELIMINATE)) == 1


def test_an_elimination_longer_than_a_slice_is_taken_alone_where_nothing_gains_more_a_second():
    long = agent_offers(0, 100.0, 3.0)
    grants = divide_slice(long, [0], HOPES, Time(0.25, 3.5, gap=100.0))  # not the whole of what is left
    assert taken(grants, ELIMINATE) == {}
    stuck = HOPES | {SAMPLE: 0.001, BOUND: 0.001}
    assert taken(divide_slice(long, [0], stuck, Time(0.25, 3.5, gap=100.0)), ELIMINATE) == {0: 3.0}
    assert (
        taken(divide_slice(long, [0], stuck, Time(0.25, 2.5, gap=100.0)), ELIMINATE) == {}
    )  # nor is there time for it


def test_what_closes_a_gap_that_is_allowed_sooner_goes_first():
    offers = agent_offers(0, 100.0, 5.0)
    assert taken(divide_slice(offers, [0], HOPES, Time(1.0, 10.0, gap=100.0)), ELIMINATE) == {0: 5.0}
    assert taken(divide_slice(offers, [0], HOPES, Time(1.0, 10.0, needed=0.2, gap=100.0)), ELIMINATE) == {}


def test_a_gap_that_is_no_agents_is_everybodys():
    offers = [*agent_offers(0, 0.0), *agent_offers(1, 0.0)]
    assert len(divide_slice(offers, [0, 0], HOPES, Time(1.0, 10.0, gap=5.0))) == 4


def test_time_goes_where_the_gap_is():
    offers = [*agent_offers(0, 30.0), *agent_offers(1, 10.0), *agent_offers(2, 0.0)]
    grants = divide_slice(offers, [0] * 3, HOPES, Time(4.0, 100.0, gap=100.0))
    for kind in (SAMPLE, BOUND):
        given_time = taken(grants, kind)
        assert given_time.keys() == {0, 1} and given_time[0] == pytest.approx(3 * given_time[1])
    assert sum(grant.seconds for grant in grants) == pytest.approx(4.0)


def test_unknown_gains_are_weighed():
    offers = [replace(Offer(SAMPLE, math.inf, agent), weight=float(agent + 1)) for agent in range(2)]
    grants = taken(divide_slice(offers, [0, 0], HOPES, Time(3.0, 100.0, gap=100.0)), SAMPLE)
    assert grants == {0: pytest.approx(1.0), 1: pytest.approx(2.0)}


def test_the_search_has_all_the_time_when_nothing_else_is_offered():
    (grant,) = divide_slice([Offer(SEARCH, 5.0)], [], HOPES, Time(2.0, 100.0, gap=100.0))
    assert (grant.kind, grant.seconds) == (SEARCH, 2.0)
    grants = divide_slice([Offer(SEARCH, 5.0), *agent_offers(0, 5.0)], [0], HOPES, Time(2.0, 100.0, gap=100.0))
    assert 0 < taken(grants, SEARCH)[None] < 1.0 and sum(g.seconds for g in grants) == pytest.approx(2.0)


@pytest.mark.parametrize("gain", [0.0, math.inf])
def test_nothing_is_done_without_offers_gains_or_time(gain):
    assert divide_slice([], [], HOPES, Time(1.0, 10.0, gap=100.0)) == ()
    assert divide_slice(agent_offers(0, 0.0, 1.0), [0], HOPES, Time(1.0, 10.0, gap=0.0)) == ()
    assert divide_slice(agent_offers(0, gain, 1.0), [0], HOPES, Time(1.0, 0.0, gap=100.0)) == ()


def test_to_combine_again_is_taken_where_it_gains_most():
    offers = [*agent_offers(0, 1.0), Offer(COMBINE, 50.0, None, 2.0)]
    assert taken(divide_slice(offers, [0], HOPES, Time(1.0, 10.0, gap=100.0)), COMBINE) == {None: 2.0}
    assert taken(divide_slice(offers, [0], HOPES, Time(1.0, 1.0, gap=100.0)), COMBINE) == {}
    assert (
        taken(divide_slice([replace(o, gain=50.0) for o in offers], [0], HOPES, Time(1.0, 10.0, gap=100.0)), COMBINE)
        == {}
    )
