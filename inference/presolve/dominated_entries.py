"""Forbid table entries that are dominated by the incumbent: each alone loses more than the incumbent loses in total.

The *loss* of an entry is how far it is below the largest entry of its table.

Constraints written as large costs become hard constraints, so that they do not set the temperatures of the chains.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden, forbidden_value
from dmcmc.inference.presolve.tuning import MIN_LOSS_RATIO
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES

_ROUNDING = 1e-9  # exceeds all rounding errors; relative to the sum of the absolute utilities


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
    if sum(f.table.size for f in problem.factors) > MAX_EXAMINED_ENTRIES or problem.appraise(values)[0].violation:
        return np.inf
    flat = problem.flat
    if not flat.tables:
        return 0.0
    largest = np.maximum.reduceat(flat.data, flat.at[:-1]).astype(np.float64)
    entries = flat.selected_entries(values, flat.strides(problem.domains)).astype(np.float64)
    # Cumulative sums add one number after the other; a pairwise sum would round differently.
    loss, total = np.cumsum(largest - entries)[-1], np.cumsum(np.abs(largest) + np.abs(entries))[-1]
    return float(loss + _ROUNDING * total)


def forbid_dominated(problem: Problem, slack: float) -> Problem:
    """Return a problem whose dense tables forbid entries that lose more than ``slack``.

    The problem itself is returned if the entries to forbid are not much worse than those that remain.
    """
    if not np.isfinite(slack):
        return problem
    dense = [number for number, factor in enumerate(problem.factors) if type(factor) is Factor and factor.scope]
    tables = [problem.factors[number].table for number in dense]
    if not tables:
        return problem
    flat = problem.flat if len(dense) == len(problem.factors) else flatten([()] * len(tables), tables)
    starts, allowed = flat.at[:-1], ~forbidden(flat.data)
    largest = np.repeat(np.maximum.reduceat(flat.data, starts).astype(np.float64), np.diff(flat.at))
    loss = largest - np.where(allowed, flat.data, 0).astype(np.float64)
    dominated = allowed & (loss > slack)
    largest_kept_loss = float(loss[allowed & ~dominated].max(initial=0.0))
    smallest_forbidden_loss = float(loss[dominated].min(initial=np.inf))
    if not MIN_LOSS_RATIO * largest_kept_loss < smallest_forbidden_loss < np.inf:
        return problem
    factors = list(problem.factors)
    for index in np.flatnonzero(np.logical_or.reduceat(dominated, starts)).tolist():
        factor, at = factors[dense[index]], flat.at[index : index + 2]
        table = np.where(
            dominated[at[0] : at[1]].reshape(factor.shape), forbidden_value(factor.table.dtype), factor.table
        ).astype(factor.table.dtype)
        table.flags.writeable = False
        factors[dense[index]] = Factor(factor.scope, table, factor.name)
    return replace(problem, factors=tuple(factors))
