"""Factors that allow at most one of some values: toulbar2 takes them as sums, and propagates them as such."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden

Pairs = list[tuple[int, int]]  # variables with values, of which an assignment has one at most


def without_at_most_one(problem: Problem, memory: int) -> tuple[Problem, list[Pairs]]:
    """Return a problem of dense tables, without what only says that at most one of some values is taken, and that.

    Parameters
    ----------
    memory
        Bytes that one expanded table may take.
    """
    found = [at_most_one(factor) for factor in problem.factors]
    groups = [pairs for pairs in found if pairs is not None]
    if not groups:
        return densify(problem, memory).problem, []
    factors = tuple(factor for factor, pairs in zip(problem.factors, found, strict=True) if pairs is None)
    rest = Problem(problem.variables, problem.domains, problem.agents, problem.owner, factors)
    return densify(rest, memory).problem, groups


def at_most_one(factor: Factor) -> Pairs | None:
    """Return the values of which a factor allows one at most; None where it says something else.

    Examples
    --------
    >>> at_most_one(Factor.of((0, 1), [[0, 0], [0, 1]])) is None
    True
    """
    if not isinstance(factor, AutomatonFactor) or len(factor.layers) < 2:
        return None
    allowed = _allowed(factor)
    if allowed is None:
        return None
    first = factor.layers[0].following[0]
    for none in np.unique(first).tolist():  # the state in which none has been taken
        chosen = _followed(factor, allowed, none)
        if chosen is not None:
            return [
                (v, x) for v, values in zip(factor.scope, chosen, strict=True) for x in np.flatnonzero(values).tolist()
            ]
    return None


def _allowed(factor: AutomatonFactor) -> list[NDArray[np.bool_]] | None:
    """Return from which states which values can be part of an allowed assignment; None where some cost something."""
    alive: NDArray[np.bool_] = np.ones(1, dtype=np.bool_)
    allowed: list[NDArray[np.bool_]] = []
    for layer in reversed(factor.layers):
        hard = forbidden(layer.utility)
        if layer.utility[~hard].any():
            return None
        can = ~hard & alive[np.where(hard, 0, layer.following)]
        alive = np.any(can, axis=1)
        allowed.append(can)
    return allowed[::-1]


def _followed(
    factor: AutomatonFactor, allowed: Sequence[NDArray[np.bool_]], none: int
) -> list[NDArray[np.bool_]] | None:
    """Return the values that count of each variable, if ``none`` is the state after a first one that does not."""
    layers, last = factor.layers, len(factor.layers) - 1
    first = layers[0].following[0]
    if not allowed[0][0].all():
        return None
    chosen = [first != none]
    free, taken = none, {int(to) for to in first[chosen[0]]}
    for i in range(1, last + 1):
        if len(taken) != 1 or not allowed[i][free].all():
            return None
        (one,) = taken
        counts, following = ~allowed[i][one], layers[i].following
        chosen.append(counts)
        if i == last or not (~counts).any():
            return chosen if i == last else None
        after = {int(to) for to in following[free][~counts]}
        taken = {int(to) for to in following[free][counts]} | {int(to) for to in following[one][~counts]}
        if len(after) != 1 or after & taken:
            return None
        (free,) = after
    return None
