"""Improver: search for a better assignment of the whole problem, on all ranks together."""

import time
from collections.abc import Sequence

from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation, Effect, MeasuredGain, Needs, Properties, Proposal
from dmcmc.results.result import LOCAL_SEARCH


class LocalSearchImprover(Improver):
    """Continue the local search from the incumbent."""

    name, summary = LOCAL_SEARCH, "search the whole assignment"
    properties = Properties(Needs.ALL_RANKS, Effect.ASSIGNMENTS, first_part=0.25, idle_part=0.06)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose the local search for all ranks, with an unknown gain (inf) and the weight of this rank's agents."""
        return [Proposal(self.name, float("inf"), weight=sum(map(state.weight, state.agents)))]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Search on all ranks at the same time."""
        start = time.perf_counter()
        objective_gain = time_slice.whole.search(sum(allocation.seconds for allocation in allocations))
        return [MeasuredGain(self.name, time.perf_counter() - start, objective_gain=objective_gain)]
