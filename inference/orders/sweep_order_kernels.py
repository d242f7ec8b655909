# mypy: ignore-errors
"""Orders that sweep over a graph from one end to the other, as for matrices with a small front (King 1970).

On grids and similar graphs greedy rules leave islands, which later meet in wide tables. A sweep's tables
are only as wide as the graph. ``reorder_subtrees`` uses such orders.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import ONE, bit, lowest
from dmcmc.inference.orders.random_kernels import random_unit
from dmcmc.inference.orders.tuning import HIGH_NOISE
from dmcmc.inference.orders.vertex_separator_kernels import farthest, neighbour_lists
from dmcmc.inference.runtime.compile import njit

_UNITS_PER_BIT = 256  # integer weights in units of 1/256 bit of log2 cells


@njit(nogil=True)
def sweep(graph, weight, count, begin, noise, state, order):
    """Write an order that sweeps over a graph from the vertex ``begin``; return the work.

    The next vertex is taken from the front (the vertices connected with eliminated ones): the one whose elimination
    enlarges the front least. Ties go to the vertex that entered the front first: each step of delay counts as 1/1000 of
    the unit of growth.

    Parameters
    ----------
    graph : (n, words) uint64
        Rows of bits.
    weight : (n,) int64
        log2 of the domain sizes in units of 1/256 bit.
    count : int
        The number of vertices to eliminate; vertices from here on are kept.
    begin : int
        The first vertex.
    noise : float
        Upper bound on the random noise that is added to the growth of the front, in the unit of ``weight``.
    state : (1,) uint64
        A random generator's state.
    order : (count,) int64
        Receives the order.
    """
    n, words = graph.shape
    front, is_eliminated = np.zeros(words, dtype=np.uint64), np.zeros(n, dtype=np.bool_)
    entered = np.empty(n, dtype=np.int64)
    waiting = np.empty(n, dtype=np.int64)
    waiting[0], n_waiting, work = begin, 1, 0
    front[begin >> 6] |= bit(begin)
    entered[begin] = 0
    next_unvisited = 0
    for step in range(count):
        if n_waiting == 0:
            while is_eliminated[next_unvisited]:
                next_unvisited += 1
            waiting[0], n_waiting = next_unvisited, 1
            front[next_unvisited >> 6] |= bit(next_unvisited)
            entered[next_unvisited] = step
        best, position = np.inf, 0
        for i in range(n_waiting):
            v = waiting[i]
            growth = -weight[v]
            for k in range(words):
                word = graph[v, k] & ~front[k]
                while word:
                    u = k * 64 + lowest(word)
                    word &= word - ONE
                    if not is_eliminated[u]:
                        growth += weight[u]
            value = growth + noise * random_unit(state) + 1e-3 * entered[v]
            if value < best:
                best, position = value, i
        work += n_waiting * words
        v = waiting[position]
        n_waiting -= 1
        waiting[position] = waiting[n_waiting]
        order[step] = v
        is_eliminated[v] = True
        for k in range(words):
            word = graph[v, k] & ~front[k]
            while word:
                u = k * 64 + lowest(word)
                word &= word - ONE
                if not is_eliminated[u]:
                    front[k] |= bit(u)
                    if u < count:
                        waiting[n_waiting] = u
                        n_waiting += 1
                        entered[u] = step
        front[v >> 6] &= ~bit(v)
    return work


@njit(nogil=True)
def sweep_order(local, weight, count, state):
    """Return a sweep over a piece from a random vertex, mostly at its boundary: an order (1, count), and the work.

    With probability 0.7 the random vertex is replaced by one of those farthest from it, and with probability 0.7 this
    is repeated. Half of the sweeps have noise.

    Parameters
    ----------
    local : (m, words) uint64
        The piece's graph as rows of bits.
    weight, count, state
        As for :func:`sweep`.
    """
    start, ends, _ = neighbour_lists(local, count)
    distance, queue = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    begin = int(count * random_unit(state))
    if random_unit(state) < 0.7:
        begin = farthest(start, ends, begin, distance, queue, state)
        if random_unit(state) < 0.7:
            begin = farthest(start, ends, begin, distance, queue, state)
    noise = 0.0 if random_unit(state) < 0.5 else HIGH_NOISE * _UNITS_PER_BIT * random_unit(state)
    orders = np.empty((1, count), dtype=np.int64)
    return orders, 3 * ends.size + sweep(local, weight, count, begin, noise, state, orders[0])
