"""Repeat the messages of a finished run on the paths from changed agents to the roots (S-DPOP).

An agent is on a *path* if one of its tables or its children has changed, or one of an agent below it. Only agents on
paths make UTIL messages; their parents keep the messages of all other children. VALUE messages go down the paths
first. Then, level by level, they go to the agents whose context (the values of their separator) has changed. At most
one message goes along an edge in each direction, and all ranks know in which round it comes, so no rank waits for a
message that is not sent (Petcu and Faltings, "S-DPOP: Superstabilizing, Fault-containing Distributed Combinatorial
Optimization", AAAI 2005).

Errors of agents go along the same messages. All ranks learn of them in the collective call that ends a round.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dmcmc.inference.dpop.interface_rows import InterfaceCompression
from dmcmc.inference.model.arithmetic import is_allowed
from dmcmc.inference.runtime.errors import OutOfMemory, ResourceError
from dmcmc.inference.sparse.sparse_table import as_dense
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_contents import ChosenValues, Clock, SentMessages, UtilTables, Values
from dmcmc.mpi.util_value_phases import Phase, UtilStepPair, util_phase
from dmcmc.mpi.world import World
from dmcmc.run.incremental.agent_utility import AgentUtility, agent_utility
from dmcmc.run.incremental.changed_problem import Continuation
from dmcmc.run.incremental.tree_part import part_of, paths_to_roots
from dmcmc.run.incremental.values_again import choose_values_again
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.methods.exact import eliminate_in_turn
from dmcmc.solving.agent_steps import MessageInputs, RowFilter, Sides, util_steps, values_of
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.row_filter import NeededRows, with_needed_rows
from dmcmc.solving.util_value_cycle import FinishedCycle

Work = Callable[[int, list[UtilTables]], UtilStepPair]


class NotRepeatable(ResourceError):
    """The last run cannot be continued; the problem has to be solved anew."""


class Update(NamedTuple):
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


def repeat_messages(before: FinishedCycle, todo: Continuation, world: World) -> Update:
    """Make the tables and messages of the agents on paths, and choose values.

    Parameters
    ----------
    before
        The finished run on this rank.
    todo
        The changed agents; its plan has the deadline.
    world
        The ranks; called by all of them.

    Raises
    ------
    ResourceError
        If a table does not fit, a message would have to be split, or a message would need rows that its sender has
        left out (``combine.rows: usable``); raised on all ranks.
    OutOfTime
        After the deadline; raised on all ranks.
    """
    last, setup = before, todo.setup
    if setup.problem is not last.setup.problem:
        side = InterfaceCompression(setup.problem.domains, setup.problem.owner, {}, {})
        last = replace(last, sides=Sides(side, side))
    path, mailbox = paths_to_roots(setup.tree, todo.agents), Mailbox(world, setup.owner)
    part, phase = part_of(setup.tree, path, todo.positions), Phase(mailbox, sorted(todo.local_agents))
    fresh = dict[int, SampledTable]()
    if changed := mailbox.local_agents(sorted(todo.local_agents)):
        with phase.storing_errors(changed[0]):
            fresh = _new_tables(setup, last, changed)
    tables = last.tables | fresh
    clocks = {agent: _clock(fresh.get(agent)) for agent in mailbox.local_agents(part.bottom_up)}
    sent_up = dict[int, SentMessages]()
    make_steps = _steps(last, setup, tables)

    def work(agent: int, messages: list[UtilTables]) -> UtilStepPair:
        if agent in todo.local_agents and agent not in fresh:
            raise NotRepeatable("the agent has no new table")
        arrived, kept = iter(messages), dict[int, UtilTables]()
        if agent in last.steps:
            kept = dict(zip(before.setup.tree.children[agent], last.steps[agent].received, strict=True))
        children = setup.tree.children[agent]
        step = make_steps(agent, [next(arrived) if child in path else kept[child] for child in children])
        if step.lower.z is not None:
            raise OutOfMemory("a message would have to be split into mini-buckets")
        return step

    made = util_phase(part, mailbox, clocks, work, sent_up, phase)
    steps = {agent: step for agent, step in last.steps.items() if agent not in path} | made
    cycle = replace(
        last,
        setup=setup,
        tables=tables,
        steps=steps,
        chosen=dict(last.chosen),
        contexts=dict(last.contexts),
        values=dict(last.values),
        roots=last.roots | {agent: steps[agent].lower.total for agent in made if setup.tree.parent[agent] < 0},
    )
    values, utilities = dict[int, int](), dict[int, AgentUtility]()
    sent: dict[int, list[SentMessages]] = {agent: [message] for agent, message in sent_up.items()}

    def take(agent: int, own: ChosenValues, context: Values) -> None:
        """Keep the values of an agent, and evaluate it if they or its inputs have changed."""
        cycle.chosen[agent], cycle.contexts[agent] = own, context
        if agent in todo.agents or own != last.chosen[agent] or context != last.contexts[agent]:
            new = values_of({agent: own}, last.sides, tables)
            values.update(new)
            cycle.values.update(new)
            utilities[agent] = agent_utility(setup.division, setup.tree, agent, cycle.values, context)

    for messages in choose_values_again(cycle, last, part, todo.positions, phase, clocks, take):
        for agent, message in messages.items():
            sent.setdefault(agent, []).append(message)
    return Update(cycle, values, utilities, sent, clocks, path, frozenset(fresh))


def _steps(last: FinishedCycle, setup: Setup, tables: Mapping[int, SampledTable]) -> Work:
    """Return a function that computes the UTIL steps of an agent, with the rows of its message that are sent."""
    row_filter = None if last.usable is None else RowFilter(None)
    inputs = MessageInputs(tables, last.sides, setup.backend, 1.0, row_filter=row_filter)
    work = util_steps(setup, inputs, {})
    return work if last.usable is None else with_needed_rows(setup, inputs, NeededRows(last.usable, {}), work)


def _new_tables(setup: Setup, last: FinishedCycle, agents: Sequence[int]) -> dict[int, SampledTable]:
    """Return the exact tables of agents whose own factors or variables have changed."""
    pairs = [(setup.division.locals[agent], setup.choices[agent].seconds) for agent in agents]
    found = eliminate_in_turn(pairs, setup.sampling_settings(), timed=False)
    if found.given_up:
        raise OutOfMemory("the tables of the changed agents do not fit the time or the memory")
    for local, _ in pairs:
        agent, table = local.agent, found.tables[local.agent]
        if last.usable is not None and setup.tree.children[agent]:
            _refuse_more_rows(last.tables[agent], table)
        if setup.retained is not None:
            setup.retained.keep_table(setup.problem.agents[agent], local, setup.arithmetic, table)
    return found.tables


def _refuse_more_rows(before: SampledTable, after: SampledTable) -> None:
    """Raise an error if a table allows rows that it has forbidden: the children may have left them out."""
    pairs = zip(map(as_dense, before.lower), map(as_dense, after.lower), strict=False)
    same = [one.scope for one in before.lower] == [other.scope for other in after.lower]
    if not same or any(bool((is_allowed(other.values) & ~is_allowed(one.values)).any()) for one, other in pairs):
        raise NotRepeatable("the agent allows rows that its children have left out")


def _clock(table: SampledTable | None) -> Clock:
    """Return the simulated clock of an agent after its table: 0 if the table is kept."""
    return Clock() if table is None else Clock(table.seconds, table.cells)
