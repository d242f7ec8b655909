"""Depth-first trees: two agents that share a factor are on one branch of every depth-first tree of the agents' graph.

``max-degree`` starts from the agent with the most neighbours, and visits neighbours with many neighbours first. It is
the usual heuristic of DPOP (Petcu, Faltings, IJCAI 2005), and the one that FRODO calls most connected. The agents can
find this tree by messages: ``combine.tree: depth-first``.

``max-cardinality`` visits the neighbour first that has the most visited neighbours, as in maximum cardinality search
(Tarjan, Yannakakis, SIAM Journal on Computing 13, 1984). Ties go to the agent with more neighbours, then to the lower
index.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dmcmc.inference.dpop.trees.contract import ROOT, AgentGraph, TreeHeuristic
from dmcmc.inference.model.compact_sequences import IndexGroups

_NOT_VISITED = -2


def depth_first(neighbours: IndexGroups, roots: Sequence[int]) -> "array[int]":
    """Return the parents in the depth-first forest from ``roots``; neighbours of high degree first, then by index."""
    return next(depth_first_forests(neighbours, [roots]))


def depth_first_forests(neighbours: IndexGroups, starts: Iterable[Sequence[int]]) -> Iterator["array[int]"]:
    """Yield the parents in the depth-first forests from several sequences of roots, see :func:`depth_first`."""
    degree = neighbours.lengths
    agent = np.repeat(np.arange(len(neighbours)), degree)
    flat = array("i", neighbours.flat[np.lexsort((neighbours.flat, -degree[neighbours.flat], agent))].tolist())
    start, end = array("i", neighbours.start[:-1].tolist()), array("i", neighbours.start[1:].tolist())
    for roots in starts:
        at, parent = start[:], array("i", [_NOT_VISITED]) * len(neighbours)
        for root in roots:
            if parent[root] != _NOT_VISITED:
                continue
            parent[root], current = ROOT, root
            while current >= 0:  # the walk back from a root leads to -1
                if at[current] == end[current]:
                    current = parent[current]
                    continue
                child = flat[at[current]]
                at[current] += 1
                if parent[child] == _NOT_VISITED:
                    parent[child], current = current, child
        yield parent


def _max_degree(graph: AgentGraph, root: int | None) -> Sequence[int]:
    """Return the depth-first forest from agents of high degree."""
    return depth_first(graph.neighbours, graph.by_degree(root))


def _max_cardinality(graph: AgentGraph, root: int | None) -> Sequence[int]:
    """Return the depth-first forest that continues with the neighbour that has the most visited neighbours.

    An agent's neighbours are sorted when it is visited. Those that are not visited when the walk returns to it have no
    neighbour among the agents visited in between, so their numbers of visited neighbours have not changed.
    """
    degree, visited_neighbours = graph.neighbours.lengths.tolist(), [0] * len(graph.neighbours)
    parent = [_NOT_VISITED] * len(graph.neighbours)
    for first in graph.by_degree(root):
        stack = [(ROOT, first)]
        while stack:
            above, agent = stack.pop()
            if parent[agent] != _NOT_VISITED:
                continue
            parent[agent] = above
            unvisited = [other for other in graph.neighbours[agent] if parent[other] == _NOT_VISITED]
            for other in unvisited:
                visited_neighbours[other] += 1
            unvisited.sort(key=lambda other: (visited_neighbours[other], degree[other], -other))
            stack.extend((agent, other) for other in unvisited)  # the last one is visited first
    return parent


MAX_DEGREE = TreeHeuristic("max-degree", "depth-first from the agent with the most neighbours", _max_degree)
MAX_CARDINALITY = TreeHeuristic(
    "max-cardinality", "depth-first, next the neighbour with the most visited neighbours", _max_cardinality
)
