# mypy: ignore-errors
"""Single-variable draws on a penalised graph (Gibbs sweeps), and the utility of assignments.

Block moves use these kernels for single variables, and to measure temperatures by the spread of utilities.

Arguments that several kernels share:

graph : FactorGraph
    See ``dmcmc.samplers.blocks.block_workspace.penalised_graph``. The factors of variable v are
    ``graph.factor[graph.start[v]:graph.start[v + 1]]``; those below ``graph.dense`` are dense tables, the others are
    automata. A forbidden entry has the finite utility ``graph.forbidden_entry``, a large loss. Variables from
    ``graph.free`` on are fixed.
z : (n,) int64
    The assignment.
state : (1,) uint64
    State of the random number generator.
"""

import math

import numpy as np

from dmcmc.inference.orders.random_kernels import random_unit
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.blocks.block_selection_kernels import entry_of


@njit(nogil=True, allocates=False)
def utility_of_assignment(graph, z):
    """Return the utility of an assignment; each violation counts as the finite utility ``graph.forbidden_entry``."""
    value = 0.0
    for f in range(graph.scope_start.size - 1):
        value += entry_of(graph, z, f)
    return value


@njit(nogil=True)
def conditional_utilities(graph, z, v, out):
    """Write the utility of each value of v, all other variables fixed, to ``out``; return the number of entries read.

    ``out`` is (at least the domain size of v,) float64. Only factors of v are summed. ``z`` is unchanged at the end.
    """
    size = graph.domains[v]
    out[:size] = 0.0
    old = z[v]
    for i in range(graph.start[v], graph.start[v + 1]):
        f = graph.factor[i]
        if f >= graph.dense:
            for d in range(size):
                z[v] = d
                out[d] += entry_of(graph, z, f)
            continue
        offset, step = graph.table_start[f], 0
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            if graph.scope[s] == v:
                step = graph.stride[s]
            else:
                offset += z[graph.scope[s]] * graph.stride[s]
        for d in range(size):
            out[d] += graph.data[offset + d * step]
    z[v] = old
    return size * (graph.start[v + 1] - graph.start[v])


@njit(nogil=True)
def choose_value(scores, size, temperature, state):
    """Draw a value with probability proportional to exp(score / temperature).

    At temperature 0, return a value of the highest score, with ties broken at random. ``scores`` is (at least
    ``size``,) float64.
    """
    top = scores[:size].max()
    if temperature > 0:
        mass = 0.0
        for x in range(size):
            mass += math.exp((scores[x] - top) / temperature)
        remaining = random_unit(state) * mass
        for x in range(size - 1):
            remaining -= math.exp((scores[x] - top) / temperature)
            if remaining < 0:
                return x
        return size - 1
    ties, chosen = 0, 0
    for x in range(size):
        if scores[x] == top:
            ties += 1
            if ties == 1 or random_unit(state) * ties < 1.0:
                chosen = x
    return chosen


@njit(nogil=True)
def sweep(graph, z, temperature, state):
    """Draw each free variable once, given the others; return the gain of utility and the number of entries read."""
    gain, entries_read, widest = 0.0, 0, 1
    for v in range(graph.free):
        widest = max(widest, graph.domains[v])
    scores = np.empty(widest)
    for v in range(graph.free):
        if graph.domains[v] > 1:
            entries_read += conditional_utilities(graph, z, v, scores)
            new = choose_value(scores, graph.domains[v], temperature, state)
            gain += scores[new] - scores[z[v]]
            z[v] = new
    return gain, entries_read


@njit(nogil=True)
def typical_spread(graph, z):
    """Return the root mean square, over the free variables, of the standard deviation of their values' utilities.

    Values whose number of violations differs from that of the current value are left out.
    """
    sums, widest = 0.0, 1
    for v in range(graph.free):
        widest = max(widest, graph.domains[v])
    scores = np.empty(widest)
    for v in range(graph.free):
        conditional_utilities(graph, z, v, scores)
        count, mean, square = 0, 0.0, 0.0
        for d in range(graph.domains[v]):
            difference = scores[d] - scores[z[v]]
            if abs(difference) < -0.5 * graph.forbidden_entry:
                count += 1
                mean += difference
                square += difference * difference
        if count > 0:
            sums += max(0.0, square / count - (mean / count) * (mean / count))
    return math.sqrt(sums / max(1, graph.free))


@njit(nogil=True)
def mobility(graph, z, share):
    """Return the mean probability that a draw of a single variable changes its value, all others fixed.

    The mean is over the free variables with more than one value; it is 1 if there is none.

    Parameters
    ----------
    share : float
        The temperature of the draws, as a fraction of the typical spread (see :func:`typical_spread`). If the spread is
        0, the values of a variable differ only in violations, and the temperature is 1.
    """
    temperature, widest = share * typical_spread(graph, z), 1
    for v in range(graph.free):
        widest = max(widest, graph.domains[v])
    if temperature <= 0:
        temperature = 1.0
    scores, moves, count = np.empty(widest), 0.0, 0
    for v in range(graph.free):
        if graph.domains[v] > 1:
            conditional_utilities(graph, z, v, scores)
            top, mass = scores[: graph.domains[v]].max(), 0.0
            for d in range(graph.domains[v]):
                mass += math.exp((scores[d] - top) / temperature)
            moves += 1.0 - math.exp((scores[z[v]] - top) / temperature) / mass
            count += 1
    return moves / count if count > 0 else 1.0
