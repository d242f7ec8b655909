"""Random graphs for the problem generators: an exact number of edges, and connected by a random spanning tree.

A pair of nodes u < v has the code v(v−1)/2 + u (combinatorial number system). Sets of edges are drawn as sets of codes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Edges = NDArray[np.int64]
"""Shape (m, 2), each row u < v, rows in ascending order."""


def random_subset(rng: np.random.Generator, total: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` distinct numbers below ``total`` in ascending order; every set is equally likely.

    If more than half of the numbers are needed, those that are left out are drawn instead. Numbers drawn twice are
    drawn again.
    """
    if 2 * count > total:
        left_out = random_subset(rng, total, total - count)
        is_chosen = np.ones(total, dtype=bool)
        is_chosen[left_out] = False
        return np.flatnonzero(is_chosen).astype(np.int64)
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < count:
        chosen = np.union1d(chosen, rng.integers(total, size=count - len(chosen)))
    return chosen


def pairs(codes: NDArray[np.int64]) -> Edges:
    """Return the pair u < v for each code v(v−1)/2 + u.

    Examples
    --------
    >>> pairs(np.array([0, 1, 2, 3])).tolist()
    [[0, 1], [0, 2], [1, 2], [0, 3]]
    """
    v = ((1 + np.sqrt(1 + 8.0 * codes)) / 2).astype(np.int64)
    v -= v * (v - 1) // 2 > codes  # corrects a floating-point root that is too large by one
    v += v * (v + 1) // 2 <= codes  # and one that is too small by one
    return np.stack([codes - v * (v - 1) // 2, v], axis=1)


def codes(edges: Edges) -> NDArray[np.int64]:
    """Return the code of each pair, the inverse of :func:`pairs`; the two ends may be in either order."""
    low, high = edges.min(axis=1), edges.max(axis=1)
    return np.asarray(high * (high - 1) // 2 + low)


def sorted_edges(edges: Edges) -> Edges:
    """Return the edges with u < v, in ascending order."""
    edges = np.sort(edges, axis=1)
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


def recursive_tree(rng: np.random.Generator, nodes: int) -> Edges:
    """Return a random recursive tree: the parent of node i is one of the nodes before it, each equally likely."""
    child = np.arange(1, nodes, dtype=np.int64)
    return np.stack([rng.integers(child) if nodes > 1 else child, child], axis=1)


def connected(rng: np.random.Generator, nodes: int, count: int) -> Edges:
    """Return a connected graph: a random spanning tree, then uniformly random further edges.

    Parameters
    ----------
    rng
        Source of randomness.
    nodes
        Number of nodes, at least 1.
    count
        Number of edges, raised to ``nodes - 1`` and limited to the complete graph.
    """
    # A random permutation: sort the nodes by random 62-bit keys, since only integers are the same on all platforms.
    shuffled = np.argsort(rng.integers(2**62, size=nodes), kind="stable")
    tree = shuffled[recursive_tree(rng, nodes)]
    return add_edges(rng, tree, nodes * (nodes - 1) // 2, max(count - len(tree), 0))


def add_edges(rng: np.random.Generator, tree: Edges, complete: int, count: int) -> Edges:
    """Add random edges to a tree; return all edges with u < v in ascending order.

    The added edges are a random subset of the pairs that are not in the tree: numbers are drawn below the number of
    such pairs, and the codes of the tree's edges are skipped.

    Parameters
    ----------
    rng
        Source of randomness.
    tree
        (m, 2) int64. The edges of the tree, with the ends in any order.
    complete
        Codes below this number are candidates; n(n−1)/2 for the pairs of n nodes.
    count
        Number of edges to add, limited to the candidates that the tree does not use.
    """
    taken = np.sort(codes(tree))
    extra = _skip(random_subset(rng, complete - len(taken), min(count, complete - len(taken))), taken)
    return sorted_edges(np.concatenate([tree, pairs(extra)]))


def _skip(numbers: NDArray[np.int64], taken: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each number i, the i-th number that is not taken; ``taken`` is in ascending order."""
    return numbers + np.searchsorted(taken - np.arange(len(taken)), numbers, side="right")


def edges_across_groups(rng: np.random.Generator, groups: int, members: int, count: int) -> NDArray[np.int64]:
    """Return edges between members of different groups such that the groups are connected.

    A random tree over the groups comes first, with random members as the ends of its edges. Uniformly random further
    pairs follow.

    Parameters
    ----------
    rng
        Source of randomness.
    groups, members
        Number of groups, and of members in each group.
    count
        Number of edges, raised to ``groups - 1`` and limited to all pairs across groups.

    Returns
    -------
    ndarray of int64, shape (m, 4)
        Group and member of one end, group and member of the other end; in ascending order.
    """
    tree = recursive_tree(rng, groups)
    ends = rng.integers(members, size=(len(tree), 2))
    pairs_per_edge = members * members
    # The code of an edge: the code of its pair of groups, times members², plus the code of its two members.
    taken = np.sort(codes(tree) * pairs_per_edge + ends[:, 0] * members + ends[:, 1])
    free = groups * (groups - 1) // 2 * pairs_per_edge - len(taken)
    extra = _skip(random_subset(rng, free, min(max(count - len(tree), 0), free)), taken)
    code = np.concatenate([taken, extra])
    group, member = pairs(code // pairs_per_edge), code % pairs_per_edge
    table: NDArray[Any] = np.stack([group[:, 0], member // members, group[:, 1], member % members], axis=1)
    return table[np.lexsort(table.T[::-1])]
