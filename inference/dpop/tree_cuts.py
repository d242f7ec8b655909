"""Cut the bucket tree of an elimination order into connected parts.

The subtree of a variable shares with the rest of the problem the variables of its bucket that are eliminated later. A
message between the two parts ranges over these.
"""

from collections.abc import Sequence
from math import log2
from typing import NamedTuple

import numpy as np

from dmcmc.inference.runtime.types import Ints

NeighbourSets = list[set[int]]

_SIZE_TOLERANCE = 0.15  # largest relative excess of a part over an equal share of the variables


class BucketTree(NamedTuple):
    """The bucket tree of an elimination order.

    Attributes
    ----------
    order : sequence of int
        Variables, children before parents.
    parent : list of int
        The parent of each variable, −1 for a root.
    shared : list of int
        The number of later variables in each variable's bucket.
    bits : list of float
        log2 of the cells over these variables.
    """

    order: Sequence[int]
    parent: list[int]
    shared: list[int]
    bits: list[float]


def bucket_tree(graph: NeighbourSets, order: Sequence[int], domains: Ints) -> BucketTree:
    """Return the bucket tree of an elimination order.

    Parameters
    ----------
    graph
        For each variable the set of its neighbours.
    order
        All variables in elimination order.
    domains : (variables,) int64
        Domain sizes.
    """
    rank = {v: i for i, v in enumerate(order)}
    later = [{u for u in neighbours if rank[u] > rank[v]} for v, neighbours in enumerate(graph)]
    parent = [-1] * len(graph)
    for v in order:
        if later[v]:
            parent[v] = min(later[v], key=rank.__getitem__)
            later[parent[v]] |= later[v] - {parent[v]}
    weight = [log2(d) for d in domains.tolist()]
    return BucketTree(order, parent, [len(a) for a in later], [sum(weight[u] for u in a) for a in later])


def bisected(tree: BucketTree, agents: int) -> list[int]:
    """Bisect the tree recursively, where few variables are shared, into one part per agent.

    Returns
    -------
    list of int
        Each variable's part, 0 to ``agents`` − 1.
    """
    owner = [0] * len(tree.parent)
    waiting = [(list(tree.order), agents, 0)]  # a part (children before parents), its number of agents, the first agent
    while waiting:
        part, count, first = waiting.pop()
        if count == 1:
            for v in part:
                owner[v] = first
            continue
        small = count // 2
        cut = _cut(part, tree.parent, tree.shared, len(part) * small // count, small, count)
        waiting.append(([v for v in part if v in cut], small, first))
        waiting.append(([v for v in part if v not in cut], count - small, first + small))
    return owner


def narrowest_cuts(tree: BucketTree, agents: int, least: int) -> list[int] | None:
    """Cut off subtrees that share the fewest cells with the rest; ties go to those closest to an equal size.

    Parameters
    ----------
    tree
        The bucket tree.
    agents
        The number of parts.
    least
        Minimum number of variables per part. The last part is the remainder, which may be far larger than the others.

    Returns
    -------
    list of int or None
        Each variable's part; None if there are not enough such subtrees.
    """
    n = len(tree.parent)
    order, parent = np.array(tree.order, dtype=np.int64), np.array(tree.parent, dtype=np.int64)
    size = np.ones(n, dtype=np.int64)
    for v in tree.order:
        if tree.parent[v] >= 0:
            size[parent[v]] += size[v]
    share, bits, owner = n / agents, np.round(tree.bits), np.full(n, agents - 1, dtype=np.int64)
    open_ = np.ones(n, dtype=np.bool_)
    for number in range(agents - 1):
        left = int(open_.sum()) - size
        fits = np.flatnonzero(open_ & (size >= least) & (size <= 1.5 * share) & (left >= least * (agents - 1 - number)))
        if not fits.size:
            return None
        top = int(fits[np.lexsort((fits, np.abs(size[fits] - share), bits[fits]))[0]])
        inside = np.zeros(n, dtype=np.bool_)
        inside[top] = True
        for v in order[::-1].tolist():
            inside[v] |= parent[v] >= 0 and inside[parent[v]]
        inside &= open_
        owner[inside], open_[inside] = number, False
        above = int(parent[top])
        while above >= 0:
            size[above] -= size[top]
            above = int(parent[above])
    return owner.tolist()


def _cut(part: list[int], parent: list[int], shared: list[int], share: int, least: int, count: int) -> set[int]:
    """Return a set of about ``share`` variables of ``part``: subtrees, preferably those that share least with the rest.

    Parameters
    ----------
    part
        Variables of the part, children before parents.
    parent, shared
        As in :class:`BucketTree`.
    share
        The wanted number of variables.
    least
        Minimum number of variables in the result (its number of agents).
    count
        Number of agents of the whole part; at least ``count - least`` variables remain.
    """
    inside = set(part)
    children: dict[int, list[int]] = {v: [] for v in part}
    size = dict.fromkeys(part, 1)
    for v in part:
        if parent[v] in inside:
            children[parent[v]].append(v)
            size[parent[v]] += size[v]
    share = max(share, least)
    most = min(share + int(_SIZE_TOLERANCE * share), len(part) - (count - least))
    fitting = [v for v in part if abs(size[v] - share) <= _SIZE_TOLERANCE * share and size[v] <= most]
    if fitting:
        return _below(min(fitting, key=lambda v: (shared[v], abs(size[v] - share), v)), children, set())
    taken: set[int] = set()
    for v in sorted(part, key=lambda v: (-size[v], shared[v], v)):
        # All ancestors of v were too large; a leaf always fits.
        if v not in taken and size[v] <= max(1, most - len(taken)):
            taken |= _below(v, children, taken)
        if len(taken) >= share:
            break
    return taken


def _below(top: int, children: dict[int, list[int]], taken: set[int]) -> set[int]:
    """Return the subtree of ``top`` without the variables in ``taken``."""
    found, queue = {top}, [top]
    while queue:
        new = [c for c in children[queue.pop()] if c not in taken]
        found.update(new)
        queue += new
    return found
