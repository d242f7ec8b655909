"""Combine the agents' tables again with a larger limit of table size: exactly, or with mini-buckets of a larger z.

A combination whose tables would exceed the limit splits them into mini-buckets: groups of tables over at most z
variables each, which are maximised separately and give an upper bound instead of the exact value.
"""

from collections.abc import Sequence

from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation, MeasuredGain, Needs, Properties, Proposal
from dmcmc.results.result import RECOMBINATION


class RecombinationImprover(Improver):
    """Allow larger tables in the next combination, if tables were split to save time rather than memory."""

    name, summary = RECOMBINATION, "combine again, with larger tables"
    properties = Properties(Needs.ALL_RANKS)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose a recombination, with an unknown gain (inf), if tables of this rank's agents were split."""
        if state.recombination_seconds is None:
            return []
        return [Proposal(self.name, float("inf"), None, state.recombination_seconds)]

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Raise the limit; the next combination takes the time, and records it."""
        time_slice.whole.enlarge_tables(allocations[0].seconds)
        return []
