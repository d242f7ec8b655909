# mypy: ignore-errors
"""Orders by sweeps, and eliminations that are safe.

Orders that sweep over a graph from one end to the other, as for matrices with a small front (King 1970).

On grids and similar graphs greedy rules leave islands, which later meet in wide tables. A sweep's tables are only as
wide as the graph. ``reorder_subtrees`` uses such orders.

Eliminate almost simplicial variables with small tables first, which hardly restricts the quality of the order.

Variable v is almost simplicial if all its neighbours but one, w, are adjacent to each other. This covers islets and
twigs (vertices of degree 0 and 1) and vertices of degree 2 (Bodlaender, Koster & van den Eijkhof 2005). Eliminating v
then gives the same graph as contracting v into w. Take the best order. If w's domain is no larger than v's, w may
replace v in all its buckets, which enlarges none of them. So an order that begins with v exists whose largest table is
no larger than the larger of two: the table of v, and the largest table of the best order.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import MAX_CELLS, ONE, bit, lowest, members, random_unit
from dmcmc.inference.orders.vertex_separator_kernels import farthest, neighbour_lists
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.tuning import HIGH_NOISE

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
