"""One cycle of DPOP over the agents' pseudo-tree: UTIL messages up, VALUE messages down, an assignment and bounds.

``RankTables.combine`` runs a cycle with the agents' current tables. Each agent has lower tables (utilities that are
attained) and upper tables (upper bounds). Lower tables give the assignment and upper tables the bound, so most
functions here work on two *sides*. A cycle is computed in one of four ways:

* messages of whole tables from agent to agent (``_run_messages``), exact or split into mini-buckets of at most z
  variables;
* sliced messages, for one combination of values of some (*cut*) variables at a time (``_run_slices``);
* by one rank per node, its *leader*, for all agents of the node, agent by agent (``_run_shared``);
* by one rank per node, with all variables of a subtree eliminated jointly (``_run_subtrees``).

An *outside bound* of an agent, computed after a cycle by :func:`run_outside`, is an upper bound on what all other
agents can add to each of its rows (assignments of its boundary variables).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dmcmc.inference.dpop import agent_step
from dmcmc.inference.dpop.division import InterfaceCompression
from dmcmc.inference.dpop.pseudotree import contracted
from dmcmc.inference.dpop.slicing import PredictedStep, Slicing
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.interpreted import is_interpreting
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.divided_phases import combine_slices, is_faster_divided, tables_of_all_ranks
from dmcmc.mpi.mailbox import Mailbox, SharedAgentTables, SharedTables, fits_shared_memory, leaders_of
from dmcmc.mpi.message_phases import Phase, UtilStepPair, interface_values, send_down, util_turns, value_phase
from dmcmc.mpi.world import World
from dmcmc.samplers.contract.protocol import SampledTable
from dmcmc.solving import agent_steps
from dmcmc.solving.planning import combination_plan
from dmcmc.solving.pruning import NeededRows, needed_rows, with_needed_rows
from dmcmc.solving.tuning import MAX_STORED_SEPARATORS

if TYPE_CHECKING:
    from dmcmc.solving.planning.plan import Setup


MiniBucketSizes = tuple[int | None, int | None]


@dataclass
class Cycle:
    """The results of one cycle on this rank.

    Attributes
    ----------
    steps : dict of int to UtilStepPair
        UTIL steps of each agent that was computed here.
    z : dict of int to tuple
        Per agent of this rank: mini-bucket size limit of the lower and of the upper tables; None for exact ones.
    values : dict of int to int
        Values of all variables of this rank's agents.
    chosen : dict of int to ChosenValues
        Per agent: values of its boundary variables (its interface), decoded from the lower and from the upper tables.
    contexts : dict of int to dict
        Per agent: values of its separator (variables of its ancestors), decoded from the lower tables.
    roots : dict of int to Number or None
        Encoded upper bounds of the root agents of this rank; None if a table has no bound.
    sent : list of dict
        Messages of each phase, by sending agent.
    per_agent : bool
        Whether there was one UTIL step per agent, with all of its children's messages; false for slices and for joint
        eliminations. Outside bounds need such steps.
    leader_mailbox : Mailbox or None
        Mailbox of the node leaders, if one rank per node combined for all agents of its node.
    """

    steps: dict[int, UtilStepPair]
    z: dict[int, MiniBucketSizes]
    values: dict[int, int]
    chosen: dict[int, agent_step.ChosenValues]
    contexts: dict[int, dict[int, int]]
    roots: dict[int, Number | None]
    sent: list[dict[int, agent_step.SentMessages]]
    per_agent: bool = True
    leader_mailbox: Mailbox | None = None


@dataclass
class FinishedCycle:
    """A cycle of exact messages on this rank, with all that is needed to repeat a part of it with new tables.

    Attributes
    ----------
    setup : Setup
        The plan.
    sides : Sides
        How the tables are indexed; the lower and the upper ones are the same.
    tables : dict of int to SampledTable
        The exact tables of this rank's agents.
    steps : dict of int to UtilStepPair
        Their steps, with the tables from which values are chosen.
    chosen, contexts, roots, values
        As in :class:`Cycle`.
    interpreted : bool
        Whether the kernels were interpreted.
    needed : NeededRows or None
        The rows of the messages of this rank's agents; None if messages had all rows.
    """

    setup: "Setup"
    sides: agent_steps.Sides
    tables: dict[int, SampledTable]
    steps: dict[int, UtilStepPair]
    chosen: dict[int, agent_step.ChosenValues]
    contexts: dict[int, agent_step.Values]
    roots: dict[int, Number | None]
    values: dict[int, int]
    interpreted: bool
    needed: NeededRows | None = None

    def indexed_by(self, setup: "Setup") -> "FinishedCycle":
        """Return the cycle with tables that are indexed by the domains of a changed plan."""
        side = InterfaceCompression(setup.divided.problem.domains, setup.divided.problem.owner, {}, {})
        return replace(self, sides=agent_steps.Sides(side, side))


def message_scheme(
    setup: "Setup", mailbox: Mailbox, clocks: dict[int, agent_step.Clock], inputs: agent_steps.MessageInputs
) -> Callable[[], "Combined"]:
    """Return the function that sends the messages of a cycle in one of the four ways; called by all ranks.

    All ranks have to call the returned function, too. If the messages from the children leave an agent too little
    memory, they are made again with a smaller z.

    Parameters
    ----------
    setup
        The plan of the run.
    mailbox
        Mailbox of this rank.
    clocks
        Ready time of each agent of this rank (simulated time); advanced.
    inputs
        The tables of this rank's agents, and the processors.

    Raises
    ------
    ResourceError
        If the deadline is over (``OutOfTime``) or an agent's tables do not fit; raised on all ranks.
    """
    slicing = _choose_slicing(setup, mailbox.world, inputs)
    if slicing is not None and slicing.cut:
        return partial(_run_slices, setup, mailbox, clocks, inputs, slicing)
    if setup.one_rank_combines:
        return partial(_run_shared, setup, mailbox, clocks, inputs)
    return partial(_run_messages, setup, mailbox, clocks, inputs)


class Combined(NamedTuple):
    """Result of the messages of a cycle. The fields are those of :class:`Cycle` and :class:`FinishedCycle`.

    ``steps`` still have their tables.
    """

    steps: dict[int, UtilStepPair]
    z: dict[int, MiniBucketSizes]
    chosen: dict[int, agent_step.ChosenValues]
    contexts: dict[int, agent_step.Values]
    roots: dict[int, Number | None]
    sent: list[dict[int, agent_step.SentMessages]]
    per_agent: bool = True
    leader_mailbox: Mailbox | None = None
    needed: NeededRows | None = None

    def cycle(self, agents: Iterable[int], values: dict[int, int]) -> Cycle:
        """Return the results without the tables of the steps: those of a rank's agents, and their values."""
        steps = {agent: step.finished() for agent, step in self.steps.items()}
        z, rest = {agent: self.z[agent] for agent in agents}, (self.chosen, self.contexts, self.roots, self.sent)
        return Cycle(steps, z, values, *rest, per_agent=self.per_agent, leader_mailbox=self.leader_mailbox)


