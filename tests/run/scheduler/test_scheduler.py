"""What the controller learns in a run, and how long its slices are: on made-up numbers."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.run.scheduler.improver_statistics import Ledger, decoded_by, lowered_by
from dmcmc.run.scheduler.proposal import (
    BOUND,
    BRANCH,
    ELIMINATE,
    FILTER,
    SAMPLE,
    SEARCH,
    SEMIDEFINITE,
    TOULBAR2,
    Brought,
    Offer,
)
from dmcmc.run.scheduler.scheduler import Controller, State

PRICES = {ELIMINATE: 0.6, SAMPLE: None, BOUND: None}


def test_prices_are_corrected_by_what_was_taken():
    ledger = Ledger()
    assert ledger.price(ELIMINATE, 2.0) == 2.0
    ledger.enter([Brought(ELIMINATE, 6.0, 2.0)], 0.0, 0.0, 0.0)
    assert 4.0 < ledger.price(ELIMINATE, 2.0) < 6.0
    ledger.enter([Brought(ELIMINATE, 1e6, 1.0)], 0.0, 0.0, 0.0)
    assert ledger.price(ELIMINATE, 2.0) == 16.0  # a run that was disturbed is not believed


def test_what_was_brought_goes_to_those_who_brought_it():
    ledger = Ledger()
    brought = [
        Brought(ELIMINATE, 1.0, 1.0, closed=3.0),
        Brought(BOUND, 1.0, closed=1.0),
        Brought(SEARCH, 2.0, objective=5.0),
    ]
    ledger.enter(brought, objective=9.0, bound=8.0, stake=100.0)
    gained = {kind: (account.objective, account.bound) for kind, account in ledger.accounts.items()}
    assert gained == {ELIMINATE: (4.0, 6.0), BOUND: (0.0, 2.0), SEARCH: (5.0, 0.0)}
    ledger.enter([Brought(BOUND, 3.0), Brought(BRANCH, 1.0)], 4.0, 0.0, 100.0)  # no table from below is another
    assert (ledger.accounts[BOUND].objective, ledger.accounts[BRANCH].objective) == (3.0, 1.0)


def test_a_point_of_the_trace_is_told_as_what_brought_it():
    brought = [Brought(SAMPLE, 1.0), Brought(BOUND, 1.0, closed=1.0), Brought(BRANCH, 1.0, closed=2.0)]
    brought += [Brought(BOUND, 1.0), Brought(BRANCH, 1.0, closed=1.0), Brought(TOULBAR2, 1.0, closed=9.0)]
    assert [*lowered_by(brought).items()] == [(BRANCH, 0.75), (BOUND, 0.25)]
    assert lowered_by(brought[:1]) == {}
    assert decoded_by([BOUND, SAMPLE, BOUND]) == [SAMPLE] and decoded_by([BOUND, BRANCH]) == [BOUND, BRANCH]


def test_hopes_fall_where_nothing_comes_and_never_to_nothing():
    ledger, first = Ledger(), Ledger().hopes
    for _ in range(20):
        ledger.enter([Brought(SAMPLE, 1.0), Brought(BOUND, 1.0, closed=50.0)], 0.0, 50.0, 100.0)
    hopes = ledger.hopes_among([SAMPLE, BOUND])
    assert 0 < hopes[SAMPLE] < 0.2 * first[SAMPLE] and hopes[BOUND] == pytest.approx(0.5, abs=0.01)


def test_what_brings_nothing_has_less_beside_what_brings_something_and_enough_where_nothing_does():
    ledger, parts = Ledger(), []
    for bound in (3.0, 3.0, 3.0, 3.0, 0.1, 0.1):
        for _ in range(5):
            ledger.enter([Brought(SAMPLE, 1.0), Brought(BOUND, 1.0, closed=1.0)], 0.0, bound, 100.0)
        hopes = ledger.hopes_among([SAMPLE, BOUND, ELIMINATE])
        parts.append(hopes[SAMPLE] / hopes[BOUND])
    assert parts[1:4] == pytest.approx([0.1 / 10, 0.1 / 15, 0.1 / 20], rel=0.01) and parts[-1] > 1
    ledger.enter([Brought(SAMPLE, 1.0, objective=1e-3), Brought(BOUND, 1.0, closed=1.0)], 1e-3, 50.0, 100.0)
    hopes = ledger.hopes_among([SAMPLE, BOUND, ELIMINATE])
    assert hopes[SAMPLE] == pytest.approx(0.1 * hopes[BOUND])  # it may bring more: it is tried as often as ever


def test_beside_a_search_in_rows_that_brings_something_little_is_hoped_at_once_of_what_has_brought_nothing():
    ledger = Ledger()
    ledger.enter([Brought(BRANCH, 1.0, closed=10.0), Brought(BOUND, 1.0)], 0.0, 10.0, 100.0)
    beside, alone = ledger.hopes_among([BRANCH, BOUND]), ledger.hopes_among([BOUND])
    assert beside[BOUND] == pytest.approx(0.1 * beside[BRANCH]) and alone[BOUND] > 2 * beside[BOUND]
    ledger.enter([Brought(BRANCH, 1.0)], 0.0, 0.0, 100.0)
    assert ledger.hopes_among([BRANCH, BOUND])[BOUND] == alone[BOUND]


@given(
    st.lists(st.tuples(st.sampled_from([SAMPLE, BOUND, ELIMINATE, SEARCH]), *[st.floats(0, 1e6)] * 4), max_size=8),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
)
def test_accounts_add_up(entries, objective, bound):
    ledger = Ledger()
    brought = [Brought(kind, *numbers[:3]) for kind, *numbers in entries]
    ledger.enter(brought, objective, bound, 10.0)
    assert sum(a.bound for a in ledger.accounts.values()) in (0.0, pytest.approx(bound))
    assert sum(a.seconds for a in ledger.accounts.values()) == pytest.approx(sum(b.seconds for b in brought))
    assert all(0 < hope <= 1 for hope in ledger.hopes_among([SAMPLE, BOUND, SEARCH]).values())


@pytest.mark.parametrize(("brought", "hope"), [(0.0, 0.25 * 0.25), (10.0, 0.1), (90.0, 0.25)])
def test_a_search_hopes_for_as_much_of_the_gap_as_it_has_brought_before_that_was_known(brought, hope):
    controller, first = Controller([0]), Ledger().hopes
    controller.enter(State(2.0, 8.0, 100.0, 200.0), [Brought(SAMPLE, 1.0), Brought(SEARCH, 1.0, objective=brought)])
    assert controller.ledger.hopes_among([BOUND, SEARCH]) == first | {SEARCH: pytest.approx(hope)}


def slices(total=20.0):
    """The slices of a run in which nothing helps."""
    controller, now, found = Controller([0]), 0.1, []
    while True:
        controller.enter(State(now, total - now, 0.0, 10.0), [Brought(SAMPLE, found[-1])] if found else [])
        grants = controller.decide([Offer(SAMPLE, 10.0, 0), Offer(BOUND, 10.0, 0), Offer(SEARCH, 10.0)])
        if not grants:
            return found
        found.append(sum(grant.seconds for grant in grants))
        now += found[-1]


def test_slices_grow_and_fill_the_time_to_its_end():
    found = slices()
    assert sum(found) == pytest.approx(19.9) and 4 <= len(found) <= 8
    assert found[0] == pytest.approx(0.25)
    assert all(shorter <= longer * (1 + 1e-9) for shorter, longer in pairwise(found[:-1]))


@pytest.mark.parametrize(
    ("tried", "part", "others", "seconds"),
    [
        (True, 0.1, [BOUND], 2.0),
        (True, 0.1, [], 4.0),
        (True, 0.0, [BOUND], 10.0),
        (False, 0.0, [BOUND], 2.0),
        (True, 0.1, [SEMIDEFINITE], 10.0),
    ],
)
def test_slices_are_short_while_a_search_in_rows_may_bring_something_but_beside_lifts(tried, part, others, seconds):
    controller = Controller([0])
    controller.enter(State(8.0, 12.0, 0.0, 10.0), [])
    brought = Brought(BRANCH if tried else BOUND, 2.0, closed=10 * part)
    controller.enter(State(10.0, 10.0, 0.0, 10.0 * (1 - part)), [brought])
    grants = controller.decide([Offer(kind, 10.0, 0) for kind in (BRANCH, *others)])
    assert sum(grant.seconds for grant in grants) == pytest.approx(seconds)


@pytest.mark.parametrize(("elapsed", "seconds"), [(10.0, 2.5), (1.0, 1.0), (0.1, 0.25)])
def test_slices_are_shorter_still_as_long_as_other_work_waits_for_what_is_shown(elapsed, seconds):
    controller = Controller([0])
    controller.enter(State(elapsed, 100.0 - elapsed, 0.0, 10.0), [])
    grants = controller.decide([Offer(BOUND, 9.0, 0, tells=True), Offer(BRANCH, 9.0, 0, tells=True)])
    assert sum(grant.seconds for grant in grants) == pytest.approx(seconds)


@pytest.mark.parametrize("gap", [10.0, 0.001])
def test_agents_without_such_lifts_are_bounded_beside_them_and_all_are_where_little_is_open(gap):
    controller = Controller([0, 0])
    controller.enter(State(10.0, 90.0, 10.0, 10.0 + 2 * gap), [])
    controller.enter(State(20.0, 80.0, 10.0, 10.0 + gap), [Brought(SEMIDEFINITE, 10.0, closed=gap)])
    offers = [Offer(SEMIDEFINITE, gap, 0, steady=True), *(Offer(k, gap, a) for k in (BOUND, BRANCH) for a in (0, 1))]
    granted = {(grant.kind, grant.agent) for grant in controller.decide(offers)}
    assert {(BOUND, 1), (BRANCH, 1), (SEMIDEFINITE, 0)} <= granted
    assert ({(BOUND, 0), (BRANCH, 0)} <= granted) == (gap < 1) == (not {(BOUND, 0), (BRANCH, 0)}.isdisjoint(granted))


def test_lifts_that_go_on_where_they_were_have_nearly_all_of_their_first_slice():
    controller = Controller([0])
    controller.enter(State(10.0, 90.0, 0.0, 10.0), [Brought(SAMPLE, 2.0), Brought(SEARCH, 2.0, objective=1.0)])
    offers = [Offer(SEMIDEFINITE, 9.0, 0, steady=True), Offer(SAMPLE, 9.0, 0), Offer(SEARCH, 9.0)]
    seconds = {grant.kind: grant.seconds for grant in controller.decide(offers)}
    assert seconds[SEMIDEFINITE] > 0.9 * sum(seconds.values())


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("brings", [False, True])
def test_beside_lifts_that_go_on_where_they_were_slices_are_short_and_what_lowers_the_same_rows_has_little(
    steady, brings
):
    controller = Controller([0])
    controller.enter(State(10.0, 90.0, 0.0, 10.0), [])
    closed = 1.0 if brings else 0.0
    controller.enter(State(20.0, 80.0, 0.0, 10.0 - closed), [Brought(SEMIDEFINITE, 10.0, closed=closed)])
    offers = [Offer(SEMIDEFINITE, 9.0, 0, steady=steady), Offer(BRANCH, 9.0, 0), Offer(BOUND, 9.0, 0)]
    grants = controller.decide(offers)
    seconds = {grant.kind: grant.seconds for grant in grants}
    assert sum(seconds.values()) == pytest.approx(10.0 if steady else 20.0)
    little = seconds.get(BRANCH, 0.0) + seconds.get(BOUND, 0.0) < 0.2 * seconds.get(SEMIDEFINITE, 0.0)
    assert little == (steady and brings) and (BRANCH in seconds) == (not brings)


@pytest.mark.parametrize(
    ("steady", "found", "little"), [(True, 0.02, True), (True, 0.0, True), (True, 3.0, False), (False, 0.02, False)]
)
def test_beside_such_lifts_the_search_and_chains_have_little_where_they_have_last_brought_less(steady, found, little):
    controller = Controller([0])
    controller.enter(State(10.0, 90.0, 0.0, 10.0), [])
    brought = [Brought(SEMIDEFINITE, 5.0, closed=1.0), Brought(SAMPLE, 2.0), Brought(SEARCH, 3.0, objective=found)]
    controller.enter(State(20.0, 80.0, found, 9.0), brought)
    offers = [Offer(SEMIDEFINITE, 9.0, 0, steady=steady), Offer(SAMPLE, 9.0, 0), Offer(SEARCH, 9.0)]
    seconds = {grant.kind: grant.seconds for grant in controller.decide(offers)}
    beside = seconds.get(SAMPLE, 0.0) + seconds.get(SEARCH, 0.0)
    assert beside > 0.0 and (beside < 0.25 * seconds[SEMIDEFINITE]) == little


def test_where_next_to_nothing_is_open_time_goes_to_its_proof():
    controller = Controller([0])
    for _ in range(6):
        controller.enter(State(5.0, 15.0, 10000.0, 10001.0), [Brought(k, 1.0) for k in (SAMPLE, SEARCH, BOUND, BRANCH)])
    grants = controller.decide([Offer(kind, 1.0, 0) for kind in (SAMPLE, BOUND, BRANCH)] + [Offer(SEARCH, 1.0)])
    bounds = sum(grant.seconds for grant in grants if grant.kind in (BOUND, BRANCH))
    assert bounds > 0.7 * sum(grant.seconds for grant in grants)


def test_the_last_agents_are_eliminated_when_that_ends_the_run_a_few_times_dearer_than_thought_or_not():
    controller = Controller([0] * 4)
    controller.enter(State(5.0, 14.9, 90.0, 98.0), [Brought(ELIMINATE, 4.6, 4.6)])
    offers = [Offer(kind, 2.0, a, price) for a in range(4) for kind, price in PRICES.items()]
    assert [grant.kind for grant in controller.decide(offers)] == [ELIMINATE] * 4
    controller.enter(State(6.2, 13.7, 90.0, 96.0), [Brought(ELIMINATE, 1.2, 0.6, 2.0)])
    assert [grant.kind for grant in controller.decide(offers[3:])] == [ELIMINATE] * 3


def test_the_search_has_its_part_and_less_when_it_brings_nothing():
    controller, shares = Controller([0]), []
    for now in (1.0, 2.0, 4.0, 8.0):
        controller.enter(State(now, 100.0 - now, 0.0, 10.0), [Brought(SEARCH, 1.0)] * (now > 1))
        grants = controller.decide([Offer(BOUND, 10.0, 0), Offer(SEARCH, math.inf)])
        shares.append(sum(g.seconds for g in grants if g.kind == SEARCH) / sum(g.seconds for g in grants))
    assert 0.2 < shares[0] < 0.4 and shares == sorted(shares, reverse=True) and 0.01 < shares[-1] < 0.1


def test_the_search_goes_on_beside_a_filter_until_it_has_had_a_part_of_the_time():
    controller, shares = Controller([0]), []
    for now, searched in ((1.0, 0.0), (2.0, 1.0), (40.0, 20.0)):
        controller.enter(State(now, 100.0 - now, 0.0, 10.0), [Brought(SEARCH, searched)] * (searched > 0))
        grants = controller.decide([Offer(FILTER, 10.0, 0), Offer(SEARCH, math.inf)])
        shares.append(sum(g.seconds for g in grants if g.kind == SEARCH) / sum(g.seconds for g in grants))
    assert shares[:2] == pytest.approx([0.3, 0.3]) and shares[2] < 0.2


def test_without_an_answer_most_of_the_time_looks_for_one():
    controller = Controller([0])
    controller.enter(State(1.0, 9.0, None, 10.0), [])
    grants = controller.decide([Offer(SAMPLE, math.inf, 0), Offer(BOUND, math.inf, 0)])
    given_time = {grant.kind: grant.seconds for grant in grants}
    assert given_time[SAMPLE] == pytest.approx(2 * given_time[BOUND])


def test_where_neither_a_bound_nor_the_search_brings_anything_the_search_has_most_of_the_time():
    controller, shares, now = Controller([0]), [], 1.0
    done = [Brought(BOUND, 0.5, closed=5.0), Brought(SEARCH, 0.5)]
    for bound in (20.0, 15.0, 14.0, 14.0, 14.0):
        controller.enter(State(now, 100.0 - now, 0.0, bound), done)
        grants = controller.decide([Offer(BOUND, bound, 0), Offer(SEARCH, math.inf)])
        seconds = {grant.kind: grant.seconds for grant in grants}
        shares.append(seconds[SEARCH] / sum(seconds.values()))
        done = [Brought(kind, taken, closed=1.0 * (kind == BOUND)) for kind, taken in seconds.items()]
        now *= 2
    assert max(shares[:2]) < 0.3 and shares[2:] == sorted(shares[2:]) and shares[-1] > 0.5


def test_with_an_open_gap_a_search_alone_goes_on_longer():
    controller = Controller([0])
    controller.enter(State(2.0, 998.0, 5.0, 9.0), [])
    controller.enter(State(60.0, 940.0, 5.0, 9.0), [])
    (grant,) = controller.decide([Offer(SEARCH, math.inf)])
    assert grant.seconds == pytest.approx(42.0) and not controller.settled
    controller.enter(State(300.0, 700.0, 5.0, 9.0), [])
    assert controller.decide([Offer(SEARCH, math.inf)]) == () and controller.settled


def test_a_search_alone_and_without_a_bound_goes_on_ten_times_as_long_as_the_best_took_to_be_found():
    controller = Controller([0])
    controller.enter(State(0.1, 1000.0, 5.0), [])
    controller.enter(State(4.0, 996.0, 7.0), [])
    offers = [Offer(SEARCH, math.inf)]
    (grant,) = controller.decide(offers)
    assert grant.seconds <= 40.0
    controller.enter(State(30.0, 970.0, 7.0), [])
    (grant,) = controller.decide(offers)
    assert grant.seconds == pytest.approx(14.0)
    controller.enter(State(44.0, 956.0, 7.0), [])
    assert controller.decide(offers) == () and controller.settled
    controller = Controller([0])
    controller.enter(State(500.0, 500.0, None), [])  # nothing that breaks no constraint is given up for
    assert controller.decide(offers) and not controller.settled


class MadeUp:
    """A run by a made-up clock: each kind of work lowers a bound by what it brings in its seconds."""

    def __init__(self, earns, ranks=1, gap=1e9):
        self.earns, self.ranks, self.gap, self.now = earns, ranks, gap, 1.0
        self.controller = Controller(range(ranks))
        self.seconds = dict.fromkeys(earns, 0.0)
        self.controller.enter(State(self.now, 1e6, 0.0, self.gap), [])

    def slice(self):
        """Give out one slice, and do what is granted; return each kind's part of the time."""
        offers = [
            Offer(kind, math.inf if kind == SEARCH else self.gap / self.ranks, None if kind == SEARCH else rank)
            for rank in range(self.ranks)
            for kind in self.earns
            if kind != SEARCH or rank == 0
        ]
        given_time = dict.fromkeys(self.earns, 0.0)
        for grant in self.controller.decide(offers):
            given_time[grant.kind] += grant.seconds / (1 if grant.kind == SEARCH else self.ranks)
        brought = []
        for kind, seconds in given_time.items():
            closed = self.earns[kind](self.seconds[kind] + seconds) - self.earns[kind](self.seconds[kind])
            self.seconds[kind] += seconds
            self.gap -= closed
            brought.append(Brought(kind, seconds * (1 if kind == SEARCH else self.ranks), closed=closed))
        self.now += sum(given_time.values())
        self.controller.enter(State(self.now, 1e6, 0.0, self.gap), brought)
        return {kind: seconds / sum(given_time.values()) for kind, seconds in given_time.items()}


