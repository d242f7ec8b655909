"""A finished exact run that can be continued: its messages are repeated where something has changed (S-DPOP).

The last run must have been exact: exact tables, and UTIL messages that are not split. Runs of one file
(:mod:`.incremental_run`) and of private inputs (:mod:`.private_run`) differ in who finds the changes, and in who knows
the answer.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.inference.model.arithmetic import Arithmetic, narrowest
from dmcmc.inference.model.exact_sum import Exact, nearest
from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.interpreted import interpreted_kernels
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.mpi.message_contents import latest
from dmcmc.mpi.world import World
from dmcmc.results.result import AgentMetrics
from dmcmc.run.incremental.agent_utility import AgentUtility, agent_utility
from dmcmc.run.incremental.changed_metrics import metrics_after
from dmcmc.run.incremental.changed_problem import Continuation
from dmcmc.run.incremental.known_answer import RankReport, total_utility
from dmcmc.run.incremental.repeated_messages import Update, repeat_messages
from dmcmc.solving.util_value_cycle import FinishedCycle


@dataclass
class ContinuedRun:
    """What one rank keeps of a run.

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

    def repeat(self, todo: Continuation, settings: Settings, start: float, world: World) -> Update | None:
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

        Returns
        -------
        Update or None
            The changes on this rank; None on all ranks if a new run is needed, since numbers need another type, or time
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
                update = repeat_messages(self.cycle, todo, world)
        except ResourceError as error:
            if not world.is_agreed(error):
                raise
            return None
        self.magnitude = size
        return update

    def commit(self, update: Update, assignment: Mapping[str, Label], world: World) -> RankReport:
        """Replace the state by that of the changed problem, and return what other ranks have to know.

        Parameters
        ----------
        update
            The changes on this rank.
        assignment
            The new values of this rank's variables by name; empty if they are private.
        world
            The ranks.
        """
        names = update.cycle.setup.problem.agents
        old = total_utility(self.utilities[agent] for agent in update.utilities if agent in self.utilities)
        growth = total_utility(update.utilities.values()).plus(old, -1)
        roots = {agent: root for agent, root in update.cycle.roots.items() if agent in update.path}
        worked = (agent for agent in {*update.sent, *update.clocks} if names[agent] in self.idle)
        metrics = {names[agent]: metrics_after(self.idle[names[agent]], update, agent) for agent in worked}
        self.utilities |= update.utilities
        self.cycle = update.cycle
        return RankReport(growth, roots, assignment, metrics, latest(update.clocks.values()), world.message_counts())


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
