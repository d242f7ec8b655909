# mypy: ignore-errors
"""Orders of depth-first pseudo-trees, as in the papers: every variable is eliminated before its ancestors.

Roots and children are taken by degree. GpuBE's journal version (§6.2) sorts x_i before x_j iff |N(x_i)| < |N(x_j)|;
DPOP's usual choice is the most connected variable first.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import members, popcount
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def depth_first(graph, eliminate, most_connected, order):
    """Write the elimination order of a depth-first forest of vertices 0..eliminate−1; return the work in words.

    Kept vertices are above every root. Ties go to the lowest index.

    Parameters
    ----------
    graph : (n, words) uint64
        The graph as rows of bits.
    eliminate : int
        The number of vertices to eliminate.
    most_connected : bool
        Whether vertices of high degree come first as roots and children, or those of low degree.
    order : (eliminate,) int64
        Receives the order.
    """
    n, words = graph.shape
    degree = np.zeros(eliminate)
    for v in range(eliminate):
        for k in range(words):
            degree[v] += popcount(graph[v, k])
    ranked = np.argsort(-degree if most_connected else degree, kind="mergesort")
    rank = np.empty(eliminate, dtype=np.int64)
    for i in range(eliminate):
        rank[ranked[i]] = i
    seen = np.zeros(n, dtype=np.bool_)
    for v in range(eliminate, n):
        seen[v] = True
    path = np.empty(eliminate + 1, dtype=np.int64)
    neighbours = np.empty(n, dtype=np.int64)
    done, work = 0, eliminate * words
    for root in ranked:
        if seen[root]:
            continue
        depth = 0
        path[0] = root
        seen[root] = True
        while depth >= 0:
            v = path[depth]
            child = -1
            count = members(graph[v], neighbours)
            work += words + count
            for i in range(count):
                u = neighbours[i]
                if not seen[u] and (child < 0 or rank[u] < rank[child]):
                    child = u
            if child >= 0:
                seen[child] = True
                depth += 1
                path[depth] = child
            else:
                order[done] = v
                done += 1
                depth -= 1
    return work
