# mypy: ignore-errors
"""Draw start assignments backwards through the mini-bucket tables of an elimination on a GPU: one thread per chain.

Variables are drawn in reverse elimination order. Each is drawn given the later ones, by exp(sum of its mini-buckets'
entries / temperature): Gumbel noise is added to every value's sum, and the largest sum wins (the Gumbel-max trick).
"""

import math

import numpy as np
from numba import cuda

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.samplers.blocks.mini_bucket_starts_kernels import SALT_BITS, START_SALT
from dmcmc.samplers.model.rng_kernels import philox, uniform


@cuda_jit()
def draw_chains(
    domains, scope_start, scope, table_at, variable, input_start, inputs, arena, lowest, temperatures, numbers,
    chains, n, key0, key1, states, begin, end,
):  # fmt: skip
    """Draw the eliminated variables of all chains as ``draw_backward`` does on the CPU; thread t draws chain t.

    A value with a forbidden entry is drawn only if all values have one; then the fewest forbidden entries win.

    Parameters
    ----------
    domains, scope_start, scope, table_at, variable, input_start, inputs : int64 arrays
        The elimination program, see ``dmcmc.inference.elimination.plan.BucketProgram``; ``table_at`` is its ``at``.
    arena : (entries,) int64
        The tables of the elimination.
    lowest : int
        The representation of −∞ in the arena; entries below half of it are forbidden.
    temperatures : (chains,) float64
        Temperature of each chain's start, in the units of the tables; 0 takes the best value, on a tie the smallest.
    numbers : (chains,) int64
        Counter of the random numbers of each chain's start.
    chains, n : int
        Number of chains and of variables.
    key0, key1 : uint64
        Key of the random numbers.
    states : (chains · n,) int32
        Receives the values, chain after chain. Values of the variables that are not eliminated are given.
    begin, end : int
        This launch draws from buckets ``end`` - 1 down to ``begin``. The range has all mini-buckets of each of its
        variables.
    """
    chain = cuda.grid(1)
    if chain >= chains:
        return
    temperature, number, first = temperatures[chain], numbers[chain], chain * n
    b = end - 1
    while b >= begin:
        v, last_bucket = variable[b], b
        while b >= begin and variable[b] == v:
            b -= 1
        best_value, best_total, fewest_violations = 0, 0.0, 0
        for x in range(domains[v]):
            total, violations = 0.0, 0
            for k in range(last_bucket, b, -1):
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
                word = philox(key0, key1, chain, number << SALT_BITS | START_SALT, v, x)[0]
                total -= temperature * math.log(-math.log(uniform(word)))
            if x == 0 or violations < fewest_violations or (violations == fewest_violations and total > best_total):
                best_value, best_total, fewest_violations = x, total, violations
        states[first + v] = best_value