def finished_cycle(
    setup: "Setup", inputs: agent_steps.MessageInputs, combined: Combined, values: dict[int, int]
) -> FinishedCycle | None:
    """Return a cycle of exact messages, of which parts may be repeated; None for any other cycle."""
    tables = {agent: table for agent, table in inputs.tables.items() if isinstance(table, SampledTable) and table.exact}
    is_exact = (
        combined.per_agent
        and combined.leader_mailbox is None
        and len(tables) == len(inputs.tables)
        and inputs.sides.lower is inputs.sides.upper
        and not inputs.sides.lower.rows
        and (inputs.row_filter is None or inputs.row_filter.least is None)  # it depends on the best known solution
        and all(step.lower.z is None and step.upper is step.lower for step in combined.steps.values())
    )
    if not is_exact:
        return None
    parts = combined.steps, combined.chosen, combined.contexts, combined.roots
    return FinishedCycle(setup, inputs.sides, tables, *parts, values, is_interpreting(), combined.needed)


def _run_messages(
    setup: "Setup", mailbox: Mailbox, clocks: dict[int, agent_step.Clock], inputs: agent_steps.MessageInputs
) -> Combined:
    """Send messages of whole tables from agent to agent, one UTIL step per agent and side.

    While messages are too wide for their parents, they are made again with a smaller z.
    """
    z_limits, up = dict[int, int](), list[dict[int, agent_step.SentMessages]]()
    needed: NeededRows | None = None
    if inputs.row_filter is not None:
        needed, sent = needed_rows(setup, mailbox, inputs)
        up.append(sent)
    while True:
        up.append({})
        steps, phase = dict[int, UtilStepPair](), Phase(mailbox, setup.tree.bottom_up)
        work = agent_steps.util_steps(setup, inputs, z_limits)
        work = work if needed is None else with_needed_rows(setup, inputs, needed, work)
        try:
            for agent, messages in util_turns(setup.tree, mailbox, clocks, steps, up[-1]):
                with phase.storing_errors(agent):
                    steps[agent] = work(agent, messages)
            phase.close()
            break
        except combination_plan.MessagesTooWide as error:
            z_limits |= combination_plan.narrowed_limits(setup.tree, z_limits, error)
    chosen, contexts, down = value_phase(setup.tree, mailbox, clocks, steps, _separators(setup, inputs.sides))
    roots = {
        agent: None if step.upper is None else step.upper.total
        for agent, step in steps.items()
        if setup.tree.parent[agent] < 0
    }
    z = {agent: (step.lower.z, None if step.upper is None else step.upper.z) for agent, step in steps.items()}
    return Combined(steps, z, chosen, contexts, roots, [*up, down], needed=needed)


