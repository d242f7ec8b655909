"""To bound an agent's rows by the semidefinite relaxation: where agents are dense and have many variables."""

import math
import time
from collections.abc import Sequence

from dmcmc.inference.bounds.semidefinite_rows import lift_rows, on_gpu
from dmcmc.inference.execution.backend import Backend
from dmcmc.run.agent.agent import Agent
from dmcmc.run.improvers.protocol import Slice, Standing
from dmcmc.run.scheduler.proposal import SEMIDEFINITE, Grant, Offer

_TRIALS = 0.6  # of the time that is left, at most, goes by until it is of use
_ALL = 0.2  # of the time that is left: if that is too short for anything, so is all that follows
_GPU_TRIAL = 1.0  # seconds, about, of a start and the first steps of ten agents on a GPU


def soon_lifted(agents: Sequence[Agent], backend: Backend) -> list[Agent]:
    """Return those of some agents that lifts will show in time whether they are of use to: ascent can wait there."""
    waiting = [agent for agent in agents if agent.awaits_lift]
    each = _time_of_trials(backend, len(waiting))
    return [agent for agent in waiting if agent.above.quick_to_lift(each)]


def _time_of_trials(backend: Backend, agents: int) -> float:
    """Return the seconds of a core for the trial of each of so many agents' lifts; on a GPU it is soon over."""
    if on_gpu(backend, backend.stop.left):
        return math.inf if _TRIALS * backend.stop.left > _GPU_TRIAL else 0.0
    return _TRIALS * backend.stop.left * backend.threads / max(1, agents)


class SemidefiniteLift:
    """Lift the rows that can still matter."""

    name = SEMIDEFINITE

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer agents that it may be of use to."""
        return [
            Offer(self.name, standing.gain(number), number, weight=agent.weight, steady=agent.lifts_steadily)
            for number, agent in standing.agents.items()
            if agent.may_improve and agent.may_lift
        ]

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Lift several agents at once: on a GPU where there is one, else each on a thread."""
        backend = slice.backend
        each = _time_of_trials(backend, len(slice.turns))
        own = [(turn, s) for turn, s in slice.own(grants) if turn.agent.above.quick_to_lift(each)]
        if not own:
            return
        start, befores = time.perf_counter(), [slice.gap(turn.agent) for turn, _ in own]
        requests = [turn.agent.lift_request(turn.limits) for turn, _ in own]
        made = sum(request.lift.made for request in requests)
        lift_rows(requests, [seconds for _, seconds in own], backend)
        if made == sum(request.lift.made for request in requests):  # too little time tells nothing about lifts
            if sum(seconds for _, seconds in own) >= _ALL * backend.stop.left:
                for turn, _ in own:
                    turn.agent.above.unlifted = True  # there will not be any more of it
            return
        took = (time.perf_counter() - start) / sum(seconds for _, seconds in own)
        for (turn, seconds), before in zip(own, befores, strict=True):
            turn.agent.take_lifted(turn.limits)
            after = slice.gap(turn.agent)
            brought = before is not None and after is not None and after < before
            spent = turn.agent.above.pay(took * seconds, brought)
            if spent > 0:
                slice.enter(self.name, turn, before, spent)
