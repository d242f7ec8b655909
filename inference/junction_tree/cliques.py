"""The cliques of a junction tree, and how their tables lie in memory.

Build a junction tree from an elimination order: cliques and the separators between them.

Memory layout of a junction tree: factors, messages in both directions and results in one array.

Factors are the input tables, assigned to cliques. A separator holds the variables that a clique shares with its parent;
it is "above" the clique. Each clique has an upward message (to the parent) and a downward message (from the parent),
both over its separator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from dmcmc.inference.elimination.eliminate import absorb
from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination, rank_of
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.types import Array, Ints


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


class CliqueTreeProgram(NamedTuple):
    """A junction tree as flat arrays for compiled code; all arrays are int64.

    Tables are numbered: first the factors, then one upward and one downward message for each clique (a single entry for
    a root: its total), then one table for each variable.

    Attributes
    ----------
    domains : (variables,)
        Domain sizes.
    observed : (variables,)
        The observed value, −1 for none; may change between passes.
    clique_start, clique_scope
        Variables of clique k: ``clique_scope[clique_start[k]:clique_start[k + 1]]``, in elimination order.
    parent : (cliques,)
        Parent of each clique, −1 for a root.
    child_start, child
        Children of each clique, in the same format.
    factor_start : (cliques + 1,)
        Factors of clique k: ``factor_start[k]`` to before ``factor_start[k + 1]``.
    scope_start, scope
        Scopes of all tables, in elimination order.
    at : (tables + 1,)
        Offset of each table, and the end.
    marginals_start, marginals
        Variables whose table is computed from clique k, in the same format.
    separator_marginals_start, separator_marginals
        Variables whose table is computed from the separator between clique k and its parent, in the same format.
    """

    domains: Ints
    observed: Ints
    clique_start: Ints
    clique_scope: Ints
    parent: Ints
    child_start: Ints
    child: Ints
    factor_start: Ints
    scope_start: Ints
    scope: Ints
    at: Ints
    marginals_start: Ints
    marginals: Ints
    separator_marginals_start: Ints
    separator_marginals: Ints


@dataclass(frozen=True)
class CliqueTreeLayout:
    """The arrays of a junction tree and its factors.

    Attributes
    ----------
    program : CliqueTreeProgram
        The tree as flat arrays.
    factors : tuple of EncodedTable
        Encoded factors, axes in elimination order.
    home : (variables,) int64
        The clique from which each variable's table is computed, or from the separator above it: the smaller of
        the tables that contain the variable is used.
    cells : (cliques,) int64
        Number of entries of each clique's joined table, which is never written to memory.
    """

    program: CliqueTreeProgram
    factors: tuple[EncodedTable, ...]
    home: Ints
    cells: Ints

    @property
    def entries(self) -> int:
        """Number of entries of all tables."""
        return int(self.program.at[-1])

    def up_message(self, clique: int) -> int:
        """Return the number of the table with a clique's message to its parent."""
        return len(self.factors) + clique

    def down_message(self, clique: int) -> int:
        """Return the number of the table with the message that a clique receives from its parent."""
        return len(self.factors) + self.cells.size + clique

    def marginal(self, variable: int) -> int:
        """Return the number of the table over one variable."""
        return len(self.factors) + 2 * self.cells.size + variable


def clique_cells(tree: CliqueTree, domains: Ints) -> list[int]:
    """Return the number of entries of each clique as Python integers, which cannot overflow."""
    sizes = domains.tolist()
    return [prod(sizes[v] for v in scope) for scope in tree.scopes]


def lay_out(
    tree: CliqueTree, tables: Sequence[EncodedTable], domains: Ints, arithmetic: Arithmetic
) -> CliqueTreeLayout:
    """Assign an offset to every table; factors with a scope inside another factor's of the clique are added to it.

    Parameters
    ----------
    tree
        The clique tree.
    tables
        Encoded tables, one for each entry of ``tree.home``.
    domains : (variables,) int64
        Domain sizes.
    arithmetic
        The arithmetic of the tables.
    """
    cliques, n = len(tree.scopes), domains.size
    clique_tables: list[list[EncodedTable]] = [[] for _ in range(cliques)]
    for table, clique in zip(tables, tree.home, strict=True):
        clique_tables[clique].append(_sorted(table, tree.position))
    factors = [absorb(group, arithmetic) if len(group) > 1 else tuple(group) for group in clique_tables]
    cells = np.array(clique_cells(tree, domains), dtype=np.int64)
    home, marginals, separator_marginals = _homes_of_tables(tree, cells, domains)
    flat = tuple(table for group in factors for table in group)
    scopes = [*(t.scope for t in flat), *tree.separators, *tree.separators, *((v,) for v in range(n))]
    sizes = domains.tolist()
    entries = [prod(sizes[v] for v in scope) for scope in scopes]
    program = CliqueTreeProgram(
        domains,
        np.full(n, -1, dtype=np.int64),
        *_concatenated(tree.scopes),
        np.array(tree.parent, dtype=np.int64),
        *_concatenated(tree.children),
        _starts(factors),
        *_concatenated(scopes),
        np.array([0, *accumulate(entries)], dtype=np.int64),
        *_concatenated(marginals),
        *_concatenated(separator_marginals),
    )
    return CliqueTreeLayout(program, flat, home, cells)


def _homes_of_tables(tree: CliqueTree, cells: Ints, domains: Ints) -> tuple[Ints, list[list[int]], list[list[int]]]:
    """Return the clique of each variable's table, and the variables of each clique and of each separator above it.

    A variable's table is computed from the clique or separator with the fewest entries that contains it.
    """
    cliques, sizes = len(tree.scopes), domains.tolist()
    separators = [prod(sizes[v] for v in scope) for scope in tree.separators]
    made_from = np.zeros(domains.size, dtype=np.int64)
    for i in np.argsort(-np.array([*separators, *cells.tolist()]), kind="stable").tolist():
        scope = tree.separators[i] if i < cliques else tree.scopes[i - cliques]
        made_from[list(scope)] = i
    variables_of: list[list[int]] = [[] for _ in range(2 * cliques)]
    for v, i in enumerate(made_from.tolist()):
        variables_of[i].append(v)
    return made_from % cliques, variables_of[cliques:], variables_of[:cliques]


def _sorted(table: EncodedTable, position: Ints) -> EncodedTable:
    """Return a table with its axes in elimination order."""
    axes = sorted(range(len(table.scope)), key=lambda axis: int(position[table.scope[axis]]))
    values: Array = np.ascontiguousarray(table.values.transpose(axes))
    return EncodedTable(tuple(table.scope[axis] for axis in axes), values)


def _starts(lists: Sequence[Sequence[object]]) -> Ints:
    """Return the start of each list when the lists are concatenated, and the end."""
    return np.array([0, *accumulate(map(len, lists))], dtype=np.int64)


def _concatenated(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return the start of each list, and the concatenated lists."""
    return _starts(lists), np.array([v for items in lists for v in items], dtype=np.int64)
