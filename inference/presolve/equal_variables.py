"""Merge variables that must have equal values, without tables: global constraints and automata keep their form.

Presolve of tables merges equivalent variables too (:mod:`dmcmc.inference.presolve.presolve`), but only in problems that
consist of tables. A calendar also has limits over many meetings, and a variable for each participant of a meeting.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor, SumBounds, automaton_of_sum
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import MAX_ARRAY_AXES
from dmcmc.inference.model.tables import forbidden, forbidden_value, normalise
from dmcmc.inference.presolve.presolve import PresolvedProblem, RemovalCounts
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES, MAX_EXAMINED_ENTRIES, MIN_COMPRESSION


def merge_equal_variables(problem: Problem) -> PresolvedProblem | None:
    """Replace variables that a hard table forces to have equal value indices by the first one of them.

    A table forces two variables to be equal if it allows the diagonal only. Tables over one scope that forbid entries
    and have no other utilities are joined to one.

    Returns
    -------
    PresolvedProblem or None
        The problem with fewer variables; None if no variables are merged.
    """
    equalities = [factor for factor in problem.factors if _is_equality(factor)]
    while True:
        roots = _roots(problem.n_variables, equalities)
        kept = [v for v, root in enumerate(roots) if v == root]
        number = {v: i for i, v in enumerate(kept)}
        new = np.array([number[root] for root in roots], dtype=np.int64)
        scopes = [new[list(factor.scope)].tolist() for factor in problem.factors]
        found = [_over_merged_variables(factor, scope) for factor, scope in zip(problem.factors, scopes, strict=True)]
        # A group stays as it is if several of its variables are in one factor that has no small form over one variable.
        large = [scope for scope, factor in zip(scopes, found, strict=True) if factor is None]
        unmerged = {v for scope in large for v in scope if scope.count(v) > 1}
        if not unmerged:
            break
        equalities = [factor for factor in equalities if new[factor.scope[0]] not in unmerged]
    if len(kept) == problem.n_variables:
        return None
    factors = _joined([factor for factor in found if factor is not None])
    merged = Problem(
        tuple(problem.variables[v] for v in kept),
        problem.domains[kept],
        problem.agents,
        problem.owner[kept],
        tuple(factors),
        tuple(problem.labels[v] for v in kept),
        problem.sense,
        problem.name,
    )
    removed = RemovalCounts(
        merged=problem.n_variables - len(kept),
        factors=len(problem.factors) - len(factors),
        cells=_cells(problem) - _cells(merged),
    )
    return PresolvedProblem(merged, False, removed, 0, lambda values: values[new])


def _roots(variables: int, equalities: Sequence[Factor]) -> list[int]:
    """Return the first variable of each variable's group."""
    parent = list(range(variables))

    def root(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    for factor in equalities:
        a, b = sorted(root(v) for v in factor.scope)
        parent[b] = a
    return [root(v) for v in range(variables)]


def _is_equality(factor: Factor) -> bool:
    """Return whether a factor is a table that allows equal value indices of two variables only."""
    if type(factor) is not Factor or len(factor.scope) != 2 or factor.table.shape[0] != factor.table.shape[1]:
        return False
    if factor.table.size > MAX_EXAMINED_ENTRIES:
        return False
    allowed = ~forbidden(factor.table)
    return bool(allowed.diagonal().all()) and int(np.count_nonzero(allowed)) == len(allowed)


def _over_merged_variables(factor: Factor, scope: Sequence[int]) -> Factor | None:
    """Return a factor over merged variables, each of which may be several times in ``scope``; None if it is too large.

    A table becomes its diagonal, and a linear constraint adds the weights. Other factors are written out if they are
    small.
    """
    if len({*scope}) == len(scope):
        return factor.renamed(scope, factor.name)
    if isinstance(factor, AutomatonFactor) and factor.sum_bounds is not None:
        return _merged_sum(factor.sum_bounds, scope, factor.name)
    limit = MAX_EXAMINED_ENTRIES if factor.is_tabular else MAX_ENUMERATED_ENTRIES // MIN_COMPRESSION
    if type(factor) is not Factor and (prod(factor.shape) > limit or len(factor.shape) > MAX_ARRAY_AXES):
        return None
    table, axes = factor.table, list(scope)
    while len({*axes}) < len(axes):
        i, j = next((i, j) for i in range(len(axes)) for j in range(i + 1, len(axes)) if axes[i] == axes[j])
        table = np.diagonal(table, axis1=i, axis2=j)  # the common axis comes last
        axes = [*(v for k, v in enumerate(axes) if k not in (i, j)), axes[i]]
    return Factor(tuple(axes), normalise(np.ascontiguousarray(table)), factor.name)


def _merged_sum(bounds: SumBounds, scope: Sequence[int], name: str) -> Factor | None:
    """Return a linear constraint over merged variables; None if its automaton is too large."""
    weights: dict[int, NDArray[np.int64]] = {}
    for v, w in zip(scope, bounds.weights, strict=True):
        weights[v] = weights[v] + w if v in weights else w
    least = {v: int(w.min()) for v, w in weights.items()}
    offset, largest = sum(least.values()), sum(int(w.max()) - least[v] for v, w in weights.items())
    if largest > MAX_EXAMINED_ENTRIES:
        return None
    low, high = (x if x is None else min(max(x - offset, -1), largest + 1) for x in (bounds.low, bounds.high))
    allowed = np.zeros(largest + 1, dtype=np.bool_)
    allowed[max(0, low or 0) : largest + 1 if high is None else high + 1] = True
    utilities = np.where(allowed, 0, forbidden_value(np.dtype(np.int32))).astype(np.int32)
    try:
        automaton = automaton_of_sum([*weights], [w - least[v] for v, w in weights.items()], utilities, name)
    except ResourceError:
        return None
    return AutomatonFactor(automaton.scope, automaton.layers, name, bounds._replace(weights=tuple(weights.values())))


def _joined(factors: list[Factor]) -> list[Factor]:
    """Return factors without those that are always 0, and with one of several equal hard tables over one scope."""
    found: list[Factor] = []
    hard: dict[tuple[int, ...], list[Factor]] = {}
    for factor in factors:
        if type(factor) is Factor:
            if factor.scope and not factor.table.any():
                continue
            if len(factor.scope) > 1 and _is_hard(factor):
                known = hard.setdefault(factor.scope, [])
                if any(other.table is factor.table or np.array_equal(other.table, factor.table) for other in known):
                    continue
                known.append(factor)
        found.append(factor)
    return found


def _is_hard(factor: Factor) -> bool:
    """Return whether a table has no entries other than 0 and −∞."""
    return bool((forbidden(factor.table) | (factor.table == 0)).all())


def _cells(problem: Problem) -> int:
    """Return the number of entries that the factors of a problem store."""
    return sum(array.size for factor in problem.factors for array in factor.arrays())
