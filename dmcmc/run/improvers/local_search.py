"""Improver: search for a better assignment of the whole problem, on all ranks together."""

import time
from collections.abc import Sequence

from dmcmc.run.improvers.protocol import RankState, TimeSlice
from dmcmc.run.scheduler.proposal import LOCAL_SEARCH, Allocation, MeasuredGain, Proposal


class LocalSearchImprover:
    """Continue the local search from the incumbent."""

    name = LOCAL_SEARCH

    def proposals(self, state: RankState) -> list[Proposal]:
        """Propose the local search once for all ranks (on rank 0), with an unknown gain (inf)."""
        weight = sum(agent.weight for agent in state.agents.values())
        return [Proposal(self.name, float("inf"), weight=weight)] if state.is_first_rank else []

    def carry_out(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> None:
        """Search on all ranks at the same time."""
        start = time.perf_counter()
        objective_gain = time_slice.run_local_search(sum(allocation.seconds for allocation in allocations))
        time_slice.gains.append(MeasuredGain(self.name, time.perf_counter() - start, objective_gain=objective_gain))
