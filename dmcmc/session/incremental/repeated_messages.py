"""Repeat the messages of a finished run on the paths from changed agents to the roots (S-DPOP).

An agent is on a *path* if one of its tables or its children has changed, or one of an agent below it. Only agents on
paths make UTIL messages; their parents keep the messages of all other children. VALUE messages go down the paths first.
Then, level by level, they go to the agents whose context (the values of their separator) has changed. At most one
message goes along an edge in each direction, and all ranks know in which round it comes, so no rank waits for a message
that is not sent (Petcu and Faltings, "S-DPOP: Superstabilizing, Fault-containing Distributed Combinatorial
Optimization", AAAI 2005).

Errors of agents go along the same messages. All ranks learn of them in the collective call that ends a round.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from dmcmc.inference.dpop import agent_step
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.arithmetic import Exact, exact_sum
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_phases import Phase, UtilStepPair, util_turns, value_phase
from dmcmc.mpi.world import World
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.session.incremental.changed_problem import Continuation, NotRepeatable, new_tables, part_of, paths_to_roots
from dmcmc.solving.agent_steps import MessageInputs, RowFilter, util_steps, values_of
from dmcmc.solving.pruning import with_needed_rows

if TYPE_CHECKING:
    from dmcmc.solving.combine_tables import FinishedCycle


T = TypeVar("T")


def choose_values_again(
    cycle: "FinishedCycle",
    last: "FinishedCycle",
    path: PseudoTree,
    positions: Sequence[int],
    phase: Phase,
    clocks: dict[int, agent_step.Clock],
    take: Callable[[dict[int, agent_step.ChosenValues], dict[int, agent_step.Values]], None],
    end_round: Callable[[dict[int, agent_step.SentMessages]], T],
) -> list[T]:
    """Send VALUE messages along the paths, and then to the agents whose context has changed, level by level.

    Parameters
    ----------
    cycle
        The cycle after the change, with the steps of all agents of this rank that have not failed.
    last
        The cycle before the change.
    path
        The part of the tree that is on paths.
    positions
        The position of each agent in the tree's bottom-up order.
    phase
        The messages, and the errors of the UTIL phase.
    clocks
        The agents' simulated clocks; advanced here.
    take
        Receives the values of the interface and of the separator of each agent of this rank that has chosen again.
    end_round
        Receives the messages of a round, by agent of this rank; returns the report of the round for all ranks.

    Returns
    -------
    list
        The reports of all rounds and ranks, in this order.
    """
    scope, tree, mailbox = last.sides.lower.scope, cycle.setup.tree, phase.mailbox
    separators = LazySequence(len(tree.parent), lambda agent: (scope(tree.separators[agent]),) * 2, {})
    part, shared = path, list[T]()
    while part.bottom_up:
        chosen, contexts, messages = value_phase(part, mailbox, clocks, cycle.steps, separators, phase)
        to_send = {
            (agent, child): context
            for agent in chosen
            for child in tree.children[agent]
            if child not in part.children[agent]
            and (context := _new_context(last, agent, chosen[agent].lower | contexts[agent], separators[child][0]))
        }
        if chosen:
            with phase.storing_errors(min(chosen)):
                take(chosen, contexts)
        for (agent, _), context in to_send.items():
            before = messages[agent]
            size = before.size + agent_step.value_size(agent_step.ChosenValues(context, context))
            messages[agent] = agent_step.SentMessages(before.count + 1, size, "VALUE")
        phase.report()
        found = mailbox.world.allgather(({child for _, child in to_send}, end_round(messages)))
        below = {child for children, _ in found for child in children}
        shared += [of_rank for _, of_rank in found]
        for (agent, child), context in to_send.items():
            mailbox.send("VALUE", child, child, agent_step.ChosenValues(context, context), clocks[agent])
        for child in mailbox.local_agents(below):
            clocks.setdefault(child, agent_step.Clock())
        part = part_of(tree, below, positions)
    return shared


def _new_context(
    last: "FinishedCycle", agent: int, known: agent_step.Values, separator: Sequence[int]
) -> agent_step.Values | None:
    """Return the values that an agent sends to a child; None if they are those of the last run."""
    before = last.chosen[agent].lower | last.contexts[agent]
    return {v: known[v] for v in separator} if any(known[v] != before[v] for v in separator) else None


class AgentUtility(NamedTuple):
    """The utility of the factors that one agent evaluates: its own, and those between agents that are placed at it.

    Attributes
    ----------
    violations : int
        Number of forbidden entries.
    utility : int or Fraction
        Exact sum of the other entries.
    """

    violations: int = 0
    utility: Exact = 0

    def plus(self, other: "AgentUtility", sign: int = 1) -> "AgentUtility":
        """Return the sum with another utility, or the difference if ``sign`` is −1."""
        return AgentUtility(self.violations + sign * other.violations, self.utility + sign * other.utility)


def agent_utility(
    division: Division, tree: PseudoTree, agent: int, values: Mapping[int, int], context: Mapping[int, int]
) -> AgentUtility:
    """Return the utility of the factors that an agent evaluates.

    Parameters
    ----------
    division
        The divided problem.
    tree
        The agents' pseudo-tree, by which factors between agents are placed.
    agent
        The agent.
    values
        The values of its variables; others are ignored.
    context
        The values of its separator.
    """
    local = division.locals[agent]
    known = {**context, **{v: values[v] for v in (*local.interface, *local.hidden)}}
    factors = [*local.factors, *(division.crossing[i] for i in tree.placed[agent])]
    entries = [factor.entry([known[v] for v in factor.scope]) for factor in factors]
    return AgentUtility(sum(entry is None for entry in entries), exact_sum(e for e in entries if e is not None))


Work = Callable[[int, list[agent_step.UtilTables]], UtilStepPair]


class RoundChanges(NamedTuple):
    """The changes on one rank in one round of VALUE messages; UTIL messages belong to the first round.

    Attributes
    ----------
    roots : dict of int to number
        Encoded upper bounds of its roots on paths.
    values : dict of int to int
        The new values of its variables that were chosen again.
    utilities : dict of int to AgentUtility
        The utilities of its agents that were evaluated again.
    sent : dict of int to list of SentMessages
        The messages of each of its agents that have worked.
    clock : Clock
        The latest of its agents' simulated clocks.
    fresh : dict of int to SampledTable
        Its new tables.
    """

    roots: dict[int, Number | None]
    values: dict[int, int]
    utilities: dict[int, AgentUtility]
    sent: dict[int, list[agent_step.SentMessages]]
    clock: agent_step.Clock
    fresh: dict[int, SampledTable]


class Update(NamedTuple, Generic[T]):
    """The repeated messages.

    Attributes
    ----------
    cycle : FinishedCycle
        The new cycle of this rank's agents.
    path : set of int
        The agents on paths, on all ranks.
    rounds : list of RoundChanges
        The changes on this rank in each round.
    shared : list
        The values of ``share`` for each round and rank.
    """

    cycle: "FinishedCycle"
    path: set[int]
    rounds: list[RoundChanges]
    shared: list[T]


def repeat_messages(  # long: the two phases share the state of a round
    before: "FinishedCycle", todo: Continuation, world: World, share: Callable[[RoundChanges], T]
) -> Update[T]:
    """Make the tables and messages of the agents on paths, and choose values.

    Parameters
    ----------
    before
        The finished run on this rank.
    todo
        The changed agents; its plan has the deadline.
    world
        The ranks; called by all of them.
    share
        Returns the part of this rank's changes in a round that all ranks receive.

    Raises
    ------
    ResourceError
        If a table does not fit, a message would have to be split, or a message would need rows that its sender has
        left out (``combine.rows: usable``); raised on all ranks.
    OutOfTime
        After the deadline; raised on all ranks.
    """
    setup, division = todo.setup, todo.setup.divided.division
    last = before if setup.divided.problem is before.setup.divided.problem else before.indexed_by(setup)
    path, mailbox = paths_to_roots(setup.tree, todo.agents), Mailbox(world, setup.owner)
    part, phase = part_of(setup.tree, path, todo.positions), Phase(mailbox, sorted(todo.local_agents))
    fresh = dict[int, SampledTable]()
    if changed := mailbox.local_agents(sorted(todo.local_agents)):
        with phase.storing_errors(changed[0]):
            fresh = new_tables(setup, last, changed)
    tables = last.tables | fresh
    clocks = {agent: _clock(fresh.get(agent)) for agent in mailbox.local_agents(part.bottom_up)}
    sent_up, made, work = (
        dict[int, agent_step.SentMessages](),
        dict[int, UtilStepPair](),
        _steps(before, last, todo, path, fresh),
    )
    phase.proceed(part.bottom_up)
    for agent, messages in util_turns(part, mailbox, clocks, made, sent_up):
        with phase.storing_errors(agent):
            made[agent] = work(agent, messages)
    steps = {agent: step for agent, step in last.steps.items() if agent not in path} | made
    made_roots = [agent for agent in made if setup.tree.parent[agent] < 0]
    roots: dict[int, Number | None] = {agent: steps[agent].lower.total for agent in made_roots}
    cycle = replace(
        last,
        setup=setup,
        tables=tables,
        steps=steps,
        chosen=dict(last.chosen),
        contexts=dict(last.contexts),
        values=dict(last.values),
        roots=last.roots | roots,
    )
    sent = {agent: [message] for agent, message in sent_up.items()}
    rounds, current = list[RoundChanges](), RoundChanges(roots, {}, {}, sent, agent_step.Clock(), fresh)

    def take(chosen: dict[int, agent_step.ChosenValues], contexts: dict[int, agent_step.Values]) -> None:
        """Keep the values of agents, and evaluate those agents whose values or inputs have changed."""
        cycle.chosen.update(chosen)
        cycle.contexts.update(contexts)
        changed = {
            agent: own
            for agent, own in chosen.items()
            if agent in todo.agents or own != last.chosen[agent] or contexts[agent] != last.contexts[agent]
        }
        new = values_of(changed, last.sides, tables)
        cycle.values.update(new)
        current.values.update(new)
        for agent in changed:
            current.utilities[agent] = agent_utility(division, setup.tree, agent, cycle.values, contexts[agent])

    def end_round(messages: dict[int, agent_step.SentMessages]) -> T:
        """Return the part of a round's changes that is shared, and begin the next round."""
        nonlocal current
        for agent, message in messages.items():
            current.sent.setdefault(agent, []).append(message)
        rounds.append(current._replace(clock=agent_step.latest(clocks.values())))
        current = RoundChanges({}, {}, {}, {}, agent_step.Clock(), {})
        return share(rounds[-1])

    shared = choose_values_again(cycle, last, part, todo.positions, phase, clocks, take, end_round)
    return Update(cycle, path, rounds, shared)


