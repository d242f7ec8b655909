"""Solve an agent without boundary variables by elimination with function filtering, which makes its table final.

Function filtering removes tuples that cannot beat the incumbent from the messages of the elimination; ``FilteredTable``
does the work. The elimination continues over several time slices.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation, MeasuredGain, Properties, Proposal
from dmcmc.results.result import FUNCTION_FILTERING
from dmcmc.solving.agent.filtered_table import deadline_after


class FilteringImprover(Improver):
    """Continue an elimination with function filtering; it can use any number of seconds."""

    name, summary = FUNCTION_FILTERING, "eliminate an agent with sparse tables"
    properties = Properties(first_part=1.0, gains_at_end=True)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose agents without boundary variables or exact table while there is a tighter bound to filter by."""
        return [
            Proposal(self.name, state.gain(number), number, weight=state.weight(number))
            for number, agent in state.agents.items()
            if not agent.table.exact and agent.filtered is not None and not agent.filtered.exhausted
        ]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Continue the elimination of each agent for its seconds; agents that have become exact are left out."""
        gains = list[MeasuredGain]()
        for quantum, seconds in time_slice.quanta_of(allocations):
            agent, start, gap_before = quantum.agent, time.perf_counter(), time_slice.gap_of(quantum.agent)
            if agent.table.exact:
                continue
            backend = replace(time_slice.backend, stop=deadline_after(time_slice.backend.stop, seconds))
            agent.filter(time_slice.best, backend, time_slice.backend.stop.left)
            gains.append(time_slice.record(self.name, quantum, gap_before, time.perf_counter() - start))
        return gains
