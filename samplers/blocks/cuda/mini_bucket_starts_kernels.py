# mypy: ignore-errors
"""Draw values backwards through an elimination's tables on an NVIDIA GPU: one thread per chain."""

import math

import numpy as np
from numba import cuda

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.blocks.mini_bucket_starts_kernels import SALT, SHIFT
from dmcmc.samplers.model.rng_kernels import philox, uniform


@cuda_jit()
def draw_chains(
    domains, scope_start, scope, table_at, variable, input_start, inputs, arena, lowest, temperatures, numbers,
    chains, n, key0, key1, states, begin, end,
):  # fmt: skip
    """Draw the eliminated variables of all chains as ``draw_backward`` does on the CPU; thread t draws chain t.

    Parameters
    ----------
    domains, scope_start, scope, table_at, variable, input_start, inputs : int64 arrays
        The elimination program, see ``dmcmc.inference.elimination.plan``.
    arena : (entries,) int64
        Its tables.
    lowest : int
        −∞ in the arena.
    temperatures, numbers : (chains,) float64, (chains,) int64
        Temperature and number of each chain's start.
    chains, n : int
        Number of chains and of variables.
    key0, key1 : uint64
        Key of the random numbers.
    states : (chains · n,) int32
        Receives the values; variables that are not eliminated have theirs.
    begin, end : int
        Buckets ``end`` - 1 down to ``begin``, with all buckets of each variable.
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
        best, top, fewest = 0, 0.0, 0
        for x in range(domains[v]):
            total, violations = 0.0, 0
            for k in range(last, b, -1):
                for i in range(input_start[k], input_start[k + 1]):
                    t = inputs[i]
                    at, step = table_at[t], np.int64(1)
                    for s in range(scope_start[t + 1] - 1, scope_start[t], -1):
                        u = scope[s]
                        at += states[first + u] * step
                        step *= domains[u]
                    entry = arena[at + x * step]
                    if entry < lowest // 2:
                        violations += 1
                    else:
                        total += entry
            if temperature > 0:
                word = philox(key0, key1, chain, number << SHIFT | SALT, v, x)[0]
                total -= temperature * math.log(-math.log(uniform(word)))
            if x == 0 or violations < fewest or (violations == fewest and total > top):
                best, top, fewest = x, total, violations
        states[first + v] = best
