"""Several levels of an objective: weights that make them one, or one level after the other.

Weight the factors of each level so that one sum compares assignments lexicographically.

With integers, a level whose weight is larger than the range of the weighted sum of all later levels always counts more
than these (Ehrgott, *Multicriteria Optimization*, 2005, §5.1).

Solve levels one after the other where their weights do not fit 64 bits: the problem of the next levels.

Once some levels are solved, an assignment that is as good in them loses no more than their known losses: a level's loss
is the largest sum of its factors' utilities less its objective. Entries of factors that lose more are forbidden. This
narrows the range of a solved level, often to a single value, so that the weights of the next levels fit.

Split the objective and the bound of a weighted problem into those of its levels.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.arithmetic import Exact
from dmcmc.inference.model.automaton import AutomatonFactor, Layer
from dmcmc.inference.model.factor import Factor, Level
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden, forbidden_value, normalise
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array

_MAX_TOTAL = 2**60 - 1  # sum of the magnitudes of all weighted utilities: 64 bits then hold all sums (``narrowest``)


class LevelsTooLarge(ProblemError):
    """Raised if the weighted utilities of all levels do not fit 64 bits."""


class WeightedLevels(NamedTuple):
    """Factors whose sum compares assignments level by level.

    Attributes
    ----------
    factors : tuple of Factor
        The factors with weighted utilities.
    levels : tuple of Level
        The levels with their weights.
    """

    factors: tuple[Factor, ...]
    levels: tuple[Level, ...]


def weighted(factors: Sequence[Factor], names: Sequence[str], level_of: Sequence[int]) -> WeightedLevels:
    """Weight factors by their levels.

    Parameters
    ----------
    factors : sequence of Factor
        The factors; their utilities are integers.
    names : sequence of str
        Names of the levels; an earlier one counts more.
    level_of : sequence of int
        The level of each factor.

    Raises
    ------
    ProblemError
        If a utility is no integer.
    LevelsTooLarge
        If the weights do not fit 64 bits.
    """
    lows, highs, magnitudes = [0] * len(names), [0] * len(names), [0] * len(names)
    for factor, level in zip(factors, level_of, strict=True):
        low, high = utility_range(factor)
        lows[level] += low
        highs[level] += high
        magnitudes[level] += max(-low, high)
    levels: list[Level] = []
    weight, low, high = 1, 0, 0  # of the level, and the range of the weighted sum of all later ones
    for name, own_low, own_high in reversed(list(zip(names, lows, highs, strict=True))):
        weight = high - low + 1
        levels.append(Level(name, weight, low))
        low, high = low + weight * own_low, high + weight * own_high
    levels.reverse()
    if sum(level.weight * magnitude for level, magnitude in zip(levels, magnitudes, strict=True)) > _MAX_TOTAL:
        raise LevelsTooLarge(f"levels: {', '.join(names)} need numbers of more than 60 bits; scale the utilities down")
    return WeightedLevels(
        tuple(scaled(f, levels[level].weight) for f, level in zip(factors, level_of, strict=True)), tuple(levels)
    )


def weighted_or_separate(factors: Sequence[Factor], names: Sequence[str], level_of: Sequence[int]) -> WeightedLevels:
    """Weight factors by their levels; where the weights do not fit 64 bits, return them unchanged with weights 0.

    Levels without weights are solved one after the other (:mod:`dmcmc.inference.building.levels`).
    Parameters and other errors are those of :func:`weighted`.
    """
    try:
        return weighted(factors, names, level_of)
    except LevelsTooLarge:
        return WeightedLevels(tuple(factors), tuple(Level(name, 0, 0) for name in names))


def weighted_again(
    factors: Sequence[Factor], weights: Sequence[int], names: Sequence[str], level_of: Sequence[int]
) -> WeightedLevels:
    """Weight factors of which some have changed; factors whose weight stays are the same objects.

    Parameters
    ----------
    factors : sequence of Factor
        The factors; the utilities of factor i are multiplied by ``weights[i]``.
    weights : sequence of int
        The present weight of each factor; 0 and 1 mean that it is not weighted.
    names, level_of
        As for :func:`weighted`; levels whose weights do not fit 64 bits are left without weights.
    """
    plain = [
        _divided(factor, weight) if weight > 1 else factor for factor, weight in zip(factors, weights, strict=True)
    ]
    found = weighted_or_separate(plain, names, level_of)
    present = [max(1, found.levels[level].weight) for level in level_of]
    kept = zip(factors, weights, found.factors, present, strict=True)
    return WeightedLevels(tuple(old if max(1, one) == other else new for old, one, new, other in kept), found.levels)


def utility_range(factor: Factor) -> tuple[int, int]:
    """Return a lower and an upper bound on the utilities of a factor that are not forbidden.

    Raises
    ------
    ProblemError
        If a utility is no integer.
    """
    if isinstance(factor, GlobalConstraint):
        if isinstance(factor.cost, float):
            raise _no_integer(factor)
        return (0 if factor.cost is None else -factor.cost * max_degree(factor)), 0
    if isinstance(factor, AutomatonFactor):
        ranges = [_range(factor, layer.utility) for layer in factor.layers]
        return sum(low for low, _ in ranges), sum(high for _, high in ranges)
    return _range(factor, factor.utilities if isinstance(factor, SparseFactor) else factor.table)


def scaled(factor: Factor, weight: int) -> Factor:
    """Return a factor whose utilities are multiplied by a positive integer.

    Parameters
    ----------
    factor : Factor
        A factor with integer utilities.
    weight : int
        The multiplier.
    """
    return factor if weight == 1 else _with_utilities(factor, lambda utilities: utilities * weight)


def _divided(factor: Factor, weight: int) -> Factor:
    """Return a factor whose utilities are divided by an integer, of which they are multiples."""
    return _with_utilities(factor, lambda utilities: utilities // weight)


def _with_utilities(factor: Factor, change: Callable[[Any], Any]) -> Factor:
    """Return a factor whose allowed utilities, which are integers, are changed by a function of numbers and arrays."""
    if isinstance(factor, GlobalConstraint):
        cost = None if factor.cost is None else change(factor.cost)
        return factor.from_parameters(factor.scope, factor.shape, cost, factor.name, factor.parameters())
    return _with_tables(factor, lambda utilities: _changed(utilities, change), keeps_sum=True)


def _with_tables(factor: Factor, change: Callable[[Array], Array], keeps_sum: bool) -> Factor:
    """Return a table, a sparse factor or an automaton with changed utilities, which may stay a sum of weights."""
    if isinstance(factor, AutomatonFactor):
        layers = [Layer(layer.following, change(layer.utility)) for layer in factor.layers]
        return AutomatonFactor(factor.scope, layers, factor.name, factor.sum_bounds if keeps_sum else None)
    if isinstance(factor, SparseFactor):
        return SparseFactor(factor.scope, factor.shape, factor.tuples, change(factor.utilities), factor.name)
    return Factor(factor.scope, change(factor.table), factor.name)


def _range(factor: Factor, utilities: Array) -> tuple[int, int]:
    """Return the smallest and the largest allowed entry, (0, 0) without one."""
    if utilities.dtype.kind != "i":
        raise _no_integer(factor)
    allowed = utilities[~forbidden(utilities)]
    return (int(allowed.min()), int(allowed.max())) if allowed.size else (0, 0)


def _no_integer(factor: Factor) -> ProblemError:
    """Return the error for a utility that is no integer."""
    what = f"factor {factor.name or list(factor.scope)}"
    return ProblemError(f"{what}: has a utility that is no integer, which levels need; scale and round the utilities")


def _changed(utilities: Array, change: Callable[[Any], Any]) -> Array:
    """Return integer utilities after a change; forbidden ones stay forbidden."""
    lowest = np.iinfo(np.int64).min
    return normalise(np.where(forbidden(utilities), lowest, change(utilities.astype(np.int64))))


def max_degree(constraint: GlobalConstraint) -> int:
    """Return an upper bound on the degree of violation, by the durations of pairs where these are known.

    Parameters
    ----------
    constraint : GlobalConstraint
        A constraint whose degree is a function of loads of cells, a precedence or an element constraint.
    """
    given = constraint.parameters()
    durations = sorted(given.get("durations", ()), reverse=True)
    pairs = len(durations) * (len(durations) - 1) // 2
    if constraint.kind == "no_overlap":
        return sum(i * int(duration) for i, duration in enumerate(durations))
    if constraint.kind in ("adjacency", "place_changes"):
        return pairs
    if constraint.kind == "precedence":
        first, second = given["numbers"]
        return max(0, int(first.max()) + int(given["distance"]) - int(second.min()))
    loads = constraint.cell_loads()
    if loads is None:
        return 1  # element
    return loads.largest_degree


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


def _limited(factor: Factor, loss: int) -> Factor:
    """Return a factor without the entries that lose more than ``loss``."""
    if isinstance(factor, GlobalConstraint):
        is_hard = factor.cost is not None and factor.cost > loss
        return factor.from_parameters(
            factor.scope, factor.shape, None if is_hard else factor.cost, factor.name, factor.parameters()
        )
    return _with_tables(factor, lambda utilities: _without_losses(utilities, loss), keeps_sum=False)


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
