"""Repeat the messages of a finished run on the paths from changed agents to the roots (S-DPOP).

An agent is on a *path* if one of its tables or its children has changed, or one of an agent below it. Only agents on
paths make UTIL messages; their parents keep the messages of all other children. VALUE messages go down the paths
first. Then, level by level, they go to the agents whose context (the values of their separator) has changed. At most
one message goes along an edge in each direction, and all ranks know in which round it comes, so no rank waits for a
message that is not sent (Petcu and Faltings, "S-DPOP: Superstabilizing, Fault-containing Distributed Combinatorial
Optimization", AAAI 2005).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from dmcmc.inference.dpop.interface_rows import InterfaceCompression
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_contents import Clock, SentMessages, UtilTables
from dmcmc.mpi.util_value_phases import UtilStepPair, util_phase
from dmcmc.mpi.world import World
from dmcmc.run.incremental.agent_utility import AgentUtility, agent_utility
from dmcmc.run.incremental.changed_problem import ChangedProblem
from dmcmc.run.incremental.new_tables import new_tables
from dmcmc.run.incremental.tree_part import part_of, paths_to_roots
from dmcmc.run.incremental.values_again import choose_values_again
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.solving.agent_steps import MessageInputs, Sides, util_steps, values_of
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


def repeat_messages(before: FinishedCycle, plan: ChangedProblem, world: World) -> Update:
    """Make the tables and messages of the agents on paths, and choose values.

    Parameters
    ----------
    before
        The finished run on this rank.
    plan
        The changed problem; its plan has the deadline.
    world
        The ranks; called by all of them.

    Raises
    ------
    OutOfMemory
        If a table does not fit, or a message would have to be split.
    OutOfTime
        After the deadline.
    """
    last, setup = before, plan.setup
    if setup.problem is not last.setup.problem:
        side = InterfaceCompression(setup.problem.domains, setup.problem.owner, {}, {})
        last = replace(last, sides=Sides(side, side))
    fresh = world.on_all_ranks(lambda: new_tables(setup, plan.local_agents, world.rank))
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
    chosen, contexts, phases = choose_values_again(setup, last, steps, part, plan.positions, mailbox, clocks)
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
    utilities = {
        agent: agent_utility(setup.division, setup.tree, agent, cycle.values, cycle.contexts[agent])
        for agent in renewed
    }
    sent: dict[int, list[SentMessages]] = {}
    for phase in phases:
        for agent, message in phase.items():
            sent.setdefault(agent, []).append(message)
    return Update(cycle, values, utilities, sent, clocks, path, frozenset(fresh))


def _clock(table: SampledTable | None) -> Clock:
    """Return the simulated clock of an agent after its table: 0 if the table is kept."""
    return Clock() if table is None else Clock(table.seconds, table.cells)
