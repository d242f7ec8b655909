"""Trees of elimination orders: the parent of an agent is the first later agent in its bucket.

Each elimination order has such a tree, which is the shallowest pseudo-tree in which every agent comes before its
ancestors in the order (Liu, SIAM Journal on Matrix Analysis and Applications 11, 1990). ``min-fill`` is the tree of the
min-fill order: next is the agent for which the fewest pairs of neighbours have to be connected.
"""

from array import array
from collections.abc import Sequence

import numpy as np

from dmcmc.inference.dpop.trees.contract import AgentGraph, TreeHeuristic, elimination_tree
from dmcmc.inference.orders.best_order import primal_graph, rule_order
from dmcmc.inference.orders.tuning import MAX_RULE_AGENTS
from dmcmc.inference.runtime.errors import ConfigError


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
