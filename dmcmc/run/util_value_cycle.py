"""One cycle over the agents' tree: UTIL messages up, VALUE messages down, and the assignment and bounds that result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dmcmc.inference.dpop.contract_tree import contracted
from dmcmc.inference.dpop.interface_rows import InterfaceCompression
from dmcmc.inference.dpop.predicted_steps import PredictedStep
from dmcmc.inference.dpop.slicing import Slicing
from dmcmc.inference.dpop.util_and_value import UtilMessage, outside_steps
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Mailbox
from dmcmc.mpi.message_contents import ChosenValues, Clock, SentMessages, Values, latest, tables_size, value_size
from dmcmc.mpi.shared_tables import SharedAgentTables, SharedTables, fits_shared_memory, leaders_of
from dmcmc.mpi.sliced_phases import SlicedPhaseInput, run_slices
from dmcmc.mpi.util_value_phases import UtilStepPair, interface_values, outside_phase, util_phase, value_phase
from dmcmc.mpi.world import World
from dmcmc.run.agent_steps import (
    MessageInputs,
    Sides,
    node_of,
    shared_tables_of,
    sliced_steps,
    subtree_steps,
    util_steps,
    values_of,
)
from dmcmc.run.planning.combination_plan import (
    MessagesTooWide,
    exact_bytes,
    find_slicing,
    narrowed_limits,
    predicted_steps,
    step_bytes,
)
from dmcmc.run.planning.setup import Setup
from dmcmc.samplers.contract.protocol import SampledTable

_MAX_STORED_SEPARATORS = 1000  # number of agents up to which each rank stores all separators
_OUTSIDE_RELAXATION = Relaxation("auto", None, "scope", False)

MiniBucketSizes = tuple[int | None, int | None]


@dataclass
class Cycle:
    """What this rank knows of one cycle.

    Attributes
    ----------
    steps : dict of int to Steps
        UTIL steps of each agent that was computed here.
    z : dict of int to tuple
        Per agent of this rank: mini-bucket size limit of the lower and of the upper tables; None for exact ones.
    values : dict of int to int
        Values of all variables of this rank's agents.
    chosen : dict of int to Chosen
        Per agent: values of its boundary variables (its interface), decoded from the lower and from the upper tables.
    contexts : dict of int to dict
        Per agent: values of its separator, decoded from the lower tables.
    roots : dict of int to Number or None
        Upper bounds of the roots of this rank; None if a table has no bound.
    sent : list of dict
        Messages of each phase, by agent.
    whole : bool
        Whether each agent's steps have all of its children's messages; false for slices and for joint eliminations.
    core : Post or None
        Mailbox of the node leaders, if one rank per node combined for all agents of its node.
    """

    steps: dict[int, UtilStepPair]
    z: dict[int, MiniBucketSizes]
    values: dict[int, int]
    chosen: dict[int, ChosenValues]
    contexts: dict[int, dict[int, int]]
    roots: dict[int, Number | None]
    sent: list[dict[int, SentMessages]]
    whole: bool = True
    core: Mailbox | None = None


def run_cycle(
    setup: Setup,
    post: Mailbox,
    clocks: dict[int, Clock],
    tables: Mapping[int, SampledTable],
    sides: Sides,
    stop: Deadline,
    larger: float = 1.0,
) -> Cycle:
    """Send UTIL messages up and VALUE messages down.

    If the messages from the children leave an agent too little memory, they are made again with a smaller z.

    Parameters
    ----------
    setup
        The plan of the run.
    post
        Mailbox of this rank.
    clocks
        Ready time of each agent of this rank (simulated time); advanced.
    tables
        Tables of this rank's agents.
    sides
        How the tables are indexed.
    stop
        Deadline of the cycle.
    larger
        Factor on the table size (exact tables or mini-buckets) that the time budget allows per agent; the memory limit
        still holds.

    Raises
    ------
    ResourceError
        If the deadline is over (``OutOfTime``) or an agent's tables do not fit; raised on all ranks.
    """
    inputs = MessageInputs(tables, sides, replace(setup.backend, stop=stop), larger)
    slicing = _choose_slicing(setup, post.world, inputs)
    if slicing is not None and slicing.cut:
        combined = _run_slices(setup, post, clocks, inputs, slicing)
    elif setup.one_core:
        combined = _run_shared(setup, post, clocks, inputs, tables)
    else:
        combined = _run_messages(setup, post, clocks, inputs)
    found = post.world.on_all_ranks(lambda: values_of(combined.chosen, sides, tables))
    z = {agent: combined.z[agent] for agent in tables}
    return Cycle(
        {agent: step.finished() for agent, step in combined.steps.items()},
        z,
        found,
        combined.chosen,
        combined.contexts,
        combined.roots,
        combined.sent,
        whole=combined.whole,
        core=combined.core,
    )


class _Combined(NamedTuple):
    """Result of the messages of a cycle; the fields are those of :class:`Cycle`."""

    steps: dict[int, UtilStepPair]
    z: dict[int, MiniBucketSizes]
    chosen: dict[int, ChosenValues]
    contexts: dict[int, Values]
    roots: dict[int, Number | None]
    sent: list[dict[int, SentMessages]]
    whole: bool = True
    core: Mailbox | None = None


def _run_messages(setup: Setup, post: Mailbox, clocks: dict[int, Clock], inputs: MessageInputs) -> _Combined:
    """Send messages of whole tables from agent to agent."""
    steps, up = _send_up(setup, post, clocks, inputs)
    chosen, contexts, down = value_phase(setup.tree, post, clocks, steps, _separators(setup, inputs.sides))
    roots = {
        agent: None if step.upper is None else step.upper.total
        for agent, step in steps.items()
        if setup.tree.parent[agent] < 0
    }
    z = {agent: (step.lower.z, None if step.upper is None else step.upper.z) for agent, step in steps.items()}
    return _Combined(steps, z, chosen, contexts, roots, [*up, down])


def _separators(setup: Setup, sides: Sides) -> Sequence[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return each agent's separator, as lower and as upper tables index it."""

    def both(agent: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        separator = setup.tree.separators[agent]
        return sides.lower.scope(separator), sides.upper.scope(separator)

    agents = len(setup.tree.parent)
    return (
        LazySequence(agents, both, {}) if agents > _MAX_STORED_SEPARATORS else [both(agent) for agent in range(agents)]
    )


def _send_up(
    setup: Setup, post: Mailbox, clocks: dict[int, Clock], inputs: MessageInputs
) -> tuple[dict[int, UtilStepPair], list[dict[int, SentMessages]]]:
    """Run the UTIL phase, again with smaller z while messages are too wide; return the steps and all messages sent."""
    z_limits, sent = dict[int, int](), list[dict[int, SentMessages]]()
    while True:
        sent.append({})
        try:
            return util_phase(setup.tree, post, clocks, util_steps(setup, inputs, z_limits), sent[-1]), sent
        except MessagesTooWide as error:
            z_limits |= narrowed_limits(setup.tree, z_limits, error)


def _choose_slicing(setup: Setup, world: World, inputs: MessageInputs) -> Slicing | None:
    """Return the variables to slice, given the scopes of the tables; None if tables are joined whole.

    Raises
    ------
    ResourceError
        If ``combine.method`` is ``sliced`` and no slices fit.
    """
    lower, upper = inputs.sides.lower, inputs.sides.upper
    if setup.slicing is None or lower is not upper:
        return None
    scopes: dict[int, list[tuple[int, ...]]] = world.union(
        {agent: [one.scope for one in table.lower] for agent, table in inputs.tables.items()}
    )
    max_entries = step_bytes(setup) // setup.arithmetic.dtype.itemsize

    def planned() -> Slicing | None:
        try:
            return find_slicing(setup, setup.tree, scopes, lower.sizes, max_entries, lower.scope)
        except ResourceError:
            if setup.config.combine.method == "sliced":
                raise
            return None

    return world.on_first_rank(planned)


def _run_slices(
    setup: Setup, post: Mailbox, clocks: dict[int, Clock], inputs: MessageInputs, slicing: Slicing
) -> _Combined:
    """Send messages of slices up, and values down."""
    side = inputs.sides.lower
    separators = [side.scope(separator) for separator in setup.tree.separators]
    cut = {agent: [(v, int(side.sizes[v])) for v in variables] for agent, variables in slicing.cut.items()}
    job = SlicedPhaseInput(setup.tree, separators, cut, sliced_steps(setup, inputs, slicing))
    outcome = run_slices(job, post, clocks)
    chosen = {agent: interface_values(found.known, found.context) for agent, found in outcome.decided.items()}
    return _Combined(
        outcome.steps,
        dict.fromkeys(chosen, (None, None)),
        chosen,
        {agent: found.context.lower for agent, found in outcome.decided.items()},
        {agent: found.upper for agent, found in outcome.decided.items() if setup.tree.parent[agent] < 0},
        list(outcome.sent.values()),
        whole=False,
    )


def _run_shared(
    setup: Setup, post: Mailbox, clocks: dict[int, Clock], inputs: MessageInputs, tables: Mapping[int, SampledTable]
) -> _Combined:
    """Let one rank per node combine for all agents of its node: jointly if that is exact, else agent by agent."""
    world = post.world
    shared_tables = world.on_all_ranks(
        lambda: shared_tables_of(setup, tables, inputs.sides, inputs.backend.stop, clocks)
    )
    if not fits_shared_memory(world, shared_tables):
        return _run_messages(setup, post, clocks, inputs)
    core, predicted = Mailbox(world, leaders_of(world, post.owner)), _predicted_subtree_steps(setup, world, inputs)
    with SharedTables(world, shared_tables) as shared:
        inputs = inputs._replace(tables=shared.tables, includes_crossing=True)
        times = {agent: handed.clock for agent, handed in shared.tables.items()}
        if predicted is None:
            combined = _run_messages(setup, core, times, inputs)._replace(core=core)
        else:
            combined = _run_subtrees(setup, core, times, inputs, predicted)
    return _return_values(setup, post, clocks, times, inputs.sides, combined, shared.sent)


def _predicted_subtree_steps(
    setup: Setup, world: World, inputs: MessageInputs
) -> tuple[list[PredictedStep], list[PredictedStep]] | None:
    """Return all agents' predicted lower and upper steps if joint elimination gives the same answer, else None.

    It gives the same answer if sums are exact, all agents' steps would be exact, and no outside bounds are computed.
    """
    may_need_messages = setup.timed and any(choice.method != "exact" for choice in setup.choices)
    if may_need_messages or not setup.arithmetic.exact or exact_bytes(setup) == 0:
        return None
    scopes = world.union(
        {
            agent: [[one.scope for one in side or ()] for side in (table.lower, table.upper)]
            for agent, table in inputs.tables.items()
        }
    )
    entries = exact_bytes(setup) // setup.arithmetic.dtype.itemsize

    def planned() -> tuple[list[PredictedStep], list[PredictedStep]] | None:
        found = list[list[PredictedStep]]()
        for number, side in enumerate((inputs.sides.lower, inputs.sides.upper)):
            side_scopes = {agent: scopes[agent][number] for agent in scopes}
            if found and side is inputs.sides.lower and all(below == above for below, above in scopes.values()):
                return found[0], found[0]
            found.append(predicted_steps(setup.division, setup.tree, side_scopes, side.sizes, side.scope))
            if any(step.plan(side.sizes).entries > entries for step in found[-1]):
                return None
        return found[0], found[1]

    return world.on_first_rank(planned)


def _run_subtrees(
    setup: Setup,
    core: Mailbox,
    times: dict[int, Clock],
    inputs: MessageInputs,
    ahead: tuple[list[PredictedStep], list[PredictedStep]],
) -> _Combined:
    """Jointly eliminate the variables of all agents of each subtree that lies on one node."""
    subtrees, tree, owner = contracted(setup.tree, core.owner)
    post = Mailbox(core.world, owner)
    clocks = {
        subtree: latest(times[agent] for agent in subtrees[subtree])
        for subtree in post.local_agents(range(len(subtrees)))
    }
    sent_up: dict[int, SentMessages] = {}
    steps = util_phase(tree, post, clocks, subtree_steps(setup, inputs, subtrees, ahead), sent_up)
    separators = _separators(setup, inputs.sides)
    subtree_separators = [separators[agents[-1]] for agents in subtrees]
    chosen, contexts, down = value_phase(tree, post, clocks, steps, subtree_separators)
    roots = {
        subtrees[subtree][-1]: None if step.upper is None else step.upper.total
        for subtree, step in steps.items()
        if tree.parent[subtree] < 0
    }
    found, known = dict[int, ChosenValues](), dict[int, Values]()
    for subtree, choice in chosen.items():
        lower = choice.lower | contexts[subtree]
        for agent in subtrees[subtree]:
            interface = setup.division.locals[agent].interface
            lower_scope, upper_scope = (
                set(inputs.sides.lower.scope(interface)),
                set(inputs.sides.upper.scope(interface)),
            )
            upper = choice.upper and {v: x for v, x in choice.upper.items() if v in upper_scope}
            found[agent] = ChosenValues({v: x for v, x in lower.items() if v in lower_scope}, upper)
            known[agent] = {v: lower[v] for v in separators[agent][0]}
            times[agent] = clocks[subtree]
    sent = [{subtrees[subtree][-1]: one for subtree, one in phase.items() if one.count} for phase in (sent_up, down)]
    return _Combined({}, dict.fromkeys(found, (None, None)), found, known, roots, sent, whole=False)


def _return_values(
    setup: Setup,
    post: Mailbox,
    clocks: dict[int, Clock],
    times: Mapping[int, Clock],
    sides: Sides,
    combined: _Combined,
    sent_tables: dict[int, SentMessages],
) -> _Combined:
    """Send the values that the node leaders have chosen to the agents' ranks."""
    world, sent_values = post.world, dict[int, SentMessages]()
    for agent, choice in combined.chosen.items():
        all_values = choice._replace(lower=combined.contexts[agent] | choice.lower)
        sent_values[agent] = SentMessages(1, value_size(all_values), "VALUE")
        post.send("VALUE", agent, agent, all_values, times[agent])
    chosen, contexts = dict[int, ChosenValues](), dict[int, Values]()
    for agent in post.local_agents(range(len(setup.tree.parent))):
        all_values, clocks[agent] = post.receive("VALUE", agent)
        context = set(sides.lower.scope(setup.tree.separators[agent]))
        contexts[agent] = {v: x for v, x in all_values.lower.items() if v in context}
        chosen[agent] = all_values._replace(lower={v: x for v, x in all_values.lower.items() if v not in context})
    post.close()
    by_leader = world.allgather((combined.z, [sent_values, *combined.sent]))
    z = {agent: one for found, _ in by_leader for agent, one in found.items()}
    sent = [{a: one for a, one in phase.items() if a in chosen} for _, phases in by_leader for phase in phases]
    return combined._replace(z=z, chosen=chosen, contexts=contexts, sent=[sent_tables, *filter(None, sent)])


def run_outside(
    setup: Setup, post: Mailbox, cycle: Cycle, tables: Mapping[int, SampledTable], side: InterfaceCompression
) -> tuple[dict[int, UtilMessage], dict[int, SentMessages]]:
    """Send each agent its outside bound: an upper bound on what all other agents of its component can add to its rows.

    Called after a cycle in which all agents had upper bounds.
    """

    def outsides(
        post: Mailbox, tables: Mapping[int, SampledTable | SharedAgentTables]
    ) -> tuple[dict[int, UtilMessage], dict[int, SentMessages]]:
        def work(agent: int, outside: UtilMessage) -> tuple[UtilMessage, list[UtilMessage]]:
            upper, handed = tables[agent].upper, cycle.core is not None
            assert upper is not None, "only after a cycle in which all had bounds"
            received = [message.upper or () for message in cycle.steps[agent].received]
            node = node_of(setup, agent, side, upper, received, setup.backend.stop, () if handed else None)
            separators = [side.scope(setup.tree.separators[child]) for child in setup.tree.children[agent]]
            return outside_steps(
                node, outside, separators, _OUTSIDE_RELAXATION, Resources(step_bytes(setup), setup.backend)
            )

        return outside_phase(setup.tree, post, work)

    if cycle.core is None:
        return outsides(post, tables)
    clocks, both_sides = dict.fromkeys(tables, Clock()), Sides(side, side)
    shared_tables = post.world.on_all_ranks(
        lambda: shared_tables_of(setup, tables, both_sides, setup.backend.stop, clocks)
    )
    with SharedTables(post.world, shared_tables) as shared:
        found, _ = outsides(cycle.core, shared.tables)
    for agent, outside in found.items():
        post.send("OUTSIDE", agent, agent, outside)
    received_bounds = {agent: post.receive("OUTSIDE", agent)[0] for agent in tables}
    post.close()
    return received_bounds, {
        agent: SentMessages(1, tables_size(outside), "OUTSIDE") for agent, outside in received_bounds.items()
    }
