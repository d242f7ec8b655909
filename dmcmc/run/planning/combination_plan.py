"""How tables are combined: by the configuration, and as large as memory, time and an agent's parent have room for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from dmcmc.config.settings import Combine
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.division_cost import agent_costs
from dmcmc.inference.dpop.memory_shares import largest_share
from dmcmc.inference.dpop.predicted_steps import Met, StepAhead, steps_ahead
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.dpop.slicing import Slicing, plan_slices
from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.execution.exact_or_mini_buckets import EXACT, Relaxation
from dmcmc.inference.minibuckets.moment_matching import room_of, with_headroom
from dmcmc.inference.model.arithmetic import LARGEST, Arithmetic, arithmetic_of, choose_arithmetic
from dmcmc.inference.model.exact_sum import exact_sum
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.inference.runtime.types import Ints
from dmcmc.mpi.world import World
from dmcmc.samplers.auto.choose import Choice, Limits
from dmcmc.samplers.auto.survey import Survey

if TYPE_CHECKING:  # a setup has numbers that are chosen here
    from dmcmc.run.planning.divided_problem import Divided
    from dmcmc.run.planning.setup import Setup

_MOST_PLANNED = 500  # agents whose UTIL steps are planned beforehand
_SHARE, _STEPS = 0.1, 0.5  # of the time budget: an agent's UTIL step, and all of them
_SLICED, _SLICES = 4e9, 1e5  # cells and steps that ``auto`` takes by slices
_IN_PLACE, _STEP = 1.7e-10, 3e-4  # seconds of a cell of steps that are made in the same memory; of a step besides
_MOST_SLICED, _HOPELESS = (
    100,
    1e4,
)  # agents, and times so many cells met by one of them, up to which it looks for slices
_SLOWER = 8  # times longer a byte of mini-buckets takes than one of exact tables: they are copied, and looked at


class TooWide(ResourceError):
    """Messages from below leave an agent no room for its own.

    Attributes
    ----------
    agent : int
    z : int
        What those below it may have at most the next time.
    """

    agent: int = -1
    z: int = 0


def relaxation_of(combine: Combine) -> Relaxation:
    """Return what an agent's UTIL step may give up."""
    z = combine.z if isinstance(combine.z, int) else None
    return Relaxation(
        "exact" if combine.method == "sliced" else combine.method, z, combine.partition, combine.moment_matching
    )


def arithmetic_for(problem: Problem, combine: Combine) -> Arithmetic:
    """Return the numbers that a problem is solved in; with room for shifts where mini-buckets are asked for.

    Constants are not solved: they are added at the end, exactly.

    Raises
    ------
    ProblemError
        If all utilities together do not fit a float64.
    """
    fixed = [factor for factor in problem.factors if not factor.scope]
    # All tables lie in one array for the search already; constants have no part in sums.
    if fixed:
        arithmetic = choose_arithmetic(f for f in problem.factors if f.scope)
    else:
        arithmetic = problem.known.once("arithmetic", lambda: arithmetic_of(problem.flat, problem.magnitudes))
    constants = exact_sum(magnitude(f.table) for f in fixed)
    if constants > LARGEST:
        raise ProblemError(f"constants add up to more than {LARGEST:.3g}; scale them down")
    if combine.method == "mini-bucket" and combine.moment_matching:
        return with_headroom(arithmetic)
    return arithmetic


def shift_rooms(division: Division, tree: PseudoTree, arithmetic: Arithmetic) -> list[int | float]:
    """Return what moment matching may make of the entries below each agent: a fixed multiple of what they were.

    A parent joins its children's tables with its own, so the shares add up to no more than the numbers hold.
    """
    room = room_of(arithmetic)
    if not arithmetic.exact:
        return [room] * len(tree.parent)
    own, crossing = division.magnitudes
    share = [int(s) for s in own]
    for agent in tree.bottom_up:
        share[agent] += sum(int(crossing[i]) for i in tree.placed[agent])
        if tree.parent[agent] >= 0:
            share[tree.parent[agent]] += share[agent]
    times = int(room) // max(1, int(arithmetic.total))
    return [s * times for s in share]


def allowance(setup: "Setup") -> int:
    """Return the bytes that an agent's UTIL step may take: all agents' tables stay until VALUE has been by."""
    return setup.room


