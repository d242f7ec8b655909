"""Solve a problem of one file again after changes, from the messages of the last run (S-DPOP).

The last run must have been exact: exact tables, and UTIL messages that are not split; otherwise a new run follows.
Every rank knows the whole problem, finds the changes itself (:mod:`.changed_problem`), and knows the answer: sums over
all agents, which the reports of all ranks change, and the metrics of the agents. The objective is the exact sum of the
utilities of all agents, of which only those with a new value, context or table are evaluated again. Runs on private
inputs (:mod:`.private_run`) differ in who finds the changes, and in who knows the answer.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.agent_step import Clock, SentMessages, latest
from dmcmc.inference.dpop.division import own_utilities
from dmcmc.inference.model.arithmetic import Exact, exact_sum, narrowest, nearest
from dmcmc.inference.model.problem import Label, Problem, bytes_of_tables
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import gpu_fault
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.interpreted import interpreted_kernels
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality, BoundProof, SolveOutcome, judge
from dmcmc.results.result import EXACT_ELIMINATION, AgentMetrics, MessageCount, Result, TracePoint
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.session.incremental import changed_problem, repeated_messages
from dmcmc.solving.combine_tables import FinishedCycle
from dmcmc.solving.incumbent import total_of
from dmcmc.solving.metrics import choices_of, control_of, levels_of, messages_of
from dmcmc.solving.planning.plan import Setup
from dmcmc.solving.warm_start.retained_work import RetainedWork, same_numbers


class ChangeReport(NamedTuple):
    """The changes on one rank.

    Attributes
    ----------
    growth : AgentUtility
        By how much the utilities of its agents have grown.
    roots : dict of int to number
        Encoded upper bounds of its roots on paths.
    assignment : dict of str to label
        The new values of its variables, by their names; empty if they are private.
    metrics : dict of str to AgentMetrics
        The metrics of its agents that have worked or sent messages.
    clock : Clock
        The latest of its agents' simulated clocks.
    control : dict of str to (int, int)
        Number and bytes of its messages between ranks, by kind.
    """

    growth: repeated_messages.AgentUtility
    roots: Mapping[int, Number | None]
    assignment: Mapping[str, Label]
    metrics: Mapping[str, AgentMetrics]
    clock: Clock
    control: Mapping[str, tuple[int, int]]


@dataclass
class KnownAnswer:
    """The answer of the last run, on a rank that may know it.

    Attributes
    ----------
    result : Result
        The result.
    total : AgentUtility
        The sum of the utilities of all agents.
    roots : dict of int to number
        Encoded upper bounds of the roots.
    assignment : dict of str to label, or None
        The values of all variables by name, also if they break hard constraints; None if they are private.
    """

    result: Result
    total: repeated_messages.AgentUtility
    roots: dict[int, Number | None]
    assignment: dict[str, Label] | None

    @classmethod
    def begin(
        cls,
        result: Result,
        parts: Iterable[tuple[repeated_messages.AgentUtility, Mapping[int, Number | None]]],
        assignment: dict[str, Label] | None,
    ) -> "KnownAnswer":
        """Return the answer of a new run.

        Parameters
        ----------
        result
            The result. Its assignment may be another optimum than that of the messages.
        parts
            Utility and roots of each rank's agents.
        assignment
            The values of all variables, as the messages have chosen them; None if they are private.
        """
        total, roots = repeated_messages.AgentUtility(), dict[int, Number | None]()
        for utility, own_roots in parts:
            total, roots = total.plus(utility), {**roots, **own_roots}
        return cls(result, total, roots, assignment)

    def update(
        self,
        reports: Sequence[ChangeReport],
        setup: Setup,
        factors: int,
        idle: Mapping[str, AgentMetrics],
        variables: Sequence[str],
    ) -> None:
        """Add the reports of all ranks; the time of the result remains to be set.

        Parameters
        ----------
        reports
            The reports of all ranks.
        setup
            The changed plan.
        factors
            Number of factors of the whole problem.
        idle
            The metrics of each agent if it does nothing, by its name.
        variables
            The names of the variables of the problem as it stands.
        """
        worked = dict[str, AgentMetrics]()
        for report in reports:
            worked |= report.metrics
            self.total, self.roots = self.total.plus(report.growth), {**self.roots, **report.roots}
            if self.assignment is not None:
                self.assignment.update(report.assignment)
        self.roots = {agent: root for agent, root in self.roots.items() if setup.tree.parent[agent] < 0}
        if self.assignment is not None and len(self.assignment) != len(variables):
            self.assignment = {name: self.assignment[name] for name in variables}
        clock, outcome = latest(report.clock for report in reports), self._outcome(setup, factors)
        self.result = msgspec.structs.replace(
            self.result,
            **outcome._asdict(),
            assignment=None if outcome.status == "infeasible" or self.assignment is None else dict(self.assignment),
            time_compiling=0.0,
            simulated_time=clock.seconds,
            ncccs=clock.checks,
            messages=messages_of(tuple(worked.values())),
            control=control_of(report.control for report in reports),
            msg_count=sum(agent.msg_count for agent in worked.values()),
            msg_size=sum(agent.msg_size for agent in worked.values()),
            extra_msg_count=0,
            extra_msg_size=0,
            work=(),
            agents=tuple({**idle, **worked}.values()),
        )

    def divide_by_levels(self, problem: Problem) -> None:
        """Set objective and bound of each level of the objective of the changed problem."""
        named = self.result.assignment
        values = None if named is None else problem.values_of(named)
        self.result = msgspec.structs.replace(self.result, levels=levels_of(problem, values, self.result.bound))

    def end(self, seconds: float) -> Result:
        """Return the result with the time that the run has taken."""
        point = TracePoint(seconds, self.result.objective, self.result.bound, EXACT_ELIMINATION)
        self.result = msgspec.structs.replace(self.result, time=seconds, trace=(point,))
        return self.result

    def _outcome(self, setup: Setup, factors: int) -> SolveOutcome:
        """Return status, objective, bound and gap."""
        violations, utility = self.total
        constants = [factor.entry(()) for factor in setup.divided.division.constants]
        total = nearest(utility + exact_sum(entry for entry in constants if entry is not None))
        forbidden = violations + sum(entry is None for entry in constants)
        quality = AssignmentQuality(-forbidden, utility, setup.divided.problem.to_own_sense(total))
        bound = total_of(self.roots, setup.divided.arithmetic)
        proof = None if bound is None else BoundProof([bound], setup.divided.arithmetic, factors)
        return judge(setup.divided.problem, quality, setup.divided.division.constants, proof)


def total_utility(parts: Iterable[repeated_messages.AgentUtility]) -> repeated_messages.AgentUtility:
    """Return the sum of some utilities."""
    total = repeated_messages.AgentUtility()
    for part in parts:
        total = total.plus(part)
    return total


# Parts of a plan in the provenance of a result that have one entry for each agent
_BY_AGENT = ("pseudo_tree", "methods", "choices", "combine", "ranks", "separators", "orders")


def metrics_after(
    before: AgentMetrics, sent: Sequence[SentMessages], table: SampledTable | None = None
) -> AgentMetrics:
    """Return the metrics of an agent that has worked or sent messages.

    Parameters
    ----------
    before
        The metrics of the agent if it does nothing.
    sent
        Its messages.
    table
        Its new table; None if the table is kept.
    """
    kinds = {message.kind for message in sent if message.count}
    return msgspec.structs.replace(
        before,
        cells=0 if table is None else table.cells,
        time=0.0 if table is None else table.seconds,
        msg_count=sum(message.count for message in sent),
        msg_size=sum(message.size for message in sent),
        extra_msg_count=0,
        extra_msg_size=0,
        disclosed=min(before.own_utilities, sum(message.entries for message in sent)),
        messages={
            kind: MessageCount(
                sum(message.count for message in sent if message.kind == kind),
                sum(message.size for message in sent if message.kind == kind),
            )
            for kind in sorted(kinds)
        },
    )


def new_metrics(setup: Setup, agent: int) -> AgentMetrics:
    """Return the metrics of an agent with an exact table that does nothing."""
    local = setup.divided.division.locals[agent]
    return AgentMetrics(
        name=setup.divided.problem.agents[agent],
        method=setup.choices[agent].method,
        exact=True,
        variables=len(local.interface) + len(local.hidden),
        interface=len(local.interface),
        rank=setup.owner[agent],
        rows=local.rows,
        own_utilities=own_utilities(local),
        gap=0.0,
    )


def without_work(agent: AgentMetrics) -> AgentMetrics:
    """Return the metrics of an agent that has done nothing."""
    return msgspec.structs.replace(
        agent, cells=0, time=0.0, msg_count=0, msg_size=0, extra_msg_count=0, extra_msg_size=0, disclosed=0, messages={}
    )


def with_new_plan(result: Result, setup: Setup, agents: Mapping[str, AgentMetrics]) -> Result:
    """Return a result whose provenance describes the plan of the agents that are there after a change.

    Parameters
    ----------
    result
        The result before the change.
    setup
        The plan, which may have agents that have left.
    agents
        The metrics of the present agents without work, by name.
    """
    choices = choices_of(setup, tuple(agents.values()))
    for part in _BY_AGENT:
        by_name = choices[part]
        assert isinstance(by_name, dict)
        choices[part] = {name: by_name[name] for name in agents if name in by_name}
    return msgspec.structs.replace(result, provenance=dict(result.provenance) | {"plan": choices})


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
    utilities: dict[int, repeated_messages.AgentUtility]
    idle: dict[str, AgentMetrics] = field(repr=False)
    table_bytes: int

    def repeat(
        self,
        todo: changed_problem.Continuation,
        settings: Settings,
        start: float,
        world: World,
        share: Callable[[repeated_messages.RoundChanges], T],
    ) -> repeated_messages.Update[T] | None:
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
                update = repeated_messages.repeat_messages(self.cycle, todo, world, share)
        except ResourceError as error:
            if not world.is_agreed(error):
                raise
            return None
        self.magnitude, self.cycle = size, update.cycle
        for changes in update.rounds:
            self.utilities |= changes.utilities
        return update

    def report(self, changes: repeated_messages.RoundChanges, names: Sequence[str], world: World) -> ChangeReport:
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


def utilities_of(cycle: FinishedCycle) -> dict[int, repeated_messages.AgentUtility]:
    """Return the utility of each agent of this rank after a run."""
    division, tree = cycle.setup.divided.division, cycle.setup.tree
    return {
        a: repeated_messages.agent_utility(division, tree, a, cycle.values, cycle.contexts[a]) for a in cycle.tables
    }


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
    plan: changed_problem.ChangedProblem = field(repr=False)
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
            changed_problem.ChangedProblem(
                changed_problem.Continuation.of(cycle.setup),
                changed_problem.Numbering.of(problem),
                changed_problem.places_of(problem),
            ),
            KnownAnswer.begin(known, [part[:2] for part in parts], assignment),
        )

    def solve_changed(self, problem: Problem, settings: Settings, world: World) -> Result | None:
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
        except changed_problem.NotRepeatable:
            return None
        todo, problem_by_number = plan.todo, plan.todo.setup.divided.problem
        if plan.numbering is not self.plan.numbering:
            self._describe_anew(plan)

        def share(changes: repeated_messages.RoundChanges) -> ChangeReport:
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

    def _plan(self, problem: Problem, settings: Settings) -> changed_problem.ChangedProblem:
        """Return the changed problem as a continuation of this run.

        Raises
        ------
        NotRepeatable
            If a new run is needed.
        """
        changed = None
        if comparable(settings) == comparable(self.settings) and problem.dense:
            changed = self._with_new_tables(problem) or changed_problem.with_new_structure(
                self.plan, self.problem, problem
            )
        if changed is None:
            raise changed_problem.NotRepeatable("the changes are too large")
        return changed

    def _with_new_tables(self, problem: Problem) -> changed_problem.ChangedProblem | None:
        """Return the changed problem if it differs in tables only; None otherwise."""
        plan, positions = self.plan, changed_problem.changed_positions(self.problem, problem)
        if positions is None:
            return None
        changes = changed_problem.table_changes(self.problem, problem, positions, plan.places, plan.numbering.variables)
        if changes is None:
            return None
        return changed_problem.ChangedProblem(
            changed_problem.with_new_tables(plan.todo, changes), plan.numbering, plan.places
        )

    def _describe_anew(self, plan: changed_problem.ChangedProblem) -> None:
        """Replace the metrics of the agents with new local problems, and drop those of agents that have left."""
        setup, names = plan.todo.setup, plan.todo.setup.divided.problem.agents
        changed = {names[agent]: new_metrics(setup, agent) for agent in plan.todo.local_agents}
        present = [names[agent] for agent in plan.numbering.agents.tolist()]
        self.idle = {name: changed[name] if name in changed else self.idle[name] for name in present}
        self.answer.result = with_new_plan(self.answer.result, setup, self.idle)


def solve_again(
    problem: Problem,
    settings: Settings,
    world: World,
    retained: RetainedWork,
    solve_anew: Callable[[Problem, Settings, World, RetainedWork], Result | None],
) -> Result | None:
    """Solve a problem of a session; called by all ranks, each with the whole problem.

    Parameters
    ----------
    problem
        The problem as it stands.
    settings
        Settings of the run.
    world
        The ranks.
    retained
        Work of earlier runs; receives that of this run.
    solve_anew
        Solves the problem without continuing the last run.

    Returns
    -------
    Result or None
        The result; None on other ranks than 0 after a new run (``retained.result_is_shared`` is then false).
    """
    last = retained.incremental
    if isinstance(last, IncrementalRun):
        again = continued(retained, world, partial(last.solve_changed, problem, settings, world))
        if again is not None:
            retained.result_is_shared = True
            retained.kept_on_all_ranks = last.kept
            return again
    retained.incremental = retained.finished_cycle = None
    retained.result_is_shared = False
    result = solve_anew(problem, settings, world, retained)
    if all(world.allgather(_may_continue(problem, settings, retained))):
        assert isinstance(retained.finished_cycle, FinishedCycle)
        retained.incremental = IncrementalRun.begin(problem, settings, result, retained.finished_cycle, world)
    return result


def continued(retained: RetainedWork, world: World, solve: Callable[[], T | None]) -> T | None:
    """Return the result of a continued run; None if it has to begin anew, also because the GPU has failed."""
    try:
        return world.run(solve)
    except Exception as error:
        if gpu_fault(error) is None or not world.is_agreed(error):
            raise
        retained.forget_all()
    return None


def _may_continue(problem: Problem, settings: Settings, retained: RetainedWork) -> bool:
    """Return whether the last run was exact, and on the problem as given."""
    cycle = retained.finished_cycle
    return (
        isinstance(cycle, FinishedCycle)
        and cycle.setup.divided.given.problem is problem
        and cycle.setup.divided.given.reduction is None
        and cycle.setup.divided.problem.n_variables == problem.n_variables
        and problem.dense
        and cycle.needed is None
        and is_continuable(cycle, settings)
    )


def is_continuable(cycle: FinishedCycle, settings: Settings) -> bool:
    """Return whether a cycle of exact messages was made by ranks that own agents, without mini-buckets."""
    return not any(cycle.setup.helpers) and settings.combine.method in ("auto", "exact")
