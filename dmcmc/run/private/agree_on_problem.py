"""What ranks agree on about a problem that none of them knows: its numbers, its size, what an assignment is worth.

All of it by sums over ranks, which are exact: so they are the same on any number of ranks, and those of one file.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dmcmc.config.settings import Combine
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.memory_shares import Shares, shares_beside
from dmcmc.inference.minibuckets.moment_matching import with_headroom
from dmcmc.inference.model.arithmetic import LARGEST, Arithmetic, narrowest
from dmcmc.inference.model.exact_sum import Exact, exact_sum, nearest
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.mpi.world import World
from dmcmc.results.outcome import Worth

_AMPLE = 2  # times what all tables take, the budget is as if every rank had all of them


def numbers_of(
    counted: Sequence[Factor], constants: Sequence[Factor], combine: Combine, world: World
) -> tuple[Arithmetic, int]:
    """Return the numbers that the whole problem is solved in, and how many factors it has.

    Parameters
    ----------
    counted
        The factors that this rank answers for.

    Raises
    ------
    ProblemError
        If all utilities together do not fit a float64.
    """
    whole = all(world.allgather(all(factor.table.dtype.kind == "i" for factor in counted)))
    sizes = (magnitude(factor.table) if whole else float(magnitude(factor.table)) for factor in counted)
    parts = world.allgather((exact_sum(sizes), len(counted)))
    arithmetic = world.together(lambda: narrowest(nearest(sum(total for total, _ in parts)), whole))
    if exact_sum(magnitude(f.table) for f in constants) > LARGEST:
        world.agree(ProblemError(f"constants add up to more than {LARGEST:.3g}; scale them down"))
    if combine.method == "mini-bucket" and combine.moment_matching:
        arithmetic = with_headroom(arithmetic)
    return arithmetic, sum(count for _, count in parts) + len(constants)


def magnitudes_among(division: Division, agents: Sequence[int], placed: Sequence[Sequence[int]], world: World) -> None:
    """Tell all ranks how large the entries of each agent's factors are together, and those of factors between agents.

    Moment matching has room by that: whoever makes an agent's step has to know it of all agents below.

    Parameters
    ----------
    agents
        This rank's.
    placed
        Of each agent the factors between agents that it answers for.
    """
    own = {a: sum(magnitude(f.table) for f in division.locals[a].factors) for a in agents}
    between = {i: magnitude(division.crossing[i].table) for a in agents for i in placed[a]}
    known, shared = world.merged(own), world.merged(between)
    every = [known[a] for a in range(len(division.locals))], [shared[i] for i in range(len(division.crossing))]
    division.__dict__["magnitudes"] = every


def shares_among(counted: Sequence[Factor], budget: int, world: World) -> Shares:
    """Divide a rank's budget: as if it had all tables where they are small, so that choices are those of one file.

    Raises
    ------
    ResourceError
        If a rank's own tables take all of it.
    """
    sizes = world.allgather(sum(factor.table.nbytes for factor in counted))
    size = sum(sizes) if _AMPLE * sum(sizes) <= budget else max(sizes)
    return world.together(lambda: shares_beside(size, budget))


class Valued(NamedTuple):
    """What a rank's factors are worth: forbidden entries that are hit, and the exact sum of the others."""

    violations: int
    utility: Exact


def value_of(counted: Iterable[Factor], values: Mapping[int, int]) -> Valued:
    """Evaluate the factors that a rank answers for."""
    entries = [factor.entry([values[v] for v in factor.scope]) for factor in counted]
    return Valued(sum(entry is None for entry in entries), exact_sum(e for e in entries if e is not None))


def worth_of_all(parts: Sequence[Valued], problem: Problem, constants: Sequence[Factor]) -> Worth:
    """Return what the assignment is worth of which each rank has evaluated its part."""
    entries = [factor.entry(()) for factor in constants]
    inside = sum(part.utility for part in parts)
    total = nearest(inside + exact_sum(entry for entry in entries if entry is not None))
    violations = sum(part.violations for part in parts) + sum(entry is None for entry in entries)
    return Worth(-violations, inside, problem.to_own_sense(total))
