"""Factors over many variables as automata: bounded sums and free runs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.count import CountConstraint
from dmcmc.inference.model.automaton import AutomatonFactor, Layer, SumBounds
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.types import Array, Ints


def bounded_sum(
    scope: Sequence[int], weights: Sequence[Ints], low: int | None, high: int | None, name: str
) -> Factor | None:
    """Return the hard constraint ``low`` ≤ Σ_i ``weights[i][x_i]`` ≤ ``high``; None if it always holds.

    The states are partial sums. Sums from which the constraint holds whatever follows are one state; sums from which
    it cannot hold any more are left out. An upper bound on a number of values is a counting constraint.

    Parameters
    ----------
    scope : sequence of int
        The variables, at least one.
    weights : sequence of (values,) int64
        For each variable the weight of each value.
    low, high : int or None
        The bounds; None if there is no such bound.
    name : str
        Name of the factor.
    """
    if low is None and high is not None and all(w.min() >= 0 and w.max() <= 1 for w in weights):
        return _at_most(scope, weights, high, name)
    infinite = int(sum(np.abs(w).max(initial=0) for w in weights)) + 1
    lower, upper = -infinite if low is None else low, infinite if high is None else high
    least = np.cumsum([0, *(int(w.min()) for w in reversed(weights))])[::-1]  # of the sum over the variables from i on
    most = np.cumsum([0, *(int(w.max()) for w in reversed(weights))])[::-1]
    if least[0] >= lower and most[0] <= upper:
        return None
    layers: list[Layer] = []
    states: Ints = np.zeros(1, dtype=np.int64)
    for i, w in enumerate(weights, 1):
        sums = states[:, None] + w
        allowed = (sums + least[i] <= upper) & (sums + most[i] >= lower)
        if low is None:
            sums = np.maximum(sums, upper - most[i])  # any smaller sum is as safe as this one
        elif high is None:
            sums = np.minimum(sums, lower - least[i])
        states = np.unique(sums[allowed])
        states = states if states.size else np.zeros(1, dtype=np.int64)
        following = np.minimum(np.searchsorted(states, sums), states.size - 1)
        layers.append(_layer(following, np.where(allowed, 0, -np.inf)))
    return AutomatonFactor(scope, _with_one_end(layers), name, SumBounds(tuple(weights), low, high))


def _at_most(scope: Sequence[int], counted: Sequence[Ints], high: int, name: str) -> CountConstraint | None:
    """Return the constraint that at most ``high`` variables have a value that counts; None if it always holds."""
    if sum(int(w.max()) for w in counted) <= high:
        return None
    given = {"counted": tuple(counted), "low": 0, "high": max(0, high)}
    return CountConstraint(scope, [len(w) for w in counted], given, None, name)


def free_run(scope: Sequence[int], taken: Sequence[Ints], slots: int, run: int, name: str) -> AutomatonFactor | None:
    """Return the hard constraint that ``run`` consecutive slots stay free; None if it always holds.

    The state is the set of runs that a taken slot has ended: it has all that the rest of the scope depends on.

    Parameters
    ----------
    scope : sequence of int
        The variables, at least one.
    taken : sequence of (values,) int64
        For each variable the slots that each value takes: bit s for slot s.
    slots : int
        Number of slots, at most 62.
    run : int
        Number of consecutive slots that stay free.
    name : str
        Name of the factor.
    """
    runs = np.array([((1 << run) - 1) << s for s in range(slots - run + 1)], dtype=np.int64)
    layers: list[Layer] = []
    states: Ints = np.zeros(1, dtype=np.int64)
    is_limiting = False
    for bits in taken:
        ended = ((bits[:, None] & runs) != 0) @ (1 << np.arange(runs.size))
        sets = states[:, None] | ended
        allowed = sets != (1 << runs.size) - 1
        is_limiting |= not allowed.all()
        states = np.unique(sets[allowed])
        states = states if states.size else np.zeros(1, dtype=np.int64)
        following = np.minimum(np.searchsorted(states, sets), states.size - 1)
        layers.append(_layer(following, np.where(allowed, 0, -np.inf)))
    return AutomatonFactor(scope, _with_one_end(layers), name) if is_limiting else None


def _with_one_end(layers: list[Layer]) -> list[Layer]:
    """Return the layers of an automaton with one state after the last variable."""
    return [*layers[:-1], layers[-1]._replace(following=np.zeros_like(layers[-1].following))]


def _layer(following: NDArray[np.int64], utility: Array) -> Layer:
    """Return a layer of an automaton from the next states and the utilities (−∞: forbidden)."""
    return Layer(np.ascontiguousarray(following, dtype=np.int32), normalise(np.asarray(utility)))
