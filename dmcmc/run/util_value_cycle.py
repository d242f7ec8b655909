"""One cycle over the agents' tree: UTIL up, VALUE down, the assignment evaluated, and what it proves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dmcmc.inference.dpop.contract_tree import contracted
from dmcmc.inference.dpop.interface_rows import Compression
from dmcmc.inference.dpop.predicted_steps import StepAhead
from dmcmc.inference.dpop.slicing import Slicing
from dmcmc.inference.dpop.util_and_value import UtilMessage, outside_steps
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources
from dmcmc.inference.model.compact_sequences import Made
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.mailbox import Post
from dmcmc.mpi.message_contents import Chosen, Clock, Sent, Values, latest, tables_size, value_size
from dmcmc.mpi.shared_tables import Handed, SharedTables, cores_of, fits
from dmcmc.mpi.sliced_phases import Job, run_slices
from dmcmc.mpi.util_value_phases import Steps, chosen_of, outside_phase, util_phase, value_phase
from dmcmc.mpi.world import World
from dmcmc.run.agent_steps import Making, Sides, handed_over, node_of, pieces_work, sliced_work, util_work, values_of
from dmcmc.run.planning.combination_plan import TooWide, allowance, exact_room, narrowed, slicing_of, steps_of
from dmcmc.run.planning.setup import Setup
from dmcmc.samplers.contract.protocol import SampledTable

_FEW = 1000  # agents of which each rank may keep some tuples
_OUTSIDE = Relaxation("auto", None, "scope", False)

Z = tuple[int | None, int | None]


@dataclass
class Cycle:
    """What this rank has of one cycle.

    Attributes
    ----------
    steps : dict
        Each agent's UTIL steps, where they were made.
    z : dict
        Limit of the mini-buckets of each of this rank's agents, from below and from above; None for exact ones.
    values : dict
        Values of all variables of this rank's agents.
    chosen : dict
        Each agent's interface values, by the tables from below and by those from above, as those are indexed.
    contexts : dict
        Values of each agent's separator, by the tables from below.
    roots : dict
        Upper UTIL values of the roots here; None where something has no bound.
    sent : list of dict
        Messages of each phase.
    whole : bool
        Whether whoever made an agent's step has all of its children's messages: neither in slices nor in one piece.
    core : Post or None
        How messages went where one rank of each node has combined for all of its agents.
    """

    steps: dict[int, Steps]
    z: dict[int, Z]
    values: dict[int, int]
    chosen: dict[int, Chosen]
    contexts: dict[int, dict[int, int]]
    roots: dict[int, Number | None]
    sent: list[dict[int, Sent]]
    whole: bool = True
    core: Post | None = None


def run_cycle(
    setup: Setup,
    post: Post,
    clocks: dict[int, Clock],
    tables: Mapping[int, SampledTable],
    sides: Sides,
    stop: Stop,
    larger: float = 1.0,
) -> Cycle:
    """Send UTIL messages up and VALUE messages down.

    Where messages from below leave an agent no room for its own, they are made anew with a smaller z.

    Parameters
    ----------
    clocks
        When each of this rank's agents is ready; moved on.
    tables
        Of this rank's agents.
    stop
        When to give up.
    larger
        Times as large tables (exact ones, mini-buckets of a larger z) as the time budget would allow each agent; the
        memory stays the limit.

    Raises
    ------
    ResourceError
        If it comes to that (:class:`.OutOfTime`), or if some agent's tables do not fit the memory; on all ranks alike.
    """
    making = Making(tables, sides, replace(setup.backend, stop=stop), larger)
    slicing = _slicing_now(setup, post.world, making)
    if slicing is not None and slicing.cut:
        combined = _run_slices(setup, post, clocks, making, slicing)
    elif setup.one_core:
        combined = _run_shared(setup, post, clocks, making, tables)
    else:
        combined = _run_messages(setup, post, clocks, making)
    found = post.world.together(lambda: values_of(combined.chosen, sides, tables))
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
    """What a cycle has come to, as in :class:`Cycle`."""

    steps: dict[int, Steps]
    z: dict[int, Z]
    chosen: dict[int, Chosen]
    contexts: dict[int, Values]
    roots: dict[int, Number | None]
    sent: list[dict[int, Sent]]
    whole: bool = True
    core: Post | None = None


def _run_messages(setup: Setup, post: Post, clocks: dict[int, Clock], making: Making) -> _Combined:
    """Send messages of whole tables from agent to agent."""
    steps, up = _send_up(setup, post, clocks, making)
    chosen, contexts, down = value_phase(setup.tree, post, clocks, steps, _separators(setup, making.sides))
    roots = {
        agent: None if step.upper is None else step.upper.total
        for agent, step in steps.items()
        if setup.tree.parent[agent] < 0
    }
    z = {agent: (step.lower.z, None if step.upper is None else step.upper.z) for agent, step in steps.items()}
    return _Combined(steps, z, chosen, contexts, roots, [*up, down])


def _separators(setup: Setup, sides: Sides) -> Sequence[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return each agent's separator, as tables from below and from above have it."""

    def both(agent: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        separator = setup.tree.separators[agent]
        return sides.lower.scope(separator), sides.upper.scope(separator)

    agents = len(setup.tree.parent)
    return Made(agents, both, {}) if agents > _FEW else [both(agent) for agent in range(agents)]


def _send_up(
    setup: Setup, post: Post, clocks: dict[int, Clock], making: Making
) -> tuple[dict[int, Steps], list[dict[int, Sent]]]:
    """Run the UTIL phase, again as long as messages turn out to be too wide; return all that was sent."""
    limits, sent = dict[int, int](), list[dict[int, Sent]]()
    while True:
        sent.append({})
        try:
            return util_phase(setup.tree, post, clocks, util_work(setup, making, limits), sent[-1]), sent
        except TooWide as error:
            limits |= narrowed(setup.tree, limits, error)


def _slicing_now(setup: Setup, world: World, making: Making) -> Slicing | None:
    """Return which variables are cut, by the tables that there are; None where tables are joined as they are.

    Raises
    ------
    ResourceError
        If slices are asked for by name, and there are none that fit.
    """
    lower, upper = making.sides.lower, making.sides.upper
    if setup.slicing is None or lower is not upper:
        return None
    own: dict[int, list[tuple[int, ...]]] = world.merged(
        {agent: [one.scope for one in table.lower] for agent, table in making.tables.items()}
    )
    room = allowance(setup) // setup.arithmetic.dtype.itemsize

    def planned() -> Slicing | None:
        try:
            return slicing_of(setup, setup.tree, own, lower.sizes, room, lower.scope)
        except ResourceError:
            if setup.config.combine.method == "sliced":
                raise
            return None

    return world.decided(planned)


def _run_slices(setup: Setup, post: Post, clocks: dict[int, Clock], making: Making, slicing: Slicing) -> _Combined:
    """Send messages of slices up, and values down."""
    side = making.sides.lower
    separators = [side.scope(separator) for separator in setup.tree.separators]
    cut = {agent: [(v, int(side.sizes[v])) for v in variables] for agent, variables in slicing.cut.items()}
    job = Job(setup.tree, separators, cut, sliced_work(setup, making, slicing))
    outcome = run_slices(job, post, clocks)
    chosen = {agent: chosen_of(found.known, found.context) for agent, found in outcome.decided.items()}
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
    setup: Setup, post: Post, clocks: dict[int, Clock], making: Making, tables: Mapping[int, SampledTable]
) -> _Combined:
    """Let one rank of each node combine for all of its agents: in one piece if that is exact, else agent by agent."""
    world = post.world
    own = world.together(lambda: handed_over(setup, tables, making.sides, making.backend.stop, clocks))
    if not fits(world, own):
        return _run_messages(setup, post, clocks, making)
    core, ahead = Post(world, cores_of(world, post.owner)), _pieces_ahead(setup, world, making)
    with SharedTables(world, own) as shared:
        making = making._replace(tables=shared.tables, handed=True)
        times = {agent: handed.clock for agent, handed in shared.tables.items()}
        if ahead is None:
            combined = _run_messages(setup, core, times, making)._replace(core=core)
        else:
            combined = _run_pieces(setup, core, times, making, ahead)
    return _handed_back(setup, post, clocks, times, making.sides, combined, shared.sent)


