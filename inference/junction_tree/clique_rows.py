"""List the allowed rows of each clique of a junction tree, and the rows of its separators (CUBE §III-IV)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.sparse.join import all_values, join, project_keys
from dmcmc.inference.sparse.sparse_table import SparseTable, fields_of, size_of

BYTES_PER_ROW = 40
"""Bytes per row of a clique: key, value, indices in separators, and the memory of a join."""


@dataclass
class CliqueRows:
    """The allowed rows of all cliques.

    Attributes
    ----------
    tree : CliqueTree
        The clique tree.
    domains : (variables,) int64
        Domain sizes.
    arithmetic : Arithmetic
        The arithmetic of the tables.
    cliques : list of SparseTable
        The rows of each clique.
    separators : list of (rows,) int64
        The packed keys of the separator above each clique, ascending.
    """

    tree: CliqueTree
    domains: Ints
    arithmetic: Arithmetic
    cliques: list[SparseTable] = field(default_factory=list)
    separators: list[Ints] = field(default_factory=list)

    def separator_index(self, clique: int, separator: int) -> NDArray[np.intp]:
        """Return the index in a separator for each row of a clique."""
        keys = project_keys(self.cliques[clique], self.tree.separators[separator], self.domains)
        return self.separators[separator].searchsorted(keys).astype(np.int32 if keys.size < 1 << 31 else np.int64)


def list_rows(
    tree: CliqueTree,
    tables: Sequence[SparseTable],
    domains: Ints,
    arithmetic: Arithmetic,
    max_rows: int,
    stop: Deadline,
) -> CliqueRows:
    """Return the rows of all cliques without those that have no partner in the parent.

    Parameters
    ----------
    tree : CliqueTree
        The clique tree.
    tables : sequence of SparseTable
        The sparse tables, one for each entry of ``tree.home``.
    domains : (variables,) int64
        Domain sizes.
    arithmetic : Arithmetic
        The arithmetic of the tables.
    max_rows : int
        Limit on the rows of all cliques.
    stop : Deadline
        When to give up with ``OutOfTime``.

    Raises
    ------
    OutOfMemory
        If the rows exceed their limit.
    KeyTooWide
        If a clique has more variables than a packed key can hold.
    """
    listed = CliqueRows(tree, domains, arithmetic)
    for scope in tree.scopes:
        fields_of(scope, domains)  # before any row is listed
    for clique in range(len(tree.scopes)):
        stop.check()
        clique_tables = [table for table, home in zip(tables, tree.home, strict=True) if home == clique]
        table = _clique_table(listed, clique, clique_tables, max_rows - sum(one.rows for one in listed.cliques), stop)
        listed.cliques.append(table)
        listed.separators.append(np.unique(project_keys(table, tree.separators[clique], domains)))
    _prune(listed)
    return listed


def _clique_table(
    listed: CliqueRows, clique: int, clique_tables: Sequence[SparseTable], max_rows: int, stop: Deadline
) -> SparseTable:
    """Return a clique's rows: the join of its factors and of its children's separators.

    The smallest table is joined first, then the one whose rows per value of the shared variables are fewest.
    """
    scope, zero = listed.tree.scopes[clique], listed.arithmetic.dtype.type(0)
    to_join = list(clique_tables)
    for child in listed.tree.children[clique]:
        keys = listed.separators[child]
        to_join.append(SparseTable(listed.tree.separators[child], keys, np.full(keys.size, zero)))
    table = to_join.pop(min(range(len(to_join)), key=lambda i: to_join[i].rows)) if to_join else None
    if table is None:
        table = all_values(scope[0], listed.domains, listed.arithmetic)
    while to_join:
        present = set(table.scope)
        shared = [
            size_of([v for v in table_to_join.scope if v in present], listed.domains) for table_to_join in to_join
        ]
        growth = [table_to_join.rows / size for table_to_join, size in zip(to_join, shared, strict=True)]
        table = join(table, to_join.pop(growth.index(min(growth))), listed.domains, max_rows, stop)
    for v in scope:
        if v not in table.scope:
            table = join(table, all_values(v, listed.domains, listed.arithmetic), listed.domains, max_rows, stop)
    return table.reordered(scope, listed.domains)


def _prune(listed: CliqueRows) -> None:
    """Remove the rows without a partner in the parent, parents first."""
    for clique in reversed(range(len(listed.cliques))):
        parent, table = listed.tree.parent[clique], listed.cliques[clique]
        if parent < 0:
            continue
        scope = listed.tree.separators[clique]
        keys = np.unique(project_keys(listed.cliques[parent], scope, listed.domains))
        retained = np.isin(project_keys(table, scope, listed.domains), keys)
        listed.separators[clique] = keys
        if not retained.all():
            listed.cliques[clique] = SparseTable(table.scope, table.keys[retained], table.values[retained])
