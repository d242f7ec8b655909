"""Messages between cliques with sparse tables.

Junction trees with sparse cliques (CUBE §III-IV): the allowed rows of each clique are listed once.

A row is an allowed assignment of a clique's variables, packed into one integer key. The rows of a clique are the join
of its factors and of the rows that its children allow; then the rows without a partner in the parent are removed. Every
row of a separator therefore has rows on both sides, and each clique row knows its index in every separator. A message
is one pass over the rows of its sender, whatever is observed. Forbidden assignments take no memory. The dense
counterpart is :mod:`dmcmc.inference.junction_tree.passes`.

The kinds of tables are UP (a clique's message to its parent), DOWN (the parent's message to the clique), MARGINAL and
SEPARATOR_MARGINAL (the tables of the variables assigned to a clique, or to the separator above it). The methods use
Shenoy-Shafer messages: a message contains every message that its sender received except the receiver's.

List the allowed rows of each clique of a junction tree, and the rows of its separators (CUBE §III-IV).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.junction_tree.message_kernels import DOWN, SEPARATOR_MARGINAL, UP
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.memory import free_memory
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import SparseTable, all_values, fields_of, join, project_keys, size_of

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


class SparsePasses:
    """Passes over a junction tree of sparse cliques on the CPU.

    Parameters
    ----------
    tree
        The clique tree.
    tables
        The sparse tables, one for each entry of ``tree.home``.
    domains : (variables,) int64
        Domain sizes.
    arithmetic
        The arithmetic of the tables; sums are of exp(utility), maxima of utilities.
    maximise : bool
        Whether max-marginals are computed, otherwise probabilities.
    memory
        Memory limit of all rows in bytes; None for the memory that is free.
    stop
        The deadline.

    Attributes
    ----------
    observed : (variables,) int64
        The observed value, −1 for none; may change between passes.
    home : (variables,) int64
        The clique from which each variable's table is computed, or from the separator above it.
    variables_from : list of list of int
        The variables whose tables are computed from each clique, then the variables whose tables are computed
        from the separator above each clique.
    cliques : list of SparseTable
        The rows of each clique.
    separators : list of (rows,) int64
        The packed keys of the separator above each clique, ascending.
    clique_to_separator : list of (rows of the clique,) int
        For each row of a clique the index of its entry in the separator above the clique.
    parent_to_separator : list of (rows of the parent,) int
        For each row of a clique's parent the index of its entry in the separator between the two.
    up, down : list of (rows of the separator,)
        Message from each clique to its parent, and from the parent to the clique.

    Raises
    ------
    OutOfMemory
        If the rows exceed the memory limit.
    KeyTooWide
        If a clique has more variables than a packed key can hold.
    """

    def __init__(
        self,
        tree: CliqueTree,
        tables: Sequence[SparseTable],
        domains: Ints,
        arithmetic: Arithmetic,
        maximise: bool,
        memory: int | None = None,
        stop: Deadline = NO_DEADLINE,
    ) -> None:
        self.tree, self.domains, self.arithmetic, self.maximise, self.stop = tree, domains, arithmetic, maximise, stop
        self.observed = np.full(domains.size, -1, dtype=np.int64)
        max_rows = ((free_memory() or 1 << 62) if memory is None else memory) // BYTES_PER_ROW
        listed = list_rows(tree, tables, domains, arithmetic, max_rows, stop)
        self.cliques, self.separators = listed.cliques, listed.separators
        self.clique_to_separator = [listed.separator_index(c, c) for c in range(len(self.cliques))]
        self.parent_to_separator = [
            listed.separator_index(p, c) if p >= 0 else np.zeros(0, dtype=np.intp) for c, p in enumerate(tree.parent)
        ]
        lowest = arithmetic.lowest
        self.up, self.down = ([np.full(s.size, lowest, arithmetic.dtype) for s in self.separators] for _ in range(2))
        if memory is not None and self.bytes > memory:
            raise OutOfMemory(f"the junction tree's rows take {self.bytes:,} bytes; the memory limit is {memory:,}")
        self._marginals: dict[int, Array] = {}
        self.home, self.variables_from = self._homes()

    @property
    def rows(self) -> int:
        """Number of rows of all cliques."""
        return sum(table.rows for table in self.cliques)

    @property
    def bytes(self) -> int:
        """Memory of all rows and messages in bytes."""
        arrays = (*self.separators, *self.clique_to_separator, *self.parent_to_separator, *self.up, *self.down)
        return sum(table.bytes for table in self.cliques) + sum(array.nbytes for array in arrays)

    def total(self, root: int) -> int | float:
        """Return the total of a component: its maximum, or the logarithm of its sum."""
        value: int | float = self.up[root].item() if self.up[root].size else self.arithmetic.lowest
        return value

    def marginal(self, variable: int) -> Array:
        """Return the table of a variable."""
        return self._marginals[variable]

    def store_marginal(self, variable: int, values: Array) -> None:
        """Store the table of a variable: maxima as they are, logarithms of sums as probabilities."""
        if not self.maximise:
            values = np.exp(values - values.max()) if np.isfinite(values.max()) else np.full(values.size, np.nan)
            values /= values.sum()
        self._marginals[variable] = values

    def run(self, table_kind: int, cliques: Ints) -> None:
        """Compute messages (UP, DOWN) or variables' tables (MARGINAL, SEPARATOR_MARGINAL) for cliques in this order."""
        for clique in cliques.tolist():
            self.stop.check()
            parent = self.tree.parent[clique]
            if table_kind == UP:
                self.up[clique] = self._project(
                    self.row_values(clique, up=True), self.clique_to_separator[clique], self.up[clique].size
                )
            elif table_kind == DOWN and parent >= 0:
                values = self.row_values(parent, except_child=clique)
                self.down[clique] = self._project(values, self.parent_to_separator[clique], self.down[clique].size)
            elif table_kind not in (UP, DOWN):
                self._compute_marginals(clique, table_kind == SEPARATOR_MARGINAL)

    def _homes(self) -> tuple[Ints, list[list[int]]]:
        """Return the clique of each variable's table, and the variables of cliques, then of separators.

        A variable's table is computed from the clique or separator with the fewest rows that contains it.
        """
        count = len(self.cliques)
        sizes = [table.rows for table in self.cliques] + [keys.size for keys in self.separators]
        made_from = np.zeros(self.domains.size, dtype=np.int64)
        for i in sorted(range(2 * count), key=lambda i: -sizes[i]):
            scope = self.tree.scopes[i] if i < count else self.tree.separators[i - count]
            made_from[list(scope)] = i
        variables_of: list[list[int]] = [[] for _ in range(2 * count)]
        for v, i in enumerate(made_from.tolist()):
            variables_of[i].append(v)
        return made_from % max(1, count), variables_of

    def row_values(self, clique: int, up: bool = False, except_child: int = -1) -> Array:
        """Return the value of each row of a clique, −∞ if the row disagrees with the evidence.

        The value is the row's utility plus the messages that the clique has received, except that of
        ``except_child``; with ``up``, the parent's message is left out.
        """
        table, lowest = self.cliques[clique], self.arithmetic.dtype.type(self.arithmetic.lowest)
        values = table.values.copy()
        for child in self.tree.children[clique]:
            if child != except_child:
                values += self.up[child][self.parent_to_separator[child]]
                np.maximum(values, lowest, out=values)
        if not up and self.tree.parent[clique] >= 0:
            values += self.down[clique][self.clique_to_separator[clique]]
            np.maximum(values, lowest, out=values)
        self._observe(values, table.keys, table.scope)
        return values

    def _observe(self, values: Array, keys: Ints, scope: Sequence[int]) -> None:
        """Set rows that disagree with the evidence to −∞."""
        fields = fields_of(scope, self.domains)
        for i, v in enumerate(scope):
            if self.observed[v] >= 0:
                values[((keys >> fields.shift[i]) & fields.mask[i]) != self.observed[v]] = self.arithmetic.lowest

    def _project(self, values: Array, entry: Ints, size: int) -> Array:
        """Return the maximum, or ln Σ exp, of the rows that project to each of ``size`` entries.

        ``entry`` (rows,) is the index of the entry to which each row projects.
        """
        top = np.full(size, self.arithmetic.lowest, dtype=self.arithmetic.dtype)
        np.maximum.at(top, entry, values)
        if self.maximise:
            top[top < self.arithmetic.forbidden_below] = self.arithmetic.lowest
            return top
        finite = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            log_sums: Array = np.log(np.bincount(entry, np.exp(values - finite[entry]), minlength=size)) + finite
        return log_sums

    def _compute_marginals(self, clique: int, from_separator: bool) -> None:
        """Compute the tables of the variables that are assigned to a clique, or to the separator above it."""
        variables = self.variables_from[clique + (len(self.cliques) if from_separator else 0)]
        if not variables:
            return
        if from_separator:
            scope, keys, lowest = self.tree.separators[clique], self.separators[clique], self.arithmetic.lowest
            row_values = np.maximum(self.up[clique] + self.down[clique], self.arithmetic.dtype.type(lowest))
            self._observe(row_values, keys, scope)
        else:
            scope, keys, row_values = self.cliques[clique].scope, self.cliques[clique].keys, self.row_values(clique)
        for v in variables:
            x = values_of(v, scope, keys, self.domains)
            self.store_marginal(v, self._project(row_values, x, int(self.domains[v])))


def values_of(variable: int, scope: Sequence[int], keys: Ints, domains: Ints) -> Ints:
    """Return the value of a variable in each packed row."""
    fields, i = fields_of(scope, domains), list(scope).index(variable)
    values: Ints = (keys >> fields.shift[i]) & fields.mask[i]
    return values
