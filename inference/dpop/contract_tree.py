"""A pseudo-tree whose neighbouring agents of one place are one: what that place can eliminate in one piece."""

from collections.abc import Sequence
from typing import NamedTuple

from dmcmc.inference.dpop.pseudotree import PseudoTree


class Contraction(NamedTuple):
    """Pieces of a pseudo-tree.

    Attributes
    ----------
    pieces : tuple of tuple of int
        The agents of each, children before parents.
    tree : PseudoTree
        Over pieces; nothing is placed at them.
    owner : tuple of int
        The place of each.
    """

    pieces: tuple[tuple[int, ...], ...]
    tree: PseudoTree
    owner: tuple[int, ...]


def contracted(tree: PseudoTree, owner: Sequence[int]) -> Contraction:
    """Return the tree with agents of the same owner that are neighbours in it as one; likewise all roots of an owner.

    Examples
    --------
    >>> tree = PseudoTree((-1, 0, 1, 0), ((1, 3), (2,), (), ()), (2, 3, 1, 0), ((), (5,), (6,), (5,)), ((),) * 4)
    >>> found = contracted(tree, owner=[0, 0, 1, 0])
    >>> found.pieces, found.tree.parent, found.tree.separators
    (((3, 1, 0), (2,)), (-1, 0), ((), (6,)))
    """
    piece, agents, tops, roots = dict[int, int](), list[list[int]](), list[int](), dict[int, int]()
    parents = list[int]()
    for agent in reversed(tree.bottom_up):
        above = tree.parent[agent]
        number = len(agents)
        if above < 0:
            number = roots.setdefault(owner[agent], number)
        elif owner[above] == owner[agent]:
            number = piece[above]
        if number == len(agents):
            agents.append([])
            tops.append(agent)
            parents.append(-1 if above < 0 else piece[above])
        piece[agent] = number
        agents[number].append(agent)
    children: list[list[int]] = [[] for _ in agents]
    for number, above in enumerate(parents):
        if above >= 0:
            children[above].append(number)
    return Contraction(
        tuple(tuple(reversed(one)) for one in agents),
        PseudoTree(
            parent=tuple(parents),
            children=tuple(map(tuple, children)),
            bottom_up=tuple(reversed(range(len(agents)))),
            separators=tuple(tree.separators[top] for top in tops),
            placed=((),) * len(agents),
        ),
        tuple(owner[top] for top in tops),
    )
