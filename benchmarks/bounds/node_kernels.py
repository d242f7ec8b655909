# mypy: ignore-errors
"""The passes of a step of row nodes on the CPU in single precision, and exact maxima, for ``numba_node_arrays``.

Array arguments, with ``B`` nodes of a batch, ``h`` hidden variables, ``d`` values per variable (variable ``u``, value
``i``: index ``u * d + i``), ``n = h * d`` and ``m`` vectors (index ``n`` is the constant vector):

utilities : (agents, n, n) float32. Pairwise utilities of the agents.
agents : (B,) int. The agent of each node.
products : (B, m, m) float32. Inner products of the factor vectors.
messages : (B, h, n) float32. ``messages[c, v, u * d + i]`` is moved from the table of (u, v) to value i of u.
sizes : (B, h) int. Allowed values of each variable; 0 if it is fixed.
values : (B, n) float32. Utilities of single values.
value_maxima : (B, h, n) float32. Max-marginals: ``value_maxima[c, v, u * d + i]`` is that of value i of u in the
table of (u, v).
weights : (B, m, m) float32. Soft-max weights of the entries: the gradient of the bound with respect to the products.
best : (B, h) float32. The maximum of each variable. maxima : (B, h, h) float32. The maximum of each pair's table.
vectors, gradients, first_moments : (B, m, r) float32. Factor vectors, their gradients and first moments.
second_moments : (B, m) float32. Second moments, averaged over the entries of a vector.
slope : inverse temperature of the smooth maxima.

The layout is that of ``inference/bounds/semidefinite/per_row/node_steps.py``.
"""

import numba
import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.bounds.semidefinite.pair_kernels import POWER
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import (
    ADAM_EPSILON,
    MAX_UTILITY_DROP,
    MESSAGE_DAMPING,
    MOMENTUM,
    SECOND_MOMENT_DECAY,
)

_F, _LOW = np.float32, np.float32(-1e30)
_DAMPED = _F(MESSAGE_DAMPING)
_MIN_DROP = _F(-MAX_UTILITY_DROP)
_EPSILON = _F(ADAM_EPSILON)
_MOMENTUM = _F(MOMENTUM)
_ONE_MINUS_MOMENTUM = _F(1 - MOMENTUM)
_DECAY = _F(SECOND_MOMENT_DECAY)
_ONE_MINUS_DECAY = _F(1 - SECOND_MOMENT_DECAY)
_POWER = int(POWER)
_SQUARINGS = 8  # (1 + x/256)^256 replaces exp(x), which has no vector instruction on CPUs
_compiled = numba.njit(parallel=True, fastmath=True, cache=True, error_model="numpy")
_inlined = numba.njit(fastmath=True, cache=True, error_model="numpy")


@_inlined
def pair_table(utilities, products, messages, sizes, u, v, d, table):
    """Set the table of a pair: utilities plus products minus messages."""
    for i in range(sizes[u]):
        a = u * d + i
        for j in range(sizes[v]):
            b = v * d + j
            table[i, j] = utilities[a, b] + _F(2) * products[a, b] - messages[v, a] - messages[u, b]


@_compiled
def max_marginals(utilities, agents, products, messages, sizes, d, slope, value_maxima):
    """Set the smoothed max-marginals of each value in the tables of its pairs."""
    h, scaled_slope = sizes.shape[1], slope / _F(1 << _SQUARINGS)
    for at in numba.prange(sizes.shape[0] * h):
        c, u = at // h, at % h
        table, best, total = np.empty((d, d), dtype=_F), np.empty(d, dtype=_F), np.empty(d, dtype=_F)
        for v in range(h):
            if v == u or sizes[c, u] == 0 or sizes[c, v] == 0:
                continue
            pair_table(utilities[agents[c]], products[c], messages[c], sizes[c], u, v, d, table)
            best[:], total[:] = _LOW, _F(0)
            for i in range(sizes[c, u]):
                for j in range(sizes[c, v]):
                    best[j] = max(best[j], table[i, j])
            for i in range(sizes[c, u]):
                for j in range(sizes[c, v]):
                    x = max(_F(0), _F(1) + (table[i, j] - best[j]) * scaled_slope)
                    for _ in range(_SQUARINGS):
                        x *= x
                    total[j] += x
            for j in range(sizes[c, v]):
                value_maxima[c, u, v * d + j] = best[j] + np.log(total[j]) / slope


