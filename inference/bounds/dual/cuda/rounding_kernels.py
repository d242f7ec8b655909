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
    domains, scope_start, scope, stride, entry_start, data, occurrence_start, occurrences, table_of, marginal_start
        The fields of ``RoundingTables``, in order.
    free : int
        Number of free variables.
    rows : (rows,) int64
    noise : (k, n, largest domain size) int64
        As for ``round_row``.
    values, scores, marginals, margins, best_values, counter
        The fields of ``RoundingWorkspace``, each with a last axis for the rows.
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
