"""Test the semidefinite improver: several agents at once, and no cost is charged before the gain can be judged."""

import time
from types import SimpleNamespace

import pytest

from dmcmc.anytime.improvers import bounds as branch_and_bound
from dmcmc.anytime.improvers.bounds import BoundImprover, BranchAndBoundImprover, SemidefiniteImprover
from dmcmc.anytime.improvers.protocol import RankState, TimeQuantum, TimeSlice
from dmcmc.anytime.improvers.registry import proposals_of
from dmcmc.anytime.scheduler.proposal import Allocation
from dmcmc.inference.bounds import search_rows
from dmcmc.inference.bounds.semidefinite.relaxation import PerRowState, RelaxationRequest
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.results.result import BOUND, BRANCH, SEMIDEFINITE
from dmcmc.solving.agent.bounds import agents_with_relaxation_in_time
from dmcmc.solving.agent.tables import UpperTable
from dmcmc.tuning import run as tuning


class FakeAgent:
    """An agent whose relaxation takes no time, but is charged some seconds."""

    def __init__(self, known, quick=True, needs=0.0):
        self.may_improve = self.may_relax = True
        self.awaits_relaxation, self.work_done = not known, 0
        self.awaits_per_row_relaxation = self.relaxation_resumable = False
        self.relaxation_may_follow = self.search_awaited = False
        self.left, self.seconds, self.charges = 10.0, [], []
        self.upper = SimpleNamespace(
            exhausted=False,
            has_time_for_relaxation=lambda seconds: quick and seconds > needs,
            charge=self.charge,
        )
        self.known, self.per_row = known, PerRowState(expected=True)

    def charge(self, seconds, gained):
        self.charges.append(gained)
        return 2.5 if self.known else 0.0

    def relaxation_request(self, row_cutoffs):
        return RelaxationRequest(self, None, row_cutoffs)

    def improve(self, seconds, steps, rows, cutoffs):
        self.seconds.append(seconds)
        self.work_done += 1

    def take_relaxation(self, row_cutoffs):
        self.left -= 4.0


class FakeSearchedAgent:
    """An agent with three rows and a branch and bound."""

    def __init__(self, search):
        self.upper, self.local, self.search = UpperTable(), SimpleNamespace(rows=3), search

    @property
    def relaxation_may_follow(self):
        return self.upper.relaxation_may_follow(self.local)

    def boundary_search(self, row_cutoffs, seconds, node_bytes, left):
        return SimpleNamespace(search=self.search)

    def take_search_results(self, row_cutoffs):
        pass


def slice_of(agents, threads):
    turns = {number: TimeQuantum(agent, None, None) for number, agent in enumerate(agents)}
    return TimeSlice(turns, lambda agent: agent.left, Backend(threads=threads))


def test_all_agents_that_may_be_relaxed_are_proposed():
    agents = {0: FakeAgent(True), 1: FakeAgent(True)}
    agents[1].may_relax = False
    (proposal,) = SemidefiniteImprover().propose(RankState(agents, {0: 3.0, 1: 5.0}))
    assert (proposal.improver, proposal.agent, proposal.gain, proposal.seconds) == (SEMIDEFINITE, 0, 3.0, None)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_agents_with_a_thread_each_get_more_seconds_than_allocated(threads):
    agents = [FakeAgent(known=True), FakeAgent(known=False), FakeAgent(known=True, quick=False)]
    time_slice = slice_of(agents, threads)
    gains = SemidefiniteImprover().run(time_slice, [Allocation(SEMIDEFINITE, number, 1.5) for number in range(3)])
    assert [agent.seconds for agent in agents] == [[1.5 * min(threads, 2)]] * 2 + [[]]
    (gain,) = gains
    assert (gain.improver, gain.seconds, gain.closed_gap) == (SEMIDEFINITE, 2.5, 4.0)
    assert [agent.charges for agent in agents] == [[True], [True], []]


def test_dual_ascent_waits_until_the_relaxation_can_be_judged():
    agents = {0: FakeAgent(known=False), 1: FakeAgent(known=True)}
    assert [proposal.agent for proposal in BoundImprover().propose(RankState(agents, {0: 3.0, 1: 5.0}))] == [1]


@pytest.mark.parametrize("compiled", [True, False])
def test_while_its_kernels_are_compiled_others_work_in_short_slices(compiled):
    agents = {0: FakeAgent(known=False), 1: FakeAgent(known=True)}
    state = RankState(agents, {0: 3.0, 1: 5.0}, is_ready=lambda improver: compiled or improver != SEMIDEFINITE)
    proposals = proposals_of([SemidefiniteImprover(), BoundImprover()], state)
    bounded = {proposal.agent for proposal in proposals if proposal.improver == BOUND}
    assert bounded == ({1} if compiled else {0, 1})
    assert {proposal.awaited for proposal in proposals} == {not compiled}


@pytest.mark.parametrize("fits", [True, False])
def test_a_gpu_relaxes_all_agents_at_once_if_its_memory_is_enough(monkeypatch, fits):
    calls = []

    def relax_on_gpu(requests, backend, seconds):
        calls.append(([request.relaxation for request in requests], seconds))
        for request in requests:
            request.relaxation.work_done += fits
        return fits

    monkeypatch.setattr(Backend, "bounds_on_gpu", lambda self, seconds: True)
    monkeypatch.setattr(search_rows, "relaxation_gpu_problem", lambda: None)
    monkeypatch.setattr(search_rows, "bound_on_gpu", relax_on_gpu)
    agents = [FakeAgent(known=True), FakeAgent(known=False)]
    time_slice = slice_of(agents, 4)
    gains = SemidefiniteImprover().run(time_slice, [Allocation(SEMIDEFINITE, number, 1.5) for number in range(2)])
    assert calls == [(agents, 3.0)]
    assert [agent.seconds for agent in agents] == ([[], []] if fits else [[3.0], [3.0]]) and len(gains) == 1
    assert [agent.per_row.undecided for agent in agents] == [
        fits,
        fits,
    ]  # on the CPU, per-row relaxations are not awaited


