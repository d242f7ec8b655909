# mypy: ignore-errors
"""The passes of cases' steps on the CPU, in single precision: what rows' trees come to can be seen without a GPU.

A case takes a core 10 ms a step for 25 variables of 24 values, two thousand times what a GPU takes; bounds are the same
to 0.02 %, by which half precision differs. Between the passes numbers stay in arrays of single precision here; of a
batch's own only those are filled that steps and trees look at.
"""

from typing import Any

import numba
import numpy as np

from dmcmc.inference.bounds.dual.scale import NEVER
from dmcmc.inference.bounds.dual.tables.entries import THRESHOLD
from dmcmc.inference.bounds.semidefinite.own.steps import (
    DAMPED,
    DEEP,
    LEAST_LENGTH,
    MOMENTUM,
    SPREAD,
    CaseGiven,
    CaseShape,
    CaseWork,
    ExactGiven,
    Passes,
)
from dmcmc.inference.bounds.semidefinite.pair_kernels import POWER

SLOPE, STEP, EVEN = range(3)  # what a step has
_F, _LOW = np.float32, np.float32(-1e30)
_DAMPED, _DEEP, _LEAST = _F(DAMPED), _F(-DEEP), _F(LEAST_LENGTH)
_MOMENTUM, _FRESH, _SPREAD, _NEW = _F(MOMENTUM), _F(1 - MOMENTUM), _F(SPREAD), _F(1 - SPREAD)
_POWER, _DOUBLED = int(POWER), 8  # (1 + x/256)^256 stands in for an exponential: processors have no vectors of those
_compiled = numba.njit(parallel=True, fastmath=True, cache=True, error_model="numpy")
_inlined = numba.njit(fastmath=True, cache=True, error_model="numpy")


class NumbaCases:
    """NumPy's arrays and compiled loops; a :class:`dmcmc.inference.bounds.semidefinite.own.steps.CaseArrays`."""

    module: Any = np

    def put(self, array: Any) -> Any:
        """Return a copy."""
        return array.copy()

    def get(self, array: Any) -> Any:
        """Return a copy."""
        return array.copy()

    def passes(self, given: CaseGiven, work: CaseWork, schedule: Any, shape: CaseShape) -> Passes:
        """Return the passes for the steps of a schedule."""
        n, domain = shape.n, shape.d
        products, weights = (np.zeros((shape.cases, shape.m, shape.m), dtype=_F) for _ in range(2))
        slopes, means = np.zeros_like(work.points), np.zeros_like(work.points)
        weights[:, n, n] = 1
        tables = given.utilities, given.agents, products, work.shifts, given.sizes, domain

        def multiply(at: int) -> None:
            np.matmul(work.points, work.points.transpose(0, 2, 1), out=products)
            work.products[:, n, n] = products[:, n, n]

        def alone(at: int) -> None:
            own = given.values, given.sizes, domain, schedule[at, SLOPE], weights, work.best
            alone_of(products, work.shifts, work.reached, *own)

        def move(at: int) -> None:
            move_all(work.points, slopes, means, work.spreads, schedule[at, STEP], schedule[at, EVEN])

        return Passes(
            multiply,
            lambda at: reach_of(*tables, schedule[at, SLOPE], work.reached),
            alone,
            lambda at: smooth_of(*tables, schedule[at, SLOPE], weights, work.maxima),
            lambda at: np.matmul(weights, work.points, out=slopes),
            move,
        )

    def exact_products(self, vectors: Any) -> Any:
        """Return products of vectors in double precision with themselves."""
        return vectors @ vectors.transpose(0, 2, 1)

    def maxima(self, given: ExactGiven, shape: CaseShape) -> Any:
        """Return the exact maxima of pairs whose first variable comes first; NEVER for none."""
        found = np.full((shape.cases, shape.h, shape.h), NEVER, dtype=np.int64)
        exact_maxima(*given, shape.d, found)
        return found


@_inlined
def table_of(utilities: Any, products: Any, shifts: Any, sizes: Any, u: int, v: int, d: int, table: Any) -> None:
    """Set a pair's table with its square and shifts."""
    for i in range(sizes[u]):
        a = u * d + i
        for j in range(sizes[v]):
            b = v * d + j
            table[i, j] = utilities[a, b] + _F(2) * products[a, b] - shifts[v, a] - shifts[u, b]


@_compiled
def reach_of(
    utilities: Any, agents: Any, products: Any, shifts: Any, sizes: Any, d: int, slope: Any, reached: Any
) -> None:
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
def alone_of(
    products: Any,
    shifts: Any,
    reached: Any,
    values: Any,
    sizes: Any,
    d: int,
    slope: Any,
    weights: Any,
    best: Any,
) -> None:
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
def smooth_of(
    utilities: Any, agents: Any, products: Any, shifts: Any, sizes: Any, d: int, slope: Any, weights: Any, maxima: Any
) -> None:
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
def move_all(points: Any, slopes: Any, means: Any, spreads: Any, step: Any, even: Any) -> None:
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
def exact_maxima(
    utilities: Any, agents: Any, products: Any, shifts: Any, sizes: Any, bits: Any, d: int, found: Any
) -> None:
    """Set the maxima of all pairs' tables in whole numbers."""
    h = sizes.shape[1]
    for at in numba.prange(sizes.shape[0] * h):
        c, u = at // h, at % h
        for v in range(u + 1, h):
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
