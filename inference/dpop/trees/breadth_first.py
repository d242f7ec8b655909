"""Breadth-first pseudo-trees, as for BFSDPOP (Chen, He, He, Applied Intelligence 47, 2017).

A breadth-first tree of a graph is shallow, but edges of the graph may connect its branches (cross edges). BFSDPOP
leaves the tree as it is, and eliminates a variable with a cross edge only at the common ancestor of both branches. Here
an agent is below its neighbours that come before it in the breadth-first order, on one branch with them: the tree is
that of the elimination order from the last agent of the search to the first. Where there is no cross edge, it is the
breadth-first tree.
"""

from collections import deque
from collections.abc import Sequence

from dmcmc.inference.dpop.trees.contract import AgentGraph, TreeHeuristic, elimination_tree


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
