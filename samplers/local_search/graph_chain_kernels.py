# mypy: ignore-errors
"""Annealed Gibbs chains on a factor graph that compute scores when a variable is drawn.

They serve problems whose score columns (copies of the tables, one per variable of each factor) would not fit in memory.

Shared arguments: ``graph`` (FactorGraph) and ``z`` (n,) int64 (the assignment) are described in ``graph_kernels``.
``sums`` is (3, largest domain) float64: for each value of one variable the number of violations, and the high and low
part of the utility.
"""

import math

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.local_search.graph_kernels import evaluate_graph, score_values
from dmcmc.samplers.model.rng_kernels import philox, uniform


@njit(nogil=True, allocates=False)
def typical_spread(graph, z, sums):
    """Return the root mean square over variables of the standard deviation of their values' utilities.

    Values with more or fewer violations than the present value are left out.
    """
    total = 0.0
    for v in range(z.size):
        score_values(graph, z, v, sums)
        count, mean, square = 0, 0.0, 0.0
        for d in range(graph.domains[v]):
            if sums[0, d] == sums[0, z[v]]:
                count += 1
                mean += sums[1, d] - sums[1, z[v]]
                square += (sums[1, d] - sums[1, z[v]]) * (sums[1, d] - sums[1, z[v]])
        if count > 0:
            total += max(0.0, square / count - (mean / count) * (mean / count))
    return math.sqrt(total / max(1, z.size))


@njit(nogil=True, allocates=False)
def draw_value(sums, size, penalty, temperature, chance):
    """Draw a value with probability ∝ exp((utility − penalty · violations) / temperature).

    ``chance`` is a random number in (0, 1). At temperature 0 the first best value is returned.
    """
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
    remaining = chance * total
    for d in range(size):
        remaining -= math.exp((sums[1, d] - penalty * sums[0, d] - top) / temperature)
        if remaining < 0:
            return d
    return size - 1


@njit(nogil=True, allocates=False)
def anneal_graph(graph, order, z, best, sums, best_score, temperatures, penalty, trial, key, chain, halt):
    """Make sweeps over all variables in the given order, and keep the best state seen at the end of a sweep.

    Parameters
    ----------
    order : (n,) int64
        Variables in the order of a sweep.
    best : (n,) int64
        The best state.
    best_score : (2,) float64
        The best state's violations, negated, and utility.
    temperatures : (sweeps,) float64
        Temperature of each sweep, in units of utility.
    penalty : float
        Utility that a violation costs.
    trial : int
        Number of the first sweep, from 1.
    key : (2,) uint64
        Key of the random numbers.
    chain : int
        Number of the chain.
    halt : (1,) uint8
        Nonzero when the kernel should return.

    Returns
    -------
    int
        Sweeps made; fewer than asked for if halted, or if a sweep at temperature 0 moves nothing.
    """
    for t in range(temperatures.size):
        moved = False
        for i in range(order.size):
            if halt[0] != 0:
                return t
            v = order[i]
            score_values(graph, z, v, sums)
            # Second counter word 1: chains with score columns use 0.
            words = philox(key[0], key[1], chain, 1, trial + t, v)
            new = draw_value(sums, graph.domains[v], penalty, temperatures[t], uniform(words[0]))
            moved = moved or new != z[v]
            z[v] = new
        evaluate_graph(graph, z, sums)
        score = (-sums[0, 0], sums[1, 0] + sums[2, 0])
        if score > (best_score[0], best_score[1]):
            best_score[0], best_score[1] = score
            for v in range(z.size):
                best[v] = z[v]
        elif not moved and temperatures[t] <= 0:
            return t + 1
    return temperatures.size
