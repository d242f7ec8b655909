"""Repeat the messages of a finished run on the paths from changed agents to the roots (S-DPOP).

An agent is on a *path* if one of its tables or its children has changed, or one of an agent below it. Only agents on
paths make UTIL messages; their parents keep the messages of all other children. VALUE messages go down the paths
first. Then, level by level, they go to the agents whose context (the values of their separator) has changed. At most
one message goes along an edge in each direction, and all ranks know in which round it comes, so no rank waits for a
message that is not sent (Petcu and Faltings, "S-DPOP: Superstabilizing, Fault-containing Distributed Combinatorial
Optimization", AAAI 2005).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dmcmc.inference.dpop.interface_rows import InterfaceCompression
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_contents import ChosenValues, Clock, SentMessages, UtilTables, Values, value_size
from dmcmc.mpi.util_value_phases import UtilStepPair, util_phase, value_phase
from dmcmc.mpi.world import World
from dmcmc.run.incremental.agent_utility import AgentUtility, agent_utility
from dmcmc.run.incremental.changed_problem import ChangedProblem
from dmcmc.run.incremental.tree_part import part_of, paths_to_roots
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.samplers.methods.exact import eliminate_in_turn
from dmcmc.solving.agent_steps import MessageInputs, Sides, util_steps, values_of
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.util_value_cycle import FinishedCycle


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


def repeat_messages(
    before: FinishedCycle, plan: ChangedProblem, arithmetic: Arithmetic, world: World, stop: Deadline
) -> Update:
    """Make the tables and messages of the agents on paths, and choose values.

    Parameters
    ----------
    before
        The finished run on this rank.
    plan
        The changed problem.
    arithmetic
        The number format of its tables, which encodes as the one before.
    world
        The ranks; called by all of them.
    stop
        The deadline.

    Raises
    ------
    OutOfMemory
        If a table does not fit, or a message would have to be split.
    OutOfTime
        After the deadline.
    """
    last, setup = before, replace(plan.setup, arithmetic=arithmetic).with_stop(stop)
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
            kept = dict(zip(before.setup.tree.children[agent], last.steps[agent].received, strict=True))
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
    utilities = {agent: utility_of(setup, agent, cycle.values, cycle.contexts[agent]) for agent in renewed}
    sent: dict[int, list[SentMessages]] = {}
    for phase in phases:
        for agent, message in phase.items():
            sent.setdefault(agent, []).append(message)
    return Update(cycle, values, utilities, sent, clocks, path, frozenset(fresh))


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


def utility_of(setup: Setup, agent: int, values: Mapping[int, int], context: Values) -> AgentUtility:
    """Return the utility of the factors that an agent evaluates."""
    own = {v: values[v] for side in ("interface", "hidden") for v in getattr(setup.division.locals[agent], side)}
    return agent_utility(setup.division, setup.tree, agent, context | own)
