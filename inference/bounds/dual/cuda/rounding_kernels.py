# mypy: ignore-errors
"""GPU kernel that rounds tables to assignments, one thread per row.

It calls the CPU's function ``round_row``. The workspace arrays have the rows as last axis, so that neighbouring threads
access neighbouring entries.
"""

from numba import cuda

from dmcmc.inference.bounds.dual.rounding_kernels import RoundingWorkspace, round_row
from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.runtime.compile import cuda_jit


@cuda_jit()
def round_rows_kernel(
    domains, scope_start, scope, stride, table_start, data, start, factor, position, free, marginal_start, rows, noise,
    values, scores, marginals, margins, best_values, counter,
):  # fmt: skip
    """Round rows; thread i rounds ``rows[i]``, and its assignment remains in ``values[:, i]``.

    Parameters
    ----------
    domains, scope_start, scope, stride, table_start, data, start, factor, position : int64
        Fields of the ``FactorGraph`` of the tables, which has no automata.
    free : int
        Number of free variables; they come before the variables that a row fixes.
    marginal_start : (positions,) int64
        For each position of ``scope``, the start of its max-marginal in ``marginals``.
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
    none = data[:0]  # there are no low parts and no transitions
    graph = FactorGraph(
        domains, free, table_start.size - 1, scope_start, scope, stride, table_start, data, none, none, data.size, 0,
        start, factor, position,
    )  # fmt: skip
    workspace = RoundingWorkspace(
        marginal_start,
        values[:, i],
        scores[:, :, i],
        marginals[:, i],
        margins[:, i],
        best_values[:, i],
        counter[:, i],
    )
    round_row(graph, rows[i], noise, workspace)
