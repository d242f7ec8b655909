"""To sample an agent further: its table from below gets better."""

import time
from collections.abc import Sequence

from dmcmc.inference.runtime.time_shares import Parts
from dmcmc.run.improvers.protocol import Slice, Standing
from dmcmc.run.scheduler.proposal import SAMPLE, Grant, Offer


class Sample:
    """Go on with the chains of the rows that can still matter."""

    name = SAMPLE

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer what is sampled and can get better; an agent without interface is the search's affair."""
        return [
            Offer(self.name, standing.gain(number), number, weight=agent.weight)
            for number, agent in standing.agents.items()
            if agent.may_improve and not agent.below.exhausted and agent.local.interface
        ]

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Sample each in its seconds; what one leaves goes to those after it."""
        own = slice.own(grants)
        parts = Parts([seconds for _, seconds in own])
        for turn, _ in own:
            start = time.perf_counter()
            turn.agent.sample(turn.outside, parts.next())
            slice.enter(self.name, turn, None, time.perf_counter() - start)
