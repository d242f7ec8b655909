"""Memory layout of a junction tree: factors, messages in both directions and results in one array.

Factors are the input tables, assigned to cliques. A separator holds the variables that a clique shares with its parent;
it is "above" the clique. Each clique has an upward message (to the parent) and a downward message (from the parent),
both over its separator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from dmcmc.inference.elimination.eliminate import absorb
from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.types import Array, Ints


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
    home, marginals, separator_marginals = _homes(tree, cells, domains)
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


def _homes(tree: CliqueTree, cells: Ints, domains: Ints) -> tuple[Ints, list[list[int]], list[list[int]]]:
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
