"""To eliminate an agent without what cannot beat the incumbent: its table is final then."""

import time
from collections.abc import Sequence
from dataclasses import replace

from dmcmc.run.agent.filtered_table import until
from dmcmc.run.improvers.protocol import Slice, Standing
from dmcmc.run.scheduler.proposal import FILTER, Grant, Offer


class Filter:
    """Go on with an elimination that filters: any seconds are of use, since it goes on where it was."""

    name = FILTER

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer agents without interface that are not exact, as long as there is a tighter bound to filter by."""
        return [
            Offer(self.name, standing.gain(number), number, weight=agent.weight)
            for number, agent in standing.agents.items()
            if not agent.table.exact and agent.filtered is not None and not agent.filtered.exhausted
        ]

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Go on with each for its seconds."""
        for turn, seconds in slice.own(grants):
            agent, begun, before = turn.agent, time.perf_counter(), slice.gap(turn.agent)
            if agent.table.exact:
                continue
            backend = replace(slice.backend, stop=until(slice.backend.stop, seconds))
            agent.filter(slice.best, backend, slice.backend.stop.left)
            slice.enter(self.name, turn, before, time.perf_counter() - begun)
