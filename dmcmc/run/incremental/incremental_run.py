"""Solve a problem again after some tables have changed, from the messages of the last run (S-DPOP).

The last run must have been exact: exact tables, and UTIL messages that are not split. An agent is on a *path* if one of
its tables has changed, or one of an agent below it. Only agents on paths make UTIL messages; their parents keep the
messages of all other children. VALUE messages go down the paths first. Then, level by level, they go to the agents
whose context (the values of their separator) has changed. At most one message goes along an edge in each direction,
and all ranks know in which round it comes, so no rank waits for a message that is not sent (Petcu and Faltings,
"S-DPOP: Superstabilizing, Fault-containing Distributed Combinatorial Optimization", AAAI 2005).

The objective is the exact sum of the utilities of all agents, of which only those with a new value, context or table
are evaluated again.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.interface_rows import InterfaceCompression
from dmcmc.inference.dpop.memory_shares import bytes_of_tables
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.arithmetic import Arithmetic, narrowest
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.inference.model.exact_sum import Exact, exact_sum, nearest
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, ResourceError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_contents import ChosenValues, Clock, SentMessages, UtilTables, Values, latest, value_size
from dmcmc.mpi.util_value_phases import UtilStepPair, util_phase, value_phase
from dmcmc.mpi.world import World
from dmcmc.results.improver_names import EXACT_ELIMINATION
from dmcmc.results.outcome import AssignmentQuality, BoundProof, SolveOutcome, judge
from dmcmc.results.result import AgentMetrics, MessageCount, Result, TracePoint
from dmcmc.run.incremental.agent_utility import AgentUtility, agent_utility
from dmcmc.run.incremental.changed_problem import ChangedProblem, with_new_structure, with_new_tables
from dmcmc.run.incremental.changed_tables import changed_positions, places_of, table_changes
from dmcmc.run.incremental.numbering import Numbering
from dmcmc.run.incremental.tree_part import part_of, paths_to_roots
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.methods.exact import eliminate_in_turn
from dmcmc.solving.agent_steps import MessageInputs, Sides, util_steps, values_of
from dmcmc.solving.incumbent import total_of
from dmcmc.solving.metrics import choices_of, control_of, messages_of, own_utilities
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.util_value_cycle import FinishedCycle

# Parts of a plan in the provenance of a result that have one entry for each agent
_BY_AGENT = ("pseudo_tree", "methods", "choices", "combine", "ranks", "separators", "orders")


class _Update(NamedTuple):
    """The changes on one rank.

    Attributes
    ----------
    cycle : FinishedCycle
        The new cycle of this rank's agents.
    values : dict of int to int
        The new values of this rank's variables that were chosen again.
    utilities : dict of int to AgentUtility
        The utilities of the agents that were evaluated again.
    sent : dict of int to list of SentMessages
        The messages of each agent.
    clocks : dict of int to Clock
        The simulated clocks of the agents that worked.
    path : set of int
        The agents on paths, on all ranks.
    fresh : frozenset of int
        This rank's agents with new tables.
    """

    cycle: FinishedCycle
    values: Mapping[int, int]
    utilities: Mapping[int, AgentUtility]
    sent: Mapping[int, list[SentMessages]]
    clocks: Mapping[int, Clock]
    path: set[int]
    fresh: frozenset[int]


class _Share(NamedTuple):
    """What one rank tells the others after a change.

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
        utilities = {agent: _utility(setup, agent, cycle.values, cycle.contexts[agent]) for agent in cycle.tables}
        total, roots = AgentUtility(), dict[int, Number | None]()
        for part, part_roots in world.allgather((_sum(utilities.values()), cycle.roots)):
            total, roots = total.plus(part), roots | part_roots
        positions = [0] * problem.n_agents
        for position, agent in enumerate(setup.tree.bottom_up):
            positions[agent] = position
        size = exact_sum(magnitude(factor.table) for factor in problem.factors if factor.scope)
        idle, bytes_ = {agent.name: _without_work(agent) for agent in known.agents}, bytes_of_tables(problem)
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
        try:
            memory = self.cycle.setup.config.budget.bytes
            with MEMORY_ACCOUNT.open(memory, resident_memory() - self.table_bytes):
                update = _update(self, changes, arithmetic, world, stop)
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

    def _share(self, update: _Update, world: World) -> _Share:
        """Return what the other ranks have to know of this rank's changes."""
        known, names = self.utilities, update.cycle.setup.problem.agents
        old = _sum(known[agent] for agent in update.utilities if agent in known)
        roots = {agent: root for agent, root in update.cycle.roots.items() if agent in update.path}
        worked = (agent for agent in {*update.sent, *update.clocks} if names[agent] in self.idle)
        metrics = {names[agent]: _metrics(self.idle[names[agent]], update, agent) for agent in worked}
        growth = _sum(update.utilities.values()).plus(old, -1)
        return _Share(growth, roots, update.values, metrics, latest(update.clocks.values()), world.message_counts())

    def _commit(self, update: _Update, shares: Sequence[_Share]) -> None:
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
        changed = {names[agent]: _idle_metrics(setup, agent) for agent in plan.local_agents}
        present = [names[agent] for agent in plan.numbering.agents.tolist()]
        self.idle = {name: changed[name] if name in changed else self.idle[name] for name in present}
        choices = choices_of(setup, tuple(self.idle.values()))
        for part in _BY_AGENT:
            by_name = choices[part]
            assert isinstance(by_name, dict)
            choices[part] = {name: by_name[name] for name in present if name in by_name}
        provenance = dict(self.result.provenance) | {"plan": choices}
        self.result = msgspec.structs.replace(self.result, provenance=provenance)

    def _result(self, update: _Update, shares: Sequence[_Share], world: World, start: float) -> Result:
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


