"""Solve a problem of one file again after changes, from the messages of the last run (S-DPOP).

The last run must have been exact: exact tables, and UTIL messages that are not split. Every rank knows the whole
problem, finds the changes itself (:mod:`.changed_problem`), and knows the answer (:mod:`.known_answer`). The objective
is the exact sum of the utilities of all agents, of which only those with a new value, context or table are evaluated
again. Runs on private inputs (:mod:`.private_run`) differ in who finds the changes, and in who knows the answer.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.inference.model.arithmetic import Exact, exact_sum, narrowest, nearest
from dmcmc.inference.model.problem import Problem, bytes_of_tables
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.interpreted import interpreted_kernels
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.mpi.world import World
from dmcmc.results.result import AgentMetrics, Result
from dmcmc.session.incremental.changed_problem import (
    ChangedProblem,
    Continuation,
    Numbering,
    with_new_structure,
    with_new_tables,
)
from dmcmc.session.incremental.changed_tables import NotRepeatable, changed_positions, places_of, table_changes
from dmcmc.session.incremental.known_answer import (
    ChangeReport,
    KnownAnswer,
    metrics_after,
    new_metrics,
    total_utility,
    with_new_plan,
    without_work,
)
from dmcmc.session.incremental.repeated_messages import (
    AgentUtility,
    RoundChanges,
    Update,
    agent_utility,
    repeat_messages,
)
from dmcmc.solving.combine_tables import FinishedCycle
from dmcmc.solving.warm_start.retained_work import same_numbers

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
        arithmetic = narrowest(nearest(size), setup.divided.arithmetic.integral)
        if not same_numbers(arithmetic, self.cycle.setup.divided.arithmetic):
            return None
        seconds, budget = settings.budget.time, setup.divided.config.budget.bytes
        stop = NO_DEADLINE if seconds is None else Deadline(start + seconds)
        todo = replace(todo, setup=setup.with_arithmetic(arithmetic).with_stop(stop))
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
    division, tree = cycle.setup.divided.division, cycle.setup.tree
    return {a: agent_utility(division, tree, a, cycle.values, cycle.contexts[a]) for a in cycle.tables}


def comparable(settings: Settings) -> Settings:
    """Return settings without those that do not change an exact answer."""
    budget = msgspec.structs.replace(settings.budget, time=None, gap=0.0)
    return msgspec.structs.replace(settings, budget=budget, start=None, stay=None, output=None)


@dataclass
class IncrementalRun(ContinuedRun):
    """A finished exact run of one file that can be continued with changes.

    Attributes
    ----------
    problem : Problem
        The problem of the last run.
    plan : ChangedProblem
        The plan of the last run, and the numbering in which it continues.
    answer : KnownAnswer
        The answer, on every rank.
    kept : (int, int)
        Number of agents of all ranks whose tables, and whose UTIL steps, the last change has left as they were.
    """

    problem: Problem
    plan: ChangedProblem = field(repr=False)
    answer: KnownAnswer
    kept: tuple[int, int] = (0, 0)

    @classmethod
    def begin(
        cls, problem: Problem, settings: Settings, result: Result | None, cycle: FinishedCycle, world: World
    ) -> "IncrementalRun":
        """Return the state after a run; called by all ranks, of which rank 0 has the result."""
        known, utilities = world.bcast(result), utilities_of(cycle)
        parts = world.allgather((total_utility(utilities.values()), cycle.roots, cycle.values))
        values = {v: x for *_, own in parts for v, x in own.items()}
        # The first answer may be another optimum than that of the messages, whose values are partly kept.
        assignment = problem.assignment([values[v] for v in range(problem.n_variables)])
        size = exact_sum(magnitude(factor.table) for factor in problem.factors if factor.scope)
        return cls(
            settings,
            cycle,
            size,
            utilities,
            {agent.name: without_work(agent) for agent in known.agents},
            bytes_of_tables(problem),
            problem,
            ChangedProblem(Continuation.of(cycle.setup), Numbering.of(problem), places_of(problem)),
            KnownAnswer.begin(known, [part[:2] for part in parts], assignment),
        )

    def solve(self, problem: Problem, settings: Settings, world: World) -> Result | None:
        """Solve the changed problem, and keep the result for the next change; called by all ranks.

        Returns
        -------
        Result or None
            The result, the same on every rank; None if a new run is needed, since the changes are too large, numbers
            need another type, or time or memory ran out.
        """
        start = time.perf_counter()
        try:
            plan = world.on_all_ranks(lambda: self._plan(problem, settings))
        except NotRepeatable:
            return None
        todo, problem_by_number = plan.todo, plan.todo.setup.divided.problem
        if plan.numbering is not self.plan.numbering:
            self._describe_anew(plan)

        def share(changes: RoundChanges) -> ChangeReport:
            values = {problem_by_number.variables[v]: problem_by_number.label(v, x) for v, x in changes.values.items()}
            return self.report(changes, problem_by_number.agents, world)._replace(assignment=values)

        update = self.repeat(todo, settings, start, world, share)
        if update is None:
            return None
        present = set(plan.numbering.agents.tolist())
        self.kept = len(present - todo.local_agents), len(present - update.path)
        self.problem, self.plan, setup = problem, plan, update.cycle.setup
        self.answer.update(update.shared, setup, len(setup.divided.problem.factors), self.idle, problem.variables)
        if problem.levels:
            self.answer.divide_by_levels(problem)
        return self.answer.end(time.perf_counter() - start)

    def _plan(self, problem: Problem, settings: Settings) -> ChangedProblem:
        """Return the changed problem as a continuation of this run.

        Raises
        ------
        NotRepeatable
            If a new run is needed.
        """
        changed = None
        if comparable(settings) == comparable(self.settings) and problem.dense:
            changed = self._with_new_tables(problem) or with_new_structure(self.plan, self.problem, problem)
        if changed is None:
            raise NotRepeatable("the changes are too large")
        return changed

    def _with_new_tables(self, problem: Problem) -> ChangedProblem | None:
        """Return the changed problem if it differs in tables only; None otherwise."""
        plan, positions = self.plan, changed_positions(self.problem, problem)
        if positions is None:
            return None
        changes = table_changes(self.problem, problem, positions, plan.places, plan.numbering.variables)
        if changes is None:
            return None
        return ChangedProblem(with_new_tables(plan.todo, changes), plan.numbering, plan.places)

    def _describe_anew(self, plan: ChangedProblem) -> None:
        """Replace the metrics of the agents with new local problems, and drop those of agents that have left."""
        setup, names = plan.todo.setup, plan.todo.setup.divided.problem.agents
        changed = {names[agent]: new_metrics(setup, agent) for agent in plan.todo.local_agents}
        present = [names[agent] for agent in plan.numbering.agents.tolist()]
        self.idle = {name: changed[name] if name in changed else self.idle[name] for name in present}
        self.answer.result = with_new_plan(self.answer.result, setup, self.idle)