@pytest.mark.parametrize("ranks", [1, 3])
def test_time_goes_by_what_was_earned_a_second_and_not_by_who_has_had_most_of_it(ranks):
    earns = {BOUND: lambda t: 4e6 * t, SAMPLE: lambda t: 4e6 * t, SEMIDEFINITE: lambda t: 16e6 * t}
    run = MadeUp(earns, ranks)
    run.controller.ledger.hopes.update({SAMPLE: 0.65, BOUND: 0.1, SEMIDEFINITE: 0.1})
    first, *_, last = (run.slice() for _ in range(5))
    assert first[SAMPLE] > 4 * first[SEMIDEFINITE]  # what was hoped
    assert last == {
        kind: pytest.approx(part, abs=0.05) for kind, part in ((BOUND, 1 / 6), (SAMPLE, 1 / 6), (SEMIDEFINITE, 4 / 6))
    }


def test_what_comes_to_its_end_loses_its_time_at_once():
    def ending(seconds):
        return 5e8 * (1 - math.exp(-seconds))

    run = MadeUp({BOUND: ending, SEMIDEFINITE: lambda t: 1e7 * t})
    shares = [run.slice()[BOUND] for _ in range(6)]
    assert shares[0] > 0.4 and shares[-1] < 0.1


def test_little_time_may_be_luck():
    ledger = Ledger()
    ledger.enter([Brought(BRANCH, 0.001, closed=1.0), Brought(BOUND, 10.0)], 0.0, 1.0, 1000.0, 10.0)
    assert ledger.hopes[BRANCH] < 0.65


def test_an_elimination_is_weighed_against_what_others_earn_together_in_their_parts_of_the_time():
    controller = Controller([0])
    controller.enter(State(4.0, 100.0, 0.0, 100.0), [])
    controller.ledger.hopes.update({BOUND: 0.2, BRANCH: 0.2, SAMPLE: 0.04})
    others = [Offer(kind, 100.0, 0) for kind in (BOUND, BRANCH, SAMPLE)]
    taken = {
        price: ELIMINATE in {g.kind for g in controller.decide([*others, Offer(ELIMINATE, 100.0, 0, price)])}
        for price in (15.0, 90.0)
    }
    assert taken == {15.0: True, 90.0: False}
