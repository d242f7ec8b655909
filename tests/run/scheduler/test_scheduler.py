"""Test what the scheduler learns in a run, and how long its slices are, on made-up numbers."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.run.scheduler.improver_statistics import ImproverStatistics, improvers_of_assignment, shares_of_bound_gain
from dmcmc.run.scheduler.proposal import (
    BOUND,
    BRANCH,
    EXACT_ELIMINATION,
    FUNCTION_FILTERING,
    LOCAL_SEARCH,
    SAMPLING,
    SEMIDEFINITE,
    TOULBAR2,
    MeasuredGain,
    Proposal,
)
from dmcmc.run.scheduler.scheduler import Scheduler, SchedulingState

COSTS = {EXACT_ELIMINATION: 0.6, SAMPLING: None, BOUND: None}


def test_estimated_costs_are_corrected_by_past_costs():
    statistics = ImproverStatistics()
    assert statistics.corrected_cost(EXACT_ELIMINATION, 2.0) == 2.0
    statistics.record([MeasuredGain(EXACT_ELIMINATION, 6.0, 2.0)], 0.0, 0.0, 0.0)
    assert 4.0 < statistics.corrected_cost(EXACT_ELIMINATION, 2.0) < 6.0
    statistics.record([MeasuredGain(EXACT_ELIMINATION, 1e6, 1.0)], 0.0, 0.0, 0.0)
    assert statistics.corrected_cost(EXACT_ELIMINATION, 2.0) == 16.0  # the correction of a disturbed run is limited


def test_gains_are_attributed_to_the_improvers_that_made_them():
    statistics = ImproverStatistics()
    gains = [
        MeasuredGain(EXACT_ELIMINATION, 1.0, 1.0, closed_gap=3.0),
        MeasuredGain(BOUND, 1.0, closed_gap=1.0),
        MeasuredGain(LOCAL_SEARCH, 2.0, objective_gain=5.0),
    ]
    statistics.record(gains, objective=9.0, bound=8.0, stake=100.0)
    gained = {improver: (record.objective, record.bound) for improver, record in statistics.records.items()}
    assert gained == {EXACT_ELIMINATION: (4.0, 6.0), BOUND: (0.0, 2.0), LOCAL_SEARCH: (5.0, 0.0)}
    statistics.record(
        [MeasuredGain(BOUND, 3.0), MeasuredGain(BRANCH, 1.0)], 4.0, 0.0, 100.0
    )  # no lower table has improved
    assert (statistics.records[BOUND].objective, statistics.records[BRANCH].objective) == (3.0, 1.0)


def test_a_trace_point_names_the_improvers_behind_it():
    gains = [
        MeasuredGain(SAMPLING, 1.0),
        MeasuredGain(BOUND, 1.0, closed_gap=1.0),
        MeasuredGain(BRANCH, 1.0, closed_gap=2.0),
    ]
    gains += [
        MeasuredGain(BOUND, 1.0),
        MeasuredGain(BRANCH, 1.0, closed_gap=1.0),
        MeasuredGain(TOULBAR2, 1.0, closed_gap=9.0),
    ]
    assert [*shares_of_bound_gain(gains).items()] == [(BRANCH, 0.75), (BOUND, 0.25)]
    assert shares_of_bound_gain(gains[:1]) == {}
    assert improvers_of_assignment([BOUND, SAMPLING, BOUND]) == [SAMPLING] and improvers_of_assignment(
        [BOUND, BRANCH]
    ) == [BOUND, BRANCH]


def test_rates_fall_without_gains_but_stay_positive():
    statistics, initial = ImproverStatistics(), ImproverStatistics().expected_rates
    for _ in range(20):
        statistics.record([MeasuredGain(SAMPLING, 1.0), MeasuredGain(BOUND, 1.0, closed_gap=50.0)], 0.0, 50.0, 100.0)
    rates = statistics.rates_among([SAMPLING, BOUND])
    assert 0 < rates[SAMPLING] < 0.2 * initial[SAMPLING] and rates[BOUND] == pytest.approx(0.5, abs=0.01)


def test_an_improver_without_gains_keeps_a_smaller_rate_while_others_gain():
    statistics, ratios = ImproverStatistics(), []
    for bound in (3.0, 3.0, 3.0, 3.0, 0.1, 0.1):
        for _ in range(5):
            statistics.record(
                [MeasuredGain(SAMPLING, 1.0), MeasuredGain(BOUND, 1.0, closed_gap=1.0)], 0.0, bound, 100.0
            )
        rates = statistics.rates_among([SAMPLING, BOUND, EXACT_ELIMINATION])
        ratios.append(rates[SAMPLING] / rates[BOUND])
    assert ratios[1:4] == pytest.approx([0.1 / 10, 0.1 / 15, 0.1 / 20], rel=0.01) and ratios[-1] > 1
    statistics.record(
        [MeasuredGain(SAMPLING, 1.0, objective_gain=1e-3), MeasuredGain(BOUND, 1.0, closed_gap=1.0)], 1e-3, 50.0, 100.0
    )
    rates = statistics.rates_among([SAMPLING, BOUND, EXACT_ELIMINATION])
    assert rates[SAMPLING] == pytest.approx(0.1 * rates[BOUND])  # its next slices may gain more


def test_while_branch_and_bound_gains_other_improvers_fall_to_the_idle_rate_at_once():
    statistics = ImproverStatistics()
    statistics.record([MeasuredGain(BRANCH, 1.0, closed_gap=10.0), MeasuredGain(BOUND, 1.0)], 0.0, 10.0, 100.0)
    rates_with_branch, rates_without = statistics.rates_among([BRANCH, BOUND]), statistics.rates_among([BOUND])
    assert (
        rates_with_branch[BOUND] == pytest.approx(0.1 * rates_with_branch[BRANCH])
        and rates_without[BOUND] > 2 * rates_with_branch[BOUND]
    )
    statistics.record([MeasuredGain(BRANCH, 1.0)], 0.0, 0.0, 100.0)
    assert statistics.rates_among([BRANCH, BOUND])[BOUND] == rates_without[BOUND]


@given(
    st.lists(
        st.tuples(st.sampled_from([SAMPLING, BOUND, EXACT_ELIMINATION, LOCAL_SEARCH]), *[st.floats(0, 1e6)] * 4),
        max_size=8,
    ),
    st.floats(0, 1e9),
    st.floats(0, 1e9),
)
def test_attributed_gains_and_seconds_add_up(entries, objective, bound):
    statistics = ImproverStatistics()
    gains = [MeasuredGain(improver, *numbers[:3]) for improver, *numbers in entries]
    statistics.record(gains, objective, bound, 10.0)
    assert sum(a.bound for a in statistics.records.values()) in (0.0, pytest.approx(bound))
    assert sum(a.seconds for a in statistics.records.values()) == pytest.approx(sum(b.seconds for b in gains))
    assert all(0 < rate <= 1 for rate in statistics.rates_among([SAMPLING, BOUND, LOCAL_SEARCH]).values())


@pytest.mark.parametrize(("gain", "rate"), [(0.0, 0.25 * 0.25), (10.0, 0.1), (90.0, 0.25)])
def test_the_local_search_starts_with_the_rate_of_its_gains_before_the_gap_was_known(gain, rate):
    scheduler, initial = Scheduler([0]), ImproverStatistics().expected_rates
    scheduler.record(
        SchedulingState(2.0, 8.0, 100.0, 200.0),
        [MeasuredGain(SAMPLING, 1.0), MeasuredGain(LOCAL_SEARCH, 1.0, objective_gain=gain)],
    )
    assert scheduler.statistics.rates_among([BOUND, LOCAL_SEARCH]) == initial | {LOCAL_SEARCH: pytest.approx(rate)}


def slices(total=20.0):
    """Return the slices of a run without gains, in seconds."""
    scheduler, now, seconds = Scheduler([0]), 0.1, []
    while True:
        scheduler.record(
            SchedulingState(now, total - now, 0.0, 10.0), [MeasuredGain(SAMPLING, seconds[-1])] if seconds else []
        )
        allocations = scheduler.decide(
            [Proposal(SAMPLING, 10.0, 0), Proposal(BOUND, 10.0, 0), Proposal(LOCAL_SEARCH, 10.0)]
        )
        if not allocations:
            return seconds
        seconds.append(sum(one.seconds for one in allocations))
        now += seconds[-1]


def test_slices_grow_and_fill_the_time_to_its_end():
    seconds = slices()
    assert sum(seconds) == pytest.approx(19.9) and 4 <= len(seconds) <= 8
    assert seconds[0] == pytest.approx(0.25)
    assert all(shorter <= longer * (1 + 1e-9) for shorter, longer in pairwise(seconds[:-1]))


@pytest.mark.parametrize(
    ("tried", "closed_part", "others", "seconds"),
    [
        (True, 0.1, [BOUND], 2.0),
        (True, 0.1, [], 4.0),
        (True, 0.0, [BOUND], 10.0),
        (False, 0.0, [BOUND], 2.0),
        (True, 0.1, [SEMIDEFINITE], 10.0),
    ],
)
def test_slices_are_short_while_branch_and_bound_may_gain_without_a_relaxation(tried, closed_part, others, seconds):
    scheduler = Scheduler([0])
    scheduler.record(SchedulingState(8.0, 12.0, 0.0, 10.0), [])
    gain = MeasuredGain(BRANCH if tried else BOUND, 2.0, closed_gap=10 * closed_part)
    scheduler.record(SchedulingState(10.0, 10.0, 0.0, 10.0 * (1 - closed_part)), [gain])
    allocations = scheduler.decide([Proposal(improver, 10.0, 0) for improver in (BRANCH, *others)])
    assert sum(one.seconds for one in allocations) == pytest.approx(seconds)


@pytest.mark.parametrize(("elapsed", "seconds"), [(10.0, 2.5), (1.0, 1.0), (0.1, 0.25)])
def test_slices_are_shorter_still_while_other_work_awaits_an_outcome(elapsed, seconds):
    scheduler = Scheduler([0])
    scheduler.record(SchedulingState(elapsed, 100.0 - elapsed, 0.0, 10.0), [])
    allocations = scheduler.decide([Proposal(BOUND, 9.0, 0, awaited=True), Proposal(BRANCH, 9.0, 0, awaited=True)])
    assert sum(one.seconds for one in allocations) == pytest.approx(seconds)


@pytest.mark.parametrize("gap", [10.0, 0.001])
def test_bounds_that_per_row_relaxations_make_redundant_are_left_out_until_the_gap_is_nearly_closed(gap):
    scheduler = Scheduler([0, 0])
    scheduler.record(SchedulingState(10.0, 90.0, 10.0, 10.0 + 2 * gap), [])
    scheduler.record(SchedulingState(20.0, 80.0, 10.0, 10.0 + gap), [MeasuredGain(SEMIDEFINITE, 10.0, closed_gap=gap)])
    proposals = [
        Proposal(SEMIDEFINITE, gap, 0, resumable=True),
        *(Proposal(k, gap, a) for k in (BOUND, BRANCH) for a in (0, 1)),
    ]
    allocated = {(one.improver, one.agent) for one in scheduler.decide(proposals)}
    assert {(BOUND, 1), (BRANCH, 1), (SEMIDEFINITE, 0)} <= allocated
    assert (
        ({(BOUND, 0), (BRANCH, 0)} <= allocated) == (gap < 1) == (not {(BOUND, 0), (BRANCH, 0)}.isdisjoint(allocated))
    )


def test_resumable_relaxations_get_nearly_all_of_their_first_slice():
    scheduler = Scheduler([0])
    scheduler.record(
        SchedulingState(10.0, 90.0, 0.0, 10.0),
        [MeasuredGain(SAMPLING, 2.0), MeasuredGain(LOCAL_SEARCH, 2.0, objective_gain=1.0)],
    )
    proposals = [
        Proposal(SEMIDEFINITE, 9.0, 0, resumable=True),
        Proposal(SAMPLING, 9.0, 0),
        Proposal(LOCAL_SEARCH, 9.0),
    ]
    seconds = {one.improver: one.seconds for one in scheduler.decide(proposals)}
    assert seconds[SEMIDEFINITE] > 0.9 * sum(seconds.values())


@pytest.mark.parametrize("resumable", [False, True])
@pytest.mark.parametrize("gains", [False, True])
def test_with_relaxations_slices_are_short_and_other_bounds_get_little_time_if_they_resume(resumable, gains):
    scheduler = Scheduler([0])
    scheduler.record(SchedulingState(10.0, 90.0, 0.0, 10.0), [])
    closed = 1.0 if gains else 0.0
    scheduler.record(
        SchedulingState(20.0, 80.0, 0.0, 10.0 - closed), [MeasuredGain(SEMIDEFINITE, 10.0, closed_gap=closed)]
    )
    proposals = [Proposal(SEMIDEFINITE, 9.0, 0, resumable=resumable), Proposal(BRANCH, 9.0, 0), Proposal(BOUND, 9.0, 0)]
    allocations = scheduler.decide(proposals)
    seconds = {one.improver: one.seconds for one in allocations}
    assert sum(seconds.values()) == pytest.approx(10.0)
    little = seconds.get(BRANCH, 0.0) + seconds.get(BOUND, 0.0) < 0.2 * seconds.get(SEMIDEFINITE, 0.0)
    assert little == (resumable and gains) == (BRANCH not in seconds)


@pytest.mark.parametrize(("relaxation_gain", "branch_gain", "kept"), [(0.5, 0.1, SEMIDEFINITE), (0.1, 0.5, BRANCH)])
def test_of_two_bounds_of_the_same_rows_the_one_that_gains_more_is_kept(relaxation_gain, branch_gain, kept):
    scheduler = Scheduler([0, 0])
    scheduler.record(SchedulingState(10.0, 90.0, 0.0, 10.0), [])
    gains = [
        MeasuredGain(SEMIDEFINITE, 5.0, closed_gap=relaxation_gain),
        MeasuredGain(BRANCH, 5.0, closed_gap=branch_gain),
    ]
    scheduler.record(SchedulingState(20.0, 80.0, 0.0, 10.0 - relaxation_gain - branch_gain), gains)
    both = [Proposal(SEMIDEFINITE, 9.0, 0), Proposal(BRANCH, 9.0, 0)]
    assert {one.improver for one in scheduler.decide([*both, Proposal(BOUND, 9.0, 0)])} == {kept, BOUND}
    other_agent = Proposal(SEMIDEFINITE if kept == BRANCH else BRANCH, 9.0, 1)
    assert (other_agent.improver, 1) in {(one.improver, one.agent) for one in scheduler.decide([*both, other_agent])}


def test_branch_and_bound_is_tried_once_a_relaxation_gains_little():
    scheduler = Scheduler([0])
    proposals = [Proposal(SEMIDEFINITE, 9.0, 0), Proposal(BRANCH, 9.0, 0)]
    scheduler.record(SchedulingState(10.0, 90.0, 0.0, 10.0), [])
    assert {one.improver for one in scheduler.decide(proposals)} == {SEMIDEFINITE}
    scheduler.record(SchedulingState(20.0, 80.0, 0.0, 9.9), [MeasuredGain(SEMIDEFINITE, 10.0, closed_gap=0.1)])
    assert {one.improver for one in scheduler.decide(proposals)} == {BRANCH}


@pytest.mark.parametrize(
    ("resumable", "found", "little"), [(True, 0.02, True), (True, 0.0, True), (True, 3.0, False), (False, 0.02, False)]
)
def test_with_per_row_relaxations_search_and_sampling_get_little_time_if_they_gained_less(resumable, found, little):
    scheduler = Scheduler([0])
    scheduler.record(SchedulingState(10.0, 90.0, 0.0, 10.0), [])
    gains = [
        MeasuredGain(SEMIDEFINITE, 5.0, closed_gap=1.0),
        MeasuredGain(SAMPLING, 2.0),
        MeasuredGain(LOCAL_SEARCH, 3.0, objective_gain=found),
    ]
    scheduler.record(SchedulingState(20.0, 80.0, found, 9.0), gains)
    proposals = [
        Proposal(SEMIDEFINITE, 9.0, 0, resumable=resumable),
        Proposal(SAMPLING, 9.0, 0),
        Proposal(LOCAL_SEARCH, 9.0),
    ]
    seconds = {one.improver: one.seconds for one in scheduler.decide(proposals)}
    others = seconds.get(SAMPLING, 0.0) + seconds.get(LOCAL_SEARCH, 0.0)
    assert others > 0.0 and (others < 0.25 * seconds[SEMIDEFINITE]) == little


def test_a_nearly_closed_gap_is_left_to_the_bounds():
    scheduler = Scheduler([0])
    for _ in range(6):
        scheduler.record(
            SchedulingState(5.0, 15.0, 10000.0, 10001.0),
            [MeasuredGain(k, 1.0) for k in (SAMPLING, LOCAL_SEARCH, BOUND, BRANCH)],
        )
    allocations = scheduler.decide(
        [Proposal(improver, 1.0, 0) for improver in (SAMPLING, BOUND, BRANCH)] + [Proposal(LOCAL_SEARCH, 1.0)]
    )
    bounds = sum(one.seconds for one in allocations if one.improver in (BOUND, BRANCH))
    assert bounds > 0.7 * sum(one.seconds for one in allocations)


def test_the_last_agents_are_eliminated_if_that_ends_the_run_even_if_estimates_were_too_low():
    scheduler = Scheduler([0] * 4)
    scheduler.record(SchedulingState(5.0, 14.9, 90.0, 98.0), [MeasuredGain(EXACT_ELIMINATION, 4.6, 4.6)])
    proposals = [Proposal(improver, 2.0, a, cost) for a in range(4) for improver, cost in COSTS.items()]
    assert [one.improver for one in scheduler.decide(proposals)] == [EXACT_ELIMINATION] * 4
    scheduler.record(SchedulingState(6.2, 13.7, 90.0, 96.0), [MeasuredGain(EXACT_ELIMINATION, 1.2, 0.6, 2.0)])
    assert [one.improver for one in scheduler.decide(proposals[3:])] == [EXACT_ELIMINATION] * 3


def test_the_local_search_gets_less_time_without_gains():
    scheduler, shares = Scheduler([0]), []
    for now in (1.0, 2.0, 4.0, 8.0):
        scheduler.record(SchedulingState(now, 100.0 - now, 0.0, 10.0), [MeasuredGain(LOCAL_SEARCH, 1.0)] * (now > 1))
        allocations = scheduler.decide([Proposal(BOUND, 10.0, 0), Proposal(LOCAL_SEARCH, math.inf)])
        shares.append(
            sum(g.seconds for g in allocations if g.improver == LOCAL_SEARCH) / sum(g.seconds for g in allocations)
        )
    assert 0.2 < shares[0] < 0.4 and shares == sorted(shares, reverse=True) and 0.01 < shares[-1] < 0.1


def test_the_local_search_gets_a_fixed_part_of_the_first_slices_with_function_filtering():
    scheduler, shares = Scheduler([0]), []
    for now, searched in ((1.0, 0.0), (2.0, 1.0), (40.0, 20.0)):
        scheduler.record(
            SchedulingState(now, 100.0 - now, 0.0, 10.0), [MeasuredGain(LOCAL_SEARCH, searched)] * (searched > 0)
        )
        allocations = scheduler.decide([Proposal(FUNCTION_FILTERING, 10.0, 0), Proposal(LOCAL_SEARCH, math.inf)])
        shares.append(
            sum(g.seconds for g in allocations if g.improver == LOCAL_SEARCH) / sum(g.seconds for g in allocations)
        )
    assert shares[:2] == pytest.approx([0.3, 0.3]) and shares[2] < 0.2


def test_most_time_goes_to_finding_a_feasible_assignment():
    scheduler = Scheduler([0])
    scheduler.record(SchedulingState(1.0, 9.0, None, 10.0), [])
    allocations = scheduler.decide([Proposal(SAMPLING, math.inf, 0), Proposal(BOUND, math.inf, 0)])
    seconds = {one.improver: one.seconds for one in allocations}
    assert seconds[SAMPLING] == pytest.approx(2 * seconds[BOUND])


def test_the_local_search_gets_most_time_if_nothing_gains():
    scheduler, shares, now = Scheduler([0]), [], 1.0
    gains = [MeasuredGain(BOUND, 0.5, closed_gap=5.0), MeasuredGain(LOCAL_SEARCH, 0.5)]
    for bound in (20.0, 15.0, 14.0, 14.0, 14.0):
        scheduler.record(SchedulingState(now, 100.0 - now, 0.0, bound), gains)
        allocations = scheduler.decide([Proposal(BOUND, bound, 0), Proposal(LOCAL_SEARCH, math.inf)])
        seconds = {one.improver: one.seconds for one in allocations}
        shares.append(seconds[LOCAL_SEARCH] / sum(seconds.values()))
        gains = [
            MeasuredGain(improver, used, closed_gap=1.0 * (improver == BOUND)) for improver, used in seconds.items()
        ]
        now *= 2
    assert max(shares[:2]) < 0.3 and shares[2:] == sorted(shares[2:]) and shares[-1] > 0.5


def test_a_lone_local_search_runs_longer_with_an_open_gap():
    scheduler = Scheduler([0])
    scheduler.record(SchedulingState(2.0, 998.0, 5.0, 9.0), [])
    scheduler.record(SchedulingState(60.0, 940.0, 5.0, 9.0), [])
    (allocation,) = scheduler.decide([Proposal(LOCAL_SEARCH, math.inf)])
    assert allocation.seconds == pytest.approx(42.0) and not scheduler.search_converged
    scheduler.record(SchedulingState(300.0, 700.0, 5.0, 9.0), [])
    assert scheduler.decide([Proposal(LOCAL_SEARCH, math.inf)]) == () and scheduler.search_converged


def test_a_lone_local_search_without_bound_runs_ten_times_as_long_as_the_incumbent_took():
    scheduler = Scheduler([0])
    scheduler.record(SchedulingState(0.1, 1000.0, 5.0), [])
    scheduler.record(SchedulingState(4.0, 996.0, 7.0), [])
    proposals = [Proposal(LOCAL_SEARCH, math.inf)]
    (allocation,) = scheduler.decide(proposals)
    assert allocation.seconds <= 40.0
    scheduler.record(SchedulingState(30.0, 970.0, 7.0), [])
    (allocation,) = scheduler.decide(proposals)
    assert allocation.seconds == pytest.approx(14.0)
    scheduler.record(SchedulingState(44.0, 956.0, 7.0), [])
    assert scheduler.decide(proposals) == () and scheduler.search_converged
    scheduler = Scheduler([0])
    scheduler.record(SchedulingState(500.0, 500.0, None), [])  # an infeasible run continues
    assert scheduler.decide(proposals) and not scheduler.search_converged


class SimulatedRun:
    """A run on a simulated clock: each improver lowers the bound by a function of its total seconds."""

    def __init__(self, gain_of, ranks=1, gap=1e9):
        self.gain_of, self.ranks, self.gap, self.now = gain_of, ranks, gap, 1.0
        self.scheduler = Scheduler(range(ranks))
        self.seconds = dict.fromkeys(gain_of, 0.0)
        self.scheduler.record(SchedulingState(self.now, 1e6, 0.0, self.gap), [])

    def slice(self):
        """Simulate one slice; return each improver's part of its time."""
        proposals = [
            Proposal(
                improver,
                math.inf if improver == LOCAL_SEARCH else self.gap / self.ranks,
                None if improver == LOCAL_SEARCH else rank,
            )
            for rank in range(self.ranks)
            for improver in self.gain_of
            if improver != LOCAL_SEARCH or rank == 0
        ]
        used = dict.fromkeys(self.gain_of, 0.0)
        for allocation in self.scheduler.decide(proposals):
            used[allocation.improver] += allocation.seconds / (1 if allocation.improver == LOCAL_SEARCH else self.ranks)
        gains = []
        for improver, seconds in used.items():
            closed = self.gain_of[improver](self.seconds[improver] + seconds) - self.gain_of[improver](
                self.seconds[improver]
            )
            self.seconds[improver] += seconds
            self.gap -= closed
            gains.append(
                MeasuredGain(improver, seconds * (1 if improver == LOCAL_SEARCH else self.ranks), closed_gap=closed)
            )
        self.now += sum(used.values())
        self.scheduler.record(SchedulingState(self.now, 1e6, 0.0, self.gap), gains)
        return {improver: seconds / sum(used.values()) for improver, seconds in used.items()}


