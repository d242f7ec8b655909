"""Contract a pseudo-tree: adjacent agents with the same owner become one node, which that owner can eliminate at once.

An *owner* is a process or a subtree number: any label of agents.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dmcmc.inference.dpop.pseudotree import PseudoTree


class Contraction(NamedTuple):
    """The connected pieces of a pseudo-tree with one owner each.

    Attributes
    ----------
    pieces : tuple of tuple of int
        The agents of each piece, children before parents.
    tree : PseudoTree
        The pseudo-tree over pieces; its ``placed`` tuples are empty.
    owner : tuple of int
        The owner of each piece.
    """

    pieces: tuple[tuple[int, ...], ...]
    tree: PseudoTree
    owner: tuple[int, ...]


def contracted(tree: PseudoTree, owner: Sequence[int]) -> Contraction:
    """Return a pseudo-tree with adjacent agents of the same owner contracted, and likewise all roots of one owner.

    Examples
    --------
    >>> tree = PseudoTree((-1, 0, 1, 0), ((1, 3), (2,), (), ()), (2, 3, 1, 0), ((), (5,), (6,), (5,)), ((),) * 4)
    >>> found = contracted(tree, owner=[0, 0, 1, 0])
    >>> found.pieces, found.tree.parent, found.tree.separators
    (((3, 1, 0), (2,)), (-1, 0), ((), (6,)))
    """
    piece_of, agents, top_agents, root_piece = dict[int, int](), list[list[int]](), list[int](), dict[int, int]()
    parents = list[int]()
    for agent in reversed(tree.bottom_up):
        parent = tree.parent[agent]
        index = len(agents)
        if parent < 0:
            index = root_piece.setdefault(owner[agent], index)
        elif owner[parent] == owner[agent]:
            index = piece_of[parent]
        if index == len(agents):
            agents.append([])
            top_agents.append(agent)
            parents.append(-1 if parent < 0 else piece_of[parent])
        piece_of[agent] = index
        agents[index].append(agent)
    children: list[list[int]] = [[] for _ in agents]
    for index, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(index)
    return Contraction(
        tuple(tuple(reversed(one)) for one in agents),
        PseudoTree(
            parent=tuple(parents),
            children=tuple(map(tuple, children)),
            bottom_up=tuple(reversed(range(len(agents)))),
            separators=tuple(tree.separators[top] for top in top_agents),
            placed=((),) * len(agents),
        ),
        tuple(owner[top] for top in top_agents),
    )
