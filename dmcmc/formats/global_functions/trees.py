"""Automaton for the constraint that parents form a spanning tree."""

from collections.abc import Hashable, Sequence
from typing import Any

from dmcmc.inference.model.automaton import StepFunction


def spanning_tree(shape: Sequence[int]) -> tuple[Hashable, StepFunction]:
    """Return the initial state and the step of an automaton that reads each node's parent; the root is its own parent.

    A state holds the node that each node reaches by following the parents read so far, and whether a root was read. The
    reached nodes represent the parts of a partition of all nodes.
    """
    nodes = range(len(shape))

    def step(position: int, state: Any, parent: int) -> tuple[Hashable, int | float | None]:
        ends, has_root = state
        if parent == position:
            return (None, None) if has_root else ((ends, True), 0)
        if parent >= len(shape) or ends[parent] == position:
            return None, None  # no such node, or a cycle
        ends = tuple(ends[parent] if end == position else end for end in ends)
        return (ends, has_root) if position + 1 < len(shape) else 0, 0 if has_root or position + 1 < len(
            shape
        ) else None

    return (tuple(nodes), False), step
