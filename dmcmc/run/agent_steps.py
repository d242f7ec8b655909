"""What agents' steps are made of: their tables on both sides, factors between agents, messages; and the steps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from dmcmc.inference.dpop.interface_rows import Compression, Rows
from dmcmc.inference.dpop.predicted_steps import StepAhead
from dmcmc.inference.dpop.slicing import Slicing, restricted
from dmcmc.inference.dpop.step_workspace import StepRooms
from dmcmc.inference.dpop.util_and_value import Node, UtilMessage, UtilStep, util_step
from dmcmc.inference.elimination.copy_tables import pieces_of
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.exact_or_mini_buckets import EXACT, Resources
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.message_contents import Chosen, Clock, Utils, Values
from dmcmc.mpi.shared_tables import Handed
from dmcmc.mpi.util_value_phases import Steps
from dmcmc.mpi.world import World
from dmcmc.run.planning.combination_plan import allowance, attempts_of, shift_rooms, too_wide
from dmcmc.run.planning.setup import Setup
from dmcmc.samplers.contract.protocol import SampledTable

_LOOK = 1 << 22  # entries that are added up between two looks at the time


@dataclass(frozen=True)
class Sides:
    """How tables are indexed: from below (sampled rows may be all there is), and from above."""

    lower: Compression
    upper: Compression


def gather_sides(setup: Setup, world: World, lists: Mapping[int, Rows], listings: Mapping[int, Rows]) -> Sides:
    """Tell all ranks which agents' interfaces are lists of rows.

    Parameters
    ----------
    lists
        Of this rank's agents: the rows that were sampled, which are all that their tables from below have.
    listings
        Of others of them: the rows that can still matter, on both sides.
    """
    below: dict[int, Rows] = {}
    both: dict[int, Rows] = {}
    for sampled, listed in world.allgather((dict(lists), dict(listings)), "rows"):
        below |= sampled
        both |= listed
    interfaces = {a: setup.division.locals[a].interface for a in (*below, *both)}
    problem = setup.problem
    upper = Compression(problem.domains, problem.owner, interfaces, both)
    lower = Compression(problem.domains, problem.owner, interfaces, below | both) if below else upper
    return Sides(lower, upper)


class Making(NamedTuple):
    """What UTIL messages are made of: tables, how they are indexed, where work runs, and how large it may be.

    Attributes
    ----------
    handed : bool
        Whether the tables are those of :func:`handed_over`.
    """

    tables: Mapping[int, SampledTable | Handed]
    sides: Sides
    backend: Backend
    larger: float
    handed: bool = False


def handed_over(
    setup: Setup, tables: Mapping[int, SampledTable], sides: Sides, stop: Stop, clocks: Mapping[int, Clock]
) -> dict[int, Handed]:
    """Return what agents hand to their core: their tables and, as it may not know them, the factors placed at them."""
    found: dict[int, Handed] = {}
    for agent, table in tables.items():
        lower = (*table.lower, *crossing_of(setup, agent, sides.lower, stop))
        upper: tuple[Table, ...] | None = None
        if table.upper is table.lower and sides.lower is sides.upper:
            upper = lower
        elif table.upper is not None:
            upper = (*table.upper, *crossing_of(setup, agent, sides.upper, stop))
        found[agent] = Handed(lower, upper, table.exact, clocks[agent])
    return found


def values_of(chosen: Mapping[int, Chosen], sides: Sides, tables: Mapping[int, SampledTable]) -> dict[int, int]:
    """Return the values of all variables of this rank's agents."""
    found: dict[int, int] = {}
    for agent, choice in chosen.items():
        found |= sides.lower.expand(choice.lower) | tables[agent].witness(choice.lower)
    return found


def util_work(setup: Setup, making: Making, limits: Mapping[int, int]) -> Callable[[int, list[Utils]], Steps]:
    """Return the UTIL steps of an agent by its children's messages; ``limits`` are the largest z of some agents."""
    attempts, tables, sides = attempts_of(setup, making.larger), making.tables, making.sides
    crossing = () if making.handed else None

    @cache
    def rooms() -> list[Number]:
        return shift_rooms(setup.division, setup.tree, setup.arithmetic)

    def step(agent: int, side: Compression, table: UtilMessage, children: list[UtilMessage]) -> UtilStep:
        most = limits.get(agent)
        ways = [(how if how.most == most else replace(how, most=most), memory) for how, memory in attempts]
        resources = Resources(None, making.backend, lambda: rooms()[agent], setup.problem.agents[agent])
        try:
            node = node_of(setup, agent, side, table, children, making.backend.stop, crossing)
            return util_step(node, ways, resources)
        except OutOfTime:
            raise
        except ResourceError as error:
            refused = error
        raise too_wide(refused, setup.tree, agent, children) if attempts[-1][0].open else refused

    def work(agent: int, messages: list[Utils]) -> Steps:
        table, received = tables[agent], tuple(messages)
        lower = step(agent, sides.lower, table.lower, [m.lower for m in messages])
        uppers = [m.upper for m in messages if m.upper is not None]
        if table.upper is None or len(uppers) < len(messages):
            return Steps(lower, None, received)
        if table.exact and sides.lower is sides.upper and all(m.upper is m.lower for m in messages):
            return Steps(lower, lower, received)
        return Steps(lower, step(agent, sides.upper, table.upper, uppers), received)

    return work


