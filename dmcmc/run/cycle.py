"""One cycle over the agents' tree: UTIL up, VALUE down, the assignment evaluated, and what it proves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from dmcmc.inference.dpop.compression import Compression, Rows
from dmcmc.inference.dpop.util_and_value import Node, UtilMessage, UtilStep, outside_steps, util_step
from dmcmc.inference.elimination.place import pieces_of
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.relaxation import Relaxation, Resources
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.contents import Chosen, Sent, Utils
from dmcmc.mpi.phases import Steps, outside_phase, util_phase, value_phase
from dmcmc.mpi.post import Post
from dmcmc.mpi.world import World
from dmcmc.run.combination import TooWide, allowance, attempts_of, narrowed, shift_rooms, too_wide
from dmcmc.run.setup import Setup
from dmcmc.samplers.contract.protocol import SampledTable

_OUTSIDE = Relaxation("auto", None, "scope", False)
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
    for sampled, listed in world.allgather((dict(lists), dict(listings))):
        below |= sampled
        both |= listed
    interfaces = {a: setup.division.locals[a].interface for a in (*below, *both)}
    problem = setup.problem
    upper = Compression(problem.domains, problem.owner, interfaces, both)
    lower = Compression(problem.domains, problem.owner, interfaces, below | both) if below else upper
    return Sides(lower, upper)


@dataclass
class Cycle:
    """What this rank has of one cycle.

    Attributes
    ----------
    steps : dict
        Each agent's UTIL steps.
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
    """

    steps: dict[int, Steps]
    values: dict[int, int]
    chosen: dict[int, Chosen]
    contexts: dict[int, dict[int, int]]
    roots: dict[int, Number | None]
    sent: list[dict[int, Sent]]


def run_cycle(
    setup: Setup,
    post: Post,
    clocks: dict[int, float],
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
    steps, up = _send_up(setup, post, clocks, _Making(tables, sides, replace(setup.backend, stop=stop), larger))
    separators = [(sides.lower.scope(s), sides.upper.scope(s)) if s else ((), ()) for s in setup.tree.separators]
    chosen, contexts, down = value_phase(setup.tree, post, clocks, steps, separators)

    def values() -> dict[int, int]:
        found: dict[int, int] = {}
        for agent, choice in chosen.items():
            found |= sides.lower.expand(choice.lower) | tables[agent].witness(choice.lower)
        return found

    roots = {
        agent: None if step.upper is None else step.upper.total
        for agent, step in steps.items()
        if setup.tree.parent[agent] < 0
    }
    found = post.world.together(values)
    finished = {agent: step.finished() for agent, step in steps.items()}
    return Cycle(finished, found, chosen, contexts, roots, [*up, down])


class _Making(NamedTuple):
    """What UTIL messages are made of: tables, how they are indexed, where work runs, and how large it may be."""

    tables: Mapping[int, SampledTable]
    sides: Sides
    backend: Backend
    larger: float


def _send_up(
    setup: Setup, post: Post, clocks: dict[int, float], making: _Making
) -> tuple[dict[int, Steps], list[dict[int, Sent]]]:
    """Run the UTIL phase, again as long as messages turn out to be too wide; return all that was sent."""
    limits, sent = dict[int, int](), list[dict[int, Sent]]()
    while True:
        sent.append({})
        try:
            return util_phase(setup.tree, post, clocks, _util_work(setup, making, limits), sent[-1]), sent
        except TooWide as error:
            limits |= narrowed(setup.tree, limits, error)


def _util_work(setup: Setup, making: _Making, limits: Mapping[int, int]) -> Callable[[int, list[Utils]], Steps]:
    """Return the UTIL steps of an agent by its children's messages; ``limits`` are the largest z of some agents."""
    attempts, tables, sides = attempts_of(setup, making.larger), making.tables, making.sides

    @cache
    def rooms() -> list[Number]:
        return shift_rooms(setup.division, setup.tree, setup.arithmetic)

    def step(agent: int, side: Compression, table: UtilMessage, children: list[UtilMessage]) -> UtilStep:
        ways = [(replace(how, most=limits.get(agent)), memory) for how, memory in attempts]
        resources = Resources(None, making.backend, lambda: rooms()[agent], setup.problem.agents[agent])
        try:
            return util_step(node_of(setup, agent, side, table, children, making.backend.stop), ways, resources)
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


def node_of(
    setup: Setup, agent: int, side: Compression, own: UtilMessage, children: Sequence[UtilMessage], stop: Stop
) -> Node:
    """Return an agent with what has come from below, on one side."""
    return Node(
        own,
        crossing_of(setup, agent, side, stop),
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


def run_outside(
    setup: Setup, post: Post, cycle: Cycle, tables: Mapping[int, SampledTable], side: Compression
) -> tuple[dict[int, UtilMessage], dict[int, Sent]]:
    """Tell each agent a bound on what all others of its component add to its rows (after a cycle with bounds)."""

    def work(agent: int, outside: UtilMessage) -> tuple[UtilMessage, list[UtilMessage]]:
        upper = tables[agent].upper
        assert upper is not None, "only after a cycle in which all had bounds"
        received = [message.upper or () for message in cycle.steps[agent].received]
        node = node_of(setup, agent, side, upper, received, setup.backend.stop)
        separators = [side.scope(setup.tree.separators[child]) for child in setup.tree.children[agent]]
        return outside_steps(node, outside, separators, _OUTSIDE, Resources(allowance(setup), setup.backend))

    return outside_phase(setup.tree, post, work)
