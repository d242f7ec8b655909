"""Levels solved one after the other, and their results.

Solve levels one after the other where their weights do not fit 64 bits: the problem of the next levels.

Once some levels are solved, an assignment that is as good in them loses no more than their known losses: a level's
loss is the largest sum of its factors' utilities less its objective. Entries of factors that lose more are forbidden.
This narrows the range of a solved level, often to a single value, so that the weights of the next levels fit.

Split the objective and the bound of a weighted problem into those of its levels.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.levels.weights import LevelsTooLarge, scaled, utility_range, weighted
from dmcmc.inference.model.arithmetic import Exact
from dmcmc.inference.model.automaton import AutomatonFactor, Layer
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden, forbidden_value
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array


class LevelValue(NamedTuple):
    """The objective and the bound of a level, in the problem's own sense.

    Attributes
    ----------
    name : str
        Name of the level.
    objective : int or None
        The objective of the assignment; None if it breaks a hard constraint of the level, or there is none.
    bound : int or None
        Proven: no assignment that is optimal in all earlier levels is better. None if nothing is proven.
    violation : int
        Number of hard constraints of the level that the assignment breaks.
    """

    name: str
    objective: int | None
    bound: int | None
    violation: int


def level_values(problem: Problem, values: NDArray[np.int64] | None, bound: Exact | float | None) -> list[LevelValue]:
    """Return the objective and the bound of each level of a problem.

    An upper bound U on the weighted sum bounds the first level by ⌊(U − l) / w⌋, where w is its weight and l the least
    sum of all later levels. A later level is bounded once the objectives of all earlier ones are proven optimal: by
    what is then left of U.

    Parameters
    ----------
    problem : Problem
        The problem.
    values : (n,) int64 or None
        Value index of each variable; None without an assignment.
    bound : number or None
        Proven bound on the objective of the problem, in its own sense.
    """
    sign = 1 if problem.sense == "max" else -1
    sums, broken = [0] * len(problem.levels), [0] * len(problem.levels)
    for factor, level in zip(problem.factors, problem.level_of, strict=True):
        if values is None:
            break
        entry = factor.entry(values[list(factor.scope)].tolist())
        if entry is None:
            broken[level] += 1
        else:
            sums[level] += int(entry)
    found: list[LevelValue] = []
    if any(not level.weight for level in problem.levels):
        bound = None  # nothing follows from the sum of levels without weights
    left = None if bound is None else int(np.floor(sign * bound)) if isinstance(bound, float) else sign * int(bound)
    for (name, weight, low), total, violation in zip(problem.levels, sums, broken, strict=True):
        objective = None if values is None or violation else total // (weight or 1)
        proven = None if left is None else (left - low) // weight
        found.append(
            LevelValue(
                name,
                None if objective is None else sign * objective,
                None if proven is None else sign * proven,
                violation,
            )
        )
        if left is not None:
            left = left - total if objective is not None and objective == proven else None
    return found


def check_weighted(problem: Problem, what: str) -> None:
    """Raise ProblemError if the levels of a problem have no weights, which ``what`` needs."""
    if problem.has_separate_levels:
        raise ProblemError(f"{what}: needs levels whose weights fit 60 bits; scale the utilities down")


def totals(problem: Problem, values: NDArray[np.int64]) -> list[int]:
    """Return the sum of the utilities of each level; forbidden entries are left out.

    Parameters
    ----------
    problem : Problem
        A problem whose levels have no weights.
    values : (n,) int64
        Value index of each variable.
    """
    sums = [0] * len(problem.levels)
    for factor, level in zip(problem.factors, problem.level_of, strict=True):
        sums[level] += int(factor.entry(values[list(factor.scope)].tolist()) or 0)
    return sums


def problem_of_next_levels(problem: Problem, solved: Sequence[int]) -> Problem:
    """Return a problem whose optimum is the best of the assignments that are optimal in the solved levels.

    It has weighted levels: the solved ones, and as many of the next ones as fit 64 bits. All hard constraints of
    later levels belong to it, too.

    Parameters
    ----------
    problem : Problem
        A problem whose levels have no weights.
    solved : sequence of int
        The sum of the utilities of each solved level, the first ones.

    Raises
    ------
    LevelsTooLarge
        If not even one more level fits.
    """
    names = [level.name for level in problem.levels]
    losses = [-total for total in solved]
    for factor, level in zip(problem.factors, problem.level_of, strict=True):
        if level < len(solved):
            losses[level] += utility_range(factor)[1]
    for end in range(len(names), len(solved), -1):
        factors: list[Factor] = []
        level_of: list[int] = []
        for factor, level in zip(problem.factors, problem.level_of, strict=True):
            part = (
                _limited(factor, losses[level])
                if level < len(solved)
                else factor
                if level < end
                else _hard_part(factor)
            )
            if part is not None:
                factors.append(part)
                level_of.append(min(level, end - 1))
        try:
            found = weighted(factors, names[:end], level_of)
        except LevelsTooLarge:
            if end == len(solved) + 1:
                raise
            continue
        return replace(problem, factors=found.factors, levels=found.levels, level_of=tuple(level_of))
    raise ValueError("all levels are solved")


def values_of_next_levels(
    part: Problem, solved: Sequence[int], values: NDArray[np.int64], bound: Exact | float | None
) -> list[LevelValue]:
    """Return the objectives and bounds of the levels that a problem adds to the solved ones.

    Parameters
    ----------
    part : Problem
        The result of :func:`problem_of_next_levels`.
    solved : sequence of int
        As there.
    values : (n,) int64
        Value index of each variable, without violations.
    bound : number or None
        Proven bound on the objective of ``part``, in its own sense.
    """
    first = len(solved)
    known = sum(level.weight * total for level, total in zip(part.levels, solved, strict=False))
    sign = 1 if part.sense == "max" else -1
    kept = [i for i, level in enumerate(part.level_of) if level >= first]
    later = replace(
        part,
        factors=tuple(part.factors[i] for i in kept),
        levels=part.levels[first:],
        level_of=tuple(part.level_of[i] - first for i in kept),
    )
    return level_values(later, values, None if bound is None else bound - sign * known)


def _limited(factor: Factor, loss: int) -> Factor | None:
    """Return a factor without the entries that lose more than ``loss``; None if nothing remains of it."""
    if isinstance(factor, GlobalConstraint):
        is_hard = factor.cost is not None and factor.cost > loss
        return factor.from_parameters(
            factor.scope, factor.shape, None if is_hard else factor.cost, factor.name, factor.parameters()
        )
    if isinstance(factor, AutomatonFactor):
        layers = [Layer(layer.following, _without_losses(layer.utility, loss)) for layer in factor.layers]
        return AutomatonFactor(factor.scope, layers, factor.name)
    if isinstance(factor, SparseFactor):
        utilities = _without_losses(factor.utilities, loss)
        return SparseFactor(factor.scope, factor.shape, factor.tuples, utilities, factor.name)
    return Factor(factor.scope, _without_losses(factor.table, loss), factor.name)


def _hard_part(factor: Factor) -> Factor | None:
    """Return the hard constraint of a factor, whose allowed entries are 0; None if it is a soft global constraint."""
    if isinstance(factor, GlobalConstraint):
        return factor if factor.cost is None else None
    return scaled(factor, 0)


def _without_losses(utilities: Array, loss: int) -> Array:
    """Return utilities in which those that are more than ``loss`` below the largest one are forbidden."""
    allowed = utilities[~forbidden(utilities)]
    if not allowed.size:
        return utilities
    least = int(allowed.max()) - loss
    if least <= int(allowed.min()):
        return utilities
    found: Array = np.where(utilities < least, forbidden_value(utilities.dtype), utilities)
    return found
