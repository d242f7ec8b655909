# mypy: ignore-errors
"""Values drawn backward through an elimination's tables on an NVIDIA GPU: a thread a chain."""

import math

import numpy as np
from numba import cuda

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.blocks.mini_bucket_starts_kernels import SALT, SHIFT
from dmcmc.samplers.model.rng_kernels import philox, uniform


@cuda_jit()
def draw_chains(
    domains, scope_start, scope, table_at, variable, input_start, inputs, arena, lowest, temperatures, numbers,
    chains, n, key0, key1, zs, begin, end,
):  # fmt: skip
    """Draw the eliminated variables of all chains, as :func:`dmcmc.samplers.blocks.mini_bucket_starts_kernels.draw_backward`.

    Parameters
    ----------
    domains, scope_start, scope, table_at, variable, input_start, inputs
        The program.
    arena : (entries,) int64
    temperatures, numbers : (chains,)
        Of each chain's start.
    zs : (chains · n,) int32
        Filled, all but what is not eliminated, which is given.
    begin, end : int
        Buckets ``end`` - 1 down to ``begin``, with all of a variable's.
    """
    chain = cuda.grid(1)
    if chain >= chains:
        return
    temperature, number, first = temperatures[chain], numbers[chain], chain * n
    b = end - 1
    while b >= begin:
        v, last = variable[b], b
        while b >= begin and variable[b] == v:
            b -= 1
        best, top, least = 0, 0.0, 0
        for x in range(domains[v]):
            total, hard = 0.0, 0
            for k in range(last, b, -1):
                for i in range(input_start[k], input_start[k + 1]):
                    t = inputs[i]
                    at, step = table_at[t], np.int64(1)
                    for s in range(scope_start[t + 1] - 1, scope_start[t], -1):
                        u = scope[s]
                        at += zs[first + u] * step
                        step *= domains[u]
                    entry = arena[at + x * step]
                    if entry < lowest // 2:
                        hard += 1
                    else:
                        total += entry
            if temperature > 0:
                word = philox(key0, key1, chain, number << SHIFT | SALT, v, x)[0]
                total -= temperature * math.log(-math.log(uniform(word)))
            if x == 0 or hard < least or (hard == least and total > top):
                best, top, least = x, total, hard
        zs[first + v] = best
