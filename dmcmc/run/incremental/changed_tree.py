"""Repair a pseudo-tree after factors between agents have been added or removed.

A pseudo-tree is the elimination tree of an order of the agents: an agent's separator holds the variables of later
agents that share a factor with it or with its children's separators, and its parent is the first agent of the
separator. With the order fixed, only separators between a change and the root can change, and the work stops where one
stays as it was. A new factor between two branches merges their paths; where a path ends, an agent becomes a root.
"""

from array import array
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.pseudotree import PseudoTree


class CrossingChanges(NamedTuple):
    """Changes of the factors between agents.

    Attributes
    ----------
    removed : set of int
        Numbers of the factors that are no longer there.
    added : list of int
        Numbers of the new factors.
    scopes : sequence of tuple of int
        The variables of all factors between agents, by their numbers.
    moved : set of int
        Variables with another owner than before. All factors over them count as removed and added.
    owner : (variables,) int64
        The agent of each variable after the change.
    """

    removed: set[int]
    added: list[int]
    scopes: Sequence[tuple[int, ...]]
    moved: set[int]
    owner: NDArray[np.int64]


class ChangedTree(NamedTuple):
    """A repaired pseudo-tree.

    Attributes
    ----------
    tree : PseudoTree
        The tree.
    agents : set of int
        The agents whose factors, children, separator or parent have changed.
    """

    tree: PseudoTree
    agents: set[int]


def changed_tree(
    tree: PseudoTree, positions: Sequence[int], changes: CrossingChanges, dirty: Iterable[int] = ()
) -> ChangedTree:
    """Return a pseudo-tree with other factors between agents, by the same elimination order.

    Parameters
    ----------
    tree
        The tree before the change.
    positions
        The position of each agent in the elimination order, also of agents that the tree does not have yet.
    changes
        The changes of the factors between agents.
    dirty
        More agents whose separators have to be found again: those that owned a moved variable, or own it now.
    """
    more, owners, scopes = len(positions) - len(tree.parent), changes.owner.tolist(), changes.scopes
    parent, agents = [*tree.parent, *[-1] * more], {*range(len(tree.parent), len(positions)), *dirty}
    children, placed = [*tree.children, *[()] * more], [*tree.placed, *[()] * more]
    separators = [*tree.separators, *[()] * more]
    if changes.moved:
        agents.update(agent for agent, separator in enumerate(separators) if not changes.moved.isdisjoint(separator))
    if changes.removed:
        for agent, numbers in enumerate(placed):
            if not changes.removed.isdisjoint(numbers):
                placed[agent] = tuple(number for number in numbers if number not in changes.removed)
                agents.add(agent)
    for number in changes.added:
        deepest = min({owners[v] for v in scopes[number]}, key=positions.__getitem__)
        placed[deepest] = (*placed[deepest], number)
        agents.add(deepest)
    queue = [(positions[agent], agent) for agent in agents]
    heapify(queue)
    while queue:
        _, agent = heappop(queue)
        reach = {v for number in placed[agent] for v in scopes[number]}
        reach.update(v for child in children[agent] for v in separators[child])
        separator = tuple(sorted(v for v in reach if owners[v] != agent))
        above = min((owners[v] for v in separator), key=positions.__getitem__, default=-1)
        below = parent[agent]
        if (separator, above) == (separators[agent], below):
            continue
        separators[agent], parent[agent] = separator, above
        if above != below and below >= 0:
            children[below] = tuple(child for child in children[below] if child != agent)
        if above != below and above >= 0:
            children[above] = tuple(sorted((*children[above], agent)))
        for other in {above, below} - {-1} - agents:
            agents.add(other)
            heappush(queue, (positions[other], other))
    bottom_up = array("i", sorted(range(len(parent)), key=positions.__getitem__))
    return ChangedTree(PseudoTree(array("i", parent), children, bottom_up, separators, placed), agents)
