"""A finished exact run that can be continued: its messages are repeated where something has changed (S-DPOP).

The last run must have been exact: exact tables, and UTIL messages that are not split. Runs of one file
(:mod:`.incremental_run`) and of private inputs (:mod:`.private_run`) differ in who finds the changes, and in who knows
the answer.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.inference.model.arithmetic import Arithmetic, Exact, narrowest, nearest
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.interpreted import interpreted_kernels
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.mpi.world import World
from dmcmc.results.result import AgentMetrics
from dmcmc.run.incremental.agent_utility import AgentUtility, agent_utility
from dmcmc.run.incremental.changed_metrics import metrics_after
from dmcmc.run.incremental.changed_problem import Continuation
from dmcmc.run.incremental.known_answer import ChangeReport, total_utility
from dmcmc.run.incremental.repeated_messages import RoundChanges, Update, repeat_messages
from dmcmc.solving.util_value_cycle import FinishedCycle

T = TypeVar("T")


@dataclass
class ContinuedRun:
    """A finished exact run on one rank.

    Attributes
    ----------
    settings : Settings
        The settings of the run.
    cycle : FinishedCycle
        The tables, messages and values of this rank's agents.
    magnitude : int or Fraction
        The sum of the largest absolute entries of all factors with variables.
    utilities : dict of int to AgentUtility
        The utility of each agent of this rank.
    idle : dict of str to AgentMetrics
        The metrics of each agent that this rank may know, if the agent does nothing, by its name.
    table_bytes : int
        Bytes of the factors' tables on this rank.
    """

    settings: Settings
    cycle: FinishedCycle
    magnitude: Exact
    utilities: dict[int, AgentUtility]
    idle: dict[str, AgentMetrics] = field(repr=False)
    table_bytes: int

    def repeat(
        self, todo: Continuation, settings: Settings, start: float, world: World, share: Callable[[RoundChanges], T]
    ) -> Update[T] | None:
        """Repeat the messages on the paths, and return the changes; called by all ranks.

        Parameters
        ----------
        todo
            The changed agents, with a plan in the arithmetic of the last run.
        settings
            The settings, with the time budget.
        start
            Time at which the clock started (``time.perf_counter``).
        world
            The ranks.
        share
            As for :func:`.repeated_messages.repeat_messages`.

        Returns
        -------
        Update or None
            The changes; None on all ranks if a new run is needed, since numbers need another type, or time
            or memory ran out.
        """
        setup, size = todo.setup, self.magnitude + todo.growth
        arithmetic = narrowest(nearest(size), setup.arithmetic.integral)
        if not _same_numbers(arithmetic, self.cycle.setup.arithmetic):
            return None
        seconds, budget = settings.budget.time, setup.config.budget.bytes
        stop = NO_DEADLINE if seconds is None else Deadline(start + seconds)
        todo = replace(todo, setup=replace(setup, arithmetic=arithmetic).with_stop(stop))
        interpreted = interpreted_kernels() if self.cycle.interpreted else nullcontext()
        try:
            with interpreted, MEMORY_ACCOUNT.open(budget, resident_memory() - self.table_bytes):
                update = repeat_messages(self.cycle, todo, world, share)
        except ResourceError as error:
            if not world.is_agreed(error):
                raise
            return None
        self.magnitude, self.cycle = size, update.cycle
        for changes in update.rounds:
            self.utilities |= changes.utilities
        return update

    def report(self, changes: RoundChanges, names: Sequence[str], world: World) -> ChangeReport:
        """Return the report of a round of changes on this rank, without values; called before :meth:`repeat` ends.

        Parameters
        ----------
        changes
            The changes in a round.
        names
            The names of the agents.
        world
            The ranks.
        """
        utilities = changes.utilities
        old = total_utility(self.utilities[agent] for agent in utilities if agent in self.utilities)
        metrics = {
            names[agent]: metrics_after(self.idle[names[agent]], sent, changes.fresh.get(agent))
            for agent, sent in changes.sent.items()
            if names[agent] in self.idle
        }
        growth = total_utility(utilities.values()).plus(old, -1)
        return ChangeReport(growth, changes.roots, {}, metrics, changes.clock, world.counts.take())


def utilities_of(cycle: FinishedCycle) -> dict[int, AgentUtility]:
    """Return the utility of each agent of this rank after a run."""
    division, tree = cycle.setup.division, cycle.setup.tree
    return {a: agent_utility(division, tree, a, cycle.values, cycle.contexts[a]) for a in cycle.tables}


def comparable(settings: Settings) -> Settings:
    """Return settings without those that do not change an exact answer."""
    budget = msgspec.structs.replace(settings.budget, time=None, gap=0.0)
    return msgspec.structs.replace(settings, budget=budget, start=None, stay=None, output=None)


def _same_numbers(one: Arithmetic, other: Arithmetic) -> bool:
    """Return whether encoded tables have the same entries in two arithmetics."""
    return (one.dtype, one.lowest, one.integral) == (other.dtype, other.lowest, other.integral)