@_compiled
def update_values(products, messages, value_maxima, values, sizes, d, slope, weights, best):
    """Move the max-marginals of each variable towards their mean; set the soft-max weights of its values."""
    h, n = sizes.shape[1], values.shape[1]
    for at in numba.prange(sizes.shape[0] * h):
        c, w = at // h, at % h
        k, start, variables = sizes[c, w], w * d, _F(np.sum(sizes[c] > 0))
        if k == 0:
            continue
        value, mean = np.empty(k, dtype=_F), np.empty(k, dtype=_F)
        for i in range(k):
            a = start + i
            value[i] = products[c, a, a] + _F(2) * products[c, a, n] + values[c, a]
            for v in range(h):
                if v != w and sizes[c, v] > 0:
                    value[i] += messages[c, v, a]
        top = value.max()
        for i in range(k):
            mean[i] = max(value[i] - top, _MIN_DROP)
        for v in range(h):
            if v != w and sizes[c, v] > 0:
                row = value_maxima[c, v, start : start + k]
                row_max = row.max()
                for i in range(k):
                    row[i] = max(row[i] - row_max, _MIN_DROP)
                    mean[i] += row[i]
        mean /= variables
        for v in range(h):
            if v != w and sizes[c, v] > 0:
                for i in range(k):
                    message = _DAMPED * (value_maxima[c, v, start + i] - mean[i])
                    messages[c, v, start + i] += message
                    value[i] += message
        top = value.max()
        weight = np.exp((value - top) * slope)
        weight /= weight.sum()
        for i in range(k):
            a = start + i
            weights[c, a, a] = weights[c, a, n] = weights[c, n, a] = weight[i]
        best[c, w] = top


@_compiled
def pair_weights(utilities, agents, products, messages, sizes, d, slope, weights, maxima):
    """Set the soft-max weights of the entries of each pair's table, and its maximum."""
    h, scaled_slope = sizes.shape[1], slope / _F(_POWER)
    for at in numba.prange(sizes.shape[0] * h):
        c, u = at // h, at % h
        table = np.empty((d, d), dtype=_F)
        for v in range(u + 1, h):
            if sizes[c, u] == 0 or sizes[c, v] == 0:
                continue
            pair_table(utilities[agents[c]], products[c], messages[c], sizes[c], u, v, d, table)
            best, total = _LOW, _F(0)
            for i in range(sizes[c, u]):
                for j in range(sizes[c, v]):
                    best = max(best, table[i, j])
            for i in range(sizes[c, u]):
                for j in range(sizes[c, v]):
                    x = max(_F(0), _F(1) + (table[i, j] - best) * scaled_slope)
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
def adam_step(vectors, gradients, first_moments, second_moments, step, bias_correction):
    """Move the factor vectors by one step of Adam with one second moment per vector."""
    cases, rows, width = vectors.shape
    for at in numba.prange(cases * rows):
        c, i = at // rows, at % rows
        squared_norm = _F(0)
        for j in range(width):
            squared_norm += gradients[c, i, j] * gradients[c, i, j]
        second_moments[c, i] = _DECAY * second_moments[c, i] + _ONE_MINUS_DECAY * squared_norm / _F(width)
        length = step / (np.sqrt(second_moments[c, i]) * bias_correction + _EPSILON)
        for j in range(width):
            mean = _MOMENTUM * first_moments[c, i, j] + _ONE_MINUS_MOMENTUM * gradients[c, i, j]
            first_moments[c, i, j] = mean
            vectors[c, i, j] -= length * mean


@numba.njit(parallel=True, cache=True)
def exact_maxima(utilities, agents, products, messages, sizes, bits, d, found):
    """Set the exact maxima of all pairs' tables in integers."""
    h = sizes.shape[1]
    for at in numba.prange(sizes.shape[0] * h):
        c, u = at // h, at % h
        for v in range(u + 1, h):
            if sizes[c, u] == 0 or sizes[c, v] == 0:
                continue
            best = np.int64(MINUS_INFINITY)
            for i in range(sizes[c, u]):
                a = u * d + i
                for j in range(sizes[c, v]):
                    b = v * d + j
                    utility = np.int64(utilities[agents[c], a, b])
                    if utility >= FORBIDDEN_BELOW:
                        x = (utility << (2 * bits[c])) + 2 * np.int64(products[c, a, b])
                        best = max(best, x - messages[c, v, a] - messages[c, u, b])
            found[c, u, v] = best
