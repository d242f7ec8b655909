# mypy: ignore-errors
"""Values drawn backward through an elimination's tables."""

import math

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.rng_kernels import philox, uniform

SALT, SHIFT = 3, 3  # below the number: no other draw with this key has it


@njit(nogil=True)
def draw_backward(program, arena, values, lowest, temperature, key, chain, number):
    """Draw every eliminated variable, last bucket first, given those that were drawn before it.

    Parameters
    ----------
    values : (variables,) int64
        Filled.
    lowest : int
        −∞ in the arena: what has it is drawn only where nothing else is left.
    temperature : float
        0 takes the best value, ties to the lowest; else by exp(sum of all mini-buckets / temperature), with Gumbel's
        noise.
    key, chain, number
        Key random numbers; so does the variable.
    """
    b = program.variable.size - 1
    widest = 1
    for v in program.variable:
        widest = max(widest, program.domains[v])
    total, hard = np.empty(widest), np.empty(widest)
    while b >= 0:
        v = program.variable[b]
        size = program.domains[v]
        total[:size] = 0.0
        hard[:size] = 0.0
        while b >= 0 and program.variable[b] == v:
            for i in range(program.input_start[b], program.input_start[b + 1]):
                t = program.inputs[i]
                at, step = program.at[t], 1
                for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
                    u = program.scope[s]
                    at += values[u] * step
                    step *= program.domains[u]
                for x in range(size):
                    entry = arena[at + x * step]
                    if entry < lowest // 2:
                        hard[x] += 1.0
                    else:
                        total[x] += entry
            b -= 1
        if temperature > 0:
            for x in range(size):
                word = philox(key[0], key[1], chain, number << SHIFT | SALT, v, x)[0]
                total[x] -= temperature * math.log(-math.log(uniform(word)))
        best = 0
        for x in range(1, size):
            if hard[x] < hard[best] or (hard[x] == hard[best] and total[x] > total[best]):
                best = x
        values[v] = best
