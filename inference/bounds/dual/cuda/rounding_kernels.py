# mypy: ignore-errors
"""GPU kernel that rounds tables to assignments, one thread per row.

It calls the CPU's function ``round_row``. The workspace arrays have the rows as last axis, so that neighbouring threads
access neighbouring entries.
"""

from numba import cuda

from dmcmc.inference.bounds.dual.rounding_kernels import RoundingTables, RoundingWorkspace, round_row
from dmcmc.inference.runtime.compile import cuda_jit


@cuda_jit()
def round_rows_kernel(
    domains, scope_start, scope, stride, entry_start, data, occurrence_start, occurrences, table_of, marginal_start,
    free, rows, noise, values, scores, marginals, margins, best_values, counter,
):  # fmt: skip
    """Round rows; thread i rounds ``rows[i]``, and its assignment remains in ``values[:, i]``.

    Parameters
    ----------
    domains : (n,) int64
        Domain sizes of the free variables, then of those that a row fixes.
    scope_start, scope : (tables + 1,) and (sum of arities,) int64
        Table t has the variables ``scope[scope_start[t]:scope_start[t + 1]]``.
    stride : (sum of arities,) int64
        Distance in ``data`` between neighbouring values of each scope variable.
    entry_start, data : (tables,) and (entries,) int64
        Table t starts at ``data[entry_start[t]]``, in C order.
    occurrence_start, occurrences : (n + 1,) and (sum of arities,) int64
        Variable v stands at the positions ``occurrences[occurrence_start[v]:occurrence_start[v + 1]]`` of ``scope``.
    table_of, marginal_start : (sum of arities,) int64
        For each position of ``scope``, its table and the start of its max-marginal in ``marginals``.
    free : int
        Number of free variables; they come before the variables that a row fixes.
    rows : (rows,) int64
        Row numbers, in C order over the fixed variables.
    noise : (k, n, largest domain size) int64
        Row r adds ``noise[r % k]`` to the scores of the values.
    values : (n, rows) int64
        Receives the assignments.
    scores, marginals, margins, best_values, counter : int64
        Scratch memory, with a last axis for the rows: scores of the values (n, largest domain size), max-marginals of
        the tables, each variable's margin and best value (n,), and a counter over a table's values (largest arity,).
    """
    i = cuda.grid(1)
    if i >= rows.size:
        return
    tables = RoundingTables(
        domains, scope_start, scope, stride, entry_start, data, occurrence_start, occurrences, table_of, marginal_start
    )
    workspace = RoundingWorkspace(
        values[:, i], scores[:, :, i], marginals[:, i], margins[:, i], best_values[:, i], counter[:, i]
    )
    round_row(tables, free, rows[i], noise, workspace)
