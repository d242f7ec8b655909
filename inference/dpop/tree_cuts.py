"""Cut the bucket tree of an elimination order into connected parts, one per agent.

The bucket of a variable also holds variables that are eliminated later. The message from the variable's subtree to
the other part ranges over these (the shared variables), so cuts with few shared variables suit DPOP. The parts are
used by :mod:`dmcmc.inference.dpop.assign_variables`.
"""

from collections.abc import Sequence
from math import log2
from typing import NamedTuple

import numpy as np

from dmcmc.inference.dpop.tuning import MAX_PART_RATIO, SIZE_TOLERANCE
from dmcmc.inference.runtime.types import Ints

NeighbourSets = list[set[int]]


class BucketTree(NamedTuple):
    """The bucket tree of an elimination order.

    Attributes
    ----------
    order : sequence of int
        Variables, children before parents.
    parent : list of int
        The parent of each variable, −1 for a root.
    shared : list of int
        The number of later variables in each variable's bucket: those that a message from its subtree ranges
        over.
    bits : list of float
        log2 of the cells of that message.
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
    parts_to_cut = [
        (list(tree.order), agents, 0)
    ]  # a part (children before parents), its number of agents, the first agent
    while parts_to_cut:
        part, count, first = parts_to_cut.pop()
        if count == 1:
            for v in part:
                owner[v] = first
            continue
        first_agents = count // 2
        cut = _cut(part, tree.parent, tree.shared, len(part) * first_agents // count, first_agents, count)
        parts_to_cut.append(([v for v in part if v in cut], first_agents, first))
        parts_to_cut.append(([v for v in part if v not in cut], count - first_agents, first + first_agents))
    return owner


def narrowest_cuts(tree: BucketTree, agents: int, min_variables: int) -> list[int] | None:
    """Cut off subtrees whose messages have the fewest cells; ties go to those closest to an equal size.

    Sizes are compared after rounding log2 of the cells to whole bits. A subtree has at most 1.5 times an equal share.

    Parameters
    ----------
    tree
        The bucket tree.
    agents
        The number of parts.
    min_variables
        Minimum number of variables per part. The last part is the remainder, which may be far larger than the
        others.

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
    equal_share, bits, owner = n / agents, np.round(tree.bits), np.full(n, agents - 1, dtype=np.int64)
    unassigned = np.ones(n, dtype=np.bool_)
    for part in range(agents - 1):
        # ``size`` counts only unassigned variables; enough of them must remain for the other parts.
        remaining_size = int(unassigned.sum()) - size
        fits = np.flatnonzero(
            unassigned
            & (size >= min_variables)
            & (size <= MAX_PART_RATIO * equal_share)
            & (remaining_size >= min_variables * (agents - 1 - part))
        )
        if not fits.size:
            return None
        root = int(fits[np.lexsort((fits, np.abs(size[fits] - equal_share), bits[fits]))[0]])
        in_subtree = np.zeros(n, dtype=np.bool_)
        in_subtree[root] = True
        for v in order[::-1].tolist():
            in_subtree[v] |= parent[v] >= 0 and in_subtree[parent[v]]
        in_subtree &= unassigned
        owner[in_subtree], unassigned[in_subtree] = part, False
        ancestor = int(parent[root])
        while ancestor >= 0:
            size[ancestor] -= size[root]
            ancestor = int(parent[ancestor])
    return owner.tolist()


def _cut(part: list[int], parent: list[int], shared: list[int], wanted: int, least: int, n_agents: int) -> set[int]:
    """Return a set of about ``wanted`` variables of ``part``: subtrees, preferably with few shared variables.

    Parameters
    ----------
    part
        Variables of the part, children before parents.
    parent, shared
        As in :class:`BucketTree`.
    wanted
        The wanted number of variables.
    least
        Minimum number of variables in the result (its number of agents).
    n_agents
        Number of agents of the whole part; at least ``n_agents - least`` variables remain.
    """
    inside = set(part)
    children: dict[int, list[int]] = {v: [] for v in part}
    size = dict.fromkeys(part, 1)
    for v in part:
        if parent[v] in inside:
            children[parent[v]].append(v)
            size[parent[v]] += size[v]
    wanted = max(wanted, least)
    max_size = min(wanted + int(SIZE_TOLERANCE * wanted), len(part) - (n_agents - least))
    fitting = [v for v in part if abs(size[v] - wanted) <= SIZE_TOLERANCE * wanted and size[v] <= max_size]
    if fitting:
        return _below(min(fitting, key=lambda v: (shared[v], abs(size[v] - wanted), v)), children, set())
    taken: set[int] = set()
    for v in sorted(part, key=lambda v: (-size[v], shared[v], v)):
        # All ancestors of v were too large; a leaf always fits.
        if v not in taken and size[v] <= max(1, max_size - len(taken)):
            taken |= _below(v, children, taken)
        if len(taken) >= wanted:
            break
    return taken


def _below(root: int, children: dict[int, list[int]], taken: set[int]) -> set[int]:
    """Return the subtree of a variable without the variables in ``taken``."""
    subtree, queue = {root}, [root]
    while queue:
        children_of_v = [c for c in children[queue.pop()] if c not in taken]
        subtree.update(children_of_v)
        queue += children_of_v
    return subtree
