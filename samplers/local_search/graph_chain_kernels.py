# mypy: ignore-errors
"""Chains on a problem as it was asked: scores are computed when they are needed. For what no columns are made of."""

import math

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.local_search.graph_kernels import score_values, weigh
from dmcmc.samplers.model.rng_kernels import philox, uniform


@njit(nogil=True)
def typical_spread(graph, z, sums):
    """Return the root mean square over variables of the standard deviation of their values' utilities."""
    total = 0.0
    for v in range(z.size):
        score_values(graph, z, v, sums)
        count, mean, square = 0, 0.0, 0.0
        for d in range(graph.domains[v]):
            if sums[0, d] == sums[0, z[v]]:
                count += 1
                mean += sums[1, d] - sums[1, z[v]]
                square += (sums[1, d] - sums[1, z[v]]) ** 2
        if count > 0:
            total += max(0.0, square / count - (mean / count) ** 2)
    return math.sqrt(total / max(1, z.size))


@njit(nogil=True)
def draw_value(sums, size, penalty, temperature, chance):
    """Draw a value with probability ∝ exp((utility − penalty · violations) / temperature)."""
    top = -np.inf
    for d in range(size):
        top = max(top, sums[1, d] - penalty * sums[0, d])
    if temperature <= 0:
        for d in range(size):
            if sums[1, d] - penalty * sums[0, d] == top:
                return d
    total = 0.0
    for d in range(size):
        total += math.exp((sums[1, d] - penalty * sums[0, d] - top) / temperature)
    left = chance * total
    for d in range(size):
        left -= math.exp((sums[1, d] - penalty * sums[0, d] - top) / temperature)
        if left < 0:
            return d
    return size - 1


@njit(nogil=True)
def anneal_graph(graph, order, z, kept, sums, worth, temperatures, penalty, trial, key, chain, halt):
    """Make sweeps over all variables in an order, and keep the best state of their ends.

    Parameters
    ----------
    kept : (n,) int64
        The best state.
    worth : (2,) float64
        The best state's violations, negated, and utility.
    temperatures : (sweeps,) float64
    penalty : float
        What a violation costs.
    trial : int
        Number of the first sweep, from 1.

    Returns
    -------
    int
        Sweeps made.
    """
    for t in range(temperatures.size):
        moved = False
        for i in range(order.size):
            if halt[0] != 0:
                return t
            v = order[i]
            score_values(graph, z, v, sums)
            words = philox(key[0], key[1], chain, 1, trial + t, v)
            new = draw_value(sums, graph.domains[v], penalty, temperatures[t], uniform(words[0]))
            moved = moved or new != z[v]
            z[v] = new
        weigh(graph, z, sums)
        now = (-sums[0, 0], sums[1, 0] + sums[2, 0])
        if now > (worth[0], worth[1]):
            worth[0], worth[1] = now
            for v in range(z.size):
                kept[v] = z[v]
        elif not moved and temperatures[t] <= 0:
            return t + 1
    return temperatures.size
