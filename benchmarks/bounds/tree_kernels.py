# mypy: ignore-errors
"""The passes of cases' steps on the CPU, in single precision, and exact maxima; laid out as in own/steps.py."""

import numba
import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.bounds.semidefinite.pair_kernels import POWER
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import DAMPED, DEEP, LEAST_LENGTH, MOMENTUM, SPREAD

_F, _LOW = np.float32, np.float32(-1e30)
_DAMPED, _DEEP, _LEAST = _F(DAMPED), _F(-DEEP), _F(LEAST_LENGTH)
_MOMENTUM, _FRESH, _SPREAD, _NEW = _F(MOMENTUM), _F(1 - MOMENTUM), _F(SPREAD), _F(1 - SPREAD)
_POWER, _DOUBLED = int(POWER), 8  # (1 + x/256)^256 stands in for an exponential: processors have no vectors of those
_compiled = numba.njit(parallel=True, fastmath=True, cache=True, error_model="numpy")
_inlined = numba.njit(fastmath=True, cache=True, error_model="numpy")


@_inlined
def table_of(utilities, products, shifts, sizes, u, v, d, table):
    """Set a pair's table with its square and shifts."""
    for i in range(sizes[u]):
        a = u * d + i
        for j in range(sizes[v]):
            b = v * d + j
            table[i, j] = utilities[a, b] + _F(2) * products[a, b] - shifts[v, a] - shifts[u, b]


@_compiled
def reach_of(utilities, agents, products, shifts, sizes, d, slope, reached):
    """Set the smooth maxima of each value's entries in the tables of its pairs."""
    h, steep = sizes.shape[1], slope / _F(1 << _DOUBLED)
    for at in numba.prange(sizes.shape[0] * h):
        c, u = at // h, at % h
        table, best, total = np.empty((d, d), dtype=_F), np.empty(d, dtype=_F), np.empty(d, dtype=_F)
        for v in range(h):
            if v == u or sizes[c, u] == 0 or sizes[c, v] == 0:
                continue
            table_of(utilities[agents[c]], products[c], shifts[c], sizes[c], u, v, d, table)
            best[:], total[:] = _LOW, _F(0)
            for i in range(sizes[c, u]):
                for j in range(sizes[c, v]):
                    best[j] = max(best[j], table[i, j])
            for i in range(sizes[c, u]):
                for j in range(sizes[c, v]):
                    x = max(_F(0), _F(1) + (table[i, j] - best[j]) * steep)
                    for _ in range(_DOUBLED):
                        x *= x
                    total[j] += x
            for j in range(sizes[c, v]):
                reached[c, u, v * d + j] = best[j] + np.log(total[j]) / slope


@_compiled
def alone_of(products, shifts, reached, values, sizes, d, slope, weights, best):
    """Shift what values reach in their tables towards their mean; set how much each value counts by itself."""
    h, n = sizes.shape[1], values.shape[1]
    for at in numba.prange(sizes.shape[0] * h):
        c, w = at // h, at % h
        k, start, many = sizes[c, w], w * d, _F(np.sum(sizes[c] > 0))
        if k == 0:
            continue
        own, mean = np.empty(k, dtype=_F), np.empty(k, dtype=_F)
        for i in range(k):
            a = start + i
            own[i] = products[c, a, a] + _F(2) * products[c, a, n] + values[c, a]
            for v in range(h):
                if v != w and sizes[c, v] > 0:
                    own[i] += shifts[c, v, a]
        top = own.max()
        for i in range(k):
            mean[i] = max(own[i] - top, _DEEP)
        for v in range(h):
            if v != w and sizes[c, v] > 0:
                there = reached[c, v, start : start + k]
                high = there.max()
                for i in range(k):
                    there[i] = max(there[i] - high, _DEEP)
                    mean[i] += there[i]
        mean /= many
        for v in range(h):
            if v != w and sizes[c, v] > 0:
                for i in range(k):
                    moved = _DAMPED * (reached[c, v, start + i] - mean[i])
                    shifts[c, v, start + i] += moved
                    own[i] += moved
        top = own.max()
        share = np.exp((own - top) * slope)
        share /= share.sum()
        for i in range(k):
            a = start + i
            weights[c, a, a] = weights[c, a, n] = weights[c, n, a] = share[i]
        best[c, w] = top


@_compiled
def smooth_of(utilities, agents, products, shifts, sizes, d, slope, weights, maxima):
    """Set how much each entry of a pair's table counts in its maximum, and the maxima."""
    h, steep = sizes.shape[1], slope / _F(_POWER)
    for at in numba.prange(sizes.shape[0] * h):
        c, u = at // h, at % h
        table = np.empty((d, d), dtype=_F)
        for v in range(u + 1, h):
            if sizes[c, u] == 0 or sizes[c, v] == 0:
                continue
            table_of(utilities[agents[c]], products[c], shifts[c], sizes[c], u, v, d, table)
            best, total = _LOW, _F(0)
            for i in range(sizes[c, u]):
                for j in range(sizes[c, v]):
                    best = max(best, table[i, j])
            for i in range(sizes[c, u]):
                for j in range(sizes[c, v]):
                    x = max(_F(0), _F(1) + (table[i, j] - best) * steep)
                    y = x
                    for _ in range(_POWER - 1):
                        y *= x
                    table[i, j] = y
                    total += y
            for i in range(sizes[c, u]):
                for j in range(sizes[c, v]):
                    y = table[i, j] / total
                    weights[c, u * d + i, v * d + j] = weights[c, v * d + j, u * d + i] = y
            maxima[c, u, v] = maxima[c, v, u] = best


@_compiled
def move_all(points, slopes, means, spreads, step, even):
    """Move vectors against the means of their slopes, as if all of a vector's entries had its spread."""
    cases, rows, width = points.shape
    for at in numba.prange(cases * rows):
        c, i = at // rows, at % rows
        square = _F(0)
        for j in range(width):
            square += slopes[c, i, j] * slopes[c, i, j]
        spreads[c, i] = _SPREAD * spreads[c, i] + _NEW * square / _F(width)
        length = step / (np.sqrt(spreads[c, i]) * even + _LEAST)
        for j in range(width):
            mean = _MOMENTUM * means[c, i, j] + _FRESH * slopes[c, i, j]
            means[c, i, j] = mean
            points[c, i, j] -= length * mean


@numba.njit(parallel=True, cache=True)
def exact_maxima(utilities, agents, products, shifts, sizes, bits, d, found):
    """Set the maxima of all pairs' tables in whole numbers."""
    h = sizes.shape[1]
    for at in numba.prange(sizes.shape[0] * h):
        c, u = at // h, at % h
        for v in range(u + 1, h):
            if sizes[c, u] == 0 or sizes[c, v] == 0:
                continue
            best = np.int64(NEVER)
            for i in range(sizes[c, u]):
                a = u * d + i
                for j in range(sizes[c, v]):
                    b = v * d + j
                    utility = np.int64(utilities[agents[c], a, b])
                    if utility >= THRESHOLD:
                        x = (utility << (2 * bits[c])) + 2 * np.int64(products[c, a, b])
                        best = max(best, x - shifts[c, v, a] - shifts[c, u, b])
            found[c, u, v] = best
