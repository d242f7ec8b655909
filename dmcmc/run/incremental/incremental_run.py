"""Solve a problem of one file again after changes, from the messages of the last run (S-DPOP).

Every rank knows the whole problem, finds the changes itself (:mod:`.changed_problem`), and knows the answer
(:mod:`.known_answer`). The objective is the exact sum of the utilities of all agents, of which only those with a new
value, context or table are evaluated again.
"""

import time
from dataclasses import dataclass, field

from dmcmc.config.settings import Settings
from dmcmc.inference.model.arithmetic import exact_sum
from dmcmc.inference.model.problem import Problem, bytes_of_tables
from dmcmc.inference.model.tables import magnitude
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run.incremental.changed_metrics import new_metrics, with_new_plan, without_work
from dmcmc.run.incremental.changed_problem import ChangedProblem, Continuation, with_new_structure, with_new_tables
from dmcmc.run.incremental.changed_tables import changed_positions, places_of, table_changes
from dmcmc.run.incremental.continued_run import ContinuedRun, comparable, utilities_of
from dmcmc.run.incremental.known_answer import ChangeReport, KnownAnswer, total_utility
from dmcmc.run.incremental.new_tables import NotRepeatable
from dmcmc.run.incremental.numbering import Numbering
from dmcmc.run.incremental.repeated_messages import RoundChanges
from dmcmc.solving.util_value_cycle import FinishedCycle


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
        todo, problem_by_number = plan.todo, plan.todo.setup.problem
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
        self.answer.update(update.shared, setup, len(setup.problem.factors), self.idle, problem.variables)
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
        setup, names = plan.todo.setup, plan.todo.setup.problem.agents
        changed = {names[agent]: new_metrics(setup, agent) for agent in plan.todo.local_agents}
        present = [names[agent] for agent in plan.numbering.agents.tolist()]
        self.idle = {name: changed[name] if name in changed else self.idle[name] for name in present}
        self.answer.result = with_new_plan(self.answer.result, setup, self.idle)