def _separators(setup: "Setup", sides: agent_steps.Sides) -> Sequence[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return each agent's separator twice: as the lower tables and as the upper tables index it."""

    def both(agent: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        separator = setup.tree.separators[agent]
        return sides.lower.scope(separator), sides.upper.scope(separator)

    agents = len(setup.tree.parent)
    return (
        LazySequence(agents, both, {}) if agents > MAX_STORED_SEPARATORS else [both(agent) for agent in range(agents)]
    )


def _choose_slicing(setup: "Setup", world: World, inputs: agent_steps.MessageInputs) -> Slicing | None:
    """Return the variables to slice by, given the scopes of the agents' tables; None if tables are joined whole.

    Raises
    ------
    ResourceError
        If ``combine.method`` is ``sliced`` and no slices fit.
    """
    lower, upper = inputs.sides.lower, inputs.sides.upper
    if setup.slicing is None or lower is not upper:
        return None
    scopes: dict[int, list[tuple[int, ...]]] = world.union(
        {agent: [encoded.scope for encoded in table.lower] for agent, table in inputs.tables.items()}
    )
    max_entries = setup.step_bytes // setup.divided.arithmetic.dtype.itemsize

    def find() -> Slicing | None:
        try:
            return combination_plan.find_slicing(
                setup.divided, setup.tree, scopes, lower.sizes, max_entries, lower.scope
            )
        except ResourceError:
            if setup.divided.config.combine.method == "sliced":
                raise
            return None

    return world.on_first_rank(find)


def _run_slices(
    setup: "Setup",
    mailbox: Mailbox,
    clocks: dict[int, agent_step.Clock],
    inputs: agent_steps.MessageInputs,
    slicing: Slicing,
) -> Combined:
    """Send UTIL messages for one slice after the other, and VALUE messages down."""
    side = inputs.sides.lower
    separators = [side.scope(separator) for separator in setup.tree.separators]
    cut_sizes = {agent: [(v, int(side.sizes[v])) for v in variables] for agent, variables in slicing.cut.items()}
    shared = _tables_to_divide_slices(setup, mailbox.world, clocks, inputs, slicing)
    inputs = inputs if shared is None else inputs._replace(tables=shared)
    work = agent_steps.sliced_steps(setup, inputs, slicing)
    outcome = combine_slices(setup.tree, separators, cut_sizes, work, mailbox, clocks, shared is not None)
    chosen = {agent: interface_values(found.known, found.context) for agent, found in outcome.decided.items()}
    return Combined(
        outcome.steps,
        dict.fromkeys(chosen, (None, None)),
        chosen,
        {agent: found.context.lower for agent, found in outcome.decided.items()},
        {agent: found.upper for agent, found in outcome.decided.items() if setup.tree.parent[agent] < 0},
        list(outcome.sent.values()),
        per_agent=False,
    )


def _tables_to_divide_slices(
    setup: "Setup",
    world: World,
    clocks: Mapping[int, agent_step.Clock],
    inputs: agent_steps.MessageInputs,
    slicing: Slicing,
) -> dict[int, SharedAgentTables] | None:
    """Return the tables of all agents, by which the ranks can divide the slices; called by all ranks.

    The result is None if slices are not divided: with one rank, if the division would not be faster, if the tables are
    large or sparse, or if a rank does not know all factors between agents.
    """
    if world.size == 1 or not all(world.allgather(isinstance(setup.divided.division.crossing, tuple))):
        return None
    cut_values = {agent: int(inputs.sides.lower.sizes[variables[0]]) for agent, variables in slicing.cut.items()}
    seconds = world.on_first_rank(lambda: combination_plan.agent_slicing_seconds(setup, slicing))
    if not is_faster_divided(setup.tree, cut_values, seconds, setup.owner, world.size):
        return None
    limit = setup.limits.retained_memory * setup.divided.problem.n_agents
    return tables_of_all_ranks(world, inputs.tables, clocks, limit)


def _run_shared(
    setup: "Setup", mailbox: Mailbox, clocks: dict[int, agent_step.Clock], inputs: agent_steps.MessageInputs
) -> Combined:
    """Let one rank per node (the leader) combine for all agents of its node.

    The ranks pass their tables to the leader in shared memory; messages between nodes go between leaders. The leader
    eliminates jointly if that is exact, otherwise agent by agent.
    """
    world = mailbox.world
    tables = {agent: table for agent, table in inputs.tables.items() if isinstance(table, SampledTable)}
    shared_tables = world.on_all_ranks(
        lambda: agent_steps.shared_tables_of(setup, tables, inputs.sides, inputs.backend.stop, clocks)
    )
    if not fits_shared_memory(world, shared_tables):
        return _run_messages(setup, mailbox, clocks, inputs)
    leader_mailbox, predicted = (
        Mailbox(world, leaders_of(world, mailbox.owner)),
        _predicted_subtree_steps(setup, world, inputs),
    )
    with SharedTables(world, shared_tables) as shared_memory:
        inputs = inputs._replace(tables=shared_memory.tables, includes_crossing=True)
        times = {agent: received.clock for agent, received in shared_memory.tables.items()}
        if predicted is None:
            combined = _run_messages(setup, leader_mailbox, times, inputs)._replace(leader_mailbox=leader_mailbox)
        else:
            combined = _run_subtrees(setup, leader_mailbox, times, inputs, predicted)
    return _return_values(setup, mailbox, clocks, times, inputs.sides, combined, shared_memory.sent)


def _predicted_subtree_steps(
    setup: "Setup", world: World, inputs: agent_steps.MessageInputs
) -> tuple[list[PredictedStep], list[PredictedStep]] | None:
    """Return all agents' predicted lower and upper steps if joint elimination gives the same answer, else None.

    It gives the same answer if sums are exact, all agents' steps would be exact, and no outside bounds are computed.
    """
    may_need_messages = setup.divided.timed and any(choice.method != "exact" for choice in setup.choices)
    if may_need_messages or not setup.divided.arithmetic.exact or combination_plan.exact_bytes(setup) == 0:
        return None
    scopes = world.union(
        {
            agent: [[encoded.scope for encoded in side or ()] for side in (agent_table.lower, agent_table.upper)]
            for agent, agent_table in inputs.tables.items()
        }
    )
    entries = combination_plan.exact_bytes(setup) // setup.divided.arithmetic.dtype.itemsize

    def predict() -> tuple[list[PredictedStep], list[PredictedStep]] | None:
        steps_by_side = list[list[PredictedStep]]()
        for side_index, side in enumerate((inputs.sides.lower, inputs.sides.upper)):
            side_scopes = {agent: scopes[agent][side_index] for agent in scopes}
            if (
                steps_by_side
                and side is inputs.sides.lower
                and all(lower_scopes == upper_scopes for lower_scopes, upper_scopes in scopes.values())
            ):
                return steps_by_side[0], steps_by_side[0]
            steps_by_side.append(
                combination_plan.predicted_steps(
                    setup.divided.division, setup.tree, side_scopes, side.sizes, side.scope
                )
            )
            if any(step.plan(side.sizes).entries > entries for step in steps_by_side[-1]):
                return None
        return steps_by_side[0], steps_by_side[1]

    return world.on_first_rank(predict)


def _run_subtrees(
    setup: "Setup",
    leader_mailbox: Mailbox,
    times: dict[int, agent_step.Clock],
    inputs: agent_steps.MessageInputs,
    predicted: tuple[list[PredictedStep], list[PredictedStep]],
) -> Combined:
    """Jointly eliminate the variables of all agents of each subtree that lies on one node.

    Parameters
    ----------
    leader_mailbox
        Mailbox of the node leaders.
    times
        Ready time of each agent of this node; advanced.
    inputs
        Tables of this node's agents, with the factors between agents.
    predicted
        Predicted steps of all agents, with lower and with upper tables.
    """
    subtrees, tree, owner = contracted(setup.tree, leader_mailbox.owner)
    mailbox = Mailbox(leader_mailbox.world, owner)
    clocks = {
        subtree: agent_step.latest(times[agent] for agent in subtrees[subtree])
        for subtree in mailbox.local_agents(range(len(subtrees)))
    }
    sent_up, steps = dict[int, agent_step.SentMessages](), dict[int, UtilStepPair]()
    work, phase = agent_steps.subtree_steps(setup, inputs, subtrees, predicted), Phase(mailbox, tree.bottom_up)
    for subtree, messages in util_turns(tree, mailbox, clocks, steps, sent_up):
        with phase.storing_errors(subtree):
            steps[subtree] = work(subtree, messages)
    phase.close()
    separators = _separators(setup, inputs.sides)
    subtree_separators = [separators[agents[-1]] for agents in subtrees]
    chosen, contexts, down = value_phase(tree, mailbox, clocks, steps, subtree_separators)
    roots = {
        subtrees[subtree][-1]: None if step.upper is None else step.upper.total
        for subtree, step in steps.items()
        if tree.parent[subtree] < 0
    }
    chosen_by_agent, context_by_agent = dict[int, agent_step.ChosenValues](), dict[int, agent_step.Values]()
    for subtree, choice in chosen.items():
        lower = choice.lower | contexts[subtree]
        for agent in subtrees[subtree]:
            interface = setup.divided.division.locals[agent].interface
            lower_scope, upper_scope = (
                set(inputs.sides.lower.scope(interface)),
                set(inputs.sides.upper.scope(interface)),
            )
            upper = choice.upper and {v: x for v, x in choice.upper.items() if v in upper_scope}
            chosen_by_agent[agent] = agent_step.ChosenValues(
                {v: x for v, x in lower.items() if v in lower_scope}, upper
            )
            context_by_agent[agent] = {v: lower[v] for v in separators[agent][0]}
            times[agent] = clocks[subtree]
    sent = [
        {subtrees[subtree][-1]: sent_by_agent for subtree, sent_by_agent in phase.items() if sent_by_agent.count}
        for phase in (sent_up, down)
    ]
    return Combined(
        {},
        dict.fromkeys(chosen_by_agent, (None, None)),
        chosen_by_agent,
        context_by_agent,
        roots,
        sent,
        per_agent=False,
    )


def _return_values(
    setup: "Setup",
    mailbox: Mailbox,
    clocks: dict[int, agent_step.Clock],
    times: Mapping[int, agent_step.Clock],
    sides: agent_steps.Sides,
    combined: Combined,
    sent_tables: dict[int, agent_step.SentMessages],
) -> Combined:
    """Send the values that the node leaders have chosen to the agents' ranks.

    Parameters
    ----------
    clocks
        Ready times of this rank's agents; set.
    times
        Ready times of the agents of this node, on its leader.
    combined
        Results of this rank as a leader; empty on other ranks.
    sent_tables
        Messages by which this rank's agents passed their tables to the leader.
    """
    world, sent_values = mailbox.world, dict[int, agent_step.SentMessages]()
    for agent, choice in combined.chosen.items():
        all_values = choice._replace(lower=combined.contexts[agent] | choice.lower)
        sent_values[agent] = agent_step.SentMessages(1, agent_step.value_size(all_values), "VALUE")
        mailbox.send("VALUE", agent, agent, all_values, times[agent])
    chosen, contexts = dict[int, agent_step.ChosenValues](), dict[int, agent_step.Values]()
    for agent in mailbox.local_agents(range(len(setup.tree.parent))):
        all_values, clocks[agent] = mailbox.receive("VALUE", agent)
        context = set(sides.lower.scope(setup.tree.separators[agent]))
        contexts[agent] = {v: x for v, x in all_values.lower.items() if v in context}
        chosen[agent] = all_values._replace(lower={v: x for v, x in all_values.lower.items() if v not in context})
    mailbox.close()
    by_leader = world.allgather((combined.z, [sent_values, *combined.sent]))
    z = {agent: item for z_by_agent, _ in by_leader for agent, item in z_by_agent.items()}
    sent = [{a: item for a, item in phase.items() if a in chosen} for _, phases in by_leader for phase in phases]
    return combined._replace(z=z, chosen=chosen, contexts=contexts, sent=[sent_tables, *filter(None, sent)])


def run_outside(
    setup: "Setup", mailbox: Mailbox, cycle: Cycle, tables: Mapping[int, SampledTable], side: InterfaceCompression
) -> tuple[dict[int, agent_step.UtilMessage], dict[int, agent_step.SentMessages]]:
    """Send each agent its outside bound: an upper bound on what all other agents of its component can add to its rows.

    Called after a cycle in which all agents had upper bounds. Messages go down the tree, from parents to children.

    Parameters
    ----------
    cycle
        That cycle, computed with one UTIL step per agent.
    tables
        The tables of this rank's agents that the cycle used.
    side
        How the upper tables are indexed.

    Returns
    -------
    outsides : dict of int to UtilMessage
        For each agent of this rank, tables whose sum is the outside bound.
    sent : dict of int to SentMessages
        Messages sent by each agent.
    """

    def send_bounds(
        mailbox: Mailbox, tables: Mapping[int, SampledTable | SharedAgentTables]
    ) -> tuple[dict[int, agent_step.UtilMessage], dict[int, agent_step.SentMessages]]:
        work = agent_steps.outside_bound_steps(setup, tables, lambda agent: cycle.steps[agent].received, side)
        return send_down(setup.tree, mailbox, "OUTSIDE", work, agent_step.tables_size)

    if cycle.leader_mailbox is None:
        return send_bounds(mailbox, tables)
    clocks, both_sides = dict.fromkeys(tables, agent_step.Clock()), agent_steps.Sides(side, side)
    shared_tables = mailbox.world.on_all_ranks(
        lambda: agent_steps.shared_tables_of(setup, tables, both_sides, setup.backend.stop, clocks)
    )
    with SharedTables(mailbox.world, shared_tables) as shared:
        outsides, _ = send_bounds(cycle.leader_mailbox, shared.tables)
    for agent, outside in outsides.items():
        mailbox.send("OUTSIDE", agent, agent, outside)
    received_bounds = {agent: mailbox.receive("OUTSIDE", agent)[0] for agent in tables}
    mailbox.close()
    return received_bounds, {
        agent: agent_step.SentMessages(1, agent_step.tables_size(outside), "OUTSIDE")
        for agent, outside in received_bounds.items()
    }
