"""To eliminate an agent's hidden variables exactly: its table is final then."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.runtime.deadline import NO_STOP
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.run.improvers.protocol import Slice, Standing
from dmcmc.run.scheduler.proposal import ELIMINATE, Grant, Offer
from dmcmc.samplers import registry
from dmcmc.samplers.contract.protocol import SampledTable, Sampling
from dmcmc.samplers.methods.exact import at_once

_LEAST = 0.25  # seconds that an elimination gets at least: the first ones are disturbed now and then
_AMPLE = 3.0  # times its part of the time is what one agent may take: most estimates are wrong by the same factor
_AGAIN = 1.25  # times what it has taken in vain is the price of an elimination that was given up, at least


class Eliminated(NamedTuple):
    """What became of some agents' eliminations: tables, and the seconds of those that were given up."""

    tables: dict[int, SampledTable]
    given_up: dict[int, float]


class Eliminate:
    """Eliminate an agent in place of sampling it: an offer as long as its table is not exact."""

    name = ELIMINATE

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer the agents that are not exact, at the cost model's price."""
        return [
            Offer(self.name, standing.gain(number), number, max(agent.price, _AGAIN * agent.in_vain), agent.weight)
            for number, agent in standing.agents.items()
            if agent.may_improve and agent.price is not None
        ]

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Eliminate one after the other; one that takes much longer than it should is given up."""
        own = slice.own(grants)
        if not own:
            return
        befores = [slice.gap(turn.agent) for turn, _ in own]
        sampling = replace(own[0][0].agent.means.sampling, backend=slice.backend)
        found = eliminate_in_turn([(turn.agent.local, seconds) for turn, seconds in own], sampling, timed=True)
        for (turn, estimated), before in zip(own, befores, strict=True):
            agent, number = turn.agent, turn.agent.local.agent
            if number in found.tables:
                agent.take_exact(found.tables[number])
            else:
                agent.give_up(found.given_up[number])
            seconds = found.given_up[number] if number in found.given_up else found.tables[number].seconds
            slice.enter(self.name, turn, before, seconds, estimated)


def eliminate_in_turn(
    agents: Sequence[tuple[LocalProblem, float]],
    sampling: Sampling,
    timed: bool,
    patient: bool = False,
    finished: Callable[[LocalProblem, SampledTable], None] | None = None,
) -> Eliminated:
    """Eliminate some agents.

    The quick ones come first. Each has time in proportion to its estimate: one that takes much longer than expected
    leaves at least half of what is left to the others. Without a time budget, and for agents that are best eliminated
    together, there are no turns.

    Parameters
    ----------
    agents
        Each with the seconds that it should take.
    sampling
        With a backend that ends when all have to be done.
    timed
        Whether there is a time budget.
    patient
        Whether each may take all the time that there is.
    finished
        Called with each table at once; they come one by one then.
    """
    backend, seconds = sampling.backend, {local.agent: expected for local, expected in agents}
    locals_ = sorted((local for local, _ in agents), key=lambda local: (seconds[local.agent], local.agent))
    tables: dict[int, SampledTable] = {}
    given_up: dict[int, float] = {}
    total = sum(seconds.values())
    for places in at_once(locals_, backend if timed or finished is not None else None):
        group, start = [locals_[i] for i in places], time.perf_counter()
        expected, stop = sum(seconds[local.agent] for local in group), NO_STOP
        if timed:
            left = max(0.0, backend.stop.until - start)
            part = left * expected / total
            ample = left if patient else min(_AMPLE * part, max(part, 0.5 * left))
            stop = backend.stop.by(start + max(_LEAST, ample))
        limited = replace(sampling, backend=replace(backend, stop=stop))
        try:
            made = registry.get("exact").solve(group, limited)
            if sampling.team.rank == 0:
                tables |= {local.agent: table for local, table in zip(group, made, strict=True)}
            if finished is not None:
                for local in group:
                    finished(local, tables[local.agent])
        except (OutOfTime, OutOfMemory):
            given_up |= {local.agent: time.perf_counter() - start for local in group}
        total -= expected
    return Eliminated(tables, given_up)
