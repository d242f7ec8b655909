"""Build a junction tree from an elimination order: cliques and the separators between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination, rank_of
from dmcmc.inference.runtime.types import Ints


@dataclass(frozen=True)
class CliqueTree:
    """A tree of cliques in which the cliques with a given variable are connected (running intersection property).

    It is a forest if the problem has several components. Children come before their parents. Scopes are in elimination
    order.

    Attributes
    ----------
    scopes : tuple of tuple of int
        The variables of each clique; no scope is a subset of another.
    parent : tuple of int
        The parent of each clique, −1 for a root.
    separators : tuple of tuple of int
        The variables that a clique shares with its parent.
    home : tuple of int
        For each input scope a clique that contains it.
    position : (variables,) int64
        Position of each variable in the elimination order.
    """

    scopes: tuple[tuple[int, ...], ...]
    parent: tuple[int, ...]
    separators: tuple[tuple[int, ...], ...]
    home: tuple[int, ...]
    position: Ints

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of each clique."""
        children: list[list[int]] = [[] for _ in self.scopes]
        for clique, parent in enumerate(self.parent):
            if parent >= 0:
                children[parent].append(clique)
        return tuple(map(tuple, children))

    @property
    def roots(self) -> list[int]:
        """The cliques without a parent, one per component."""
        return [clique for clique, parent in enumerate(self.parent) if parent < 0]

    @property
    def width(self) -> int:
        """One less than the largest number of variables in a clique."""
        return max(map(len, self.scopes), default=1) - 1


def clique_tree(scopes: Sequence[Sequence[int]], domains: Ints, order: Sequence[int]) -> CliqueTree:
    """Return the junction tree of an elimination order (CUBE §III): Dechter's bucket tree without subsumed cliques.

    The clique of a bucket is its variable and its separator. If it is a subset of a child's clique, the two are merged.

    Parameters
    ----------
    scopes
        Scopes of the tables.
    domains : (variables,) int64
        Domain sizes.
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
    parent_bucket = [int(position[s[0]]) if s else -1 for s in separators]
    merged_into = _merge_subsumed(separators, parent_bucket)
    # of merged buckets, the one that is eliminated last
    last_bucket = dict(zip(merged_into, range(plan.buckets), strict=True))
    cliques = sorted(last_bucket, key=last_bucket.__getitem__)
    number = {b: i for i, b in enumerate(cliques)}
    parents = [
        number[merged_into[parent_bucket[last_bucket[b]]]] if parent_bucket[last_bucket[b]] >= 0 else -1
        for b in cliques
    ]
    tree = CliqueTree(
        scopes=tuple((order[b], *separators[b]) for b in cliques),
        parent=tuple(parents),
        separators=tuple(separators[last_bucket[b]] for b in cliques),
        home=_homes(plan, merged_into, number, position),
        position=position,
    )
    return _rooted_at_centre(tree)


def _rooted_at_centre(tree: CliqueTree) -> CliqueTree:
    """Return the tree with its roots at the centre, which halves the length of paths of dependent messages.

    The centre is the middle of a longest path, found by two breadth-first searches. A component is unchanged if
    its longest path of dependent messages would not become at least a quarter shorter.
    """
    neighbours: list[list[int]] = [[] for _ in tree.scopes]
    for c, p in enumerate(tree.parent):
        if p >= 0:
            neighbours[c].append(p)
            neighbours[p].append(c)
    parent, order = list(tree.parent), list[int]()
    for root in tree.roots:
        reached, _ = _breadth_first(root, neighbours)
        from_end, predecessor = _breadth_first(reached[-1], neighbours)
        path = [from_end[-1]]
        while predecessor[path[-1]] >= 0:
            path.append(predecessor[path[-1]])
        depth, at = 0, reached[-1]
        while tree.parent[at] >= 0:
            depth, at = depth + 1, tree.parent[at]
        if 4 * (len(path) // 2) <= 3 * depth:
            reached, predecessor = _breadth_first(path[len(path) // 2], neighbours)
            for c in reached:
                parent[c] = predecessor[c]
        order += reversed(reached)
    number = {c: i for i, c in enumerate(order)}
    separators = [tuple(v for v in tree.scopes[c] if parent[c] >= 0 and v in tree.scopes[parent[c]]) for c in order]
    return CliqueTree(
        scopes=tuple(tree.scopes[c] for c in order),
        parent=tuple(number[parent[c]] if parent[c] >= 0 else -1 for c in order),
        separators=tuple(separators),
        home=tuple(number[c] for c in tree.home),
        position=tree.position,
    )


def _breadth_first(root: int, neighbours: Sequence[Sequence[int]]) -> tuple[list[int], dict[int, int]]:
    """Return the connected cliques in breadth-first order, and the predecessor of each."""
    order, predecessor = [root], {root: -1}
    for c in order:
        for neighbour in neighbours[c]:
            if neighbour not in predecessor:
                predecessor[neighbour] = c
                order.append(neighbour)
    return order, predecessor


def _merge_subsumed(separators: Sequence[tuple[int, ...]], parent_bucket: Sequence[int]) -> list[int]:
    """Return for each bucket the bucket whose clique contains its clique: itself or a descendant."""
    merged_into = list(range(len(parent_bucket)))
    for b, parent in enumerate(parent_bucket):
        if parent >= 0 and merged_into[parent] == parent and len(separators[b]) == 1 + len(separators[parent]):
            merged_into[parent] = merged_into[b]
    return merged_into


def _homes(
    plan: EliminationPlan, merged_into: Sequence[int], number: dict[int, int], position: Ints
) -> tuple[int, ...]:
    """Return the clique of each input table: that of its first variable; the first clique if it has no variables."""
    input_scopes = [plan.scope(t) for t in range(plan.tables - plan.buckets)]
    return tuple(number[merged_into[int(position[s[0]])]] if s else 0 for s in input_scopes)
