# mypy: ignore-errors
"""Variables that may go first: those that no order does much better with, as long as their tables are small.

v is almost simplicial if all its neighbours but one, w, are connected with each other (islets, twigs and vertices of
degree 2 are: Bodlaender, Koster & van den Eijkhof 2005). Eliminating v then leaves what contracting v into w would
leave. In any order's buckets w may stand for v wherever v stood, which makes none larger where w's domain is no larger
than v's. So there is an order that begins with v and whose largest table is no larger than v's or that of the best.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import ONE, bit, lowest, members
from dmcmc.inference.orders.greedy_kernels import CAP
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def _odd_one_out(graph, sizes, v, near, degree, around):
    """Return whether v is almost simplicial, with no larger domain beside it than its own where one is left out."""
    words = graph.shape[1]
    first, only, more = -1, -1, False
    for i in range(degree):  # the first neighbour that lacks another one
        u = near[i]
        for k in range(words):
            missing = around[k] & ~graph[u, k]
            if k == u >> 6:
                missing &= ~bit(u)
            while missing and not more:
                more = only >= 0
                only = k * 64 + lowest(missing)
                missing &= missing - ONE
        if only >= 0:
            first = u
            break
    if first < 0:
        return True
    for turn in range(2):
        if turn and more:
            break
        w = only if turn else first
        if sizes[w] > sizes[v]:
            continue
        fits = True
        for i in range(degree):
            u = near[i]
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
def reduce(graph, sizes, eliminate, limit, order):
    """Eliminate almost simplicial variables with buckets of at most ``limit`` cells; return their number and the work.

    Parameters
    ----------
    graph : (n, words) uint64
        Changed: what is left once they are gone.
    sizes : (n,) float64
    eliminate : int
        Vertices from here on stay.
    order : (eliminate,) int64
        Receives them.
    """
    n, words = graph.shape
    near = np.empty(n, dtype=np.int64)
    around = np.empty(words, dtype=np.uint64)
    stale = np.ones(eliminate, dtype=np.bool_)
    gone = np.zeros(eliminate, dtype=np.bool_)
    done, work = 0, 0
    v, clean = 0, 0
    while clean < eliminate:
        if stale[v] and not gone[v]:
            stale[v] = False
            clean = 0
            degree = members(graph[v], near)
            cells = sizes[v]
            for i in range(degree):
                cells = min(cells * sizes[near[i]], CAP)
            work += words + degree
            if cells <= limit:
                for k in range(words):
                    around[k] = graph[v, k]
                work += 2 * degree * words
                if _odd_one_out(graph, sizes, v, near, degree, around):
                    order[done] = v
                    done += 1
                    for i in range(degree):
                        u = near[i]
                        for k in range(words):
                            graph[u, k] |= around[k]
                        graph[u, u >> 6] &= ~bit(u)
                        graph[u, v >> 6] &= ~bit(v)
                        if u < eliminate:
                            stale[u] = True
                    # Neighbours of neighbours have no new edges, but may miss fewer.
                    for i in range(degree):
                        for k in range(words):
                            word = graph[near[i], k]
                            while word:
                                u = k * 64 + lowest(word)
                                word &= word - ONE
                                if u < eliminate:
                                    stale[u] = True
                    graph[v] = 0
                    gone[v] = True
        clean += 1
        v = v + 1 if v + 1 < eliminate else 0
    return done, work
