"""To search in an agent's rows with its bound at the nodes: where ascent alone does not get any further."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.row_search import Request, search_rows
from dmcmc.inference.bounds.branch_and_bound_rows import bring_together
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.run.improvers.protocol import Slice, Standing, Turn
from dmcmc.run.scheduler.proposal import BRANCH, Grant, Offer

_SHARE, _MOST = 1 / 4, 1 << 34  # of the memory, and bytes, for the nodes of all agents of a rank
_JUDGED, _HOLDS = 64, 0.5  # nodes of a row until searches are judged, and of the gap: they stall if that is still open
_LOOK = 0.5  # seconds between two looks at whether they do, where something may follow


class _Wanted(NamedTuple):
    """An agent's search: its part of the gap, and the nodes that had been worked on, before it."""

    turn: Turn
    limits: NDArray[Any]
    request: Request
    gap: float | None
    nodes: int


class Branch:
    """Branch and bound in the rows that can still matter, the furthest beyond its limit first."""

    name = BRANCH

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer agents whose bound has been tightened, and did not close its rows; squares of their own go first."""
        return [
            Offer(self.name, standing.gain(number), number, weight=agent.weight, tells=agent.may_follow_search)
            for number, agent in standing.agents.items()
            if agent.may_improve and agent.may_search and not agent.awaits_squares
        ]

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Search in the rows of all agents that are granted something, in all of their seconds together.

        Where searches stall, and a lift may follow, it need not wait until those are over.
        """
        own, agents = slice.own(grants), max(1, len(slice.turns))
        start, seconds = time.perf_counter(), sum(given for _, given in own)
        room, left = ACCOUNT.part(_SHARE, _MOST) // agents, slice.backend.stop.left * slice.backend.threads / agents
        duals = [turn.agent.above.dual for turn, _ in own if turn.agent.above.searched is None]
        bring_together([dual for dual in duals if dual is not None], seconds)
        wanted = list[_Wanted]()
        for turn, _ in own:
            if turn.limits is not None:
                request = turn.agent.row_search(turn.limits, seconds, room, left)
                if request is not None:
                    wanted.append(_Wanted(turn, turn.limits, request, slice.gap(turn.agent), request.search.nodes))
        while wanted:
            left = seconds - (time.perf_counter() - start)
            judges = any(one.turn.agent.may_follow_search for one in wanted)
            search_rows([one.request for one in wanted], min(left, _LOOK) if judges else left)
            for one in wanted:
                one.turn.agent.take_searched(one.limits)
            over = not judges or left <= _LOOK or all(one.request.search.exhausted for one in wanted)
            if (judges and _judge(wanted, slice)) or over or slice.backend.stop.over:
                break
        worked = [max(1, one.request.search.nodes - one.nodes) for one in wanted]
        took = time.perf_counter() - start
        for one, nodes in zip(wanted, worked, strict=True):
            slice.enter(self.name, one.turn, one.gap, took * nodes / sum(worked))


def _judge(wanted: Sequence[_Wanted], slice: Slice) -> bool:
    """Note, and return, whether searches stall: after some nodes a row most of agents' gap is open that was at first.

    They are judged once and together, since what comes in their place is made for all agents at once, and has the
    memory of their nodes. False as long as that is not known.
    """
    begun, now = 0.0, 0.0
    for one in wanted:
        agent, gap = one.turn.agent, slice.gap(one.turn.agent)
        if one.gap is None or gap is None:
            return False
        agent.above.begun = one.gap if agent.above.begun is None else agent.above.begun
        begun, now = begun + agent.above.begun, now + gap
    nodes = sum(one.request.search.nodes for one in wanted)
    rows = sum(one.turn.agent.local.rows for one in wanted)
    if nodes < _JUDGED * rows:
        return False
    stall = now > _HOLDS * begun
    for one in wanted:
        above = one.turn.agent.above
        above.stalls, above.searched = stall, None if stall else above.searched
    return stall
