"""To search for a better assignment of the whole: all ranks together, beside the tables."""

import time
from collections.abc import Sequence

from dmcmc.run.improvers.protocol import Slice, Standing
from dmcmc.run.scheduler.proposal import SEARCH, Brought, Grant, Offer


class Search:
    """Go on with the local search from the best assignment."""

    name = SEARCH

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer it always, once for all ranks."""
        weight = sum(agent.weight for agent in standing.agents.values())
        return [Offer(self.name, float("inf"), weight=weight)] if standing.first else []

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Search, all ranks at the same time."""
        start = time.perf_counter()
        gained = slice.search(sum(grant.seconds for grant in grants))
        slice.brought.append(Brought(self.name, time.perf_counter() - start, objective=gained))
