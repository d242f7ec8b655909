# mypy: ignore-errors
"""Eliminate almost simplicial variables with small tables: no order does much better without them first.

v is almost simplicial if all its neighbours but one, w, are connected with each other (this covers islets, twigs and
vertices of degree 2: Bodlaender, Koster & van den Eijkhof 2005). Eliminating v then gives the same graph as
contracting v into w. In the buckets of any order, w may replace v, which enlarges none of them if w's domain is no
larger than v's. So some order begins with v whose largest table is no larger than v's, or than that of the best
order.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import ONE, bit, lowest, members
from dmcmc.inference.orders.greedy_kernels import MAX_CELLS
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def _is_almost_simplicial(graph, sizes, v, neighbours, degree, around):
    """Return whether v is almost simplicial, with a domain of the excluded neighbour no larger than v's.

    Parameters
    ----------
    graph : (n, words) uint64
        The graph as rows of bits.
    sizes : (n,) float64
        Domain sizes.
    v : int
        The vertex.
    neighbours : (n,) int64
        Its neighbours, of which the first ``degree`` are valid.
    degree : int
        Their number.
    around : (words,) uint64
        Its neighbours as a row of bits.
    """
    words = graph.shape[1]
    first, only, several = -1, -1, False
    for i in range(degree):  # find the first neighbour that is not connected with another one
        u = neighbours[i]
        for k in range(words):
            missing = around[k] & ~graph[u, k]
            if k == u >> 6:
                missing &= ~bit(u)
            while missing and not several:
                several = only >= 0
                only = k * 64 + lowest(missing)
                missing &= missing - ONE
        if only >= 0:
            first = u
            break
    if first < 0:
        return True
    for attempt in range(2):
        if attempt and several:
            break
        w = only if attempt else first
        if sizes[w] > sizes[v]:
            continue
        fits = True
        for i in range(degree):
            u = neighbours[i]
            if u == w:
                continue
            for k in range(words):
                missing = around[k] & ~graph[u, k]
                if k == u >> 6:
                    missing &= ~bit(u)
                if k == w >> 6:
                    missing &= ~bit(w)
                fits &= missing == 0
            if not fits:
                break
        if fits:
            return True
    return False


@njit(nogil=True)
def eliminate_almost_simplicial(graph, sizes, eliminate, limit, order):
    """Eliminate almost simplicial variables with buckets of at most ``limit`` cells; return their number and the work.

    Parameters
    ----------
    graph : (n, words) uint64
        Rows of bits; changed to the graph that remains.
    sizes : (n,) float64
        Domain sizes.
    eliminate : int
        Vertices from here on are kept.
    limit : float
        Largest number of cells of an eliminated bucket.
    order : (eliminate,) int64
        Receives the eliminated vertices.
    """
    n, words = graph.shape
    neighbours = np.empty(n, dtype=np.int64)
    around = np.empty(words, dtype=np.uint64)
    unchecked = np.ones(eliminate, dtype=np.bool_)
    eliminated = np.zeros(eliminate, dtype=np.bool_)
    done, work = 0, 0
    v, checked = 0, 0
    while checked < eliminate:
        if unchecked[v] and not eliminated[v]:
            unchecked[v] = False
            checked = 0
            degree = members(graph[v], neighbours)
            cells = sizes[v]
            for i in range(degree):
                cells = min(cells * sizes[neighbours[i]], MAX_CELLS)
            work += words + degree
            if cells <= limit:
                for k in range(words):
                    around[k] = graph[v, k]
                work += 2 * degree * words
                if _is_almost_simplicial(graph, sizes, v, neighbours, degree, around):
                    order[done] = v
                    done += 1
                    for i in range(degree):
                        u = neighbours[i]
                        for k in range(words):
                            graph[u, k] |= around[k]
                        graph[u, u >> 6] &= ~bit(u)
                        graph[u, v >> 6] &= ~bit(v)
                        if u < eliminate:
                            unchecked[u] = True
                    # Neighbours of neighbours get no new edges, but fewer of their neighbours may be unconnected.
                    for i in range(degree):
                        for k in range(words):
                            word = graph[neighbours[i], k]
                            while word:
                                u = k * 64 + lowest(word)
                                word &= word - ONE
                                if u < eliminate:
                                    unchecked[u] = True
                    graph[v] = 0
                    eliminated[v] = True
        checked += 1
        v = v + 1 if v + 1 < eliminate else 0
    return done, work
