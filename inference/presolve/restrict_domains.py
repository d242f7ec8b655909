"""A problem over some of its variables' values."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor, Layer
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import normalise

Values = Sequence[NDArray[np.int64]]


def restricted(problem: Problem, left: Values) -> Problem:
    """Return a problem over the values that are left of each variable, ascending; factors stay of their kinds."""
    labels = [None if own is None else tuple(own[x] for x in left[v]) for v, own in enumerate(problem.labels)]
    named = [tuple(left[v].tolist()) if own is None and _gaps(left[v]) else own for v, own in enumerate(labels)]
    return Problem(
        variables=problem.variables,
        domains=np.array([len(values) for values in left], dtype=np.int64),
        agents=problem.agents,
        owner=problem.owner,
        factors=tuple(_factor(factor, [left[v] for v in factor.scope]) for factor in problem.factors),
        labels=tuple(named),
        sense=problem.sense,
        name=problem.name,
    )


def _gaps(values: NDArray[np.int64]) -> bool:
    return bool(values[-1] != len(values) - 1)


def _factor(factor: Factor, left: Values) -> Factor:
    """Return a factor over the values that are left."""
    if all(len(values) == size for values, size in zip(left, factor.shape, strict=True)):
        return factor
    if isinstance(factor, AutomatonFactor):
        layers = [
            Layer(np.ascontiguousarray(following[:, values]), np.ascontiguousarray(utility[:, values]))
            for (following, utility), values in zip(factor.layers, left, strict=True)
        ]
        return AutomatonFactor(factor.scope, layers, factor.name)
    if isinstance(factor, SparseFactor):
        return _listed(factor, left)
    return Factor(factor.scope, normalise(factor.table[np.ix_(*left)]), factor.name)


def _listed(factor: SparseFactor, left: Values) -> SparseFactor:
    """Return a list of tuples over the values that are left."""
    places, kept = np.zeros_like(factor.tuples), np.ones(len(factor.tuples), dtype=np.bool_)
    for axis, values in enumerate(left):
        place = np.full(factor.shape[axis], -1, dtype=np.int64)
        place[values] = np.arange(len(values))
        places[:, axis] = place[factor.tuples[:, axis]]
        kept &= places[:, axis] >= 0
    utilities = np.append(factor.utilities[:-1][kept], factor.utilities[-1:])
    utilities.flags.writeable = False
    shape = tuple(len(values) for values in left)
    return SparseFactor(factor.scope, shape, np.ascontiguousarray(places[kept]), utilities, factor.name)
