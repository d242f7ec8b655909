"""Repeat the messages of a finished run on the paths from changed agents to the roots (S-DPOP).

An agent is on a *path* if one of its tables or its children has changed, or one of an agent below it. Only agents on
paths make UTIL messages; their parents keep the messages of all other children. VALUE messages go down the paths
first. Then, level by level, they go to the agents whose context (the values of their separator) has changed. At most
one message goes along an edge in each direction, and all ranks know in which round it comes, so no rank waits for a
message that is not sent (Petcu and Faltings, "S-DPOP: Superstabilizing, Fault-containing Distributed Combinatorial
Optimization", AAAI 2005).

Errors of agents go along the same messages. All ranks learn of them in the collective call that ends a round.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from dmcmc.inference.dpop.agent_step import ChosenValues, Clock, SentMessages, UtilTables, Values, latest
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_phases import Phase, UtilStepPair, util_turns
from dmcmc.mpi.world import World
from dmcmc.run.incremental.agent_utility import AgentUtility, agent_utility
from dmcmc.run.incremental.changed_problem import Continuation
from dmcmc.run.incremental.new_tables import NotRepeatable, new_tables
from dmcmc.run.incremental.tree_part import part_of, paths_to_roots
from dmcmc.run.incremental.values_again import choose_values_again
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.solving.agent_steps import MessageInputs, RowFilter, util_steps, values_of
from dmcmc.solving.row_filter import with_needed_rows

if TYPE_CHECKING:
    from dmcmc.solving.util_value_cycle import FinishedCycle

T = TypeVar("T")
Work = Callable[[int, list[UtilTables]], UtilStepPair]


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
    sent: dict[int, list[SentMessages]]
    clock: Clock
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


def repeat_messages(
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
    setup = todo.setup
    last = before if setup.problem is before.setup.problem else before.indexed_by(setup)
    path, mailbox = paths_to_roots(setup.tree, todo.agents), Mailbox(world, setup.owner)
    part, phase = part_of(setup.tree, path, todo.positions), Phase(mailbox, sorted(todo.local_agents))
    fresh = dict[int, SampledTable]()
    if changed := mailbox.local_agents(sorted(todo.local_agents)):
        with phase.storing_errors(changed[0]):
            fresh = new_tables(setup, last, changed)
    tables = last.tables | fresh
    clocks = {agent: _clock(fresh.get(agent)) for agent in mailbox.local_agents(part.bottom_up)}
    sent_up, made, work = dict[int, SentMessages](), dict[int, UtilStepPair](), _steps(before, last, todo, path, fresh)
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
    rounds, current = list[RoundChanges](), RoundChanges(roots, {}, {}, sent, Clock(), fresh)

    def take(chosen: dict[int, ChosenValues], contexts: dict[int, Values]) -> None:
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
            current.utilities[agent] = agent_utility(setup.division, setup.tree, agent, cycle.values, contexts[agent])

    def end_round(messages: dict[int, SentMessages]) -> T:
        """Return the part of a round's changes that is shared, and begin the next round."""
        nonlocal current
        for agent, message in messages.items():
            current.sent.setdefault(agent, []).append(message)
        rounds.append(current._replace(clock=latest(clocks.values())))
        current = RoundChanges({}, {}, {}, {}, Clock(), {})
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

    def work(agent: int, messages: list[UtilTables]) -> UtilStepPair:
        if agent in todo.local_agents and agent not in fresh:
            raise NotRepeatable("the agent has no new table")
        arrived, kept = iter(messages), dict[int, UtilTables]()
        if agent in last.steps:
            kept = dict(zip(before.setup.tree.children[agent], last.steps[agent].received, strict=True))
        children = setup.tree.children[agent]
        step = make_steps(agent, [next(arrived) if child in path else kept[child] for child in children])
        if step.lower.z is not None:
            raise NotRepeatable("a message would have to be split into mini-buckets")
        return step

    return work


def _clock(table: SampledTable | None) -> Clock:
    """Return the simulated clock of an agent after its table: 0 if the table is kept."""
    return Clock() if table is None else Clock(table.seconds, table.cells)
