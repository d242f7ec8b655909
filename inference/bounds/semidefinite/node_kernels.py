# mypy: ignore-errors
"""CPU kernels of a descent step in single precision, which ``cpu_arrays`` calls.

Arrays have one element per node of a batch; a node has h hidden variables of d values each (value i of variable u has
the number u · d + i), n = h · d values, and m > n factor vectors of r components, of which number n is the row's.

The table of the pair (u, v) has the entries, for the values a of u and b of v,

    z[a, b] = utilities[a, b] + 2 products[a, b] - messages[v, a] - messages[u, b].

A message is added to the unary utility of its value, so no assignment's utility changes. Parameters that several
kernels share:

utilities : (agents, n, n) float32. Pairwise utilities in units. agents : (nodes,) int32. Agent of each node. products :
(nodes, m, m) float32. Gram matrices of the factor vectors. messages : (nodes, h, n) float32. ``messages[v, a]`` is
moved from the table of the pair (u, v) to value a of u. sizes : (nodes, h) int32. Domain sizes; 0 for a fixed or padded
variable. d : int. Values per variable. inverse_temperature : float32. Inverse temperature of the smoothed maxima, per
unit. value_maxima : (nodes, h, n) float32. Smoothed max-marginals of the pairwise tables, laid out as the messages.
weights : (nodes, m, m) float32. Softmax weights of pairs, of values (diagonal, row n, column n) and of the row.
"""

import numpy as np

from dmcmc.inference.bounds.contract.tuning import (
    ADAM_EPSILON,
    MAX_UTILITY_DROP,
    MESSAGE_DAMPING,
    MOMENTUM,
    SECOND_MOMENT_DECAY,
)
from dmcmc.inference.bounds.semidefinite.node_steps import POWER
from dmcmc.inference.runtime.compile import njit

_F = np.float32
_SQUARINGS = 8  # of 1 + x / 256, which approximates exp(x); CPUs have no vector instruction for exp
_LOWEST = np.float32(-1e30)  # stands for minus infinity in a maximum


@njit(nogil=True, fastmath=True, allocates=False)
def fill_pair_table(utilities, products, messages, sizes, u, v, d, table):
    """Compute the table of a pair; the last axis of ``table``, (d, d) float32, is v's."""
    for i in range(sizes[u]):
        a = u * d + i
        message = messages[v, a]
        for j in range(sizes[v]):
            b = v * d + j
            table[i, j] = utilities[a, b] + _F(2) * products[a, b] - message - messages[u, b]


@njit(nogil=True, fastmath=True)
def smooth_value_maxima(utilities, agents, products, messages, sizes, d, inverse_temperature, value_maxima):
    """Compute the smoothed max-marginals of all values in the tables of their pairs, (1/β) log Σ exp(β z)."""
    h, factor = sizes.shape[1], inverse_temperature / _F(1 << _SQUARINGS)
    table, best, total = np.empty((d, d), dtype=_F), np.empty(d, dtype=_F), np.empty(d, dtype=_F)
    for node in range(sizes.shape[0]):
        for u in range(h):
            for v in range(h):
                if v == u or sizes[node, u] == 0 or sizes[node, v] == 0:
                    continue
                fill_pair_table(utilities[agents[node]], products[node], messages[node], sizes[node], u, v, d, table)
                best[:] = _LOWEST
                total[:] = _F(0)
                for i in range(sizes[node, u]):
                    for j in range(sizes[node, v]):
                        best[j] = max(best[j], table[i, j])
                for i in range(sizes[node, u]):
                    for j in range(sizes[node, v]):
                        x = max(_F(0), _F(1) + (table[i, j] - best[j]) * factor)
                        for _ in range(_SQUARINGS):
                            x *= x
                        total[j] += x
                for j in range(sizes[node, v]):
                    value_maxima[node, u, v * d + j] = best[j] + np.log(total[j]) / inverse_temperature


