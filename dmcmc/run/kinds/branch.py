"""To search in an agent's rows with its bound at the nodes: where ascent alone does not get any further."""

import time
from collections.abc import Sequence

from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.parts import Parts
from dmcmc.run.agent.upper_table import Room
from dmcmc.run.controller.offer import BRANCH, Grant, Offer
from dmcmc.run.kinds.protocol import Slice, Standing

_SHARE, _MOST = 1 / 8, 1 << 32  # of the memory, and bytes, for the nodes of all agents of a rank


class Branch:
    """Branch and bound in the rows that can still matter, the furthest beyond its limit first."""

    name = BRANCH

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer agents whose bound has been tightened, and did not close its rows."""
        return [
            Offer(self.name, standing.gain(number), number, weight=agent.weight)
            for number, agent in standing.agents.items()
            if agent.may_improve and agent.may_search
        ]

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Search in each agent's rows in its seconds; what one leaves goes to those after it."""
        own = slice.own(grants)
        agents, parts = max(1, len(slice.turns)), Parts([seconds for _, seconds in own])
        room = Room(ACCOUNT.part(_SHARE, _MOST) // agents, agents)
        left = slice.backend.stop.left * slice.backend.threads / agents
        for turn, _ in own:
            start, before, seconds = time.perf_counter(), slice.gap(turn.agent), parts.next()
            if turn.limits is not None:
                turn.agent.search_rows(turn.limits, seconds, room, left)
            slice.enter(self.name, turn, before, time.perf_counter() - start)
