"""Semidefinite lifts as a kind of work: several agents at once, and nothing is held against them before it is known."""

import time
from types import SimpleNamespace

import pytest

from dmcmc.inference.bounds.semidefinite.cuda import batched_relaxation, device_arrays
from dmcmc.inference.bounds.semidefinite.descent_state import Progress
from dmcmc.inference.bounds.semidefinite.relaxation import LiftRequest
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.run.agent.upper_table import UpperTable
from dmcmc.run.improvers import branch_and_bound
from dmcmc.run.improvers.branch_and_bound import Branch
from dmcmc.run.improvers.protocol import Slice, Standing, Turn
from dmcmc.run.improvers.semidefinite import SemidefiniteLift, soon_lifted
from dmcmc.run.improvers.tighten_bound import Bound
from dmcmc.run.scheduler.proposal import BRANCH, SEMIDEFINITE, Grant


class Pretending:
    """An agent whose lifts take no time; of its seconds some can be held against it."""

    def __init__(self, known, quick=True, needs=0.0):
        self.may_improve = self.may_lift = True
        self.awaits_lift, self.awaits_squares, self.lifts_steadily, self.made = not known, False, False, 0
        self.may_follow_search = False
        self.weight, self.left, self.given, self.paid = 1.0, 10.0, [], []
        self.above = SimpleNamespace(
            exhausted=False,
            quick_to_lift=lambda seconds: quick and seconds > needs,
            pay=self.pay,
        )
        self.known, self.own = known, Progress(expected=True)

    def pay(self, seconds, brought):
        self.paid.append(brought)
        return 2.5 if self.known else 0.0

    def lift_request(self, limits):
        return LiftRequest(self, None, limits)

    def improve(self, seconds, steps, rows, limits):
        self.given.append(seconds)
        self.made += 1

    def take_lifted(self, limits):
        self.left -= 4.0


class Searched:
    """An agent of three rows that are searched in."""

    def __init__(self, search):
        self.above, self.local, self.search = UpperTable(), SimpleNamespace(rows=3), search

    @property
    def may_follow_search(self):
        return self.above.lift_follows(self.local)

    def row_search(self, limits, seconds, room, left):
        return SimpleNamespace(search=self.search)

    def take_searched(self, limits):
        pass


def slice_of(agents, threads):
    def nothing(seconds):
        return 0.0

    turns = {number: Turn(agent, None, None) for number, agent in enumerate(agents)}
    return Slice(turns, lambda agent: agent.left, Backend(threads=threads), nothing, nothing, nothing)


def test_all_agents_that_may_be_lifted_are_offered():
    agents = {0: Pretending(True), 1: Pretending(True)}
    agents[1].may_lift = False
    (offer,) = SemidefiniteLift().offers(Standing(agents, {0: 3.0, 1: 5.0}))
    assert (offer.kind, offer.agent, offer.gain, offer.seconds) == (SEMIDEFINITE, 0, 3.0, None)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_agents_have_a_thread_each_and_so_more_seconds_than_they_are_granted(threads):
    agents = [Pretending(known=True), Pretending(known=False), Pretending(known=True, quick=False)]
    work = slice_of(agents, threads)
    SemidefiniteLift().carry_out(work, [Grant(SEMIDEFINITE, number, 1.5) for number in range(3)])
    assert [agent.given for agent in agents] == [[1.5 * min(threads, 2)]] * 2 + [[]]
    (brought,) = work.brought
    assert (brought.kind, brought.seconds, brought.closed) == (SEMIDEFINITE, 2.5, 4.0)
    assert [agent.paid for agent in agents] == [[True], [True], []]


def test_ascent_waits_until_it_is_known_what_a_lift_brings():
    agents = {0: Pretending(known=False), 1: Pretending(known=True)}
    assert [offer.agent for offer in Bound().offers(Standing(agents, {0: 3.0, 1: 5.0}))] == [1]


@pytest.mark.parametrize("room", [True, False])
def test_a_gpu_lifts_all_agents_at_once_in_all_of_their_seconds_where_it_has_room(monkeypatch, room):
    asked = []

    def lift(requests, backend, seconds):
        asked.append(([request.lift for request in requests], seconds))
        for request in requests:
            request.lift.made += room
        return room

    monkeypatch.setattr(Backend, "bounds_on_gpu", lambda self, seconds: True)
    monkeypatch.setattr(device_arrays, "lift_problem", lambda: None)
    monkeypatch.setattr(batched_relaxation, "lift_on_gpu", lift)
    agents = [Pretending(known=True), Pretending(known=False)]
    work = slice_of(agents, 4)
    SemidefiniteLift().carry_out(work, [Grant(SEMIDEFINITE, number, 1.5) for number in range(2)])
    assert asked == [(agents, 3.0)]
    assert [agent.given for agent in agents] == ([[], []] if room else [[3.0], [3.0]]) and len(work.brought) == 1
    assert [agent.own.young for agent in agents] == [room, room]  # on the CPU none are waited for


