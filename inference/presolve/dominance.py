"""Dead-end elimination: remove a value if another value of the variable is at least as good in every context."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.presolve.tuning import MAX_RIVALS
from dmcmc.inference.presolve.working_problem import WorkingProblem
from dmcmc.inference.runtime.types import Array


def remove_dominated(working: WorkingProblem) -> int:
    """Remove dominated values of all variables that share tables only within their agent; return the number of values.

    Value x is dominated by y if Σ_f min over the other variables of f(y, ·) − f(x, ·) ≥ 0 (Goldstein's criterion). A
    dominated value is removed at once, so two equal values never both disappear.
    """
    candidates, working.dominance_pending, removed = sorted(working.dominance_pending), set(), 0
    for v in candidates:
        if working.limit.over:
            break
        if working.private[v] and working.touching[v] and len(working.remaining[v]) > 1:
            removed += remove_dominated_values(working, v)
    return removed


def remove_dominated_values(working: WorkingProblem, v: int) -> int:
    """Remove the values of a variable that its rivals dominate; return their number.

    The rivals are the ``MAX_RIVALS`` values with the largest mean utility; every other value is compared with
    each of them.
    """
    removed, tables, order = 0, list[Array](), np.zeros(0, dtype=np.intp)
    for rank in range(MAX_RIVALS):
        if len(working.remaining[v]) <= max(1, rank):
            break
        if order.size != len(working.remaining[v]):
            size = len(working.remaining[v])
            tables = [working.tables[s].swapaxes(s.index(v), 0).reshape(size, -1) for s in working.touching[v]]
            working.limit.charge(len(tables), sum(table.size for table in tables))
            order = np.argsort(-sum((_mean_utilities(table) for table in tables), np.zeros(1)), kind="stable")
        rival = int(order[rank])
        keep = ~_dominated(tables, rival)
        keep[rival] = True
        removed += working.keep(v, keep)
    return removed


def _mean_utilities(table: Array) -> NDArray[np.float64]:
    """Return the mean utility of each value in a table, with a large penalty for each forbidden entry."""
    hard = forbidden(table)
    finite = np.where(hard, 0, table).astype(np.float64)
    penalty = max(1.0, float(np.abs(finite).max(initial=0.0)))
    return np.asarray((finite - 2 * penalty * hard).mean(axis=1))


class _Advantages(NamedTuple):
    """The advantages of a rival over each value of a variable in one table.

    Attributes
    ----------
    least : (values,)
        Least difference of utilities over the contexts in which both are allowed, in the table's dtype; 0 if there is
        no such context.
    impossible : (values,) bool
        Whether the value is forbidden in every context.
    incomparable : (values,) bool
        Whether the rival, but not the value, is forbidden in some context.
    """

    least: Array
    impossible: NDArray[np.bool_]
    incomparable: NDArray[np.bool_]


def _dominated(tables: Sequence[Array], rival: int) -> NDArray[np.bool_]:
    """Return a mask of the values that the rival dominates; it includes the rival itself.

    Sums of integers are exact and cannot overflow, because the working problem limits the sum of all magnitudes. The
    sign of one difference of floats is exact; a sum of differences counts only if it exceeds the rounding error.
    """
    advantages = [_advantages(table, rival) for table in tables]
    never_worse = np.logical_and.reduce([advantage.least >= 0 for advantage in advantages])
    total, slack = sum((advantage.least for advantage in advantages), np.zeros(1, dtype=tables[0].dtype)), 0.0
    if tables[0].dtype.kind == "f":
        largest = sum(float(np.abs(np.where(forbidden(table), 0, table)).max(initial=0.0)) for table in tables)
        slack = 4 * (len(tables) + 1) * np.finfo(np.float64).eps * largest
    impossible = np.logical_or.reduce([advantage.impossible for advantage in advantages])
    incomparable = np.logical_or.reduce([advantage.incomparable for advantage in advantages])
    return np.asarray(~incomparable & (impossible | never_worse | (total >= slack)))


def _advantages(table: Array, rival: int) -> _Advantages:
    """Return the advantages of the rival over each value in a table (values, contexts)."""
    hard = forbidden(table)
    both_allowed = ~(hard | hard[rival])
    finite = np.where(hard, 0, table)
    never = np.inf if table.dtype.kind == "f" else np.iinfo(table.dtype).max
    differences = np.where(both_allowed, finite[rival] - finite, never).min(axis=1)
    least = np.where(both_allowed.any(axis=1), differences, 0)
    only_rival = ~hard & hard[rival]
    return _Advantages(least, np.asarray(hard.all(axis=1)), np.asarray(only_rival.any(axis=1)))