def test_time_too_short_for_one_step_is_not_charged(monkeypatch):
    monkeypatch.setattr(FakeAgent, "improve", lambda *_: None)
    time_slice = slice_of([FakeAgent(known=True)], 1)
    gains = SemidefiniteImprover().run(time_slice, [Allocation(SEMIDEFINITE, 0, 1e-3)])
    assert not gains and not time_slice.quanta[0].agent.charges


def test_other_bounds_of_the_same_rows_wait_until_per_row_relaxations_can_be_judged():
    agents = {0: FakeAgent(known=True), 1: FakeAgent(known=True)}
    agents[0].awaits_per_row_relaxation = True
    for agent in agents.values():
        agent.may_branch = True
    for improver in (BoundImprover(), BranchAndBoundImprover()):
        assert [proposal.agent for proposal in improver.propose(RankState(agents, {0: 3.0, 1: 5.0}))] == [1]


@pytest.mark.parametrize(
    "nodes, left, stalled",
    [(640, 6.0, True), (639, 6.0, None), (640, 5.0, False), (640, 0.0, False), (640, None, None)],
)
def test_searches_have_stalled_if_most_of_the_gap_is_open_after_some_nodes_per_row(nodes, left, stalled):
    agents = [SimpleNamespace(local=SimpleNamespace(rows=rows), upper=UpperTable(initial_gap=8.0)) for rows in (4, 6)]
    agents[1].upper.initial_gap = None  # its first search, with a gap of 4
    left_of = dict(zip(map(id, agents), (left, 1.0), strict=True))
    time_slice = TimeSlice({}, lambda agent: left_of[id(agent)], Backend())
    requests = [SimpleNamespace(search=SimpleNamespace(nodes=count)) for count in (nodes, 0)]
    searches = [
        branch_and_bound._AgentSearch(TimeQuantum(agent, None, None), None, request, 4.0, 0)
        for agent, request in zip(agents, requests, strict=True)
    ]
    assert branch_and_bound._judge_stalled(searches, time_slice) == bool(stalled)
    assert [agent.upper.search_stalled for agent in agents] == [stalled] * 2
    assert left is None or agents[1].upper.initial_gap == 4.0


@pytest.mark.parametrize(
    "follows, closes, checks, nodes, stalled",
    [(True, 0.0, 3, 60, True), (True, 1.5, 4, 80, False), (False, 0.0, 1, 80, None), (True, 8.0, 2, 40, None)],
)
def test_searches_end_as_soon_as_they_make_no_progress_if_a_relaxation_may_follow(
    monkeypatch, follows, closes, checks, nodes, stalled
):
    """Check after every 20 nodes of 3 rows; each check closes a part of a gap of 8, all of which ends the search."""
    monkeypatch.setattr(tuning, "JUDGED_NODES_PER_ROW", 20)
    monkeypatch.setattr(branch_and_bound, "place_together", lambda duals, seconds: None)
    clock, calls, gap = [0.0], list[float](), [8.0]
    monkeypatch.setattr(branch_and_bound, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    search = SimpleNamespace(nodes=0, exhausted=False)

    def search_rows(requests, seconds):
        calls.append(seconds)
        clock[0] += seconds
        search.nodes += round(40 * seconds)
        gap[0] = max(0.0, gap[0] - closes)
        search.exhausted = len(calls) == 2 and closes == 8.0

    monkeypatch.setattr(branch_and_bound, "run_boundary_searches", search_rows)
    monkeypatch.setattr(
        UpperTable, "relaxation_may_follow", lambda self, local: follows and self.search_stalled is None
    )
    agent = FakeSearchedAgent(search)
    time_slice = TimeSlice({0: TimeQuantum(agent, None, None, [9.0])}, lambda _: gap[0], Backend())
    (gain,) = BranchAndBoundImprover().run(time_slice, [Allocation(BRANCH, 0, 2.0)])
    assert (len(calls), search.nodes, agent.upper.search_stalled) == (checks, nodes, stalled)
    assert gain.seconds == pytest.approx(sum(calls)) and gain.closed_gap == pytest.approx(8.0 - gap[0])


@pytest.mark.parametrize("gpu", [True, False])
def test_dual_ascent_only_waits_for_relaxations_with_time_for_their_trial(monkeypatch, gpu):
    monkeypatch.setattr(Backend, "bounds_on_gpu", lambda self, seconds: gpu)
    monkeypatch.setattr(search_rows, "relaxation_gpu_problem", lambda: None)
    agents = [FakeAgent(known=False, needs=needs) for needs in (0.5, 5.0)] + [FakeAgent(known=True)]
    found = agents_with_relaxation_in_time(agents, Backend(threads=1, stop=Deadline(time.perf_counter() + 4)))
    assert found == agents[: 2 if gpu else 1]
    assert not agents_with_relaxation_in_time(agents[1:], Backend(threads=1, stop=Deadline(time.perf_counter() + 1)))
