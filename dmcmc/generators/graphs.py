"""Random graphs with an exact number of edges: a spanning tree first, so that they are connected."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Edges = NDArray[np.int64]
"""Shape (m, 2), each row u < v, rows in ascending order."""


def distinct(rng: np.random.Generator, total: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` distinct numbers below ``total``, every set equally likely, in ascending order."""
    if 2 * count > total:
        left_out = distinct(rng, total, total - count)
        keep = np.ones(total, dtype=bool)
        keep[left_out] = False
        return np.flatnonzero(keep).astype(np.int64)
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < count:
        chosen = np.union1d(chosen, rng.integers(total, size=count - len(chosen)))
    return chosen


def pairs(codes: NDArray[np.int64]) -> Edges:
    """Return the pair u < v behind each code v(v−1)/2 + u.

    Examples
    --------
    >>> pairs(np.array([0, 1, 2, 3])).tolist()
    [[0, 1], [0, 2], [1, 2], [0, 3]]
    """
    v = ((1 + np.sqrt(1 + 8.0 * codes)) / 2).astype(np.int64)
    v -= v * (v - 1) // 2 > codes  # the root may be off by one either way
    v += v * (v + 1) // 2 <= codes
    return np.stack([codes - v * (v - 1) // 2, v], axis=1)


def codes(edges: Edges) -> NDArray[np.int64]:
    """Return the inverse of :func:`pairs`; the two ends may come in either order."""
    low, high = edges.min(axis=1), edges.max(axis=1)
    return np.asarray(high * (high - 1) // 2 + low)


def ordered(edges: Edges) -> Edges:
    """Return the edges as u < v, sorted."""
    edges = np.sort(edges, axis=1)
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


def recursive_tree(rng: np.random.Generator, nodes: int) -> Edges:
    """Return a random recursive tree: node i hangs from one of the nodes before it, each equally likely."""
    child = np.arange(1, nodes, dtype=np.int64)
    return np.stack([rng.integers(child) if nodes > 1 else child, child], axis=1)


def connected(rng: np.random.Generator, nodes: int, count: int) -> Edges:
    """Return a connected graph: a random spanning tree, then uniformly random further edges.

    Parameters
    ----------
    nodes
        At least 1.
    count
        Number of edges, raised to ``nodes - 1`` and lowered to the complete graph.
    """
    shuffled = np.argsort(rng.integers(2**62, size=nodes), kind="stable")
    tree = shuffled[recursive_tree(rng, nodes)]
    return add_edges(rng, tree, nodes * (nodes - 1) // 2, max(count - len(tree), 0))


def add_edges(rng: np.random.Generator, tree: Edges, complete: int, count: int) -> Edges:
    """Add ``count`` random edges, of those among the first ``complete`` codes that the tree leaves free."""
    taken = np.sort(codes(tree))
    extra = _skip(distinct(rng, complete - len(taken), min(count, complete - len(taken))), taken)
    return ordered(np.concatenate([tree, pairs(extra)]))


def _skip(numbers: NDArray[np.int64], taken: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the i-th number that is not taken, for every i; ``taken`` ascends."""
    return numbers + np.searchsorted(taken - np.arange(len(taken)), numbers, side="right")


def across(rng: np.random.Generator, groups: int, members: int, count: int) -> NDArray[np.int64]:
    """Return edges between members of different groups that connect the groups.

    A random tree over the groups comes first, each of its edges between random members, then uniformly random
    further pairs.

    Parameters
    ----------
    groups, members
        How many groups, and members in each.
    count
        Number of edges, raised to ``groups - 1`` and lowered to all pairs across groups.

    Returns
    -------
    ndarray, shape (m, 4)
        Group and member of one end, group and member of the other; in ascending order.
    """
    tree = recursive_tree(rng, groups)
    ends = rng.integers(members, size=(len(tree), 2))
    square = members * members
    taken = np.sort(codes(tree) * square + ends[:, 0] * members + ends[:, 1])
    free = groups * (groups - 1) // 2 * square - len(taken)
    extra = _skip(distinct(rng, free, min(max(count - len(tree), 0), free)), taken)
    code = np.concatenate([taken, extra])
    group, member = pairs(code // square), code % square
    table: NDArray[Any] = np.stack([group[:, 0], member // members, group[:, 1], member % members], axis=1)
    return table[np.lexsort(table.T[::-1])]
