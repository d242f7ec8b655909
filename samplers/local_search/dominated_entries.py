"""Entries that no better assignment has are forbidden: each alone loses more than the best assignment does.

Constraints written as large costs become hard ones that way, and temperatures are those of all other utilities.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden, forbidden_value

_MOST = 1 << 24  # entries of all tables: of more there is no second copy
_ROUNDING = 1e-9  # of all utilities together
_PAYS = 8.0  # times as large as what is left: less is no constraint, and changes no temperature


def slack_of(problem: Problem, values: NDArray[np.int64]) -> float:
    """Return what an assignment loses against the sum of all tables' largest entries; ∞ where that says nothing.

    No better assignment has an entry that is by more than that below the largest of its table.

    Parameters
    ----------
    problem
        As dense tables.
    """
    if problem.evaluate(values).violation or sum(f.table.size for f in problem.factors) > _MOST:
        return np.inf
    loss = total = 0.0
    for factor in problem.factors:
        most, entry = float(factor.table.max()), float(factor.table[tuple(values[list(factor.scope)])])
        loss += most - entry
        total += abs(most) + abs(entry)
    return loss + _ROUNDING * total


def without_hopeless(problem: Problem, slack: float) -> Problem:
    """Return a problem whose dense tables forbid what loses more than some utility; itself where that is little.

    Little: where the entries that would go are not much dearer than those that stay.
    """
    if not np.isfinite(slack):
        return problem
    factors, stays, goes = list[Factor](), 0.0, np.inf
    for factor in problem.factors:
        if type(factor) is not Factor or not factor.scope:
            factors.append(factor)
            continue
        table = factor.table
        open_ = ~forbidden(table)
        loss = float(table.max()) - np.where(open_, table, 0).astype(np.float64)
        hopeless = open_ & (loss > slack)
        stays = max(stays, float(loss[open_ & ~hopeless].max(initial=0.0)))
        if hopeless.any():
            goes = min(goes, float(loss[hopeless].min()))
            table = np.where(hopeless, forbidden_value(table.dtype), table).astype(table.dtype)
            table.flags.writeable = False
            factor = Factor(factor.scope, table, factor.name)
        factors.append(factor)
    return replace(problem, factors=tuple(factors)) if _PAYS * stays < goes < np.inf else problem
