"""Dead-end elimination: a value goes if another of the same variable is at least as good whatever the others do."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.presolve.working_problem import Network
from dmcmc.inference.runtime.types import Array

RIVALS = 2  # values that all others of a variable are held against: the work stays linear in the tables


def remove_dominated(network: Network) -> int:
    """Take out dominated values of every variable that only its own agent meets; return how many went.

    Value x is dominated by y if Σ_f min over the others of f(y, ·) − f(x, ·) is not negative (Goldstein's criterion).
    What is dominated goes at once, so two equal values never both go.
    """
    waiting, network.unheld, gone = sorted(network.unheld), set(), 0
    for v in waiting:
        if network.limit.over:
            break
        if network.private[v] and network.touching[v] and len(network.left[v]) > 1:
            gone += remove_of(network, v)
    return gone


def remove_of(network: Network, v: int) -> int:
    """Hold a variable's values against the most promising ones; return how many went."""
    gone, tables, order = 0, list[Array](), np.zeros(0, dtype=np.intp)
    for rank in range(RIVALS):
        if len(network.left[v]) <= max(1, rank):
            break
        if order.size != len(network.left[v]):
            size = len(network.left[v])
            tables = [network.tables[s].swapaxes(s.index(v), 0).reshape(size, -1) for s in network.touching[v]]
            network.limit.charge(len(tables), sum(table.size for table in tables))
            order = np.argsort(-sum((_promise(table) for table in tables), np.zeros(1)), kind="stable")
        rival = int(order[rank])
        keep = ~_dominated(tables, rival)
        keep[rival] = True
        gone += network.keep(v, keep)
    return gone


def _promise(table: Array) -> NDArray[np.float64]:
    """Return each value's mean utility in a table; −∞ where all is forbidden, a large price for what is."""
    hard = forbidden(table)
    finite = np.where(hard, 0, table).astype(np.float64)
    price = max(1.0, float(np.abs(finite).max(initial=0.0)))
    return np.asarray((finite - 2 * price * hard).mean(axis=1))


def _dominated(tables: Sequence[Array], rival: int) -> NDArray[np.bool_]:
    """Return the values than which the rival is never worse; the rival is one of them.

    The sign of a float difference is exact, that of a sum of them only where it exceeds the rounding.
    """
    leads = [_lead(table, rival) for table in tables]
    never = np.logical_and.reduce([lead >= 0 for lead in leads])
    total, slack = sum(leads, np.zeros(1)), 0.0
    if tables[0].dtype.kind == "f":
        largest = sum(float(np.abs(np.where(forbidden(table), 0, table)).max(initial=0.0)) for table in tables)
        slack = 4 * (len(tables) + 1) * np.finfo(np.float64).eps * largest
    return np.asarray(never | (total >= slack))


def _lead(table: Array, rival: int) -> NDArray[np.float64]:
    """Return at least how much better the rival is than each value in a table; ∞ where a value is always forbidden."""
    hard = forbidden(table)
    worse = ~hard & hard[rival]  # where the rival alone is forbidden
    finite = np.where(hard, 0, table)
    more = (finite[rival] - finite).astype(np.float64)
    return np.asarray(np.where(hard, np.inf, np.where(worse, -np.inf, more)).min(axis=1))