def _pieces_ahead(setup: Setup, world: World, making: Making) -> tuple[list[StepAhead], list[StepAhead]] | None:
    """Return all agents' steps on both sides where combining in one piece has the same answer; None where it has not.

    That is where sums are exact, all agents' steps would be, and nobody asks for what agents would have sent.
    """
    exact = setup.timed and any(choice.method != "exact" for choice in setup.choices)
    if exact or not setup.arithmetic.exact or exact_room(setup) == 0:
        return None
    scopes = world.merged(
        {
            agent: [[one.scope for one in side or ()] for side in (table.lower, table.upper)]
            for agent, table in making.tables.items()
        }
    )
    entries = exact_room(setup) // setup.arithmetic.dtype.itemsize

    def planned() -> tuple[list[StepAhead], list[StepAhead]] | None:
        found = list[list[StepAhead]]()
        for number, side in enumerate((making.sides.lower, making.sides.upper)):
            own = {agent: scopes[agent][number] for agent in scopes}
            if found and side is making.sides.lower and all(below == above for below, above in scopes.values()):
                return found[0], found[0]
            found.append(steps_of(setup.division, setup.tree, own, side.sizes, side.scope))
            if any(step.plan(side.sizes).entries > entries for step in found[-1]):
                return None
        return found[0], found[1]

    return world.decided(planned)


