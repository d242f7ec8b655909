"""Shallow pseudo-trees: agents on different branches work at the same time, so that runs take as long as the depth.

A tree of least depth is hard to find. ``min-depth`` is the shallowest of the trees of all other heuristics and of one
that removes agents: the root is the agent without which the largest connected component is smallest, and so on in each
component (with ties by the number of neighbours). Agents that share a factor stay in one component until one of them is
removed, so they end on one branch.
"""

from array import array
from collections.abc import Sequence

from dmcmc.inference.dpop.trees.breadth_first import BREADTH_FIRST
from dmcmc.inference.dpop.trees.contract import ROOT, AgentGraph, TreeHeuristic
from dmcmc.inference.dpop.trees.depth_first import MAX_CARDINALITY, MAX_DEGREE
from dmcmc.inference.dpop.trees.elimination_trees import MIN_FILL
from dmcmc.inference.orders.tuning import MAX_RULE_AGENTS


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
    waiting = [(ROOT, component) for component in _components(neighbours, set(range(len(neighbours))))]
    while waiting:
        above, component = waiting.pop()
        removed = root if root in component else _best_separator(neighbours, component)
        assert removed is not None
        parent[removed] = above
        component.discard(removed)
        waiting += [(removed, part) for part in _components(neighbours, component)]
    return parent


def _components(neighbours: Sequence[set[int]], agents: set[int]) -> list[set[int]]:
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