def test_time_that_is_too_short_for_anything_is_not_held_against_lifts(monkeypatch):
    monkeypatch.setattr(Pretending, "improve", lambda *_: None)
    work = slice_of([Pretending(known=True)], 1)
    SemidefiniteLift().carry_out(work, [Grant(SEMIDEFINITE, 0, 1e-3)])
    assert not work.brought and not work.turns[0].agent.paid


def test_what_lowers_the_same_rows_waits_until_squares_of_rows_own_show_what_they_bring():
    agents = {0: Pretending(known=True), 1: Pretending(known=True)}
    agents[0].awaits_squares = True
    for agent in agents.values():
        agent.may_search = True
    for kind in (Bound(), Branch()):
        assert [offer.agent for offer in kind.offers(Standing(agents, {0: 3.0, 1: 5.0}))] == [1]


@pytest.mark.parametrize(
    "nodes, left, stalls",
    [(640, 6.0, True), (639, 6.0, None), (640, 5.0, False), (640, 0.0, False), (640, None, None)],
)
def test_searches_stall_together_where_most_of_the_gap_is_open_after_some_nodes_a_row(nodes, left, stalls):
    agents = [SimpleNamespace(local=SimpleNamespace(rows=rows), above=UpperTable(begun=8.0)) for rows in (4, 6)]
    agents[1].above.begun = None  # searched in for the first time: 4 of the gap were open
    left_of = dict(zip(map(id, agents), (left, 1.0), strict=True))
    work = Slice({}, lambda agent: left_of[id(agent)], Backend(), *[lambda seconds: 0.0] * 3)
    requests = [SimpleNamespace(search=SimpleNamespace(nodes=count)) for count in (nodes, 0)]
    wanted = [
        branch_and_bound._Wanted(Turn(agent, None, None), None, request, 4.0, 0)
        for agent, request in zip(agents, requests, strict=True)
    ]
    assert branch_and_bound._judge(wanted, work) == bool(stalls)
    assert [agent.above.stalls for agent in agents] == [stalls] * 2
    assert left is None or agents[1].above.begun == 4.0


@pytest.mark.parametrize(
    "follows, closes, looks, nodes, stalls",
    [(True, 0.0, 3, 60, True), (True, 1.5, 4, 80, False), (False, 0.0, 1, 80, None), (True, 8.0, 2, 40, None)],
)
def test_a_turn_of_searches_ends_as_soon_as_they_stall_where_a_lift_may_follow(
    monkeypatch, follows, closes, looks, nodes, stalls
):
    """A look's nodes are 20 for 20 a row's, of 3 rows; each closes a part of a gap of 8; all of it is exhausted."""
    monkeypatch.setattr(branch_and_bound, "_JUDGED", 20)
    monkeypatch.setattr(branch_and_bound, "bring_together", lambda duals, seconds: None)
    clock, asked, gap = [0.0], list[float](), [8.0]
    monkeypatch.setattr(branch_and_bound, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    search = SimpleNamespace(nodes=0, exhausted=False)

    def search_rows(requests, seconds):
        asked.append(seconds)
        clock[0] += seconds
        search.nodes += round(40 * seconds)
        gap[0] = max(0.0, gap[0] - closes)
        search.exhausted = len(asked) == 2 and closes == 8.0

    monkeypatch.setattr(branch_and_bound, "search_rows", search_rows)
    monkeypatch.setattr(UpperTable, "lift_follows", lambda self, local: follows and self.stalls is None)
    agent = Searched(search)
    work = Slice({0: Turn(agent, None, None, [9.0])}, lambda _: gap[0], Backend(), *[lambda seconds: 0.0] * 3)
    Branch().carry_out(work, [Grant(BRANCH, 0, 2.0)])
    (brought,) = work.brought
    assert (len(asked), search.nodes, agent.above.stalls) == (looks, nodes, stalls)
    assert brought.seconds == pytest.approx(sum(asked)) and brought.closed == pytest.approx(8.0 - gap[0])


@pytest.mark.parametrize("gpu", [True, False])
def test_agents_that_wait_for_a_lift_are_those_with_time_for_its_trial_which_is_short_on_a_gpu(monkeypatch, gpu):
    monkeypatch.setattr(Backend, "bounds_on_gpu", lambda self, seconds: gpu)
    monkeypatch.setattr(device_arrays, "lift_problem", lambda: None)
    agents = [Pretending(known=False, needs=needs) for needs in (0.5, 5.0)] + [Pretending(known=True)]
    found = soon_lifted(agents, Backend(threads=1, stop=Stop(time.perf_counter() + 4)))
    assert found == agents[: 2 if gpu else 1]
    assert not soon_lifted(agents[1:], Backend(threads=1, stop=Stop(time.perf_counter() + 1)))
