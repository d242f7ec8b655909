"""From an elimination order to a junction tree: cliques, and separators between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dmcmc.inference.elimination.plan import Plan, plan_elimination, rank_of
from dmcmc.inference.runtime.types import Ints


@dataclass(frozen=True)
class CliqueTree:
    """Cliques such that all that hold a variable are connected (the running intersection property).

    A forest where the problem falls apart. Children come before their parents. Scopes are in elimination order.

    Attributes
    ----------
    scopes : tuple of tuple of int
        The variables of each clique, none inside another's.
    parent : tuple of int
        −1 for a root.
    separators : tuple of tuple of int
        The variables that a clique shares with its parent.
    home : tuple of int
        A clique for each given scope, which holds it.
    position : (variables,) int64
        In the elimination order.
    """

    scopes: tuple[tuple[int, ...], ...]
    parent: tuple[int, ...]
    separators: tuple[tuple[int, ...], ...]
    home: tuple[int, ...]
    position: Ints

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of each clique."""
        found: list[list[int]] = [[] for _ in self.scopes]
        for clique, parent in enumerate(self.parent):
            if parent >= 0:
                found[parent].append(clique)
        return tuple(map(tuple, found))

    @property
    def roots(self) -> list[int]:
        """The cliques without a parent, one a component."""
        return [clique for clique, parent in enumerate(self.parent) if parent < 0]

    @property
    def width(self) -> int:
        """One less than the most variables in a clique."""
        return max(map(len, self.scopes), default=1) - 1


def clique_tree(scopes: Sequence[Sequence[int]], domains: Ints, order: Sequence[int]) -> CliqueTree:
    """Return the junction tree of an elimination order (CUBE §III; Dechter's bucket tree without cliques in others).

    A bucket's clique is its variable with its separator. Where that lies inside a child's clique the two are one.

    Parameters
    ----------
    scopes
        Of the tables.
    domains : (variables,) int64
    order
        All variables, first to last.

    Examples
    --------
    >>> import numpy as np
    >>> tree = clique_tree([(0, 1), (1, 2), (2, 3)], np.array([2, 2, 2, 2]), [0, 1, 2, 3])
    >>> tree.scopes, tree.parent, tree.separators
    (((2, 3), (0, 1), (1, 2)), (2, 2, -1), ((2,), (1,), ()))
    """
    plan, position = plan_elimination(scopes, domains, order), rank_of(domains, order, ())
    separators = [plan.scope(plan.output(b)) for b in range(plan.buckets)]
    above = [int(position[s[0]]) if s else -1 for s in separators]
    into = _merged(separators, above)
    top = dict(zip(into, range(plan.buckets), strict=True))  # of the buckets that are one: the last to be eliminated
    kept = sorted(top, key=top.__getitem__)
    number = {b: i for i, b in enumerate(kept)}
    parents = [number[into[above[top[b]]]] if above[top[b]] >= 0 else -1 for b in kept]
    tree = CliqueTree(
        scopes=tuple((order[b], *separators[b]) for b in kept),
        parent=tuple(parents),
        separators=tuple(separators[top[b]] for b in kept),
        home=_homes(plan, into, number, position),
        position=position,
    )
    return _from_the_centre(tree)


def _from_the_centre(tree: CliqueTree) -> CliqueTree:
    """Return a tree whose roots are in the middle: paths are half as long, for messages that wait for each other.

    The tree stays as it is where that makes no path shorter by a quarter.
    """
    around: list[list[int]] = [[] for _ in tree.scopes]
    for c, p in enumerate(tree.parent):
        if p >= 0:
            around[c].append(p)
            around[p].append(c)
    parent, order = list(tree.parent), list[int]()
    for root in tree.roots:
        down, _ = _walk(root, around)
        far, back = _walk(down[-1], around)
        path = [far[-1]]
        while back[path[-1]] >= 0:
            path.append(back[path[-1]])
        depth, at = 0, down[-1]
        while tree.parent[at] >= 0:
            depth, at = depth + 1, tree.parent[at]
        if 4 * (len(path) // 2) <= 3 * depth:
            down, back = _walk(path[len(path) // 2], around)
            for c in down:
                parent[c] = back[c]
        order += reversed(down)
    number = {c: i for i, c in enumerate(order)}
    separators = [tuple(v for v in tree.scopes[c] if parent[c] >= 0 and v in tree.scopes[parent[c]]) for c in order]
    return CliqueTree(
        scopes=tuple(tree.scopes[c] for c in order),
        parent=tuple(number[parent[c]] if parent[c] >= 0 else -1 for c in order),
        separators=tuple(separators),
        home=tuple(number[c] for c in tree.home),
        position=tree.position,
    )


def _walk(root: int, around: Sequence[Sequence[int]]) -> tuple[list[int], dict[int, int]]:
    """Return what is connected, the nearest first, and from where each was reached."""
    order, back = [root], {root: -1}
    for c in order:
        for other in around[c]:
            if other not in back:
                back[other] = c
                order.append(other)
    return order, back


def _merged(separators: Sequence[tuple[int, ...]], above: Sequence[int]) -> list[int]:
    """Return the bucket whose clique holds each bucket's clique: its own, or one below."""
    into = list(range(len(above)))
    for b, parent in enumerate(above):
        if parent >= 0 and into[parent] == parent and len(separators[b]) == 1 + len(separators[parent]):
            into[parent] = into[b]
    return into


def _homes(plan: Plan, into: Sequence[int], number: dict[int, int], position: Ints) -> tuple[int, ...]:
    """Return the clique of each given table: its first variable's; the first clique for one of no variables."""
    given = [plan.scope(t) for t in range(plan.tables - plan.buckets)]
    return tuple(number[into[int(position[s[0]])]] if s else 0 for s in given)
