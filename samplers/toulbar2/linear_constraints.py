"""Linear constraints for toulbar2.

Recognise hard linear constraints among factors; toulbar2 propagates them without tables.

A factor is a hard linear constraint if it is 0 where a weighted sum of the selected (variable, value) pairs lies
between two bounds, and forbids all other assignments. Cliques, knapsacks and counts of values are such constraints.

Recognise automata that allow at most one of some values.

Such a factor is a global constraint, "at most one of these (variable, value) pairs". Its automaton has two states: no
pair of the group has been taken, or one has been taken.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import forbidden

Pairs = list[tuple[int, int]]  # (variable, value) pairs; an assignment has at most one of them


def at_most_one(factor: Factor) -> Pairs | None:
    """Return the (variable, value) pairs of which a factor allows at most one; None for any other factor.

    Examples
    --------
    >>> at_most_one(Factor.of((0, 1), [[0, 0], [0, 1]])) is None
    True
    """
    if not isinstance(factor, AutomatonFactor) or len(factor.layers) < 2:
        return None
    allowed = _usable_transitions(factor)
    if allowed is None:
        return None
    first = factor.layers[0].following[0]
    for none in np.unique(first).tolist():  # the state in which no value of the group has been taken
        chosen = _group_of(factor, allowed, none)
        if chosen is not None:
            return [
                (v, x) for v, values in zip(factor.scope, chosen, strict=True) for x in np.flatnonzero(values).tolist()
            ]
    return None


def _usable_transitions(factor: AutomatonFactor) -> list[NDArray[np.bool_]] | None:
    """Return per layer which (state, value) transitions an allowed assignment can use; None if one has a utility."""
    can_finish: NDArray[np.bool_] = np.ones(1, dtype=np.bool_)
    allowed: list[NDArray[np.bool_]] = []
    for layer in reversed(factor.layers):
        is_forbidden = forbidden(layer.utility)
        if layer.utility[~is_forbidden].any():
            return None
        usable = ~is_forbidden & can_finish[np.where(is_forbidden, 0, layer.following)]
        can_finish = np.any(usable, axis=1)
        allowed.append(usable)
    return allowed[::-1]


def _group_of(
    factor: AutomatonFactor, allowed: Sequence[NDArray[np.bool_]], none: int
) -> list[NDArray[np.bool_]] | None:
    """Return per variable which values belong to the group, if ``none`` is the state after a first value outside it.

    The search follows two states through the layers: ``free_state``, in which no value of the group has been taken, and
    the state in which one has been. The result is None if the automaton does not count the values of a group.
    """
    layers, last = factor.layers, len(factor.layers) - 1
    first = layers[0].following[0]
    if not allowed[0][0].all():
        return None
    group = [first != none]
    free_state, taken = none, {int(to) for to in first[group[0]]}
    for i in range(1, last + 1):
        if len(taken) != 1 or not allowed[i][free_state].all():
            return None
        (taken_state,) = taken
        in_group, following = ~allowed[i][taken_state], layers[i].following
        group.append(in_group)
        if i == last or not (~in_group).any():
            return group if i == last else None
        free_states = {int(to) for to in following[free_state][~in_group]}
        taken = {int(to) for to in following[free_state][in_group]} | {
            int(to) for to in following[taken_state][~in_group]
        }
        if len(free_states) != 1 or free_states & taken:
            return None
        (free_state,) = free_states
    return None


# Limit for the sum of the largest absolute weights of all variables: toulbar2 multiplies weights by costs below 2^52.
_MAX_WEIGHT = 2**31


class LinearConstraint(NamedTuple):
    """``low`` ≤ the sum of the weights of the selected (variable, value) pairs ≤ ``high``.

    Attributes
    ----------
    terms : ndarray of int64, shape (terms, 3)
        Variable, value and weight of each pair; other pairs have weight 0. The terms of a variable are consecutive.
    low, high : int or None
        The bounds; None if there is no such bound.
    """

    terms: NDArray[np.int64]
    low: int | None
    high: int | None

    def holds(self, values: NDArray[np.int64]) -> bool:
        """Return whether an assignment satisfies the constraint."""
        variables, selected, weights = self.terms.T
        total = int(weights[values[variables] == selected].sum())
        return (self.low is None or total >= self.low) and (self.high is None or total <= self.high)

    def group(self) -> Pairs | None:
        """Return the pairs of which an assignment may select at most one; None for any other constraint."""
        if self.low is not None or self.high != 1 or (self.terms[:, 2] != 1).any():
            return None
        return [(v, x) for v, x, _ in self.terms.tolist()]


def linear_constraint(factor: Factor) -> LinearConstraint | None:
    """Return a factor as a hard linear constraint; None if it is not known to be one.

    Examples
    --------
    >>> linear_constraint(Factor.of((0, 1), [[0, 0], [0, 1]])) is None
    True
    """
    if not isinstance(factor, AutomatonFactor):
        return None
    if factor.sum_bounds is None:
        pairs = at_most_one(factor)
        return None if pairs is None else at_most_one_of(pairs)
    weights, low, high = factor.sum_bounds
    if sum(int(np.abs(w).max()) for w in weights) > _MAX_WEIGHT:
        return None
    terms = [(v, x, w[x]) for v, w in zip(factor.scope, weights, strict=True) for x in np.flatnonzero(w).tolist()]
    if not terms or (low is None and high is None):
        return None
    return LinearConstraint(np.array(terms, dtype=np.int64), low, high)


def at_most_one_of(pairs: Pairs) -> LinearConstraint:
    """Return the constraint that an assignment selects at most one of some (variable, value) pairs."""
    return LinearConstraint(np.array([(v, x, 1) for v, x in pairs], dtype=np.int64).reshape(-1, 3), None, 1)