def _run_pieces(
    setup: Setup,
    core: Post,
    times: dict[int, Clock],
    making: Making,
    ahead: tuple[list[StepAhead], list[StepAhead]],
) -> _Combined:
    """Eliminate the variables of all of a node's agents at once, as far as the tree leaves them together."""
    pieces, tree, owner = contracted(setup.tree, core.owner)
    post = Post(core.world, owner)
    clocks = {piece: latest(times[agent] for agent in pieces[piece]) for piece in post.mine(range(len(pieces)))}
    up: dict[int, Sent] = {}
    steps = util_phase(tree, post, clocks, pieces_work(setup, making, pieces, ahead), up)
    separators = _separators(setup, making.sides)
    tops = [separators[agents[-1]] for agents in pieces]
    chosen, contexts, down = value_phase(tree, post, clocks, steps, tops)
    roots = {
        pieces[piece][-1]: None if step.upper is None else step.upper.total
        for piece, step in steps.items()
        if tree.parent[piece] < 0
    }
    found, known = dict[int, Chosen](), dict[int, Values]()
    for piece, choice in chosen.items():
        lower = choice.lower | contexts[piece]
        for agent in pieces[piece]:
            interface = setup.division.locals[agent].interface
            mine, above = set(making.sides.lower.scope(interface)), set(making.sides.upper.scope(interface))
            upper = choice.upper and {v: x for v, x in choice.upper.items() if v in above}
            found[agent] = Chosen({v: x for v, x in lower.items() if v in mine}, upper)
            known[agent] = {v: lower[v] for v in separators[agent][0]}
            times[agent] = clocks[piece]
    sent = [{pieces[piece][-1]: one for piece, one in phase.items() if one.count} for phase in (up, down)]
    return _Combined({}, dict.fromkeys(found, (None, None)), found, known, roots, sent, whole=False)


def _handed_back(
    setup: Setup,
    post: Post,
    clocks: dict[int, Clock],
    times: Mapping[int, Clock],
    sides: Sides,
    combined: _Combined,
    handed: dict[int, Sent],
) -> _Combined:
    """Tell agents' ranks what their node's core has chosen."""
    world, told = post.world, dict[int, Sent]()
    for agent, choice in combined.chosen.items():
        whole = choice._replace(lower=combined.contexts[agent] | choice.lower)
        told[agent] = Sent(1, value_size(whole), "VALUE")
        post.send("VALUE", agent, agent, whole, times[agent])
    chosen, contexts = dict[int, Chosen](), dict[int, Values]()
    for agent in post.mine(range(len(setup.tree.parent))):
        whole, clocks[agent] = post.receive("VALUE", agent)
        context = set(sides.lower.scope(setup.tree.separators[agent]))
        contexts[agent] = {v: x for v, x in whole.lower.items() if v in context}
        chosen[agent] = whole._replace(lower={v: x for v, x in whole.lower.items() if v not in context})
    post.close()
    by_core = world.allgather((combined.z, [told, *combined.sent]))
    z = {agent: one for found, _ in by_core for agent, one in found.items()}
    sent = [{a: one for a, one in phase.items() if a in chosen} for _, phases in by_core for phase in phases]
    return combined._replace(z=z, chosen=chosen, contexts=contexts, sent=[handed, *filter(None, sent)])


def run_outside(
    setup: Setup, post: Post, cycle: Cycle, tables: Mapping[int, SampledTable], side: Compression
) -> tuple[dict[int, UtilMessage], dict[int, Sent]]:
    """Tell each agent a bound on what all others of its component add to its rows (after a cycle with bounds)."""

    def outsides(
        post: Post, tables: Mapping[int, SampledTable | Handed]
    ) -> tuple[dict[int, UtilMessage], dict[int, Sent]]:
        def work(agent: int, outside: UtilMessage) -> tuple[UtilMessage, list[UtilMessage]]:
            upper, handed = tables[agent].upper, cycle.core is not None
            assert upper is not None, "only after a cycle in which all had bounds"
            received = [message.upper or () for message in cycle.steps[agent].received]
            node = node_of(setup, agent, side, upper, received, setup.backend.stop, () if handed else None)
            separators = [side.scope(setup.tree.separators[child]) for child in setup.tree.children[agent]]
            return outside_steps(node, outside, separators, _OUTSIDE, Resources(allowance(setup), setup.backend))

        return outside_phase(setup.tree, post, work)

    if cycle.core is None:
        return outsides(post, tables)
    clocks, both = dict.fromkeys(tables, Clock()), Sides(side, side)
    own = post.world.together(lambda: handed_over(setup, tables, both, setup.backend.stop, clocks))
    with SharedTables(post.world, own) as shared:
        found, _ = outsides(cycle.core, shared.tables)
    for agent, outside in found.items():
        post.send("OUTSIDE", agent, agent, outside)
    told = {agent: post.receive("OUTSIDE", agent)[0] for agent in tables}
    post.close()
    return told, {agent: Sent(1, tables_size(outside), "OUTSIDE") for agent, outside in told.items()}
