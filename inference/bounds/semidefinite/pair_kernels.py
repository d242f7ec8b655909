# mypy: ignore-errors
"""CPU kernels for the maxima of all pairwise tables: smoothed in single precision with their weights, and exact.

A descent calls ``smooth_pairs`` in every step; a certificate (an exact integer bound) calls ``pair_maxima`` once per
hidden variable. An agent has h hidden variables. Their values are numbered consecutively, n in all, as in
``UtilityMatrix``. Messages move utility from the pairwise to the unary tables.
"""

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.runtime.compile import njit

# Exponent of the softmax weight max(0, 1 + x / POWER)^POWER, which approximates exp(x) and takes five squarings.
POWER = 32


@njit(nogil=True, fastmath=True)
def smooth_pairs(utilities, products, messages, inverse_temperature, starts, weights, marginals, maxima):
    """Compute the softmax weights of each pairwise table's entries, and the tables' maxima.

    The table z of the pair (u, v) is ``utilities + 2 * products`` minus the messages of both variables. The weight of
    an entry is w / Σ w with w = max(0, 1 + β (z - max z) / POWER)^POWER, where β is the inverse temperature.

    Parameters
    ----------
    utilities : (n, n) float32
        Pairwise utilities, in units of the descent.
    products : (n, n) float32
        Inner products of the values' factor vectors.
    messages : (h, n) float32
        ``messages[v, a]``, for a value a of u, is subtracted from the row of a in the table of the pair (u, v). The
        caller adds it to the unary utility of a.
    inverse_temperature : float
        Inverse temperature of the softmax, per unit.
    starts : (h + 1,) int64
        First value of each hidden variable.
    weights : (n, n) float32
        Output, symmetric. The entries of each pair's block sum to one; blocks of a single variable are not written.
    marginals : (h, n) float32
        Output, laid out as ``messages``: sums of the weights over the values of the pair's other variable.
    maxima : (h, h) float32
        Output: maximum of each table, in both orders of the pair.
    """
    h, widest = starts.size - 1, 0
    for u in range(h):
        widest = max(widest, starts[u + 1] - starts[u])
    table = np.empty(widest * widest, dtype=np.float32)
    factor, one, zero = np.float32(inverse_temperature / POWER), np.float32(1), np.float32(0)
    for u in range(h):
        start_u, size_u = starts[u], starts[u + 1] - starts[u]
        for v in range(u + 1, h):
            start_v, size_v = starts[v], starts[v + 1] - starts[v]
            for i in range(size_u):
                message = messages[v, start_u + i]
                for j in range(size_v):
                    entry = utilities[start_u + i, start_v + j] + np.float32(2) * products[start_u + i, start_v + j]
                    table[i * size_v + j] = entry - message - messages[u, start_v + j]
            count = size_u * size_v
            best = table[0]
            for k in range(count):
                best = max(best, table[k])
            maxima[u, v] = maxima[v, u] = best
            mass = zero
            for k in range(count):
                x = max(zero, one + (table[k] - best) * factor)
                x = x * x  # five squarings: x^POWER
                x = x * x
                x = x * x
                x = x * x
                x = x * x
                table[k] = x
                mass += x
            scale = one / mass
            for j in range(size_v):
                marginals[u, start_v + j] = zero
            for i in range(size_u):
                row_mass = zero
                for j in range(size_v):
                    x = table[i * size_v + j] * scale
                    weights[start_u + i, start_v + j] = x
                    row_mass += x
                    marginals[u, start_v + j] += x
                marginals[v, start_u + i] = row_mass
            for j in range(size_v):
                for i in range(size_u):
                    weights[start_v + j, start_u + i] = table[i * size_v + j] * scale


@njit(nogil=True, allocates=False)
def pair_maxima(utilities, products, messages, bits, starts, u):
    """Return the sum of the exact maxima of u's pairwise tables with later variables, in multiples of 2^-bits.

    A table has the entries utilities · 2^bits + 2 products - messages of both values. The result is ``MINUS_INFINITY``
    if one of these tables has no allowed entry.

    Parameters
    ----------
    utilities : (n, n) int32
        Pairwise utilities; entries below ``FORBIDDEN_BELOW`` are forbidden.
    products : (d, values of later variables) float64
        Integer inner products of u's d values with all later values, in multiples of 2^-bits of a utility.
    messages : (h, n) int64
        Messages, in multiples of 2^-bits of a utility; laid out as in ``smooth_pairs``.
    bits : int
        Fraction bits of products and messages.
    starts : (h + 1,) int64
        First value of each hidden variable.
    u : int
        The first variable of the pairs.
    """
    h, total = starts.size - 1, np.int64(0)
    start_u, size_u, later = starts[u], starts[u + 1] - starts[u], starts[u + 1]
    for v in range(u + 1, h):
        best = np.int64(MINUS_INFINITY)
        for i in range(size_u):
            message = messages[v, start_u + i]
            for b in range(starts[v], starts[v + 1]):
                utility = np.int64(utilities[start_u + i, b])
                if utility >= FORBIDDEN_BELOW:
                    best = max(
                        best, (utility << bits) + 2 * np.int64(products[i, b - later]) - message - messages[u, b]
                    )
        if best == MINUS_INFINITY:
            return best
        total += best
    return total
