# mypy: ignore-errors
"""Gibbs sampling with the mapping of the DMCMC paper (Fig. 4, lines 34-48), to time it against this project's kernel.

A group of blocks works on one run, a group of threads of a block on one row (an assignment of the interface), and each
thread of the group on one value of the variable that is drawn::

    grid   (run, block of rows)         block  (value of the variable, row of the block)
    shared memory:  the state z of each row, and q, the scores and then the weights of all values of each row
    all threads:    q[value] = Σ over the variable's factors, then exp(q[value] − max q)
    one per row:    the maximum, the normalising constant, the draw, the utility of the state, the best state

The paper sums and draws with one thread; so does this kernel. It subtracts the largest score, without which exp
overflows for utilities of some hundreds.
"""

import math
from functools import lru_cache

import numpy as np
from numba import cuda, float32, int32

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.model.state_kernels import philox, uniform


@lru_cache
def block_per_run_kernel(values, rows_per_block, hidden):
    """Return the kernel for domains of ``values`` values, blocks of some rows, and a number of hidden variables."""
    # A shared array of two dimensions has a tuple as its shape, whose parts must be constants for the compiler: names
    # from outside the kernel are, sums of them are not.
    variables = hidden + 1

    @cuda_jit()
    def block_per_run(start, neighbour, column, columns, key, samples, utility, states):
        """Run one chain per run and row; write its best utility and state.

        Parameters
        ----------
        start : (hidden + 1,) int32
            The factors of variable v are ``start[v]`` to ``start[v + 1]``.
        neighbour : (positions,) int32
            The other variable of each factor; ``hidden`` is the interface variable, whose value is the row.
        column : (positions,) int32
            Number of the first column of each factor in ``columns``.
        columns : (columns, values) float32
            Utilities of all values of a variable, for one value of its neighbour.
        key : (2,) uint64
            Key of the random numbers.
        samples : int32
            Sweeps.
        utility : (runs, rows) float32
            Result: the best utility of each chain.
        states : (runs, rows, hidden) int32
            Result: its state.
        """
        z = cuda.shared.array((rows_per_block, variables), int32)
        best = cuda.shared.array((rows_per_block, hidden), int32)
        q = cuda.shared.array((rows_per_block, values), float32)
        top = cuda.shared.array(rows_per_block, float32)
        value, slot = cuda.threadIdx.x, cuda.threadIdx.y
        run, row = cuda.blockIdx.x, cuda.blockIdx.y * rows_per_block + slot
        best_utility = float32(-np.inf)
        if value == 0:
            z[slot, hidden] = row
            for v in range(hidden):
                words = philox(key[0], key[1], row, run, 0, v)
                z[slot, v] = int32(uniform(words[0]) * values)
        cuda.syncthreads()
        for trial in range(1, samples + 1):
            for v in range(hidden):
                score = float32(0.0)
                for i in range(start[v], start[v + 1]):
                    score += columns[column[i] + z[slot, neighbour[i]], value]
                q[slot, value] = score
                cuda.syncthreads()
                if value == 0:
                    top[slot] = q[slot, 0]
                    for other in range(1, values):
                        top[slot] = max(top[slot], q[slot, other])
                cuda.syncthreads()
                q[slot, value] = math.exp(q[slot, value] - top[slot])
                cuda.syncthreads()
                if value == 0:
                    total = float32(0.0)
                    for other in range(values):
                        total += q[slot, other]
                    words = philox(key[0], key[1], row, run, trial, v)
                    remaining = float32(uniform(words[0])) * total
                    new = 0
                    while new < values - 1 and remaining >= q[slot, new]:
                        remaining -= q[slot, new]
                        new += 1
                    z[slot, v] = new
                cuda.syncthreads()
            if value == 0:
                now = float32(0.0)
                for v in range(hidden):
                    for i in range(start[v], start[v + 1]):
                        if neighbour[i] > v:
                            now += columns[column[i] + z[slot, neighbour[i]], z[slot, v]]
                if now > best_utility:
                    best_utility = now
                    for v in range(hidden):
                        best[slot, v] = z[slot, v]
        if value == 0 and row < utility.shape[1]:
            utility[run, row] = best_utility
            for v in range(hidden):
                states[run, row, v] = best[slot, v]

    return block_per_run