@pytest.mark.parametrize("ranks", [1, 3])
def test_time_is_divided_by_gains_per_second_and_not_by_past_seconds(ranks):
    gain_of = {BOUND: lambda t: 4e6 * t, SAMPLING: lambda t: 4e6 * t, SEMIDEFINITE: lambda t: 16e6 * t}
    run = SimulatedRun(gain_of, ranks)
    run.scheduler.statistics.expected_rates.update({SAMPLING: 0.65, BOUND: 0.1, SEMIDEFINITE: 0.1})
    first, *_, last = (run.slice() for _ in range(5))
    assert first[SAMPLING] > 4 * first[SEMIDEFINITE]  # by the expected rates
    assert last == {
        improver: pytest.approx(part, abs=0.05)
        for improver, part in ((BOUND, 1 / 6), (SAMPLING, 1 / 6), (SEMIDEFINITE, 4 / 6))
    }


def test_an_improver_that_stops_gaining_loses_its_time_at_once():
    def saturating(seconds):
        return 5e8 * (1 - math.exp(-seconds))

    run = SimulatedRun({BOUND: saturating, SEMIDEFINITE: lambda t: 1e7 * t})
    shares = [run.slice()[BOUND] for _ in range(6)]
    assert shares[0] > 0.4 and shares[-1] < 0.1


def test_a_gain_in_little_time_is_not_extrapolated_without_limit():
    statistics = ImproverStatistics()
    statistics.record([MeasuredGain(BRANCH, 0.001, closed_gap=1.0), MeasuredGain(BOUND, 10.0)], 0.0, 1.0, 1000.0, 10.0)
    assert statistics.expected_rates[BRANCH] < 0.65


def test_an_elimination_competes_with_the_joint_gain_of_open_ended_work():
    scheduler = Scheduler([0])
    scheduler.record(SchedulingState(4.0, 100.0, 0.0, 100.0), [])
    scheduler.statistics.expected_rates.update({BOUND: 0.2, BRANCH: 0.2, SAMPLING: 0.04})
    others = [Proposal(improver, 100.0, 0) for improver in (BOUND, BRANCH, SAMPLING)]
    accepted = {
        cost: EXACT_ELIMINATION
        in {g.improver for g in scheduler.decide([*others, Proposal(EXACT_ELIMINATION, 100.0, 0, cost)])}
        for cost in (15.0, 90.0)
    }
    assert accepted == {15.0: True, 90.0: False}
