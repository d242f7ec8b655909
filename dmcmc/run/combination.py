"""What the configuration's ``combine`` section means for the UTIL phase."""

from dmcmc.config.settings import Combine
from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.execution.relaxation import Relaxation
from dmcmc.inference.minibuckets.matching import room_of, with_headroom
from dmcmc.inference.model.arithmetic import LARGEST, Arithmetic, choose_arithmetic
from dmcmc.inference.model.exact_sum import exact_sum
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.runtime.errors import ProblemError


def relaxation_of(combine: Combine) -> Relaxation:
    """Return what an agent's UTIL step may give up."""
    z = combine.z if isinstance(combine.z, int) else None
    return Relaxation(combine.method, z, combine.partition, combine.moment_matching)


def arithmetic_for(problem: Problem, combine: Combine) -> Arithmetic:
    """Return the numbers that a problem is solved in; with room for shifts where mini-buckets are asked for.

    Constants are not solved: they are added at the end, exactly.

    Raises
    ------
    ProblemError
        If all utilities together do not fit a float64.
    """
    arithmetic = choose_arithmetic(f for f in problem.factors if f.scope)
    constants = exact_sum(magnitude(f.table) for f in problem.factors if not f.scope)
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
    share = [sum(int(magnitude(f.table)) for f in local.factors) for local in division.locals]
    for agent in tree.bottom_up:
        share[agent] += sum(int(magnitude(division.crossing[i].table)) for i in tree.placed[agent])
        if tree.parent[agent] >= 0:
            share[tree.parent[agent]] += share[agent]
    times = int(room) // max(1, int(arithmetic.total))
    return [s * times for s in share]
