"""Solve rows exactly after pruning, by variable elimination on the values that remain.

A row is one assignment of an agent's boundary variables (its interface). Pruning has left few values of the agent's
hidden variables in many rows, so that eliminating these variables is cheap. The cells of an elimination are the entries
of the joined tables that it creates.
"""

from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import Pruned
from dmcmc.inference.bounds.tuning.mini_buckets import MAX_PLANS, ORDER_BUDGET
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.threads import run_parallel


def solve_residual(
    local: Subproblem,
    pruned: Pruned,
    arithmetic: Arithmetic,
    cells: int,
    threads: int = 1,
    stop: Deadline = NO_DEADLINE,
) -> int:
    """Solve the rows that need the fewest table cells exactly, and lower the rows' bounds.

    A solved row's bound becomes its exact utility. If that does not reach the row's threshold, the bound becomes the
    threshold, minus 1 for integer utilities, since pruning may have removed better values below the threshold.

    Parameters
    ----------
    local : Subproblem
    pruned : Pruned
        The rows, with their thresholds and remaining values. Bounds are lowered in ``pruned.state``.
    arithmetic : Arithmetic
        The number type and encoding of the tables' entries.
    cells : int
        Upper limit on the entries of the joined tables that the eliminations of all solved rows create.
    threads : int
        Rows that are eliminated in parallel.
    stop : Deadline
        Deadline: rows that are not solved by then keep their bounds.

    Returns
    -------
    int
        Number of rows that remain unsolved.
    """
    tables = [arithmetic.encode(f) for f in local.factors]
    selected = _affordable(local, tables, pruned, cells, stop)
    utilities: list[int | float | None] = [None] * len(selected)

    def solve(i: int) -> None:
        """Eliminate the i-th selected row, unless the deadline passes."""
        plan, k = selected[i]
        restricted = _restricted(local, tables, pruned, k)
        try:
            total = eliminate(restricted, plan, arithmetic, stop=stop).total()
        except OutOfTime:
            return
        utilities[i] = -np.inf if arithmetic.is_lowest(total) else arithmetic.outward(total, len(tables))

    run_parallel([partial(solve, i) for i in range(len(selected))], threads, stop)
    rows, bounds = [], []
    for (_, k), value in zip(selected, utilities, strict=True):
        if value is None:
            continue
        threshold = pruned.thresholds[k : k + 1].tolist()[0]
        rows.append(int(pruned.rows[k]))
        bounds.append(max(value, threshold - 1 if pruned.state.integral else threshold))
    pruned.state.lower(rows, bounds)
    return int(pruned.rows.size - len(rows))


def _affordable(
    local: Subproblem, tables: Sequence[EncodedTable], pruned: Pruned, remaining_cells: int, stop: Deadline
) -> list[tuple[EliminationPlan, int]]:
    """Return the elimination plans of the rows with the fewest cells, with each row's position in ``pruned``.

    Together the plans have at most ``remaining_cells`` cells. All rows use the elimination order of the first one.

    At most ``MAX_PLANS`` plans are held at any time, since there may be a million rows.
    """
    scopes = [tuple(v for v in t.scope if v in set(local.hidden)) for t in tables]
    order: tuple[int, ...] | None = None
    heap: list[tuple[int, int, EliminationPlan]] = []  # the plan with the most cells is popped first
    for k in range(pruned.rows.size):
        if stop.over:
            break
        sizes = _sizes(local, pruned.allowed[k])
        if order is None:
            order = best_order(scopes, sizes, local.hidden, budget=ORDER_BUDGET).variables
        plan = plan_elimination(scopes, sizes, order)
        heappush(heap, (-plan.cells, -k, plan))
        remaining_cells -= plan.cells
        while heap and (remaining_cells < 0 or len(heap) > MAX_PLANS):
            remaining_cells -= heappop(heap)[0]
    return [(plan, -k) for _, k, plan in sorted(heap, key=lambda row: (-row[0], -row[1]))]


def _sizes(local: Subproblem, allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the domain sizes of all variables, counting only the remaining values of the hidden ones, at least 1.

    ``allowed`` is (hidden, W) bool: the remaining values of one row.
    """
    sizes = local.domains.copy()
    for i, v in enumerate(local.hidden):
        sizes[v] = max(1, int(allowed[i].sum()))
    return sizes


def _restricted(local: Subproblem, tables: Sequence[EncodedTable], pruned: Pruned, k: int) -> list[EncodedTable]:
    """Return the tables conditioned on the k-th row and restricted to the remaining values of the hidden variables."""
    digits = np.unravel_index(int(pruned.rows[k]), local.interface_shape) if local.interface else ()
    fixed = dict(zip(local.interface, (int(d) for d in digits), strict=True))
    values = {v: np.flatnonzero(pruned.allowed[k, i]) for i, v in enumerate(local.hidden)}
    restricted = []
    for scope, entries in tables:
        index = np.ix_(*(np.array([fixed[v]]) if v in fixed else values[v] for v in scope)) if scope else ()
        part = entries[index]
        hidden = tuple(v for v in scope if v not in fixed)
        restricted.append(EncodedTable(hidden, np.ascontiguousarray(part).reshape([values[v].size for v in hidden])))
    return restricted
