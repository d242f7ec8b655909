"""Contract a pseudo-tree: adjacent agents with the same owner become one node, whose agents are eliminated jointly.

An *owner* is any integer label of agents, such as the number of a process. In a pseudo-tree, ``separators`` are the
variables of ancestors that an agent's message ranges over, and ``placed`` the factors between agents that it adds.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dmcmc.inference.dpop.pseudotree import PseudoTree


class Contraction(NamedTuple):
    """A pseudo-tree whose nodes are pieces: connected sets of agents that have the same owner.

    All roots of one owner belong to one piece, although no tree edge connects them.

    Attributes
    ----------
    pieces : tuple of tuple of int
        The agents of each piece, children before parents.
    tree : PseudoTree
        The pseudo-tree over pieces; its ``placed`` tuples are empty, since they refer to single agents.
    owner : tuple of int
        The owner of each piece.
    """

    pieces: tuple[tuple[int, ...], ...]
    tree: PseudoTree
    owner: tuple[int, ...]


def contracted(tree: PseudoTree, owner: Sequence[int]) -> Contraction:
    """Return a pseudo-tree with adjacent agents of the same owner contracted, and likewise all roots of one owner.

    A piece is numbered before its children, and its separator is that of its topmost agent.

    Examples
    --------
    >>> tree = PseudoTree((-1, 0, 1, 0), ((1, 3), (2,), (), ()), (2, 3, 1, 0), ((), (5,), (6,), (5,)), ((),) * 4)
    >>> found = contracted(tree, owner=[0, 0, 1, 0])
    >>> found.pieces, found.tree.parent, found.tree.separators
    (((3, 1, 0), (2,)), (-1, 0), ((), (6,)))
    """
    piece_of, pieces, top_agents, piece_of_root_owner = (
        dict[int, int](),
        list[list[int]](),
        list[int](),
        dict[int, int](),
    )
    parent_of_piece = list[int]()
    for agent in reversed(tree.bottom_up):
        parent = tree.parent[agent]
        number = len(pieces)
        if parent < 0:
            number = piece_of_root_owner.setdefault(owner[agent], number)
        elif owner[parent] == owner[agent]:
            number = piece_of[parent]
        if number == len(pieces):
            pieces.append([])
            top_agents.append(agent)
            parent_of_piece.append(-1 if parent < 0 else piece_of[parent])
        piece_of[agent] = number
        pieces[number].append(agent)
    children: list[list[int]] = [[] for _ in pieces]
    for number, parent in enumerate(parent_of_piece):
        if parent >= 0:
            children[parent].append(number)
    return Contraction(
        tuple(tuple(reversed(piece)) for piece in pieces),
        PseudoTree(
            parent=tuple(parent_of_piece),
            children=tuple(map(tuple, children)),
            bottom_up=tuple(reversed(range(len(pieces)))),
            separators=tuple(tree.separators[top] for top in top_agents),
            placed=((),) * len(pieces),
        ),
        tuple(owner[top] for top in top_agents),
    )
