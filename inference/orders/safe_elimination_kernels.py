# mypy: ignore-errors
"""Eliminate almost simplicial variables with small tables first, which hardly restricts the quality of the order.

Variable v is almost simplicial if all its neighbours but one, w, are adjacent to each other. This covers islets and
twigs (vertices of degree 0 and 1) and vertices of degree 2 (Bodlaender, Koster & van den Eijkhof 2005). Eliminating v
then gives the same graph as contracting v into w. Take the best order. If w's domain is no larger than v's, w may
replace v in all its buckets, which enlarges none of them. So an order that begins with v exists whose largest table is
no larger than the larger of two: the table of v, and the largest table of the best order.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import MAX_CELLS, ONE, bit, lowest, members
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True, allocates=False)
def _is_almost_simplicial(graph, sizes, v, neighbours, degree, neighbour_bits):
    """Return whether v is almost simplicial and the domain of the exceptional neighbour w is no larger than v's.

    Let u be the first neighbour that is not adjacent to all others. Then w is u itself, or, if u lacks only one
    neighbour, that one. A clique needs no w.

    Parameters
    ----------
    graph : (n, words) uint64
        The graph as rows of bits.
    sizes : (n,) float64
        Domain sizes.
    v : int
        The vertex.
    neighbours : (n,) int64
        The neighbours of v, of which the first ``degree`` entries are valid.
    degree : int
        The number of neighbours.
    neighbour_bits : (words,) uint64
        The neighbours of v as a row of bits.
    """
    words = graph.shape[1]
    candidate, not_adjacent, several_not_adjacent = -1, -1, False
    for i in range(degree):  # find the first neighbour that is not adjacent to all others
        u = neighbours[i]
        for k in range(words):
            missing = neighbour_bits[k] & ~graph[u, k]
            if k == u >> 6:
                missing &= ~bit(u)
            while missing and not several_not_adjacent:
                several_not_adjacent = not_adjacent >= 0
                not_adjacent = k * 64 + lowest(missing)
                missing &= missing - ONE
        if not_adjacent >= 0:
            candidate = u
            break
    if candidate < 0:
        return True
    for attempt in range(2):
        if attempt and several_not_adjacent:
            break
        w = not_adjacent if attempt else candidate
        if sizes[w] > sizes[v]:
            continue
        fits = True
        for i in range(degree):
            u = neighbours[i]
            if u == w:
                continue
            for k in range(words):
                missing = neighbour_bits[k] & ~graph[u, k]
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
    """Eliminate almost simplicial variables with buckets of at most ``limit`` cells.

    A vertex is checked again after its neighbourhood has changed. The loop ends after a full round in which no vertex
    had to be checked.

    Parameters
    ----------
    graph : (n, words) uint64
        Rows of bits; changed to the graph that remains.
    sizes : (n,) float64
        Domain sizes.
    eliminate : int
        The number of vertices that may be eliminated; vertices from here on are kept.
    limit : float
        Largest number of cells of an eliminated bucket.
    order : (eliminate,) int64
        Receives the eliminated vertices.

    Returns
    -------
    done : int
        The number of eliminated vertices.
    work : int
        Accessed words.
    """
    n, words = graph.shape
    neighbours = np.empty(n, dtype=np.int64)
    neighbour_bits = np.empty(words, dtype=np.uint64)
    unchecked = np.ones(eliminate, dtype=np.bool_)
    eliminated = np.zeros(eliminate, dtype=np.bool_)
    done, work = 0, 0
    v, vertices_without_check = 0, 0
    while vertices_without_check < eliminate:
        if unchecked[v] and not eliminated[v]:
            unchecked[v] = False
            vertices_without_check = 0
            degree = members(graph[v], neighbours)
            cells = sizes[v]
            for i in range(degree):
                cells = min(cells * sizes[neighbours[i]], MAX_CELLS)
            work += words + degree
            if cells <= limit:
                for k in range(words):
                    neighbour_bits[k] = graph[v, k]
                work += 2 * degree * words
                if _is_almost_simplicial(graph, sizes, v, neighbours, degree, neighbour_bits):
                    order[done] = v
                    done += 1
                    for i in range(degree):
                        u = neighbours[i]
                        for k in range(words):
                            graph[u, k] |= neighbour_bits[k]
                        graph[u, u >> 6] &= ~bit(u)
                        graph[u, v >> 6] &= ~bit(v)
                        if u < eliminate:
                            unchecked[u] = True
                    # The neighbours' neighbours get no new edges, but fewer pairs of their neighbours lack one.
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
        vertices_without_check += 1
        v = v + 1 if v + 1 < eliminate else 0
    return done, work