def sliced_work(setup: Setup, making: Making, slicing: Slicing) -> Callable[[int, Chosen, list[Utils]], Steps]:
    """Return the UTIL steps of an agent by its children's messages, all about fixed values."""
    tables, side, orders = making.tables, making.sides.lower, {True: dict(enumerate(slicing.orders)), False: {}}
    crossing = cache(lambda agent: crossing_of(setup, agent, side, making.backend.stop))
    rooms = StepRooms(making.backend, setup.arithmetic)

    def step(agent: int, below: bool, table: UtilMessage, fixed: Values, children: list[UtilMessage]) -> UtilStep:
        node = node_of(setup, agent, side, table, children, making.backend.stop, crossing(agent))
        if agent not in orders[below]:  # tables from above may be others: their order is found once
            scopes = [t.scope for t in (*node.own, *node.crossing, *(t for message in children for t in message))]
            orders[below][agent] = best_order(scopes, side.sizes, node.interface, node.separator).variables
        sizes = side.sizes.copy()
        sizes[list(fixed)] = 1
        node = replace(
            node,
            own=restricted(node.own, fixed),
            crossing=restricted(node.crossing, fixed),
            children=[restricted(message, fixed) for message in children],
            domains=sizes,
            order=orders[below][agent],
        )
        key, senders = (agent, below), [(child, below) for child in setup.tree.children[agent]]
        made = rooms.step(key, node, senders)
        if made is None:
            resources = Resources(None, making.backend, None, setup.problem.agents[agent])
            made = util_step(node, [(EXACT, allowance(setup))], resources)
            rooms.prepare(key, node, senders, made)
        return made

    def work(agent: int, fixed: Chosen, messages: list[Utils]) -> Steps:
        table = tables[agent]
        lower = step(agent, True, table.lower, fixed.lower, [m.lower for m in messages])
        uppers = [m.upper for m in messages if m.upper is not None]
        if table.upper is None or fixed.upper is None or len(uppers) < len(messages):
            return Steps(lower, None)
        if table.exact and fixed.upper == fixed.lower and all(m.upper is m.lower for m in messages):
            return Steps(lower, lower)
        return Steps(lower, step(agent, False, table.upper, fixed.upper, uppers))

    return work


def pieces_work(
    setup: Setup, making: Making, pieces: Sequence[Sequence[int]], ahead: tuple[list[StepAhead], list[StepAhead]]
) -> Callable[[int, list[Utils]], Steps]:
    """Return the steps of pieces of the agents' tree, each one elimination of all of its agents' variables.

    Parameters
    ----------
    ahead
        Each agent's step with tables from below and from above.
    """
    assert making.handed, "a core need not know factors between agents"
    tables, sides = making.tables, making.sides

    def step(agents: Sequence[int], below: bool, own: Sequence[UtilMessage], children: list[UtilMessage]) -> UtilStep:
        side, orders = (sides.lower, ahead[0]) if below else (sides.upper, ahead[1])
        order = [v for agent in agents for v in orders[agent].order]
        node = Node(
            [table for message in own for table in message],
            (),
            children,
            order,
            orders[agents[-1]].separator,
            side.sizes,
            setup.arithmetic,
            order,
        )
        return util_step(node, resources=Resources(None, making.backend, None, f"of {len(agents)} agents"))

    def work(piece: int, messages: list[Utils]) -> Steps:
        agents = pieces[piece]
        found = [tables[agent] for agent in agents]
        lower = step(agents, True, [table.lower for table in found], [m.lower for m in messages])
        above = [table.upper for table in found if table.upper is not None]
        uppers = [m.upper for m in messages if m.upper is not None]
        if len(above) < len(agents) or len(uppers) < len(messages):
            return Steps(lower, None)
        same = all(table.exact for table in found) and sides.lower is sides.upper
        if same and all(m.upper is m.lower for m in messages):
            return Steps(lower, lower)
        return Steps(lower, step(agents, False, above, uppers))

    return work


def node_of(
    setup: Setup,
    agent: int,
    side: Compression,
    own: UtilMessage,
    children: Sequence[UtilMessage],
    stop: Stop,
    crossing: Sequence[Table] | None = None,
) -> Node:
    """Return an agent with what has come from below, on one side; its crossing factors are encoded if not given."""
    return Node(
        own,
        crossing_of(setup, agent, side, stop) if crossing is None else crossing,
        children,
        side.scope(setup.division.locals[agent].interface),
        side.scope(setup.tree.separators[agent]),
        side.sizes,
        setup.arithmetic,
    )


def crossing_of(setup: Setup, agent: int, side: Compression, stop: Stop = NO_STOP) -> list[Table]:
    """Return the crossing factors placed at an agent, encoded; those over the same lists of rows as one.

    Of two lists, the first agent's variables are replaced last, when factors that share them have been added up:
    tables over two lists are large.

    Raises
    ------
    OutOfTime
        As ``stop`` says.
    """
    if not side.rows and setup.crossing:
        return [setup.crossing[i] for i in setup.tree.placed[agent]]
    found, partly, whole = list[Table](), dict[tuple[int, ...], Table](), dict[tuple[int, ...], Table]()
    for i in setup.tree.placed[agent]:
        scope, values = setup.arithmetic.encode(setup.division.crossing[i])
        if listed := side.listed(scope):
            stop.check()
            _add_up(setup, partly, side.table(scope, values, listed[0]), stop)
        else:
            found.append(Table(scope, values))
    for table in partly.values():
        stop.check()
        _add_up(setup, whole, side.table(*table), stop)
    return found + list(whole.values())


def _add_up(setup: Setup, tables: dict[tuple[int, ...], Table], table: Table, stop: Stop) -> None:
    """Add a table to the one over the same variables, in ascending order; the first of them takes the sum."""
    axes = sorted(range(len(table.scope)), key=table.scope.__getitem__)
    scope, values = tuple(table.scope[axis] for axis in axes), table.values.transpose(axes)
    if scope not in tables:
        tables[scope] = Table(scope, values)
        return
    total = tables[scope].values
    for place in pieces_of(total.shape, _LOOK):
        stop.check()
        total[place] = setup.arithmetic.add(total[place], values[place])
