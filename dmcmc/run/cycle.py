"""One cycle over the agents' tree: UTIL up, VALUE down, the assignment evaluated, and what it proves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from dmcmc.inference.dpop.compression import Compression, Rows
from dmcmc.inference.dpop.util_and_value import Node, UtilMessage, UtilStep, outside_steps, util_step
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.costs import COSTS
from dmcmc.inference.execution.relaxation import EXACT, Relaxation, Resources
from dmcmc.inference.model.arithmetic import Table
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.phases import Chosen, Post, Sent, Steps, Utils, outside_phase, util_phase, value_phase
from dmcmc.mpi.world import World
from dmcmc.run.combination import relaxation_of, shift_rooms
from dmcmc.run.setup import Setup
from dmcmc.samplers.contract.protocol import SampledTable

_FEW = 4  # more agents than these have a share of the memory each
_SHARE = 0.1  # of the time budget: an agent's UTIL step
_SLOWER = 8  # times longer a byte of mini-buckets takes than one of exact tables: they are copied, and looked at
_OUTSIDE = Relaxation("auto", None, "scope", False)


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
    roots : dict
        Upper UTIL values of the roots here; None where something has no bound.
    sent : list of dict
        Messages of each phase.
    """

    steps: dict[int, Steps]
    values: dict[int, int]
    chosen: dict[int, Chosen]
    roots: dict[int, Number | None]
    sent: list[dict[int, Sent]]


def run_cycle(
    setup: Setup,
    post: Post,
    clocks: dict[int, float],
    tables: Mapping[int, SampledTable],
    sides: Sides,
    stop: Stop,
) -> Cycle:
    """Send UTIL messages up and VALUE messages down.

    Parameters
    ----------
    clocks
        When each of this rank's agents is ready; moved on.
    tables
        Of this rank's agents.
    stop
        When to give up.

    Raises
    ------
    ResourceError
        If it comes to that (:class:`.OutOfTime`), or if some agent's tables do not fit the memory; on all ranks alike.
    """
    work = _util_work(setup, tables, sides, replace(setup.backend, stop=stop))
    steps, up = util_phase(setup.tree, post, clocks, work)
    separators = [(sides.lower.scope(s), sides.upper.scope(s)) if s else ((), ()) for s in setup.tree.separators]
    chosen, down = value_phase(setup.tree, post, clocks, steps, separators)

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
    return Cycle(steps, post.world.together(values), chosen, roots, [up, down])


def _util_work(
    setup: Setup, tables: Mapping[int, SampledTable], sides: Sides, backend: Backend
) -> Callable[[int, list[Utils]], Steps]:
    """Return the UTIL steps of an agent as a function of its children's messages."""
    attempts = _attempts(setup)

    @cache
    def rooms() -> list[Number]:
        return shift_rooms(setup.division, setup.tree, setup.arithmetic)

    def step(agent: int, side: Compression, table: UtilMessage, children: list[UtilMessage]) -> UtilStep:
        for how, memory in attempts[:-1]:
            try:
                return limited(agent, side, table, children, how, memory)
            except OutOfTime:
                raise
            except ResourceError:
                continue
        return limited(agent, side, table, children, *attempts[-1])

    def limited(
        agent: int, side: Compression, table: UtilMessage, children: list[UtilMessage], how: Relaxation, memory: int
    ) -> UtilStep:
        name = setup.problem.agents[agent]
        resources = Resources(memory, backend, lambda: rooms()[agent], name)
        return util_step(node_of(setup, agent, side, table, children), how, resources)

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


def _allowance(setup: Setup) -> int:
    """Return the bytes that an agent's UTIL step may take: all agents' tables stay until VALUE has been by."""
    memory = setup.config.budget.bytes
    many = setup.problem.n_agents > _FEW and setup.config.combine.method != "exact"
    return max(1, memory // setup.problem.n_agents) if many else memory


def _attempts(setup: Setup) -> list[tuple[Relaxation, int]]:
    """Return how an agent's UTIL step may be done, and in how many bytes of tables; the first that fits is taken.

    With a time budget, exact tables and mini-buckets have to fit the time too: else mini-buckets would become as large
    as the memory, however short the time. The last attempt is what fits the memory. The same in all cycles.
    """
    relaxation, memory = relaxation_of(setup.config.combine), _allowance(setup)
    seconds, last = setup.config.budget.time, (relaxation, memory)
    if seconds is None or relaxation.method == "exact" or relaxation.z is not None:
        return [last]
    values = float(setup.problem.domains.mean()) if setup.problem.n_variables else 1.0
    entries = _SHARE * seconds * setup.limits.threads * COSTS.joined / values
    quick = int(entries) * setup.arithmetic.dtype.itemsize
    if quick >= memory:
        return [last]
    sizes, size = [], quick // _SLOWER  # larger ones only where what is joined takes more already
    while size < memory:
        sizes.append(size)
        size = 4 * max(1, size)
    split = [*((relaxation, size) for size in sizes), last]
    return split if relaxation.method == "mini-bucket" else [(EXACT, quick), *split]


def node_of(setup: Setup, agent: int, side: Compression, own: UtilMessage, children: Sequence[UtilMessage]) -> Node:
    """Return an agent with what has come from below, on one side."""
    return Node(
        own,
        crossing_of(setup, agent, side),
        children,
        side.scope(setup.division.locals[agent].interface),
        side.scope(setup.tree.separators[agent]),
        side.sizes,
        setup.arithmetic,
    )


def exact_room(setup: Setup) -> int:
    """Return the bytes of tables up to which an agent's UTIL step is exact; 0 where mini-buckets are asked for."""
    relaxation, memory = _attempts(setup)[0]
    return 0 if relaxation.method == "mini-bucket" else memory


def crossing_of(setup: Setup, agent: int, side: Compression) -> list[Table]:
    """Return the crossing factors placed at an agent, encoded."""
    placed = [setup.arithmetic.encode(setup.division.crossing[i]) for i in setup.tree.placed[agent]]
    return [side.table(*table) for table in placed]


def run_outside(
    setup: Setup, post: Post, cycle: Cycle, tables: Mapping[int, SampledTable], side: Compression
) -> tuple[dict[int, UtilMessage], dict[int, Sent]]:
    """Tell each agent a bound on what all others of its component add to its rows (after a cycle with bounds)."""

    def work(agent: int, outside: UtilMessage) -> tuple[UtilMessage, list[UtilMessage]]:
        upper = tables[agent].upper
        assert upper is not None, "only after a cycle in which all had bounds"
        node = node_of(setup, agent, side, upper, [message.upper or () for message in cycle.steps[agent].received])
        separators = [side.scope(setup.tree.separators[child]) for child in setup.tree.children[agent]]
        return outside_steps(node, outside, separators, _OUTSIDE, Resources(_allowance(setup), setup.backend))

    return outside_phase(setup.tree, post, work)
