"""Search an agent's boundary assignments (rows) by branch and bound, with its upper bound at the nodes.

A row is one assignment of the agent's boundary variables (its interface). A row's *cutoff* is the utility that it has
to exceed to be part of a better solution than the incumbent. The search continues where dual ascent alone makes no more
progress. It *stalls* if more than half of the agents' initial gap (their part of the optimality gap) is still open
after 64 nodes per row; then a semidefinite relaxation takes over where one suits the agent.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeQuantum, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation, Effect, MeasuredGain, Properties, Proposal
from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearchRequest, run_boundary_searches
from dmcmc.inference.bounds.branch_and_bound_rows import place_together
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.results.result import BRANCH
from dmcmc.samplers.tuning import common
from dmcmc.tuning import anytime as tuning


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

    name, summary = BRANCH, "branch over the rows of an agent, or of the union of all agents"
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
            MEMORY_ACCOUNT.budget_share(common.MEMORY_SHARE, tuning.MAX_NODE_BYTES) // agents,
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
                min(seconds_left, 2 * common.SLICE_SECONDS) if checks_progress else seconds_left,
            )
            for search in searches:
                search.quantum.agent.take_search_results(search.row_cutoffs)
            ended = (
                not checks_progress
                or seconds_left <= 2 * common.SLICE_SECONDS
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
    stalled = open_gap > common.MAJORITY_SHARE * initial_gap
    for search in searches:
        upper = search.quantum.agent.upper
        upper.search_stalled, upper.boundary_search = stalled, None if stalled else upper.boundary_search
    return stalled
