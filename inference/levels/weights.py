"""Weight the factors of each level so that one sum compares assignments lexicographically.

With integers, a level whose weight is larger than the range of the weighted sum of all later levels always counts more
than these (Ehrgott, *Multicriteria Optimization*, 2005, §5.1).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.automaton import AutomatonFactor, Layer
from dmcmc.inference.model.factor import Factor, Level
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden, normalise
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

    Levels without weights are solved one after the other (:mod:`dmcmc.inference.levels.one_after_the_other`).
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
    if isinstance(factor, AutomatonFactor):
        layers = [Layer(layer.following, _changed(layer.utility, change)) for layer in factor.layers]
        return AutomatonFactor(factor.scope, layers, factor.name, factor.sum_bounds)
    if isinstance(factor, SparseFactor):
        utilities = _changed(factor.utilities, change)
        return SparseFactor(factor.scope, factor.shape, factor.tuples, utilities, factor.name)
    return Factor(factor.scope, _changed(factor.table, change), factor.name)


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