def _utility(setup: Setup, agent: int, values: Mapping[int, int], context: Values) -> AgentUtility:
    """Return the utility of the factors that an agent evaluates."""
    own = {v: values[v] for side in ("interface", "hidden") for v in getattr(setup.division.locals[agent], side)}
    return agent_utility(setup.division, setup.tree, agent, context | own)


def _sum(parts: Iterable[AgentUtility]) -> AgentUtility:
    """Return the sum of some utilities."""
    total = AgentUtility()
    for part in parts:
        total = total.plus(part)
    return total


def _update(run: IncrementalRun, plan: ChangedProblem, arithmetic: Arithmetic, world: World, stop: Deadline) -> _Update:
    """Make the tables and messages of the agents on paths, and choose values.

    Raises
    ------
    OutOfMemory
        If a table does not fit, or a message would have to be split.
    """
    last, setup = run.cycle, replace(plan.setup, arithmetic=arithmetic).with_stop(stop)
    if setup.problem is not last.setup.problem:
        side = InterfaceCompression(setup.problem.domains, setup.problem.owner, {}, {})
        last = replace(last, sides=Sides(side, side))
    fresh = world.on_all_ranks(lambda: _new_tables(setup, plan.local_agents, world.rank))
    tables, path = last.tables | fresh, paths_to_roots(setup.tree, plan.agents)
    part, mailbox = part_of(setup.tree, path, plan.positions), Mailbox(world, setup.owner)
    clocks = {agent: _clock(fresh.get(agent)) for agent in mailbox.local_agents(part.bottom_up)}
    inputs = MessageInputs(tables, last.sides, setup.backend, 1.0)
    make_steps, sent_up = util_steps(setup, inputs, {}), dict[int, SentMessages]()

    def work(agent: int, messages: list[UtilTables]) -> UtilStepPair:
        arrived, kept = iter(messages), dict[int, UtilTables]()
        if agent in last.steps:
            kept = dict(zip(run.cycle.setup.tree.children[agent], last.steps[agent].received, strict=True))
        children = setup.tree.children[agent]
        step = make_steps(agent, [next(arrived) if child in path else kept[child] for child in children])
        if step.lower.z is not None:
            raise OutOfMemory("a message would have to be split into mini-buckets")
        return step

    made = util_phase(part, mailbox, clocks, work, sent_up)
    steps = last.steps | made
    chosen, contexts, phases = _choose_values(setup, last, steps, part, plan.positions, mailbox, clocks)
    phases.insert(0, sent_up)
    cycle = replace(
        last,
        setup=setup,
        tables=tables,
        steps=steps,
        chosen=last.chosen | chosen,
        contexts=last.contexts | contexts,
        roots=last.roots | {agent: steps[agent].lower.total for agent in made if setup.tree.parent[agent] < 0},
    )
    renewed = {
        agent: own
        for agent, own in chosen.items()
        if agent in plan.agents or own != last.chosen[agent] or contexts[agent] != last.contexts[agent]
    }
    values = world.on_all_ranks(lambda: values_of(renewed, last.sides, tables))
    cycle.values = last.values | values
    utilities = {agent: _utility(setup, agent, cycle.values, cycle.contexts[agent]) for agent in renewed}
    sent: dict[int, list[SentMessages]] = {}
    for phase in phases:
        for agent, message in phase.items():
            sent.setdefault(agent, []).append(message)
    return _Update(cycle, values, utilities, sent, clocks, path, frozenset(fresh))


def _new_tables(setup: Setup, changed: Iterable[int], rank: int) -> dict[int, SampledTable]:
    """Return the exact tables of a rank's agents whose own factors or variables have changed."""
    agents = sorted(agent for agent in changed if setup.owner[agent] == rank)
    pairs = [(setup.division.locals[agent], setup.choices[agent].seconds) for agent in agents]
    found = eliminate_in_turn(pairs, setup.sampling_settings(), timed=False)
    if found.given_up:
        raise OutOfMemory("the tables of the changed agents do not fit the time or the memory")
    if setup.retained is not None:
        for local, _ in pairs:
            name = setup.problem.agents[local.agent]
            setup.retained.keep_table(name, local, setup.arithmetic, found.tables[local.agent])
    return found.tables


