# mypy: ignore-errors
"""Draw values backwards through an elimination's tables."""

import math

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.rng_kernels import philox, uniform

SALT = 3  # low bits of a random-number counter: no other draw with this key uses this salt
SHIFT = 3  # bits of the salt


@njit(nogil=True)
def draw_backward(program, arena, values, lowest, temperature, key, chain, number):
    """Draw every eliminated variable, last bucket first, given those drawn before it.

    Parameters
    ----------
    program : BucketProgram
        The elimination.
    arena : (entries,) int64
        Its tables.
    values : (variables,) int64
        Receives the values; variables that are not eliminated have theirs.
    lowest : int
        −∞ in the arena; a value with such an entry is drawn only if all have one.
    temperature : float
        0 takes the best value, on a tie the smallest; else values are drawn by exp(sum of all mini-buckets /
        temperature), with Gumbel noise.
    key, chain, number
        Key (2,) uint64 and counters of the random numbers; the variable is another one.
    """
    b = program.variable.size - 1
    widest = 1
    for v in program.variable:
        widest = max(widest, program.domains[v])
    total, violations = np.empty(widest), np.empty(widest)
    while b >= 0:
        v = program.variable[b]
        size = program.domains[v]
        total[:size] = 0.0
        violations[:size] = 0.0
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
                        violations[x] += 1.0
                    else:
                        total[x] += entry
            b -= 1
        if temperature > 0:
            for x in range(size):
                word = philox(key[0], key[1], chain, number << SHIFT | SALT, v, x)[0]
                total[x] -= temperature * math.log(-math.log(uniform(word)))
        best = 0
        for x in range(1, size):
            if violations[x] < violations[best] or (violations[x] == violations[best] and total[x] > total[best]):
                best = x
        values[v] = best
