"""Let a search engine (toulbar2, CP-SAT, MaxSAT or one of our own) run in the background while it may gain something.

The improver only proposes that the engine continues; the engine works in its own process or thread
(:mod:`dmcmc.anytime.engines`).
"""

from collections.abc import Sequence

from dmcmc.anytime.improvers.protocol import Improver, RankState, TimeSlice, WholeProblemWork
from dmcmc.anytime.scheduler.proposal import Allocation, Effect, MeasuredGain, Needs, Properties, Proposal
from dmcmc.results.result import EXTERNAL_SEARCH


class ExternalSearchImprover(Improver):
    """Let the external search continue in the background, or wait for it if there is no other work."""

    name, summary = EXTERNAL_SEARCH, "let the search engine run"
    properties = Properties(Needs.PROCESS, Effect.ASSIGNMENTS | Effect.BOUNDS)

    def propose(self, state: RankState) -> list[Proposal]:
        """Propose the external search while it may gain something; without an allocation, it ends.

        The gain is unknown (inf).
        """
        return [Proposal(self.name, float("inf"))] if state.external_search_active else []

    def run(self, time_slice: TimeSlice, allocations: Sequence[Allocation]) -> list[MeasuredGain]:
        """Wait for the external search if it is the only work that has an allocation."""
        time_slice.whole.wait_for_engine(sum(allocation.seconds for allocation in allocations))
        return []

    def begin(self, whole: WholeProblemWork, allocations: Sequence[Allocation]) -> None:
        """Let the external search go on; without an allocation, it ends."""
        whole.continue_engine(bool(allocations))
