"""Recognise hard linear constraints among factors; toulbar2 propagates them without tables.

A factor is a hard linear constraint if it is 0 where a weighted sum of the selected (variable, value) pairs lies
between two bounds, and forbids all other assignments. Cliques, knapsacks and counts of values are such constraints.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.factor import Factor
from dmcmc.samplers.toulbar2.at_most_one import Pairs, at_most_one

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
