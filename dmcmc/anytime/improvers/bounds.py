"""Improvers of an agent's upper bounds: dual ascent, the semidefinite relaxation, and branch and bound.

A *row* is one assignment of the agent's boundary variables (its interface). A row's *cutoff* is the utility that it has
to exceed to be part of a better solution than the incumbent. Dual ascent leaves out values with which a row stays below
its cutoff. Branch and bound continues where dual ascent alone makes no more progress. It *stalls* if more than half of
the agents' initial gap (their part of the optimality gap) is still open after 64 nodes per row; then a semidefinite
relaxation takes over where one suits the agent: dense agents with many variables. One relaxation serves all rows of an
agent. On a GPU, *per-row* relaxations follow it: a search tree per row, whose nodes are bounded one by one.

States of an agent's relaxation, in this order:

1. Not started (``UpperTable.relaxation`` is None). Where branch and bound over the rows goes first, the relaxation
   starts once that has stalled or cannot be used.
2. On *trial* (``untested``): too few descent steps were made to judge it. The agent's dual ascent waits.
3. Tested. On a GPU, branch and bound and dual ascent still wait while the per-row relaxations are ``undecided``.
4. Ended: ``exhausted`` (no bound can get lower), or excluded (``UpperTable.no_relaxation``), because it does not suit
   the agent or too little time is left. A relaxation may be excluded in any state.

A *quantum* is an improver's share of a time slice for one agent. A *core second* is one second of one CPU core.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.improvers.protocol import Improver, RankState, Start, TimeQuantum, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation, Effect, MeasuredGain, Properties, Proposal
from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearchRequest, run_boundary_searches
from dmcmc.inference.bounds.dual.rounding import rounded_assignments
from dmcmc.inference.bounds.search_rows import TighteningBudget, improve_relaxations, place_together, tighten
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.results.result import BOUND, BRANCH, ROUNDING, SEMIDEFINITE
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.solving.agent.agent import Agent
from dmcmc.solving.agent.bounds import trial_seconds
from dmcmc.tuning import run as tuning


class BoundImprover(Improver):
    """Tighten the bounds of the rows that can still matter."""

    name, summary = BOUND, "continue dual ascent or mini-buckets"
    # The start of a dual ascent takes long on some machines; one that has converged gains nothing more.
    properties = Properties(effect=Effect.BOUNDS, minimum_quantum=0.5, first_part=0.65, idle_part=0.02)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose agents whose bounds can get tighter.

        Agents that wait for the outcome of a semidefinite relaxation are left out, if the relaxation has its kernels. A
        proposal is ``awaited`` if a relaxation may follow the agent's branch and bound.
        """
        can_relax = state.is_ready(SEMIDEFINITE)
        return [
            Proposal(
                self.name, state.gain(number), number, weight=state.weight(number), awaited=agent.relaxation_may_follow
            )
            for number, agent in state.agents.items()
            if agent.may_improve
            and not (agent.upper.exhausted or agent.awaits_per_row_relaxation)
            and not (can_relax and agent.awaits_relaxation)
        ]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Tighten the bounds of all agents; on a GPU, if that is faster, all at once."""
        quanta, backend = time_slice.quanta_of(allocations), time_slice.backend
        requests = [quantum.agent.bound_request(quantum.row_cutoffs) for quantum, _ in quanta]
        bound_seconds = [seconds for _, seconds in quanta]
        gaps_before = [time_slice.gap_of(quantum.agent) for quantum, _ in quanta]
        allowance = TighteningBudget(sum(bound_seconds) * backend.threads, bound_seconds, pass_on=True)
        spent = tighten(requests, backend, allowance)
        gains = list[MeasuredGain]()
        for (quantum, _), request, seconds, gap_before in zip(quanta, requests, spent, gaps_before, strict=True):
            start = time.perf_counter()
            quantum.agent.take_tightened(quantum.row_cutoffs, request)
            gains.append(time_slice.record(self.name, quantum, gap_before, seconds + time.perf_counter() - start))
        return gains

    def starts(self, agents: Iterable[Agent], is_ready: Callable[[str], bool], seed: int) -> Iterator[Start]:
        """Yield roundings of the dual bounds of all agents without boundary variables together."""
        roundings = [
            [(agent.local.hidden, values) for values in rounded_assignments(agent.upper.dual, seed)]
            for agent in agents
            if is_ready(ROUNDING) and not agent.local.interface and not agent.table.exact and agent.upper.dual
        ]
        for of_agents in zip_longest(*roundings):
            known = [one for one in of_agents if one is not None]
            variables = [variable for hidden, _ in known for variable in hidden]
            yield Start(variables, np.concatenate([values for _, values in known]))


class SemidefiniteImprover(Improver):
    """Tighten the bounds of the rows that can still matter by a semidefinite relaxation."""

    name, summary = SEMIDEFINITE, "continue the relaxation of an agent's rows"
    properties = Properties(effect=Effect.BOUNDS, first_part=0.65, idle_part=0.02)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose agents for which the relaxation may help.

        The gain is the agent's part of the optimality gap. A proposal is resumable if per-row relaxations can continue
        without repeating work. Branch and bound lowers the bounds of the same rows and does not use this progress;
        with per-row relaxations that also holds for dual ascent.
        """
        return [
            Proposal(
                self.name,
                state.gain(number),
                number,
                weight=state.weight(number),
                resumable=agent.relaxation_resumable,
                excludes=(BRANCH, BOUND) if agent.relaxation_resumable else (BRANCH,),
            )
            for number, agent in state.agents.items()
            if agent.may_improve and agent.may_relax
        ]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Relax several agents at once: on a GPU if there is one, otherwise each on a thread.

        Each agent is charged its share of the elapsed time: elapsed seconds times its allocated seconds, divided by the
        sum of all allocated seconds. If no step was made, nothing is recorded.
        """
        backend = time_slice.backend
        seconds_per_agent = trial_seconds(backend, len(time_slice.quanta))
        quanta = [
            (quantum, s)
            for quantum, s in time_slice.quanta_of(allocations)
            if quantum.agent.upper.has_time_for_relaxation(seconds_per_agent)
        ]
        if not quanta:
            return []
        start, gaps_before = time.perf_counter(), [time_slice.gap_of(quantum.agent) for quantum, _ in quanta]
        requests = [quantum.agent.relaxation_request(quantum.row_cutoffs) for quantum, _ in quanta]
        steps_before = sum(request.relaxation.work_done for request in requests)
        improve_relaxations(requests, [seconds for _, seconds in quanta], backend)
        if steps_before == sum(
            request.relaxation.work_done for request in requests
        ):  # too little time for one step: that shows nothing about the relaxation
            if sum(seconds for _, seconds in quanta) >= 2 * sampler_tuning.UNTRIED_SHARE * backend.stop.left:
                for quantum, _ in quanta:
                    quantum.agent.upper.no_relaxation = True  # exclude it: no later quantum is longer
            return []
        gains = list[MeasuredGain]()
        elapsed_part = (time.perf_counter() - start) / sum(seconds for _, seconds in quanta)
        for (quantum, seconds), gap_before in zip(quanta, gaps_before, strict=True):
            quantum.agent.take_relaxation(quantum.row_cutoffs)
            gap_after = time_slice.gap_of(quantum.agent)
            gained = gap_before is not None and gap_after is not None and gap_after < gap_before
            charged_seconds = quantum.agent.upper.charge(elapsed_part * seconds, gained)
            if charged_seconds > 0:
                gains.append(time_slice.record(self.name, quantum, gap_before, charged_seconds))
        return gains


class _AgentSearch(NamedTuple):
    """The search of one agent's rows.

    Attributes
    ----------
    quantum : TimeQuantum
        The agent and its share of the time slice.
    row_cutoffs : (rows,) int64 or float64
        Utility that each row has to exceed.
    request : BoundarySearchRequest
        The search and its cutoffs, as ``run_boundary_searches`` takes them.
    gap : float or None
        The agent's part of the optimality gap before this search.
    nodes : int
        Nodes processed before this search.
    """

    quantum: TimeQuantum
    row_cutoffs: NDArray[Any]
    request: BoundarySearchRequest
    gap: float | None
    nodes: int


class BranchAndBoundImprover(Improver):
    """Branch and bound over the rows that can still matter, those furthest above their cutoff first."""

    name, summary = BRANCH, "branch over the rows of an agent, or of the whole problem"
    properties = Properties(effect=Effect.BOUNDS, first_part=0.65, idle_part=0.02)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose agents whose bound has been tightened without closing all rows; per-row relaxations go first."""
        return [
            Proposal(
                self.name,
                state.gain(number),
                number,
                weight=state.weight(number),
                resumable=True,
                awaited=agent.search_awaited,
            )
            for number, agent in state.agents.items()
            if agent.may_improve and agent.may_branch and not agent.awaits_per_row_relaxation
        ]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Search the rows of all agents that have an allocation, in all of their seconds together.

        If semidefinite relaxations may follow, the searches are checked every half second, and end early if they have
        stalled. Each agent is charged the elapsed seconds in proportion to the nodes that its search has processed.
        """
        quanta, agents = time_slice.quanta_of(allocations), max(1, len(time_slice.quanta))
        start, total_seconds = time.perf_counter(), sum(seconds for _, seconds in quanta)
        node_bytes, seconds_left = (
            MEMORY_ACCOUNT.budget_share(sampler_tuning.MEMORY_SHARE, tuning.MAX_NODE_BYTES) // agents,
            time_slice.backend.stop.left * time_slice.backend.threads / agents,
        )
        duals = [quantum.agent.upper.dual for quantum, _ in quanta if quantum.agent.upper.boundary_search is None]
        place_together([dual for dual in duals if dual is not None], total_seconds)
        searches = list[_AgentSearch]()
        for quantum, _ in quanta:
            if quantum.row_cutoffs is not None:
                request = quantum.agent.boundary_search(quantum.row_cutoffs, total_seconds, node_bytes, seconds_left)
                if request is not None:
                    searches.append(
                        _AgentSearch(
                            quantum,
                            quantum.row_cutoffs,
                            request,
                            time_slice.gap_of(quantum.agent),
                            request.search.nodes,
                        )
                    )
        while searches:
            seconds_left = total_seconds - (time.perf_counter() - start)
            checks_progress = any(search.quantum.agent.relaxation_may_follow for search in searches)
            run_boundary_searches(
                [search.request for search in searches],
                min(seconds_left, 2 * sampler_tuning.SLICE_SECONDS) if checks_progress else seconds_left,
            )
            for search in searches:
                search.quantum.agent.take_search_results(search.row_cutoffs)
            ended = (
                not checks_progress
                or seconds_left <= 2 * sampler_tuning.SLICE_SECONDS
                or all(search.request.search.exhausted for search in searches)
            )
            if (checks_progress and _judge_stalled(searches, time_slice)) or ended or time_slice.backend.stop.over:
                break
        new_nodes = [max(1, search.request.search.nodes - search.nodes) for search in searches]
        elapsed = time.perf_counter() - start
        return [
            time_slice.record(self.name, search.quantum, search.gap, elapsed * nodes / sum(new_nodes))
            for search, nodes in zip(searches, new_nodes, strict=True)
        ]


def _judge_stalled(searches: Sequence[_AgentSearch], time_slice: TimeSlice) -> bool:
    """Return whether the searches have stalled: most of the agents' initial gap is still open after some nodes per row.

    They are judged only once and together, because the semidefinite relaxations that follow are made for all agents at
    once, and get the memory of the nodes. The result is False until the searches can be judged: while a gap is unknown,
    or too few nodes were processed. The decision is stored in ``UpperTable.search_stalled``; stalled searches are
    dropped.
    """
    initial_gap, open_gap = 0.0, 0.0
    for search in searches:
        agent, gap = search.quantum.agent, time_slice.gap_of(search.quantum.agent)
        if search.gap is None or gap is None:
            return False
        agent.upper.initial_gap = search.gap if agent.upper.initial_gap is None else agent.upper.initial_gap
        initial_gap, open_gap = initial_gap + agent.upper.initial_gap, open_gap + gap
    nodes = sum(search.request.search.nodes for search in searches)
    rows = sum(search.quantum.agent.local.rows for search in searches)
    if nodes < tuning.JUDGED_NODES_PER_ROW * rows:
        return False
    stalled = open_gap > sampler_tuning.MAJORITY_SHARE * initial_gap
    for search in searches:
        upper = search.quantum.agent.upper
        upper.search_stalled, upper.boundary_search = stalled, None if stalled else upper.boundary_search
    return stalled
