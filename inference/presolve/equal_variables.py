"""Merge variables that must have equal values, without tables: global constraints and automata keep their form.

Presolve of tables merges equivalent variables too (:mod:`dmcmc.inference.presolve.equivalent_variables`), but only in
problems that consist of tables. A calendar also has limits over many meetings, and a variable for each participant of a
meeting.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden, normalise
from dmcmc.inference.presolve.presolve import PresolvedProblem, RemovalCounts
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES


def merge_equal_variables(problem: Problem) -> PresolvedProblem | None:
    """Replace variables that a hard table forces to have equal value indices by the first one of them.

    A table forces two variables to be equal if it allows the diagonal only. Tables over one scope that forbid entries
    and have no other utilities are joined to one.

    Returns
    -------
    PresolvedProblem or None
        The problem with fewer variables; None if no variables are merged.
    """
    parent = list(range(problem.n_variables))
    equalities = [factor for factor in problem.factors if _is_equality(factor)]
    for factor in equalities:
        a, b = sorted(_root(parent, v) for v in factor.scope)
        parent[b] = a
    roots = [_root(parent, v) for v in range(problem.n_variables)]
    kept = [v for v, root in enumerate(roots) if v == root]
    if len(kept) == problem.n_variables:
        return None
    number = {v: i for i, v in enumerate(kept)}
    new = np.array([number[root] for root in roots], dtype=np.int64)
    factors = _joined([_renumbered(factor, new) for factor in problem.factors])
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


def _root(parent: list[int], v: int) -> int:
    """Return the representative of a variable's group; shortens the paths (union by the smallest number)."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


def _is_equality(factor: Factor) -> bool:
    """Return whether a factor is a table that allows equal value indices of two variables only."""
    if type(factor) is not Factor or len(factor.scope) != 2 or factor.table.shape[0] != factor.table.shape[1]:
        return False
    if factor.table.size > MAX_EXAMINED_ENTRIES:
        return False
    allowed = ~forbidden(factor.table)
    return bool(allowed.diagonal().all()) and int(np.count_nonzero(allowed)) == len(allowed)


def _renumbered(factor: Factor, new: NDArray[np.int64]) -> Factor:
    """Return a factor over the kept variables; a table over a variable twice becomes its diagonal."""
    scope = [int(new[v]) for v in factor.scope]
    if len({*scope}) == len(scope):
        return factor.renamed(scope, factor.name)
    table, axes = factor.table, list(scope)
    while len({*axes}) < len(axes):
        i, j = next((i, j) for i in range(len(axes)) for j in range(i + 1, len(axes)) if axes[i] == axes[j])
        table = np.diagonal(table, axis1=i, axis2=j)  # the common axis comes last
        axes = [*(v for k, v in enumerate(axes) if k not in (i, j)), axes[i]]
    return Factor(tuple(axes), normalise(np.ascontiguousarray(table)), factor.name)


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
