"""Where a junction tree keeps its tables: factors, messages both ways, and what comes out, in one array."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from dmcmc.inference.elimination.eliminate import absorb
from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.types import Array, Ints


class Program(NamedTuple):
    """A junction tree as compiled code reads it; all arrays int64.

    Tables: the factors first, then a message up and one down for each clique (one entry for a root: its total), then
    one for each variable.

    Attributes
    ----------
    domains : (variables,)
    observed : (variables,)
        The value that is observed, −1 for none; may change.
    clique_start, clique_scope
        Variables of clique k: ``clique_scope[clique_start[k]:clique_start[k + 1]]``, in elimination order.
    parent : (cliques,)
        −1 for a root.
    child_start, child
        Children of each clique, likewise.
    factor_start
        Factors of clique k: ``factor_start[k]`` to before ``factor_start[k + 1]``.
    scope_start, scope
        Scopes of all tables, in elimination order.
    at : (tables + 1,)
        Where each table starts.
    shown_start, shown
        Variables whose table is made from clique k, likewise.
    above_start, above
        Variables whose table is made from the separator between clique k and its parent, likewise.
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
    shown_start: Ints
    shown: Ints
    above_start: Ints
    above: Ints


@dataclass(frozen=True)
class Layout:
    """A program, and the factors that it starts from.

    Attributes
    ----------
    program : Program
    factors : tuple of Table
        Encoded, axes in elimination order.
    home : (variables,) int64
        The clique that each variable's table is made from, itself or the separator above it: the smallest that has it.
    cells : (cliques,) int64
        Entries of each clique, which are never written.
    """

    program: Program
    factors: tuple[Table, ...]
    home: Ints
    cells: Ints

    @property
    def entries(self) -> int:
        """Entries of all tables."""
        return int(self.program.at[-1])

    def up(self, clique: int) -> int:
        """Return the table of a clique's message to its parent."""
        return len(self.factors) + clique

    def down(self, clique: int) -> int:
        """Return the table of the message that a clique gets from its parent."""
        return len(self.factors) + self.cells.size + clique

    def shown(self, variable: int) -> int:
        """Return the table over one variable."""
        return len(self.factors) + 2 * self.cells.size + variable


def clique_cells(tree: CliqueTree, domains: Ints) -> list[int]:
    """Return the entries of each clique, however many."""
    sizes = domains.tolist()
    return [prod(sizes[v] for v in scope) for scope in tree.scopes]


def lay_out(tree: CliqueTree, tables: Sequence[Table], domains: Ints, arithmetic: Arithmetic) -> Layout:
    """Give every table its place; factors inside others of their clique are added to those.

    Parameters
    ----------
    tables
        Encoded, as many as the tree has homes.
    """
    cliques, n = len(tree.scopes), domains.size
    own: list[list[Table]] = [[] for _ in range(cliques)]
    for table, clique in zip(tables, tree.home, strict=True):
        own[clique].append(_sorted(table, tree.position))
    factors = [absorb(group, arithmetic) if len(group) > 1 else tuple(group) for group in own]
    cells = np.array(clique_cells(tree, domains), dtype=np.int64)
    home, shown, above = _homes(tree, cells, domains)
    flat = tuple(table for group in factors for table in group)
    scopes = [*(t.scope for t in flat), *tree.separators, *tree.separators, *((v,) for v in range(n))]
    sizes = domains.tolist()
    entries = [prod(sizes[v] for v in scope) for scope in scopes]
    program = Program(
        domains,
        np.full(n, -1, dtype=np.int64),
        *_listed(tree.scopes),
        np.array(tree.parent, dtype=np.int64),
        *_listed(tree.children),
        _starts(factors),
        *_listed(scopes),
        np.array([0, *accumulate(entries)], dtype=np.int64),
        *_listed(shown),
        *_listed(above),
    )
    return Layout(program, flat, home, cells)


def _homes(tree: CliqueTree, cells: Ints, domains: Ints) -> tuple[Ints, list[list[int]], list[list[int]]]:
    """Return where each variable's table is made, and the variables that cliques, and separators above them, make."""
    cliques, sizes = len(tree.scopes), domains.tolist()
    separators = [prod(sizes[v] for v in scope) for scope in tree.separators]
    place = np.zeros(domains.size, dtype=np.int64)
    for i in np.argsort(-np.array([*separators, *cells.tolist()]), kind="stable").tolist():
        scope = tree.separators[i] if i < cliques else tree.scopes[i - cliques]
        place[list(scope)] = i
    made: list[list[int]] = [[] for _ in range(2 * cliques)]
    for v, i in enumerate(place.tolist()):
        made[i].append(v)
    return place % cliques, made[cliques:], made[:cliques]


def _sorted(table: Table, position: Ints) -> Table:
    """Return a table with its axes in elimination order."""
    axes = sorted(range(len(table.scope)), key=lambda axis: int(position[table.scope[axis]]))
    values: Array = np.ascontiguousarray(table.values.transpose(axes))
    return Table(tuple(table.scope[axis] for axis in axes), values)


def _starts(lists: Sequence[Sequence[object]]) -> Ints:
    return np.array([0, *accumulate(map(len, lists))], dtype=np.int64)


def _listed(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return where each list starts, and all of them one after another."""
    return _starts(lists), np.array([v for some in lists for v in some], dtype=np.int64)