def _steps(
    before: "FinishedCycle",
    last: "FinishedCycle",
    todo: Continuation,
    path: set[int],
    fresh: Mapping[int, SampledTable],
) -> Work:
    """Return a function that computes the UTIL steps of an agent, with the rows of its message that are sent.

    Parameters
    ----------
    before
        The finished run on this rank.
    last
        The same run, with the tables indexed by the changed problem.
    todo
        The changed agents.
    path
        The agents on paths.
    fresh
        The new tables of this rank's agents.
    """
    setup, row_filter = todo.setup, None if last.needed is None else RowFilter(None)
    inputs = MessageInputs({**last.tables, **fresh}, last.sides, setup.backend, 1.0, row_filter=row_filter)
    make_steps = util_steps(setup, inputs, {})
    if last.needed is not None:
        make_steps = with_needed_rows(setup, inputs, last.needed, make_steps)

    def work(agent: int, messages: list[agent_step.UtilTables]) -> UtilStepPair:
        if agent in todo.local_agents and agent not in fresh:
            raise NotRepeatable("the agent has no new table")
        arrived, kept = iter(messages), dict[int, agent_step.UtilTables]()
        if agent in last.steps:
            kept = dict(zip(before.setup.tree.children[agent], last.steps[agent].received, strict=True))
        children = setup.tree.children[agent]
        step = make_steps(agent, [next(arrived) if child in path else kept[child] for child in children])
        if step.lower.z is not None:
            raise NotRepeatable("a message would have to be split into mini-buckets")
        return step

    return work


def _clock(table: SampledTable | None) -> agent_step.Clock:
    """Return the simulated clock of an agent after its table: 0 if the table is kept."""
    return agent_step.Clock() if table is None else agent_step.Clock(table.seconds, table.cells)
