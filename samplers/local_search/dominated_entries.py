"""Forbid table entries that are dominated by the incumbent: each alone loses more than the incumbent loses in total.

The *loss* of an entry is how far it is below the largest entry of its table.

Constraints written as large costs become hard constraints, so that they do not set the temperatures of the chains.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden, forbidden_value

_MAX_ENTRIES = 1 << 24  # entries of all tables; larger problems are not copied
_ROUNDING = 1e-9  # relative to the sum of the absolute utilities
# Forbid only if the smallest forbidden loss exceeds the largest remaining loss by this factor: otherwise the entries
# are no constraint, and the temperatures do not change.
_MIN_LOSS_RATIO = 8.0


def slack_of(problem: Problem, values: NDArray[np.int64]) -> float:
    """Return the loss of an assignment against the sum of the tables' maxima; ∞ if the assignment gives no bound.

    No better assignment has an entry that is below the maximum of its table by more than this loss. The result includes
    a margin for rounding.

    Parameters
    ----------
    problem : Problem
        A problem of dense tables.
    values : (n,) int64
        The assignment; if it has a violation, or the problem is large, the result is ∞.
    """
    if problem.evaluate(values).violation or sum(f.table.size for f in problem.factors) > _MAX_ENTRIES:
        return np.inf
    loss = total = 0.0
    for factor in problem.factors:
        largest, entry = float(factor.table.max()), float(factor.table[tuple(values[list(factor.scope)])])
        loss += largest - entry
        total += abs(largest) + abs(entry)
    return loss + _ROUNDING * total


def forbid_dominated(problem: Problem, slack: float) -> Problem:
    """Return a problem whose dense tables forbid entries that lose more than ``slack``.

    The problem itself is returned if the entries to forbid are not much worse than those that remain.
    """
    if not np.isfinite(slack):
        return problem
    factors, largest_kept_loss, smallest_forbidden_loss = list[Factor](), 0.0, np.inf
    for factor in problem.factors:
        if type(factor) is not Factor or not factor.scope:
            factors.append(factor)
            continue
        table = factor.table
        allowed = ~forbidden(table)
        loss = float(table.max()) - np.where(allowed, table, 0).astype(np.float64)
        dominated = allowed & (loss > slack)
        largest_kept_loss = max(largest_kept_loss, float(loss[allowed & ~dominated].max(initial=0.0)))
        if dominated.any():
            smallest_forbidden_loss = min(smallest_forbidden_loss, float(loss[dominated].min()))
            table = np.where(dominated, forbidden_value(table.dtype), table).astype(table.dtype)
            table.flags.writeable = False
            factor = Factor(factor.scope, table, factor.name)
        factors.append(factor)
    return (
        replace(problem, factors=tuple(factors))
        if _MIN_LOSS_RATIO * largest_kept_loss < smallest_forbidden_loss < np.inf
        else problem
    )
