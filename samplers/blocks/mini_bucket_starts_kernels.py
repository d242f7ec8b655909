# mypy: ignore-errors
"""Draw start assignments backwards through the tables of a mini-bucket elimination, on the CPU.

The elimination has one or more mini-buckets per variable. Variables are drawn in reverse elimination order. Each is
drawn given the later ones with probability proportional to exp(sum of its mini-buckets' entries / temperature), by the
Gumbel-max trick: Gumbel noise is added to every value's sum, and the largest sum wins. The same draw on a GPU is in
``dmcmc.samplers.blocks.cuda.mini_bucket_starts_kernels``.
"""

import math

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.rng_kernels import philox, uniform

START_SALT = 3  # low bits of the second counter word of the random numbers: no other draw with this key has these bits
SALT_BITS = 3  # number of these bits; the number of the start is in the bits above


@njit(nogil=True)
def draw_backward(program, arena, values, lowest, temperature, key, chain, number):
    """Draw every eliminated variable, last bucket first, given those drawn before it.

    Consecutive buckets with the same ``program.variable`` are the mini-buckets of this variable. The variable is the
    first axis of each of their input tables.

    Parameters
    ----------
    program : BucketProgram
        The elimination: bucket b eliminates ``variable[b]``. Its input tables are ``inputs[input_start[b]:input_start[b
        + 1]]``; table t has the scope ``scope[scope_start[t]:scope_start[t + 1]]`` and begins at ``arena[at[t]]``.
    arena : (entries,) int64
        All tables of the elimination.
    values : (variables,) int64
        Receives the values of the eliminated variables; the values of the other variables are given.
    lowest : int
        The representation of −∞ in the arena; entries below half of it are forbidden. A value with a forbidden entry is
        drawn only if all values have one; then the fewest forbidden entries win.
    temperature : float
        In the units of the tables; 0 takes the best value, on a tie the smallest.
    key : (2,) uint64
        Key of the random numbers.
    chain, number : int
        The chain and the number of its start; with variable and value they are the counter of the random numbers.
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
                offset, step = program.at[t], 1
                for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
                    u = program.scope[s]
                    offset += values[u] * step
                    step *= program.domains[u]
                for x in range(size):
                    entry = arena[offset + x * step]
                    if entry < lowest // 2:
                        violations[x] += 1.0
                    else:
                        total[x] += entry
            b -= 1
        if temperature > 0:
            for x in range(size):
                word = philox(key[0], key[1], chain, number << SALT_BITS | START_SALT, v, x)[0]
                total[x] -= temperature * math.log(-math.log(uniform(word)))
        best = 0
        for x in range(1, size):
            if violations[x] < violations[best] or (violations[x] == violations[best] and total[x] > total[best]):
                best = x
        values[v] = best
