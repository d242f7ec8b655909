"""Automaton for the global constraint ``MST``: the values are parents, and these must form a spanning tree."""

from collections.abc import Hashable, Sequence
from typing import Any

from dmcmc.inference.model.automaton import StepFunction


def spanning_tree(shape: Sequence[int]) -> tuple[Hashable, StepFunction]:
    """Return the initial state and the step of an automaton that reads each node's parent; the root is its own parent.

    A state holds ``chain_ends`` (the node that each node reaches by following the parents read so far) and whether a
    root was read. Nodes with the same chain end form one part of a partition of all nodes. A transition is forbidden if
    it closes a cycle, names a node that does not exist or a second root, or if no root was read at the end. As the
    result has n nodes, one root and no cycle, it is a spanning tree.
    """
    nodes = range(len(shape))

    def step(position: int, state: Any, parent: int) -> tuple[Hashable, int | float | None]:
        chain_ends, has_root = state
        if parent == position:
            return (None, None) if has_root else ((chain_ends, True), 0)
        if parent >= len(shape) or chain_ends[parent] == position:
            return None, None  # no such node, or a cycle
        chain_ends = tuple(chain_ends[parent] if chain_end == position else chain_end for chain_end in chain_ends)
        return (chain_ends, has_root) if position + 1 < len(shape) else 0, 0 if has_root or position + 1 < len(
            shape
        ) else None

    return (tuple(nodes), False), step
