"""Exact values of rows whose variables have few values left: elimination of what pruning left over."""

from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import Pruned
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import Plan, plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.threads import run_parallel

_SEARCH = 300_000  # words of search for a row's order
_MOST = 1 << 14  # plans, of some kilobytes each


def settle(
    local: LocalProblem,
    pruned: Pruned,
    arithmetic: Arithmetic,
    cells: int,
    threads: int = 1,
    stop: Stop = NO_STOP,
) -> int:
    """Eliminate the live values of every row, rows with the fewest cells first, and tell their state the result.

    A row becomes exact, or is known to stay below its threshold.

    Parameters
    ----------
    cells
        Joined table cells for all rows together.
    stop
        When to leave the other rows as they are.

    Returns
    -------
    int
        Rows that this was not enough for.
    """
    tables = [arithmetic.encode(f) for f in local.factors]
    chosen = _affordable(local, tables, pruned, cells, stop)
    totals: list[int | float | None] = [None] * len(chosen)

    def solve(i: int) -> None:
        plan, k = chosen[i]
        values = _restricted(local, tables, pruned, k)
        try:
            total = eliminate(values, plan, arithmetic, stop=stop).total()
        except OutOfTime:
            return
        totals[i] = -np.inf if arithmetic.is_lowest(total) else arithmetic.outward(total, len(tables))

    run_parallel([partial(solve, i) for i in range(len(chosen))], threads, stop)
    rows, bounds = [], []
    for (_, k), value in zip(chosen, totals, strict=True):
        if value is None:
            continue
        limit = pruned.thresholds[k : k + 1].tolist()[0]
        rows.append(int(pruned.rows[k]))
        bounds.append(max(value, limit - 1 if pruned.state.whole else limit))
    pruned.state.lower(rows, bounds)
    return int(pruned.rows.size - len(rows))


def _affordable(
    local: LocalProblem, tables: Sequence[Table], pruned: Pruned, cells: int, stop: Stop
) -> list[tuple[Plan, int]]:
    """Return plans for the rows with the fewest cells, so many that they have ``cells`` in all, and their places.

    No more plans are kept than that, and than :data:`_MOST`: there may be a million rows.
    """
    scopes = [tuple(v for v in t.scope if v in set(local.hidden)) for t in tables]
    order: tuple[int, ...] | None = None
    kept: list[tuple[int, int, Plan]] = []  # a heap, the most cells first
    for k in range(pruned.rows.size):
        if stop.over:
            break
        sizes = _sizes(local, pruned.live[k])
        if order is None:
            order = best_order(scopes, sizes, local.hidden, budget=_SEARCH).variables
        plan = plan_elimination(scopes, sizes, order)
        heappush(kept, (-plan.cells, -k, plan))
        cells -= plan.cells
        while kept and (cells < 0 or len(kept) > _MOST):
            cells -= heappop(kept)[0]
    return [(plan, -k) for _, k, plan in sorted(kept, key=lambda row: (-row[0], -row[1]))]


def _sizes(local: LocalProblem, live: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return domain sizes with live values only."""
    sizes = local.domains.copy()
    for i, v in enumerate(local.hidden):
        sizes[v] = max(1, int(live[i].sum()))
    return sizes


def _restricted(local: LocalProblem, tables: Sequence[Table], pruned: Pruned, k: int) -> list[Table]:
    """Return the tables at a row, over live hidden values."""
    digits = np.unravel_index(int(pruned.rows[k]), local.interface_shape) if local.interface else ()
    fixed = dict(zip(local.interface, (int(d) for d in digits), strict=True))
    values = {v: np.flatnonzero(pruned.live[k, i]) for i, v in enumerate(local.hidden)}
    made = []
    for scope, entries in tables:
        index = np.ix_(*(np.array([fixed[v]]) if v in fixed else values[v] for v in scope)) if scope else ()
        part = entries[index]
        hidden = tuple(v for v in scope if v not in fixed)
        made.append(Table(hidden, np.ascontiguousarray(part).reshape([values[v].size for v in hidden])))
    return made
