"""Restrict a problem to some values of its variables; the representation of each factor is kept."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import normalise

Values = Sequence[NDArray[np.int64]]


def restrict_domains(problem: Problem, remaining: Values) -> Problem:
    """Return a problem over the remaining values of each variable (ascending); the representation of factors is kept.

    Variables without labels whose values have gaps are labelled with their old indices.
    """
    labels = [
        None if names is None else tuple(names[x] for x in remaining[v]) for v, names in enumerate(problem.labels)
    ]
    all_labels = [
        tuple(remaining[v].tolist()) if names is None and _has_gaps(remaining[v]) else names
        for v, names in enumerate(labels)
    ]
    return Problem(
        variables=problem.variables,
        domains=np.array([len(values) for values in remaining], dtype=np.int64),
        agents=problem.agents,
        owner=problem.owner,
        factors=tuple(restrict_factor(factor, [remaining[v] for v in factor.scope]) for factor in problem.factors),
        labels=tuple(all_labels),
        sense=problem.sense,
        name=problem.name,
    )


def _has_gaps(values: NDArray[np.int64]) -> bool:
    """Return whether ascending values are not 0, 1, 2, ..."""
    return bool(values[-1] != len(values) - 1)


def restrict_factor(factor: Factor, remaining: Values) -> Factor:
    """Return a factor of the same kind over some values of its variables, in the given order."""
    if all(np.array_equal(values, np.arange(size)) for values, size in zip(remaining, factor.shape, strict=True)):
        return factor
    if isinstance(factor, AutomatonFactor | GlobalConstraint):
        return factor.restricted(remaining)
    if isinstance(factor, SparseFactor):
        return _restrict_sparse(factor, remaining)
    return Factor(factor.scope, normalise(factor.table[np.ix_(*remaining)]), factor.name)


def _restrict_sparse(factor: SparseFactor, remaining: Values) -> SparseFactor:
    """Return a sparse factor over the remaining values of its variables."""
    positions, retained = np.zeros_like(factor.tuples), np.ones(len(factor.tuples), dtype=np.bool_)
    for axis, values in enumerate(remaining):
        position = np.full(factor.shape[axis], -1, dtype=np.int64)
        position[values] = np.arange(len(values))
        positions[:, axis] = position[factor.tuples[:, axis]]
        retained &= positions[:, axis] >= 0
    kept = np.flatnonzero(retained)
    kept = kept[np.lexsort(positions[kept].T[::-1])]
    utilities = np.append(factor.utilities[:-1][kept], factor.utilities[-1:])
    utilities.flags.writeable = False
    shape = tuple(len(values) for values in remaining)
    return SparseFactor(factor.scope, shape, np.ascontiguousarray(positions[kept]), utilities, factor.name)