@njit(nogil=True, fastmath=True)
def update_messages(products, messages, value_maxima, values, sizes, d, inverse_temperature, weights, best):
    """Move the max-marginals of each variable towards their mean, and compute the weights of its values.

    ``values``, (nodes, n) float32, are the unary utilities. ``best``, (nodes, h) float32, receives the maxima of the
    unary tables. ``value_maxima`` is overwritten.
    """
    h, n = sizes.shape[1], values.shape[1]
    unary, mean = np.empty(d, dtype=_F), np.empty(d, dtype=_F)
    for node in range(sizes.shape[0]):
        tables = _F(np.sum(sizes[node] > 0))
        for w in range(h):
            size, start = sizes[node, w], w * d
            if size == 0:
                continue
            top = _LOWEST
            for i in range(size):
                a = start + i
                unary[i] = products[node, a, a] + _F(2) * products[node, a, n] + values[node, a]
                for v in range(h):
                    if v != w and sizes[node, v] > 0:
                        unary[i] += messages[node, v, a]
                top = max(top, unary[i])
            for i in range(size):
                mean[i] = max(unary[i] - top, _F(-MAX_UTILITY_DROP))
            for v in range(h):
                if v != w and sizes[node, v] > 0:
                    maxima = value_maxima[node, v, start : start + size]
                    top = maxima.max()
                    for i in range(size):
                        maxima[i] = max(maxima[i] - top, _F(-MAX_UTILITY_DROP))
                        mean[i] += maxima[i]
            for i in range(size):
                mean[i] /= tables
            for v in range(h):
                if v != w and sizes[node, v] > 0:
                    for i in range(size):
                        message = _F(MESSAGE_DAMPING) * (value_maxima[node, v, start + i] - mean[i])
                        messages[node, v, start + i] += message
                        unary[i] += message
            top = unary[:size].max()
            mass = _F(0)
            for i in range(size):
                mean[i] = np.exp((unary[i] - top) * inverse_temperature)
                mass += mean[i]
            for i in range(size):
                a, weight = start + i, mean[i] / mass
                weights[node, a, a] = weights[node, a, n] = weights[node, n, a] = weight
            best[node, w] = top


@njit(nogil=True, fastmath=True)
def weigh_pairs(utilities, agents, products, messages, sizes, d, inverse_temperature, weights, maxima):
    """Compute the softmax weights of the entries of all pairwise tables, and the tables' maxima.

    The weight of an entry is w / Σ w with w = max(0, 1 + β (z - max z) / POWER)^POWER, where β is the inverse
    temperature. ``maxima``, (nodes, h, h) float32, receives the maximum of each table in both orders of the pair.
    """
    h, factor, table = sizes.shape[1], inverse_temperature / _F(POWER), np.empty((d, d), dtype=_F)
    for node in range(sizes.shape[0]):
        for u in range(h):
            for v in range(u + 1, h):
                if sizes[node, u] == 0 or sizes[node, v] == 0:
                    continue
                fill_pair_table(utilities[agents[node]], products[node], messages[node], sizes[node], u, v, d, table)
                best, mass = _LOWEST, _F(0)
                for i in range(sizes[node, u]):
                    for j in range(sizes[node, v]):
                        best = max(best, table[i, j])
                for i in range(sizes[node, u]):
                    for j in range(sizes[node, v]):
                        x = max(_F(0), _F(1) + (table[i, j] - best) * factor)
                        x = x * x  # five squarings: x^POWER
                        x = x * x
                        x = x * x
                        x = x * x
                        x = x * x
                        table[i, j] = x
                        mass += x
                scale = _F(1) / mass
                for i in range(sizes[node, u]):
                    for j in range(sizes[node, v]):
                        weights[node, u * d + i, v * d + j] = table[i, j] * scale
                for j in range(sizes[node, v]):
                    for i in range(sizes[node, u]):
                        weights[node, v * d + j, u * d + i] = table[i, j] * scale
                maxima[node, u, v] = maxima[node, v, u] = best


@njit(nogil=True, fastmath=True, allocates=False)
def make_adam_step(vectors, gradients, first_moment, second_moment, step_size, bias_correction):
    """Make an Adam step in which all components of a factor vector share one second moment; see ``node_steps``.

    Parameters
    ----------
    vectors, gradients, first_moment : (nodes, m, r) float32
        Factor vectors, their gradients, and the running means of these.
    second_moment : (nodes, m) float32
        Running means of the mean squared components of each gradient.
    step_size, bias_correction : float32
        Parameters of the step, see ``node_steps.NodeStep``.
    """
    nodes, m, r = vectors.shape
    for node in range(nodes):
        for q in range(m):
            square_sum = _F(0)
            for k in range(r):
                square_sum += gradients[node, q, k] * gradients[node, q, k]
            moment = _F(SECOND_MOMENT_DECAY) * second_moment[node, q]
            moment += _F(1 - SECOND_MOMENT_DECAY) * square_sum / _F(r)
            second_moment[node, q] = moment
            length = step_size / (np.sqrt(moment) * bias_correction + _F(ADAM_EPSILON))
            for k in range(r):
                mean = _F(MOMENTUM) * first_moment[node, q, k] + _F(1 - MOMENTUM) * gradients[node, q, k]
                first_moment[node, q, k] = mean
                vectors[node, q, k] -= length * mean
