# mypy: ignore-errors
"""Orders that sweep over a graph from one end to the other, as for matrices of small front (King 1970).

On grids and what looks like them, where greedy rules leave islands that meet in wide tables, a sweep's tables are as
wide as the graph is.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import ONE, bit, lowest
from dmcmc.inference.orders.greedy_kernels import random_unit
from dmcmc.inference.orders.vertex_separator_kernels import farthest, neighbour_lists
from dmcmc.inference.runtime.compile import njit

_NOISE = 512.0  # two bits


@njit(nogil=True)
def sweep(graph, weight, count, begin, noise, state, order):
    """Write an order that sweeps over a graph from a vertex on to ``order``; return the work.

    The next vertex is one of the front, what those gone are connected to: the one whose going makes the front grow
    least, with noise up to ``noise``; ties go to what has been in it longest. Vertices from ``count`` on stay.
    """
    n, words = graph.shape
    front, gone = np.zeros(words, dtype=np.uint64), np.zeros(n, dtype=np.bool_)
    entered = np.empty(n, dtype=np.int64)
    waiting = np.empty(n, dtype=np.int64)
    waiting[0], left, work = begin, 1, 0
    front[begin >> 6] |= bit(begin)
    entered[begin] = 0
    rest = 0
    for step in range(count):
        if left == 0:
            while gone[rest]:
                rest += 1
            waiting[0], left = rest, 1
            front[rest >> 6] |= bit(rest)
            entered[rest] = step
        best, place = np.inf, 0
        for i in range(left):
            v = waiting[i]
            grown = -weight[v]
            for k in range(words):
                word = graph[v, k] & ~front[k]
                while word:
                    u = k * 64 + lowest(word)
                    word &= word - ONE
                    if not gone[u]:
                        grown += weight[u]
            value = grown + noise * random_unit(state) + 1e-3 * entered[v]
            if value < best:
                best, place = value, i
        work += left * words
        v = waiting[place]
        left -= 1
        waiting[place] = waiting[left]
        order[step] = v
        gone[v] = True
        for k in range(words):
            word = graph[v, k] & ~front[k]
            while word:
                u = k * 64 + lowest(word)
                word &= word - ONE
                if not gone[u]:
                    front[k] |= bit(u)
                    if u < count:
                        waiting[left] = u
                        left += 1
                        entered[u] = step
        front[v >> 6] &= ~bit(v)
    return work


@njit(nogil=True)
def sweep_order(local, weight, count, state):
    """Return a sweep over a piece from some vertex, mostly one at its rim, (1, count), and the work."""
    start, ends, _ = neighbour_lists(local, count)
    distance, queue = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    begin = int(count * random_unit(state))
    if random_unit(state) < 0.7:
        begin = farthest(start, ends, begin, distance, queue, state)
        if random_unit(state) < 0.7:
            begin = farthest(start, ends, begin, distance, queue, state)
    noise = 0.0 if random_unit(state) < 0.5 else _NOISE * random_unit(state)
    orders = np.empty((1, count), dtype=np.int64)
    return orders, 3 * ends.size + sweep(local, weight, count, begin, noise, state, orders[0])
