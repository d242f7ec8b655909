"""Solve a problem again after changes, from the messages of the last run (S-DPOP).

The last run must have been exact: exact tables, and UTIL messages that are not split. The changed problem is carried
over (:mod:`.changed_problem`), and the messages on changed paths are repeated (:mod:`.repeated_messages`). The
objective is the exact sum of the utilities of all agents, of which only those with a new value, context or table are
evaluated again.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.inference.model.arithmetic import Arithmetic, narrowest
from dmcmc.inference.model.exact_sum import Exact, exact_sum, nearest
from dmcmc.inference.model.problem import Label, Problem, bytes_of_tables
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.message_contents import Clock, latest
from dmcmc.mpi.world import World
from dmcmc.results.improver_names import EXACT_ELIMINATION
from dmcmc.results.outcome import AssignmentQuality, BoundProof, SolveOutcome, judge
from dmcmc.results.result import AgentMetrics, Result, TracePoint
from dmcmc.run.incremental.agent_utility import AgentUtility, agent_utility
from dmcmc.run.incremental.changed_metrics import metrics_after, new_metrics, without_work
from dmcmc.run.incremental.changed_problem import ChangedProblem, with_new_structure, with_new_tables
from dmcmc.run.incremental.changed_tables import changed_positions, places_of, table_changes
from dmcmc.run.incremental.numbering import Numbering
from dmcmc.run.incremental.repeated_messages import Update, repeat_messages
from dmcmc.solving.incumbent import total_of
from dmcmc.solving.metrics import choices_of, control_of, messages_of
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.util_value_cycle import FinishedCycle

# Parts of a plan in the provenance of a result that have one entry for each agent
_BY_AGENT = ("pseudo_tree", "methods", "choices", "combine", "ranks", "separators", "orders")


class _Share(NamedTuple):
    """Changes on one rank, which all ranks receive.

    Attributes
    ----------
    growth : AgentUtility
        By how much the utilities of its agents have grown.
    roots : dict of int to number
        Encoded upper bounds of its roots on paths.
    values : dict of int to int
        Its variables' new values.
    metrics : dict of str to AgentMetrics
        The metrics of its agents that have worked or sent messages.
    clock : Clock
        The latest of its agents' simulated clocks.
    control : dict of str to (int, int)
        Number and bytes of its messages between ranks, by kind.
    """

    growth: AgentUtility
    roots: Mapping[int, Number | None]
    values: Mapping[int, int]
    metrics: Mapping[str, AgentMetrics]
    clock: Clock
    control: Mapping[str, tuple[int, int]]


@dataclass
class IncrementalRun:
    """A finished exact run that can be continued with new tables.

    Attributes
    ----------
    problem : Problem
        The problem of the last run.
    settings : Settings
        The settings of that run.
    result : Result
        Its result, on every rank.
    cycle : FinishedCycle
        The tables, messages and values of this rank's agents.
    plan : ChangedProblem
        The plan of the last run, and the numbering in which it continues.
    magnitude : int or Fraction
        The sum of the largest absolute entries of all factors with variables.
    utilities : dict of int to AgentUtility
        The utility of each agent of this rank.
    total : AgentUtility
        The sum of the utilities of all agents on all ranks.
    roots : dict of int to number
        Encoded upper bounds of the roots on all ranks.
    table_bytes : int
        Bytes of all factors' tables.
    idle : dict of str to AgentMetrics
        The metrics of each agent if it does nothing, by its name.
    kept : tuple of int
        Number of this rank's agents whose tables, and whose UTIL steps, the last change has left as they were.
    """

    problem: Problem
    settings: Settings
    result: Result
    cycle: FinishedCycle
    plan: ChangedProblem = field(repr=False)
    magnitude: Exact
    utilities: dict[int, AgentUtility]
    total: AgentUtility
    roots: dict[int, Number | None]
    table_bytes: int
    idle: dict[str, AgentMetrics] = field(repr=False)
    kept: tuple[int, int] = (0, 0)

    @classmethod
    def begin(
        cls, problem: Problem, settings: Settings, result: Result | None, cycle: FinishedCycle, world: World
    ) -> "IncrementalRun":
        """Return the state after a run; called by all ranks, of which rank 0 has the result."""
        setup = cycle.setup
        # The first answer may be another optimum than that of the messages, whose values are partly kept.
        known: Result = msgspec.structs.replace(world.bcast(result), assignment=None)
        utilities = {
            agent: agent_utility(setup.division, setup.tree, agent, cycle.values, cycle.contexts[agent])
            for agent in cycle.tables
        }
        total, roots = AgentUtility(), dict[int, Number | None]()
        for part, part_roots in world.allgather((_sum(utilities.values()), cycle.roots)):
            total, roots = total.plus(part), roots | part_roots
        positions = [0] * problem.n_agents
        for position, agent in enumerate(setup.tree.bottom_up):
            positions[agent] = position
        size = exact_sum(magnitude(factor.table) for factor in problem.factors if factor.scope)
        idle, bytes_ = {agent.name: without_work(agent) for agent in known.agents}, bytes_of_tables(problem)
        plan = ChangedProblem(setup, Numbering.of(problem), places_of(problem), positions, set(), set(), 0)
        return cls(problem, settings, known, cycle, plan, size, utilities, total, roots, bytes_, idle)

    def solve(self, problem: Problem, settings: Settings, world: World) -> Result | None:
        """Solve the changed problem, and keep the result for the next change; called by all ranks.

        Returns
        -------
        Result or None
            The result, the same on every rank; None if a new run is needed, since the changes are too large, numbers
            need another type, or time or memory ran out.
        """
        start = time.perf_counter()
        changes = self._changes(problem, settings)
        if not all(world.allgather(changes is not None)):
            return None
        assert changes is not None
        size = self.magnitude + changes.growth
        arithmetic = narrowest(nearest(size), self.cycle.setup.arithmetic.integral)
        if not _same_numbers(arithmetic, self.cycle.setup.arithmetic):
            return None
        seconds = settings.budget.time
        stop = NO_DEADLINE if seconds is None else Deadline(start + seconds)
        changes = changes._replace(setup=replace(changes.setup, arithmetic=arithmetic).with_stop(stop))
        try:
            memory = self.cycle.setup.config.budget.bytes
            with MEMORY_ACCOUNT.open(memory, resident_memory() - self.table_bytes):
                update = repeat_messages(self.cycle, changes, world)
        except ResourceError as error:
            if not world.is_agreed(error):
                raise
            return None
        own = {*update.cycle.tables}.intersection(changes.numbering.agents.tolist())
        self.kept = len(own - update.fresh), len(own - update.path)
        if changes.numbering is not self.plan.numbering:
            self._describe_anew(changes, update.cycle.setup)
        shares = world.allgather(self._share(update, world))
        self.problem, self.plan, self.magnitude = problem, changes, size
        self._commit(update, shares)
        self.result = self._result(update, shares, world, start)
        return self.result

    def _changes(self, problem: Problem, settings: Settings) -> ChangedProblem | None:
        """Return the changed problem as a continuation of this run; None if a new run is needed."""
        if _comparable(settings) != _comparable(self.settings) or not problem.dense:
            return None
        positions = changed_positions(self.problem, problem)
        if positions is not None:
            changes = table_changes(self.problem, problem, positions, self.plan.places, self.plan.numbering.variables)
            if changes is not None:
                return with_new_tables(self.plan, changes)
        return with_new_structure(self.plan, self.problem, problem)

    def _share(self, update: Update, world: World) -> _Share:
        """Return what the other ranks have to know of this rank's changes."""
        known, names = self.utilities, update.cycle.setup.problem.agents
        old = _sum(known[agent] for agent in update.utilities if agent in known)
        roots = {agent: root for agent, root in update.cycle.roots.items() if agent in update.path}
        worked = (agent for agent in {*update.sent, *update.clocks} if names[agent] in self.idle)
        metrics = {names[agent]: metrics_after(self.idle[names[agent]], update, agent) for agent in worked}
        growth = _sum(update.utilities.values()).plus(old, -1)
        return _Share(growth, roots, update.values, metrics, latest(update.clocks.values()), world.message_counts())

    def _commit(self, update: Update, shares: Sequence[_Share]) -> None:
        """Replace the state by that of the changed problem."""
        parent = update.cycle.setup.tree.parent
        for share in shares:
            self.total, self.roots = self.total.plus(share.growth), {**self.roots, **share.roots}
        self.roots = {agent: root for agent, root in self.roots.items() if parent[agent] < 0}
        self.utilities |= update.utilities
        self.cycle = update.cycle

    def _describe_anew(self, plan: ChangedProblem, setup: Setup) -> None:
        """Replace the metrics of the agents with new local problems, and drop those of agents that have left."""
        names = setup.problem.agents
        changed = {names[agent]: new_metrics(setup, agent) for agent in plan.local_agents}
        present = [names[agent] for agent in plan.numbering.agents.tolist()]
        self.idle = {name: changed[name] if name in changed else self.idle[name] for name in present}
        choices = choices_of(setup, tuple(self.idle.values()))
        for part in _BY_AGENT:
            by_name = choices[part]
            assert isinstance(by_name, dict)
            choices[part] = {name: by_name[name] for name in present if name in by_name}
        provenance = dict(self.result.provenance) | {"plan": choices}
        self.result = msgspec.structs.replace(self.result, provenance=provenance)

    def _result(self, update: Update, shares: Sequence[_Share], world: World, start: float) -> Result:
        """Return the result, put together from all ranks' parts, on every rank."""
        setup, before = self.cycle.setup, self.result
        values, worked = dict[int, int](), dict[str, AgentMetrics]()
        for share in shares:
            values |= share.values
            worked |= share.metrics
        control, clock = [share.control for share in shares], latest(share.clock for share in shares)
        outcome = self._outcome(setup)
        assignment = None
        if outcome.status != "infeasible":
            known = self._assignment(world) if before.assignment is None else before.assignment
            labels = {setup.problem.variables[v]: setup.problem.label(v, x) for v, x in values.items()}
            complete = {**known, **labels}
            assignment = complete if len(complete) == self.problem.n_variables else _part(complete, self.problem)
        seconds, everyone = time.perf_counter() - start, tuple((self.idle | worked).values())
        return msgspec.structs.replace(
            before,
            **outcome._asdict(),
            assignment=assignment,
            time=seconds,
            time_compiling=0.0,
            simulated_time=clock.seconds,
            ncccs=clock.checks,
            messages=messages_of(tuple(worked.values())),
            control=control_of(control),
            msg_count=sum(agent.msg_count for agent in worked.values()),
            msg_size=sum(agent.msg_size for agent in worked.values()),
            extra_msg_count=0,
            extra_msg_size=0,
            work=(),
            agents=everyone,
            trace=(TracePoint(seconds, outcome.objective, outcome.bound, EXACT_ELIMINATION),),
        )

    def _outcome(self, setup: Setup) -> SolveOutcome:
        """Return status, objective, bound and gap."""
        division, (violations, utility) = setup.division, self.total
        constants = [factor.entry(()) for factor in division.constants]
        total = nearest(utility + exact_sum(entry for entry in constants if entry is not None))
        forbidden = violations + sum(entry is None for entry in constants)
        quality = AssignmentQuality(-forbidden, utility, setup.problem.to_own_sense(total))
        bound = total_of(self.roots, setup.arithmetic)
        proof = None if bound is None else BoundProof([bound], setup.arithmetic, len(setup.problem.factors))
        return judge(setup.problem, quality, division.constants, proof)

    def _assignment(self, world: World) -> dict[str, int | str | float]:
        """Return the values of all variables on every rank; called by all ranks."""
        values = world.union(self.cycle.values)
        return self.problem.assignment([values[v] for v in self.plan.numbering.variables.tolist()])


def _comparable(settings: Settings) -> Settings:
    """Return settings without those that do not change an exact answer."""
    budget = msgspec.structs.replace(settings.budget, time=None, gap=0.0)
    return msgspec.structs.replace(settings, budget=budget, start=None, stay=None, output=None)


def _same_numbers(one: Arithmetic, other: Arithmetic) -> bool:
    """Return whether encoded tables have the same entries in two arithmetics."""
    return (one.dtype, one.lowest, one.integral) == (other.dtype, other.lowest, other.integral)


def _sum(parts: Iterable[AgentUtility]) -> AgentUtility:
    """Return the sum of some utilities."""
    total = AgentUtility()
    for part in parts:
        total = total.plus(part)
    return total


def _part(assignment: Mapping[str, Label], problem: Problem) -> dict[str, Label]:
    """Return the values of a problem's variables."""
    return {name: assignment[name] for name in problem.variables}
