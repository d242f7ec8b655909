"""Cuts of an elimination order's bucket tree into connected parts.

The subtree of a variable meets the rest in the variables that its bucket shares with those above: what a message
between the two ranges over.
"""

from collections.abc import Sequence
from math import log2
from typing import NamedTuple

import numpy as np

from dmcmc.inference.runtime.types import Ints

Graph = list[set[int]]

_SLACK = 0.15  # by how much a part may exceed its share of the variables


class BucketTree(NamedTuple):
    """The tree of an order.

    Attributes
    ----------
    order : sequence of int
        Variables, children before parents.
    parent : list of int
        Of each variable, −1 for a root.
    shared : list of int
        How many variables each bucket shares with those above.
    bits : list of float
        log2 of the cells over these.
    """

    order: Sequence[int]
    parent: list[int]
    shared: list[int]
    bits: list[float]


def bucket_tree(graph: Graph, order: Sequence[int], domains: Ints) -> BucketTree:
    """Return the tree of an elimination order."""
    rank = {v: i for i, v in enumerate(order)}
    above = [{u for u in around if rank[u] > rank[v]} for v, around in enumerate(graph)]
    parent = [-1] * len(graph)
    for v in order:
        if above[v]:
            parent[v] = min(above[v], key=rank.__getitem__)
            above[parent[v]] |= above[v] - {parent[v]}
    weight = [log2(d) for d in domains.tolist()]
    return BucketTree(order, parent, [len(a) for a in above], [sum(weight[u] for u in a) for a in above])


def halved(tree: BucketTree, agents: int) -> list[int]:
    """Halve the tree again and again, where few variables are shared, until there is a part for every agent."""
    owner = [0] * len(tree.parent)
    waiting = [(list(tree.order), agents, 0)]  # a part, children before parents; how many of it; the first one's number
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


def narrowest(tree: BucketTree, agents: int, least: int) -> list[int] | None:
    """Cut off the subtrees that share the fewest cells with the rest, those of about an equal share of variables first.

    Parameters
    ----------
    least
        Variables of a part at least. The last part is what is left over: it may be far larger than the others.

    Returns
    -------
    list of int or None
        Each variable's part; None where there are no such subtrees.
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
    """Return a piece of ``part`` of about ``share`` variables: subtrees, those that share least with the rest first.

    The piece has at least ``least`` variables and leaves at least ``count - least``.
    """
    inside = set(part)
    children: dict[int, list[int]] = {v: [] for v in part}
    size = dict.fromkeys(part, 1)
    for v in part:
        if parent[v] in inside:
            children[parent[v]].append(v)
            size[parent[v]] += size[v]
    share = max(share, least)
    most = min(share + int(_SLACK * share), len(part) - (count - least))
    fitting = [v for v in part if abs(size[v] - share) <= _SLACK * share and size[v] <= most]
    if fitting:
        return _below(min(fitting, key=lambda v: (shared[v], abs(size[v] - share), v)), children, set())
    taken: set[int] = set()
    for v in sorted(part, key=lambda v: (-size[v], shared[v], v)):
        # What is above v was too large; a leaf always fits.
        if v not in taken and size[v] <= max(1, most - len(taken)):
            taken |= _below(v, children, taken)
        if len(taken) >= share:
            break
    return taken


def _below(top: int, children: dict[int, list[int]], taken: set[int]) -> set[int]:
    """Return the subtree of ``top`` without what is taken."""
    found, queue = {top}, [top]
    while queue:
        new = [c for c in children[queue.pop()] if c not in taken]
        found.update(new)
        queue += new
    return found
