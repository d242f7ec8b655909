# mypy: ignore-errors
"""Draw start assignments backwards through the tables of a mini-bucket elimination, on the CPU or on a GPU.

The elimination has one or more mini-buckets per variable. Variables are drawn in reverse elimination order. Each is
drawn given the later ones with probability proportional to exp(sum of its mini-buckets' entries / temperature), by the
Gumbel-max trick: Gumbel noise is added to every value's sum, and the largest sum wins.
"""

import math

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.state_kernels import philox, uniform

START_SALT = 3  # low bits of the second counter word of the random numbers: no other draw with this key has these bits
SALT_BITS = 3  # number of these bits; the number of the start is in the bits above


@njit(nogil=True, allocates=False)
def draw_backward(
    domains, scope_start, scope, table_at, variable, input_start, inputs, arena, lowest, temperature, key0, key1,
    chain, number, values, first, begin, end,
):  # fmt: skip
    """Draw the variables of the buckets ``end`` − 1 down to ``begin``, each given those drawn before it.

    Consecutive buckets of one variable are its mini-buckets. The variable is the first axis of each of their input
    tables. The function runs on the CPU, and in each thread on a GPU.

    Parameters
    ----------
    domains, scope_start, scope, table_at, variable, input_start, inputs : int64 arrays
        The elimination, see ``dmcmc.inference.elimination.plan.BucketProgram``; ``table_at`` is its ``at``.
    arena : (entries,) int64
        All tables of the elimination.
    lowest : int
        The representation of −∞ in the arena; entries below half of it are forbidden. A value with a forbidden entry is
        drawn only if all values have one; then the fewest forbidden entries win.
    temperature : float
        In the units of the tables; 0 takes the best value, on a tie the smallest.
    key0, key1 : uint64
        Key of the random numbers.
    chain, number : int
        The chain and the number of its start; with variable and value they are the counter of the random numbers.
    values : integers
        Receives the values of the drawn variables; the values of the other variables are given. Those of the chain
        begin at ``values[first]``.
    begin, end : int
        The buckets; they are all mini-buckets of each of their variables.
    """
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
                        at += values[first + u] * step
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
        values[first + v] = best_value