def _clock(table: SampledTable | None) -> Clock:
    """Return the simulated clock of an agent after its table: 0 if the table is kept."""
    return Clock() if table is None else Clock(table.seconds, table.cells)


def _choose_values(
    setup: Setup,
    last: FinishedCycle,
    steps: Mapping[int, UtilStepPair],
    path: PseudoTree,
    positions: Sequence[int],
    mailbox: Mailbox,
    clocks: dict[int, Clock],
) -> tuple[dict[int, ChosenValues], dict[int, Values], list[dict[int, SentMessages]]]:
    """Send VALUE messages along the paths, and then to the agents whose context has changed, level by level.

    Parameters
    ----------
    setup
        The plan with the new tables.
    last
        The cycle before the change.
    steps
        The steps of all agents of this rank.
    path
        The part of the tree that is on paths.
    positions
        The position of each agent in the tree's bottom-up order.
    mailbox
        The messages.
    clocks
        The agents' simulated clocks; advanced here.

    Returns
    -------
    chosen : dict
        The interface values of the agents that have chosen again.
    contexts : dict
        The values of their separators.
    sent : list of dict
        The messages of each round, by agent.
    """
    scope, world = last.sides.lower.scope, mailbox.world
    separators = LazySequence(len(setup.tree.parent), lambda agent: (scope(setup.tree.separators[agent]),) * 2, {})
    chosen, contexts, sent = dict[int, ChosenValues](), dict[int, Values](), list[dict[int, SentMessages]]()
    part = path
    while part.bottom_up:
        new_chosen, new_contexts, messages = value_phase(part, mailbox, clocks, steps, separators)
        chosen, contexts = chosen | new_chosen, contexts | new_contexts
        to_send = {
            (agent, child): context
            for agent in new_chosen
            for child in setup.tree.children[agent]
            if child not in part.children[agent]
            and (
                context := _new_context(
                    last, agent, new_chosen[agent].lower | new_contexts[agent], separators[child][0]
                )
            )
        }
        below = {child for children in world.allgather({child for _, child in to_send}) for child in children}
        for (agent, child), context in to_send.items():
            message = ChosenValues(context, context)
            mailbox.send("VALUE", child, child, message, clocks[agent])
            before = messages.get(agent, SentMessages(0, 0, "VALUE"))
            messages[agent] = SentMessages(before.count + 1, before.size + value_size(message), "VALUE")
        for child in mailbox.local_agents(below):
            clocks.setdefault(child, Clock())
        sent.append(messages)
        part = part_of(setup.tree, below, positions)
    return chosen, contexts, sent


def _new_context(last: FinishedCycle, agent: int, known: Values, separator: Sequence[int]) -> Values | None:
    """Return the values that an agent sends to a child; None if they are those of the last run."""
    before = last.chosen[agent].lower | last.contexts[agent]
    return {v: known[v] for v in separator} if any(known[v] != before[v] for v in separator) else None


def _metrics(before: AgentMetrics, update: _Update, agent: int) -> AgentMetrics:
    """Return the metrics of an agent of this rank that has worked or sent messages."""
    sent, table = update.sent.get(agent, []), update.cycle.tables[agent]
    fresh = agent in update.fresh
    kinds = {message.kind for message in sent if message.count}
    return msgspec.structs.replace(
        before,
        cells=table.cells if fresh else 0,
        time=table.seconds if fresh else 0.0,
        msg_count=sum(message.count for message in sent),
        msg_size=sum(message.size for message in sent),
        extra_msg_count=0,
        extra_msg_size=0,
        messages={
            kind: MessageCount(
                sum(message.count for message in sent if message.kind == kind),
                sum(message.size for message in sent if message.kind == kind),
            )
            for kind in sorted(kinds)
        },
    )


def _idle_metrics(setup: Setup, agent: int) -> AgentMetrics:
    """Return the metrics of an agent with an exact table that does nothing."""
    local = setup.division.locals[agent]
    return AgentMetrics(
        name=setup.problem.agents[agent],
        method=setup.choices[agent].method,
        exact=True,
        variables=len(local.interface) + len(local.hidden),
        interface=len(local.interface),
        rank=setup.owner[agent],
        rows=local.rows,
        own_utilities=own_utilities(local.factors),
        gap=0.0,
    )


def _part(assignment: Mapping[str, Label], problem: Problem) -> dict[str, Label]:
    """Return the values of a problem's variables."""
    return {name: assignment[name] for name in problem.variables}


def _without_work(agent: AgentMetrics) -> AgentMetrics:
    """Return the metrics of an agent that has done nothing."""
    return msgspec.structs.replace(
        agent, cells=0, time=0.0, msg_count=0, msg_size=0, extra_msg_count=0, extra_msg_size=0, messages={}
    )
