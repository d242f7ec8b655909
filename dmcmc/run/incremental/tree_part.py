"""Parts of a pseudo-tree: the agents on the paths from some agents to the roots, and single agents."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dmcmc.inference.dpop.pseudotree import PseudoTree
from dmcmc.inference.model.compact_sequences import LazySequence


def paths_to_roots(tree: PseudoTree, agents: Iterable[int]) -> set[int]:
    """Return some agents and all of their ancestors."""
    found = set[int]()
    for agent in agents:
        while agent >= 0 and agent not in found:
            found.add(agent)
            agent = tree.parent[agent]
    return found


def part_of(tree: PseudoTree, agents: set[int], depth_first_position: Sequence[int]) -> PseudoTree:
    """Return the tree with some of its agents; the children of each are those among them.

    Parameters
    ----------
    tree
        The whole tree.
    agents
        The agents of the part.
    depth_first_position
        The position of each agent in ``tree.bottom_up``.
    """
    children = {agent: tuple(child for child in tree.children[agent] if child in agents) for agent in agents}
    return replace(
        tree,
        bottom_up=sorted(agents, key=depth_first_position.__getitem__),
        children=LazySequence[tuple[int, ...]](len(tree.parent), lambda _: (), children),
    )
