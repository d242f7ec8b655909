# mypy: ignore-errors
"""The pass that evaluates hidden assignments on an agent's original factors, a thread a row."""

import numpy as np
from numba import cuda

from dmcmc.inference.runtime.compile import cuda_jit


@cuda_jit()
def evaluate(words, data, states, rows, never, lowest, values):
    """Set the utilities of rows, as :func:`.evaluation_kernels.evaluate_all` does.

    words (int64): the numbers of variables n, of factors m and of hidden variables; domain sizes (n); how many rows
    apart two values of each variable are, 0 of hidden ones (n); where scopes (m + 1) and entries (m + 1) start; scopes.
    """
    number = values.dtype.type
    n, factors, hidden = words[0], words[1], words[2]
    domains = 3
    steps = domains + n
    scope_start = steps + n
    at = scope_start + factors + 1
    scope = at + factors + 1
    for row in range(cuda.grid(1), rows, cuda.gridsize(1)):
        total = number(0)
        for f in range(factors):
            cell = np.int64(0)
            for s in range(words[scope_start + f], words[scope_start + f + 1]):
                v = words[scope + s]
                x = np.int64(states[row * hidden + v]) if v < hidden else row // words[steps + v] % words[domains + v]
                cell = cell * words[domains + v] + x
            entry = data[words[at + f] + cell]
            if entry == never:
                total = lowest
                break
            total = number(total + entry)
        values[row] = total
