"""The plug-in protocol of pseudo-tree heuristics: what a heuristic knows of the agents, and what it returns.

A heuristic returns the parent of each agent. The tree has to be a pseudo-tree: of two agents that share a factor, one
is an ancestor of the other. Neighbours in the tree need not share a factor.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.compact_sequences import IndexGroups
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.types import Ints

ROOT = -1
"""The parent of a root."""


@dataclass(frozen=True)
class AgentGraph:
    """The agents and the factors between them, as every rank knows them, also with private inputs.

    Attributes
    ----------
    agents : sequence of str
        The agents' names.
    neighbours : IndexGroups
        For each agent, the agents that share factors with it, ascending: a sequence of tuples of int.
    scopes : sequence of tuple of int
        The agents of each factor between agents, ascending.
    rows : (agents,) float64
        Number of assignments of each agent's interface variables, at most 1e300.
    """

    agents: Sequence[str]
    neighbours: IndexGroups
    scopes: Sequence[tuple[int, ...]]
    rows: NDArray[np.float64]

    def by_degree(self, root: int | None = None) -> list[int]:
        """Return all agents by descending number of neighbours, then by index.

        Parameters
        ----------
        root : int, optional
            An agent that comes first.

        Returns
        -------
        list of int
            The agents.
        """
        degree = self.neighbours.lengths.tolist()
        return sorted(range(len(degree)), key=lambda a: (a != root, -degree[a], a))


@dataclass(frozen=True)
class TreeHeuristic:
    """A rule that arranges agents in a pseudo-tree.

    Attributes
    ----------
    name, summary : str
        Name in ``combine.tree``, and a one-line description.
    parents : callable
        ``parents(graph, root)`` returns the parent of each agent of an :class:`AgentGraph`, −1 for roots. ``root`` is
        the agent that ``combine.root`` names, or None; it has to be the root of its connected component. The result
        depends on the arguments only.
    """

    name: str
    summary: str
    parents: Callable[[AgentGraph, int | None], Sequence[int]]


def checked_parents(heuristic: TreeHeuristic, graph: AgentGraph, root: int | None) -> Sequence[int]:
    """Return the parents that a heuristic gives, if they form a pseudo-tree.

    Raises
    ------
    ConfigError
        If the heuristic fails, or its result is not a pseudo-tree with the given root; names the first fault.
    """
    where, n = f"combine.tree: {heuristic.name}", len(graph.neighbours)
    try:
        parents = np.array(list(heuristic.parents(graph, root)), dtype=np.int64)
    except ConfigError:
        raise
    except Exception as error:  # a plug-in may raise anything
        raise ConfigError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if parents.shape != (n,) or (n and not ROOT <= parents.min() <= parents.max() < n):
        raise ConfigError(f"{where}: expected {n} parents, each {ROOT} or the index of an agent")
    entered, left = _visits(parents)
    for agent in np.flatnonzero(entered < 0)[:1].tolist():
        raise ConfigError(f"{where}: agent {graph.agents[agent]!r} is its own ancestor")
    if root is not None and parents[root] != ROOT:
        raise ConfigError(f"combine.root: {graph.agents[root]!r} is not a root in the tree of {heuristic.name}")
    for scope in graph.scopes:
        path = sorted(scope, key=entered.__getitem__)
        for above, below in pairwise(path):
            if not entered[above] < entered[below] < left[above]:
                names = " and ".join(repr(graph.agents[a]) for a in sorted((above, below)))
                raise ConfigError(f"{where}: {names} share a factor, but neither is an ancestor of the other")
    return array("i", parents.tolist())


def elimination_tree(order: Sequence[int], neighbours: Sequence[tuple[int, ...]]) -> "array[int]":
    """Return the parents in the tree of an elimination order over all agents, −1 for roots.

    Liu's algorithm: each agent becomes the parent of the trees in which its earlier neighbours are. ``shortcut`` leads
    from an agent to a later one in its tree (path compression).
    """
    rank = array("i", [0]) * len(neighbours)
    for position, agent in enumerate(order):
        rank[agent] = position
    parent, shortcut = array("i", [ROOT]) * len(neighbours), array("i", [ROOT]) * len(neighbours)
    for agent in order:
        for other in neighbours[agent]:
            if rank[other] > rank[agent]:
                continue
            top = other
            while shortcut[top] not in (ROOT, agent):
                shortcut[top], top = agent, shortcut[top]
            if shortcut[top] == ROOT:
                shortcut[top] = parent[top] = agent
    return parent


def _visits(parents: Ints) -> tuple[Ints, Ints]:
    """Return when a depth-first walk enters and leaves each agent, (agents,) int64 each; −1 for agents on a cycle.

    The walk counts the agents that it has entered. Agent b is a descendant of a if entered[a] < entered[b] < left[a].
    """
    n = len(parents)
    children = IndexGroups.by_group(parents[parents >= 0], n, np.flatnonzero(parents >= 0))
    entered, left, count = np.full(n, -1), np.full(n, -1), 0
    stack = np.flatnonzero(parents < 0).tolist()
    while stack:
        agent = stack[-1]
        if entered[agent] < 0:
            entered[agent], count = count, count + 1
            stack.extend(children[agent])
        else:
            left[stack.pop()] = count
    return entered, left