def room_for_steps(
    parts: "Divided", tree: PseudoTree, surveys: Sequence[Survey], choices: Sequence[Choice], entries: int
) -> int:
    """Return the entries that an agent's UTIL step may have, so that all of them together keep no more than these.

    Those that need little leave theirs to the others; on both sides, where tables are bounded from above. What they
    need is planned only where it could be too much.
    """
    problem, division = parts.problem, parts.division
    sides = 1 if all(choice.method == "exact" for choice in choices) else 2
    listed = {a: choice.listed for a, choice in enumerate(choices) if choice.listed}
    if sides * sum(joins(problem, division, tree, listed)) <= entries:
        return entries // sides
    if problem.n_agents > _MOST_PLANNED:
        return max(1, entries // (sides * problem.n_agents))
    known = {
        local.agent: work.left_over(local.interface) if choice.method == "exact" else (local.interface,)
        for local, work, choice in zip(division.locals, surveys, choices, strict=True)
    }
    needs = [cost.step for cost in agent_costs(problem, division, tree, known, listed)]
    return max(1, int(largest_share(needs, entries / sides)))


def joins(
    problem: Problem, division: Division, tree: PseudoTree, listed: Mapping[int, int] | None = None
) -> Iterator[float]:
    """Yield the entries of the table that combining takes at each agent if all that it meets was one table.

    Parameters
    ----------
    listed
        Rows of agents whose tables are over lists of them.
    """
    rows, owner = listed or {}, problem.owner
    for local in division.locals:
        met = {*local.interface, *tree.separators[local.agent]}
        for child in tree.children[local.agent]:
            met.update(tree.separators[child])
        lists = {int(owner[v]) for v in met if int(owner[v]) in rows} if rows else set()
        size = prod(float(problem.domains[v]) for v in met if not lists or int(owner[v]) not in rows)
        yield min(1e300, size * prod(float(rows[a]) for a in lists))


def attempts_of(setup: "Setup", larger: float = 1.0) -> list[tuple[Relaxation, int]]:
    """Return how an agent's UTIL step may be done, and in how many bytes of tables; the first that fits is taken.

    With a time budget, exact tables and mini-buckets have to fit the time too: else mini-buckets would become as large
    as the memory, however short the time. The last attempt is what fits the memory.

    Parameters
    ----------
    larger
        Times as large as what the time budget says.
    """
    return setup.facts.once(("attempts", larger, setup.room), lambda: _attempts(setup, larger))


def _attempts(setup: "Setup", larger: float) -> list[tuple[Relaxation, int]]:
    relaxation, memory = relaxation_of(setup.config.combine), allowance(setup)
    seconds, last = setup.config.budget.time, (relaxation, memory)
    if seconds is None or relaxation.method == "exact" or relaxation.z is not None:
        return [last]
    share = min(_SHARE, _STEPS / max(1, setup.problem.n_agents))
    entries = larger * share * seconds * setup.limits.threads * COSTS.joined / setup.division.values
    quick = int(min(entries, memory)) * setup.arithmetic.dtype.itemsize
    if quick >= memory:
        return [last]
    sizes, size = [], quick // _SLOWER  # larger ones only where what is joined takes more already
    while size < memory:
        sizes.append(size)
        size = 4 * max(1, size)
    split = [*((relaxation, size) for size in sizes), last]
    return split if relaxation.method == "mini-bucket" else [(EXACT, quick), *split]


def exact_room(setup: "Setup") -> int:
    """Return the bytes of tables up to which an agent's UTIL step is exact; 0 where mini-buckets are asked for."""
    relaxation, memory = attempts_of(setup)[0]
    return 0 if relaxation.method == "mini-bucket" else memory


def too_wide(refused: ResourceError, tree: PseudoTree, agent: int, children: Sequence[UtilMessage]) -> ResourceError:
    """Return why an agent's step does not fit; as :class:`TooWide` if narrower messages from below would help."""
    widest = max((len(table.scope) for message in children for table in message), default=0)
    if widest < 2:
        return refused
    found = TooWide(str(refused))
    found.agent, found.z = agent, widest - 1
    found.order = tree.bottom_up.index(agent)  # whatever the ranks, the same agent is the first
    return found


def narrowed(tree: PseudoTree, limits: Mapping[int, int], error: TooWide) -> dict[int, int]:
    """Return the largest z of all agents below one that had no room; raise the error if they have tried it already."""
    below, found = list(tree.children[error.agent]), dict[int, int]()
    if any(limits.get(child, error.z + 1) <= error.z for child in below):
        raise error
    while below:
        agent = below.pop()
        found[agent] = min(limits.get(agent, error.z), error.z)
        below.extend(tree.children[agent])
    return found


def splits(setup: "Setup") -> bool:
    """Return whether UTIL steps may split buckets."""
    if setup.slicing is not None or setup.config.combine.method == "exact":
        return False
    return largest_join(setup) * setup.arithmetic.dtype.itemsize > exact_room(setup)


def slicing_ahead(
    parts: "Divided",
    tree: PseudoTree,
    surveys: Sequence[Survey],
    choices: Sequence[Choice],
    limits: Limits,
    room: tuple[int, int],
) -> Slicing | None:
    """Return how UTIL steps are worked off by slices; None where that is not wanted, or tables fit as they are.

    Parameters
    ----------
    room
        Entries that an agent's step may have, of whole tables and of slices.

    Raises
    ------
    ResourceError
        If slices are asked for by name, and there are none that fit.
    """
    problem, combine = parts.problem, parts.config.combine
    asked = combine.method == "sliced"
    if not asked and (combine.method != "auto" or combine.z != "auto" or problem.n_agents > _MOST_SLICED):
        return None
    if any(choice.listed for choice in choices):
        if asked:
            raise ResourceError("combine.method: sliced needs tables of all rows; raise local.rows or budget.memory")
        return None
    largest = max(joins(problem, parts.division, tree), default=0.0)
    most = _SLICED if limits.time is None else _SHARE * limits.time * limits.threads * COSTS.joined
    if largest <= room[0] or (not asked and largest > _HOPELESS * most):
        return None
    own = {
        local.agent: work.left_over(local.interface) if choice.method == "exact" else (local.interface,)
        for local, work, choice in zip(parts.division.locals, surveys, choices, strict=True)
    }
    try:
        found = slicing_of(parts, tree, own, problem.domains, room[1])
    except ResourceError:
        if asked:
            raise
        return None
    return found if found.cut and (asked or found.cells <= most) else None


def shares_a_core(parts: "Divided", tree: PseudoTree, mode: str, backend: Backend, world: World) -> bool:
    """Return whether one rank of each node combines for all of its agents; called by all ranks, the same on all.

    ``auto``: where ranks share a GPU, and the agents' tables are worth it.
    """
    if mode != "auto" or world.size == 1:
        return mode == "shared"
    cells = sum(joins(parts.problem, parts.division, tree))
    return all(world.allgather(world.gpu_sharers > 1 and backend.worth(cells * COSTS.cell)))


def slicing_of(
    parts: "Divided",
    tree: PseudoTree,
    own: Mapping[int, Sequence[tuple[int, ...]]],
    sizes: Ints,
    room: int,
    read: Callable[[Sequence[int]], tuple[int, ...]] = tuple,
) -> Slicing:
    """Return which variables are cut, so that no agent's step has more entries than there is room for.

    Parameters
    ----------
    own
        Scopes of each agent's tables over its interface.
    read
        Returns a scope as tables have it.
    """
    asked = parts.config.combine.method == "sliced"
    steps = steps_of(parts.division, tree, own, sizes, read, brief=not asked)
    return plan_slices(tree, steps, sizes, room, float("inf") if asked else _SLICES)


def steps_of(
    division: Division,
    tree: PseudoTree,
    own: Mapping[int, Sequence[tuple[int, ...]]],
    sizes: Ints,
    read: Callable[[Sequence[int]], tuple[int, ...]] = tuple,
    brief: bool = False,
) -> list[StepAhead]:
    """Return what all agents' exact steps will be, as :func:`slicing_of` is told of them."""
    met = [
        Met(
            own[local.agent],
            [read(division.crossing[i].scope) for i in tree.placed[local.agent]],
            read(local.interface),
            read(tree.separators[local.agent]),
        )
        for local in division.locals
    ]
    return steps_ahead(tree, met, sizes, brief)


def slicing_seconds(setup: "Setup") -> float:
    """Return about how long working off slices takes."""
    assert setup.slicing is not None
    in_place = setup.arithmetic.exact and setup.backend.device == "cpu"
    cell = _IN_PLACE if in_place else COSTS.cell
    return setup.slicing.cells * cell / setup.backend.threads + setup.slicing.steps * _STEP


def largest_join(setup: "Setup") -> float:
    """Return the entries of the largest table that combining can take, if all an agent meets was one table."""
    return setup.largest_join


def will_prove(setup: "Setup") -> bool:
    """Return whether the tables prove the answer, if there is time for them."""

    def proven() -> bool:
        return all(choice.method == "exact" for choice in setup.choices) and not splits(setup)

    return setup.facts.once("proven", proven)
