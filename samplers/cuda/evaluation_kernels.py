# mypy: ignore-errors
"""Evaluate hidden assignments on an agent's original factors, on the GPU.

A row is an assignment of the agent's boundary variables; sampling has found values of the hidden variables for each
row. The value of a row is the utility of both together. Hidden variables are numbered first.
"""

import numpy as np
from numba import cuda

from dmcmc.inference.runtime.compile import cuda_jit


@cuda_jit()
def evaluate(descriptor, data, states, rows, forbidden, lowest, values):
    """Set the values of rows to the sums of the factors' entries; each thread evaluates rows in a grid-stride loop.

    Parameters
    ----------
    descriptor : (3 + 2n + 2(m + 1) + scope entries,) int64
        Numbers of variables n, of factors m and of hidden variables; n domain sizes; n distances in rows between two
        values of a variable, 0 for hidden ones; m + 1 starts of scopes; m + 1 starts of tables; the scopes.
    data : (entries,) int64 or float64
        The tables.
    states : (rows · hidden,) integers
        Hidden values of each row.
    rows : int
        Number of rows.
    forbidden : scalar
        The value of a forbidden entry in ``data``.
    lowest : scalar
        The value of a row with a forbidden entry.
    values : (rows,) int64 or float64
        Written: the values of the rows.
    """
    number = values.dtype.type
    n, factors, hidden = descriptor[0], descriptor[1], descriptor[2]
    domains = 3
    strides = domains + n
    scope_start = strides + n
    table_start = scope_start + factors + 1
    scope = table_start + factors + 1
    for row in range(cuda.grid(1), rows, cuda.gridsize(1)):
        total = number(0)
        for f in range(factors):
            cell = np.int64(0)
            for s in range(descriptor[scope_start + f], descriptor[scope_start + f + 1]):
                v = descriptor[scope + s]
                x = (
                    np.int64(states[row * hidden + v])
                    if v < hidden
                    else row // descriptor[strides + v] % descriptor[domains + v]
                )
                cell = cell * descriptor[domains + v] + x
            entry = data[descriptor[table_start + f] + cell]
            if entry == forbidden:
                total = lowest
                break
            total = number(total + entry)
        values[row] = total
