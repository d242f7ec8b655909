"""The ways to build a pseudo-tree, by name, and their interface.

The plug-in protocol of pseudo-tree heuristics: what a heuristic knows of the agents, and what it returns.

A heuristic returns the parent of each agent. The tree has to be a pseudo-tree: of two agents that share a factor, one
is an ancestor of the other. Neighbours in the tree need not share a factor.

Pseudo-tree heuristics by name: the built-in ones, and those of other packages, registered under ``dmcmc.trees``.

``names()`` returns the summary of each heuristic by name. ``get(name)`` returns a heuristic, or raises an error with
the valid names.

Breadth-first pseudo-trees, as for BFSDPOP (Chen, He, He, Applied Intelligence 47, 2017).

A breadth-first tree of a graph is shallow, but edges of the graph may connect its branches (cross edges). BFSDPOP
leaves the tree as it is, and eliminates a variable with a cross edge only at the common ancestor of both branches. Here
an agent is below its neighbours that come before it in the breadth-first order, on one branch with them: the tree is
that of the elimination order from the last agent of the search to the first. Where there is no cross edge, it is the
breadth-first tree.

Depth-first trees: two agents that share a factor are on one branch of every depth-first tree of the agents' graph.

``max-degree`` starts from the agent with the most neighbours, and visits neighbours with many neighbours first. It is
the usual heuristic of DPOP (Petcu, Faltings, IJCAI 2005), and the one that FRODO calls most connected. The agents can
find this tree by messages: ``combine.tree: depth-first``.

``max-cardinality`` visits the neighbour first that has the most visited neighbours, as in maximum cardinality search
(Tarjan, Yannakakis, SIAM Journal on Computing 13, 1984). Ties go to the agent with more neighbours, then to the lower
index.

Trees of elimination orders: the parent of an agent is the first later agent in its bucket.

Each elimination order has such a tree, which is the shallowest pseudo-tree in which every agent comes before its
ancestors in the order (Liu, SIAM Journal on Matrix Analysis and Applications 11, 1990). ``min-fill`` is the tree of the
min-fill order: next is the agent for which the fewest pairs of neighbours have to be connected.

Shallow pseudo-trees: agents on different branches work at the same time, so that runs take as long as the depth.

A tree of least depth is hard to find. ``min-depth`` is the shallowest of the trees of all other heuristics and of one
that removes agents: the root is the agent without which the largest connected component is smallest, and so on in each
component (with ties by the number of neighbours). Agents that share a factor stay in one component until one of them is
removed, so they end on one branch.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.compact_sequences import IndexGroups
from dmcmc.inference.orders.best_order import primal_graph, rule_order
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.plugins import Plugins
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import MAX_RULE_AGENTS

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


def breadth_first_order(graph: AgentGraph, root: int | None = None) -> list[int]:
    """Return all agents in breadth-first order from agents of high degree; neighbours of high degree first."""
    degree, order = graph.neighbours.lengths.tolist(), list[int]()
    seen = [False] * len(degree)
    for first in graph.by_degree(root):
        waiting = deque([] if seen[first] else [first])
        seen[first] = True
        while waiting:
            agent = waiting.popleft()
            order.append(agent)
            new = [other for other in graph.neighbours[agent] if not seen[other]]
            for other in sorted(new, key=lambda a: (-degree[a], a)):
                seen[other] = True
                waiting.append(other)
    return order


def _breadth_first(graph: AgentGraph, root: int | None) -> Sequence[int]:
    """Return the shallowest pseudo-tree in which ancestors come first in the breadth-first order."""
    return elimination_tree(breadth_first_order(graph, root)[::-1], graph.neighbours)


BREADTH_FIRST = TreeHeuristic(
    "breadth-first", "breadth-first, with the agents of cross edges on one branch", _breadth_first
)


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


def rule_tree(graph: AgentGraph, rule: str, root: int | None) -> "array[int]":
    """Return the tree of the order of a greedy rule (:data:`~dmcmc.inference.orders.best_order.RULES`).

    Parameters
    ----------
    graph
        The agents; at most ``MAX_RULE_AGENTS``.
    rule
        The rule.
    root
        The agent that is eliminated last; None for any.
    """
    n = len(graph.neighbours)
    eliminated = np.ones(n, dtype=np.bool_)
    if root is not None:
        eliminated[root] = False
    adjacent = primal_graph(graph.scopes, {a: a for a in range(n)})
    order = rule_order(adjacent, graph.rows, eliminated, rule).variables if eliminated.any() else ()
    return elimination_tree([*order, *([] if root is None else [root])], graph.neighbours)


def _min_fill(graph: AgentGraph, root: int | None) -> Sequence[int]:
    """Return the tree of the min-fill order."""
    if len(graph.neighbours) > MAX_RULE_AGENTS:
        agents = f"{len(graph.neighbours):,} agents"
        raise ConfigError(
            f"combine.tree: min-fill takes at most {MAX_RULE_AGENTS:,} agents, got {agents}; use max-degree"
        )
    return rule_tree(graph, "min-fill", root)


MIN_FILL = TreeHeuristic("min-fill", f"the tree of the min-fill order; up to {MAX_RULE_AGENTS:,} agents", _min_fill)


def depths(parents: Sequence[int]) -> list[int]:
    """Return for each agent the number of agents from its root down to it, 1 for a root."""
    found = [0] * len(parents)
    for agent in range(len(parents)):
        path = []
        while agent >= 0 and not found[agent]:
            path.append(agent)
            agent = parents[agent]
        depth = found[agent] if agent >= 0 else 0
        for below in reversed(path):
            depth += 1
            found[below] = depth
    return found


def removal_tree(graph: AgentGraph, root: int | None = None) -> "array[int]":
    """Return the parents of the tree that removes the agent which leaves the smallest largest component."""
    neighbours = [set(group) for group in graph.neighbours]
    parent = array("i", [ROOT]) * len(neighbours)
    waiting = [(ROOT, component) for component in connected_components(neighbours, set(range(len(neighbours))))]
    while waiting:
        above, component = waiting.pop()
        removed = root if root in component else _best_separator(neighbours, component)
        assert removed is not None
        parent[removed] = above
        component.discard(removed)
        waiting += [(removed, part) for part in connected_components(neighbours, component)]
    return parent


def connected_components(neighbours: Sequence[set[int]], agents: set[int]) -> list[set[int]]:
    """Return the connected components of the graph of some agents; ``agents`` is not changed."""
    left, found = set(agents), []
    while left:
        first = left.pop()
        component, waiting = {first}, [first]
        while waiting:
            new = neighbours[waiting.pop()] & left
            left -= new
            component |= new
            waiting.extend(new)
        found.append(component)
    return found


def _best_separator(neighbours: Sequence[set[int]], component: set[int]) -> int:
    """Return the agent of a connected component whose removal leaves the smallest largest component.

    Ties go to the agent with more neighbours in the component, then to the lower index. A depth-first walk counts the
    agents below each agent; a child's subtree is a component without the agent if no edge from it leads above the agent
    (Hopcroft, Tarjan, Communications of the ACM 16, 1973).
    """
    size, first = len(component), min(component)
    entered, low, below, cut_off, largest = dict[int, int](), dict[int, int](), dict[int, int](), dict[int, int](), {}
    stack = [(first, ROOT, iter(sorted(neighbours[first] & component)))]
    entered[first] = low[first] = 0
    below[first], cut_off[first], largest[first] = 1, 0, 0
    while stack:
        agent, above, remaining = stack[-1]
        other = next(remaining, None)
        if other is None:
            stack.pop()
            largest[agent] = max(largest[agent], size - 1 - cut_off[agent])
            if above >= 0:
                low[above] = min(low[above], low[agent])
                below[above] += below[agent]
                if low[agent] >= entered[above]:
                    cut_off[above] += below[agent]
                    largest[above] = max(largest[above], below[agent])
        elif other not in entered:
            entered[other] = low[other] = len(entered)
            below[other], cut_off[other], largest[other] = 1, 0, 0
            stack.append((other, agent, iter(sorted(neighbours[other] & component))))
        elif other != above:
            low[agent] = min(low[agent], entered[other])
    return min(component, key=lambda a: (largest[a], -len(neighbours[a] & component), a))


def _min_depth(graph: AgentGraph, root: int | None) -> Sequence[int]:
    """Return the shallowest tree of all heuristics; ties go to the first."""
    small = len(graph.neighbours) <= MAX_RULE_AGENTS
    heuristics = [MAX_DEGREE, MAX_CARDINALITY, BREADTH_FIRST, *([MIN_FILL] if small else [])]
    trees = [heuristic.parents(graph, root) for heuristic in heuristics]
    if small:
        trees.append(removal_tree(graph, root))
    return min(trees, key=lambda parents: max(depths(parents), default=0))


MIN_DEPTH = TreeHeuristic("min-depth", "the shallowest tree of several heuristics", _min_depth)


GROUP = "dmcmc.trees"
AUTO = "auto"  # the cheapest tree of a portfolio (``dmcmc.inference.dpop.pseudotree``)
DISTRIBUTED = "depth-first"  # the tree that agents find by messages (``dmcmc.mpi.distributed_dfs``)
BUILT_IN = (MAX_DEGREE, MAX_CARDINALITY, BREADTH_FIRST, MIN_DEPTH, MIN_FILL)


_PLUGINS: Plugins[TreeHeuristic] = Plugins(
    group=GROUP,
    noun="tree heuristic",
    built_in={heuristic.name: heuristic for heuristic in BUILT_IN},
    accept=lambda loaded: loaded if isinstance(loaded, TreeHeuristic) else None,
    expected="is not a TreeHeuristic",
    other_names=(AUTO, DISTRIBUTED),
)
names = _PLUGINS.names
get = _PLUGINS.get
