# mypy: ignore-errors
"""Maxima of all pairs' tables at once: smooth ones with their weights in single precision, and exact ones."""

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.runtime.compile import njit

POWER = 32  # a weight is (1 + x / POWER)^POWER, 0 below: nearly an exponential, and five products


@njit(nogil=True, fastmath=True)
def smooth_pairs(utilities, products, shifts, slope, starts, weights, marginals):
    """Set how much each entry of a pair's table counts in its maximum; return the sum of the maxima.

    utilities, products (n, n) float32: a pair's table is utilities + 2 products - the shifts of both its variables;
    shifts (h, n) float32: ``shifts[v, a]`` is taken from pair (u, v) and given to value a of u; slope: one over the
    temperature; starts (h + 1,). Out: weights (n, n) float32, symmetric, each pair's block adds up to one; marginals
    (h, n) float32, laid out as shifts, the sums of weights over the other variable. Blocks of one variable are not
    touched.
    """
    h, widest = starts.size - 1, 0
    for u in range(h):
        widest = max(widest, starts[u + 1] - starts[u])
    table = np.empty(widest * widest, dtype=np.float32)
    total, factor, one, nothing = 0.0, np.float32(slope / POWER), np.float32(1), np.float32(0)
    for u in range(h):
        mine, many = starts[u], starts[u + 1] - starts[u]
        for v in range(u + 1, h):
            other, more = starts[v], starts[v + 1] - starts[v]
            for i in range(many):
                taken = shifts[v, mine + i]
                for j in range(more):
                    entry = utilities[mine + i, other + j] + np.float32(2) * products[mine + i, other + j]
                    table[i * more + j] = entry - taken - shifts[u, other + j]
            count = many * more
            best = table[0]
            for q in range(count):
                best = max(best, table[q])
            total += best
            mass = nothing
            for q in range(count):
                x = max(nothing, one + (table[q] - best) * factor)
                x = x * x
                x = x * x
                x = x * x
                x = x * x
                x = x * x
                table[q] = x
                mass += x
            part = one / mass
            for j in range(more):
                marginals[u, other + j] = nothing
            for i in range(many):
                row = nothing
                for j in range(more):
                    x = table[i * more + j] * part
                    weights[mine + i, other + j] = x
                    row += x
                    marginals[u, other + j] += x
                marginals[v, mine + i] = row
            for j in range(more):
                for i in range(many):
                    weights[other + j, mine + i] = table[i * more + j] * part
    return total


@njit(nogil=True)
def pair_maxima(utilities, products, shifts, bits, starts, u):
    """Return the sum of the maxima of u's pairs with later variables, exactly; NEVER if one has no live entry.

    utilities (n, n) int32, 2^bits times as large as one of shifts (h, n) int64 and of products (d, later values)
    float64, whole numbers: those of u with all later variables.
    """
    h, total = starts.size - 1, np.int64(0)
    mine, many, later = starts[u], starts[u + 1] - starts[u], starts[u + 1]
    for v in range(u + 1, h):
        best = np.int64(NEVER)
        for i in range(many):
            taken = shifts[v, mine + i]
            for b in range(starts[v], starts[v + 1]):
                utility = np.int64(utilities[mine + i, b])
                if utility >= THRESHOLD:
                    best = max(best, (utility << bits) + 2 * np.int64(products[i, b - later]) - taken - shifts[u, b])
        if best == NEVER:
            return best
        total += best
    return total
