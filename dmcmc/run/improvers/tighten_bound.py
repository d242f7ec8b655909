"""To bound an agent's table from above more tightly."""

import time
from collections.abc import Sequence

from dmcmc.inference.bounds.tighten import Allowance, tighten
from dmcmc.run.improvers.protocol import Slice, Standing
from dmcmc.run.scheduler.proposal import BOUND, Grant, Offer

_SETTLED = 0.2  # of the time for a bound goes to the elimination of what it leaves of rows


class Bound:
    """Tighten the bounds of the rows that can still matter, and eliminate what is left of their values."""

    name = BOUND

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer bounds that can get tighter."""
        return [
            Offer(self.name, standing.gain(number), number, weight=agent.weight, tells=agent.may_follow_search)
            for number, agent in standing.agents.items()
            if agent.may_improve and not (agent.above.exhausted or agent.awaits_lift or agent.awaits_squares)
        ]

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Tighten all of them, on a GPU at once where that is quicker."""
        own, backend = slice.own(grants), slice.backend
        requests = [turn.agent.request(turn.limits) for turn, _ in own]
        seconds = [
            given if request.thresholds is None else (1 - _SETTLED) * given
            for (_, given), request in zip(own, requests, strict=True)
        ]
        befores = [slice.gap(turn.agent) for turn, _ in own]
        allowance = Allowance(sum(given for _, given in own) * backend.threads, seconds, pass_on=True)
        tightened = tighten(requests, backend, allowance)
        for (turn, given), found, before in zip(own, tightened, befores, strict=True):
            start = time.perf_counter()
            turn.agent.settle(turn.limits, found, _SETTLED * given)
            slice.enter(self.name, turn, before, found.seconds + time.perf_counter() - start)
