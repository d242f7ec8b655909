"""Parents that make a spanning tree."""

from collections.abc import Hashable, Sequence
from typing import Any

from dmcmc.inference.model.automaton import Step


def spanning_tree(shape: Sequence[int]) -> tuple[Hashable, Step]:
    """Return the first state and the step of an automaton that reads each node's parent; the root is its own.

    A state is where following parents leads from each node, so far: a partition of the nodes with a node in each part,
    and whether there is a root.
    """
    nodes = range(len(shape))

    def step(position: int, state: Any, parent: int) -> tuple[Hashable, int | float | None]:
        ends, rooted = state
        if parent == position:
            return (None, None) if rooted else ((ends, True), 0)
        if parent >= len(shape) or ends[parent] == position:
            return None, None  # no such node, or a cycle
        ends = tuple(ends[parent] if end == position else end for end in ends)
        return (ends, rooted) if position + 1 < len(shape) else 0, 0 if rooted or position + 1 < len(shape) else None

    return (tuple(nodes), False), step
