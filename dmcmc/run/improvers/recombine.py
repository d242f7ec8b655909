"""To combine the tables again, with larger ones: exact, or mini-buckets of a larger z."""

from collections.abc import Sequence

from dmcmc.run.improvers.protocol import Slice, Standing
from dmcmc.run.scheduler.proposal import COMBINE, Grant, Offer

LARGER = 4.0  # times as large tables, about as many times the work


class Combine:
    """Allow larger tables in the next combination, where some were split and the time, not the memory, was why."""

    name = COMBINE

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer it where some of this rank's agents were split."""
        if standing.again is None:
            return []
        return [Offer(self.name, float("inf"), None, standing.again)]

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Say that it may be larger: the next combination is what takes the time."""
        slice.enlarge(grants[0].seconds)
