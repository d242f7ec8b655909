"""Sparse tables, their sizes, and variables that others determine.

Sparse tables: sorted packed keys and their values; every entry that is not stored is −∞.

A key packs the values of the scope's variables, one bit field each, into an int64. The CUBE paper calls such tables
incomplete.

Sizes of sparse messages: a forecast before the elimination, and the actual sizes afterwards.

Eliminate variables whose value follows from another variable: by substitution, without joining tables.

A constraint over two variables is *functional* in c if it allows at most one value f(x) of c for each value of x. Then
max over c of Σ T_i(c, ...) = Σ T_i(f(x), ...): each table is looked up at f(x), and none are joined. The copies of a
meeting that its participants have (PEAV) are the usual case.

References
----------
.. [1] Y. Zhang, R. H. C. Yap, J. Jaffar: "Functional elimination and 0/1/all constraints", AAAI 1999.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable, is_allowed
from dmcmc.inference.model.cuda.device_table import DeviceTable
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.row_kernels import list_finite, radix_sort, repack, spread_out, starts_of
from dmcmc.inference.tuning import (
    CELLS_PER_DENSE_ENTRY,
    CELLS_PER_ROW,
    CELLS_PER_VALUE,
    MAX_EXAMINED_ENTRIES,
    PARALLEL_START_CELLS,
)

KEY_BITS = 62  # bits of a packed key; one more would overflow int64 when listing entries carries from the highest field


class KeyTooWide(ResourceError):
    """A table has more variables than a packed key can hold: their fields need more than ``KEY_BITS`` bits."""


def bits_of(size: int) -> int:
    """Return the number of bits of the field of a variable with ``size`` values."""
    return max(0, int(size) - 1).bit_length()


class Fields(NamedTuple):
    """The position of a scope's variables in a packed key; the first variable is in the highest bits.

    Attributes
    ----------
    shift, mask : (variables,) int64
        Shift and mask of each variable's field.
    bits : int
        Number of bits of a key.
    """

    shift: Ints
    mask: Ints
    bits: int


def fields_of(scope: Sequence[int], domains: Ints) -> Fields:
    """Return the key fields of a scope.

    Raises
    ------
    KeyTooWide
        If a key would need more than ``KEY_BITS`` bits.

    Examples
    --------
    >>> fields_of([0, 1], np.array([3, 8])).shift.tolist(), fields_of([0, 1], np.array([3, 8])).bits
    ([3, 0], 5)
    """
    widths = [bits_of(int(domains[v])) for v in scope]
    total = sum(widths)
    if total > KEY_BITS:
        raise KeyTooWide(
            f"a sparse table over {len(scope)} variables needs keys of {total} bits; the limit is {KEY_BITS}"
        )
    shift = np.cumsum([0, *widths[::-1]])[:-1][::-1] if widths else np.zeros(0)
    mask = np.array([(1 << w) - 1 for w in widths], dtype=np.int64)
    return Fields(np.ascontiguousarray(shift, dtype=np.int64), mask, total)


@dataclass(frozen=True)
class SparseTable:
    """A sparse table: the rows whose utility is not −∞.

    Attributes
    ----------
    scope : tuple of int
        The variables; the first is in the highest bits of the keys.
    keys : (rows,) int64
        Packed values of the variables, ascending and distinct.
    values : (rows,)
        Encoded utilities, in the dtype of the arithmetic.
    """

    scope: tuple[int, ...]
    keys: Ints
    values: Array

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.keys.size

    @property
    def bytes(self) -> int:
        """Memory of the rows in bytes."""
        return self.keys.nbytes + self.values.nbytes

    @classmethod
    def of(cls, table: EncodedTable, domains: Ints, arithmetic: Arithmetic) -> "SparseTable":
        """Return the entries of a dense table that are not −∞."""
        fields = fields_of(table.scope, domains)
        flat = np.ascontiguousarray(table.values).reshape(-1)
        forbidden = (flat < arithmetic.forbidden_below) | (flat == arithmetic.lowest)
        count = int(flat.size - forbidden.sum())
        keys, values = np.empty(count, dtype=np.int64), np.empty(count, dtype=arithmetic.dtype)
        sizes = domains[list(table.scope)].astype(np.int64)
        list_finite(flat, arithmetic.dtype.type(arithmetic.forbidden_below), sizes, fields.shift, keys, values)
        return cls(table.scope, keys, values)

    def dense(self, domains: Ints, arithmetic: Arithmetic) -> EncodedTable:
        """Return the table with all entries."""
        fields = fields_of(self.scope, domains)
        sizes = [int(domains[v]) for v in self.scope]
        stride = strides(sizes)
        table = np.full(int(np.prod(sizes, dtype=np.int64)), arithmetic.lowest, dtype=arithmetic.dtype)
        spread_out(self.keys, self.values, fields.shift, fields.mask, stride, table)
        return EncodedTable(self.scope, table.reshape(sizes))

    def reordered(self, scope: Sequence[int], domains: Ints) -> "SparseTable":
        """Return the same rows with the variables in another order."""
        scope = tuple(scope)
        if scope == self.scope:
            return self
        source_fields, target_fields = fields_of(self.scope, domains), fields_of(scope, domains)
        target_shift = target_fields.shift[[scope.index(v) for v in self.scope]]
        keys, values = repack(self.keys, source_fields.shift, source_fields.mask, target_shift), self.values.copy()
        radix_sort(keys, values, target_fields.bits)
        return SparseTable(scope, keys, values)

    def entry(self, values: Mapping[int, int], domains: Ints) -> int | float | None:
        """Return the utility of an assignment; None if it is −∞."""
        fields = fields_of(self.scope, domains)
        key = sum(int(values[v]) << int(s) for v, s in zip(self.scope, fields.shift, strict=True))
        at = int(self.keys.searchsorted(key))
        utility: int | float | None = self.values[at].item() if at < self.rows and self.keys[at] == key else None
        return utility


@dataclass(frozen=True)
class SparseBackedTable:
    """A sparse table with the interface of a dense one: all entries are computed when they are read.

    Attributes
    ----------
    rows : SparseTable
        The rows that are not −∞.
    shape : tuple of int
        Domain sizes of the scope.
    lowest : int or float
        The value of all other entries: −∞ of the arithmetic.
    """

    rows: SparseTable
    shape: tuple[int, ...]
    lowest: int | float

    @property
    def scope(self) -> tuple[int, ...]:
        """The variables of the table."""
        return self.rows.scope

    @property
    def values(self) -> Array:
        """All entries, computed anew at each access."""
        table: Array = np.full(prod(self.shape), self.lowest, dtype=self.rows.values.dtype)
        fields = fields_of(range(len(self.shape)), np.array(self.shape, dtype=np.int64))
        spread_out(self.rows.keys, self.rows.values, fields.shift, fields.mask, strides(self.shape), table)
        return table.reshape(self.shape)

    @property
    def nbytes(self) -> int:
        """Memory of the stored rows in bytes."""
        return self.rows.bytes

    @classmethod
    def where_smaller(cls, rows: SparseTable, domains: Ints, arithmetic: Arithmetic) -> "AnyTable":
        """Return a sparse table for a large table if that at least halves its memory, otherwise a dense one."""
        shape = tuple(int(domains[v]) for v in rows.scope)
        if prod(shape) >= tuning.SMALL_TABLE_ENTRIES and 2 * rows.bytes <= prod(shape) * arithmetic.dtype.itemsize:
            return cls(rows, shape, arithmetic.lowest)
        return rows.dense(domains, arithmetic)


AnyTable = EncodedTable | SparseBackedTable


def as_dense(table: AnyTable) -> EncodedTable:
    """Return a table with all of its entries."""
    return table if isinstance(table, EncodedTable) else EncodedTable(table.scope, table.values)


def as_rows(table: AnyTable, domains: Ints, arithmetic: Arithmetic) -> SparseTable:
    """Return the rows of a table that are not −∞."""
    return SparseTable.of(table, domains, arithmetic) if isinstance(table, EncodedTable) else table.rows


def strides(sizes: Sequence[int]) -> Ints:
    """Return the strides of an array of these sizes in C order, in entries."""
    steps = np.ones(len(sizes), dtype=np.int64)
    for i in range(len(sizes) - 2, -1, -1):
        steps[i] = steps[i + 1] * sizes[i + 1]
    return steps


class GroupedTable(NamedTuple):
    """A sparse table as vectors over one variable.

    Attributes
    ----------
    keys : (vectors,) int64
        Packed values of the other variables.
    start : (vectors + 1,) int64
        Start of each vector's entries in ``x`` and ``values``.
    x : (rows,) int64
        The value of the vector's variable, for each entry.
    values : (rows,)
        The utilities.
    """

    keys: Ints
    start: Ints
    x: Ints
    values: Array


def group_by_variable(table: SparseTable, others: Sequence[int], variable: int, domains: Ints) -> GroupedTable:
    """Return the rows of a table over ``others`` and ``variable`` as vectors over ``variable``."""
    ordered = table.reordered((*others, variable), domains)
    low = bits_of(int(domains[variable]))
    start = starts_of(ordered.keys, low)
    return GroupedTable(ordered.keys[start[:-1]] >> low, start, ordered.keys & ((1 << low) - 1), ordered.values)


def is_nearly_full(rows: float, entries: float, itemsize: int) -> bool:
    """Return whether a table with this many allowed rows takes less memory if all its entries are stored.

    Parameters
    ----------
    rows : float
        The number of allowed rows, each of which is stored with a key of 8 bytes.
    entries : float
        The number of all entries.
    itemsize : int
        Bytes per entry.
    """
    return itemsize * entries <= (8 + itemsize) * rows


def size_of(scope: Sequence[int], domains: Ints) -> float:
    """Return the number of entries of a dense table over a scope."""
    return float(np.prod(domains[list(scope)].astype(np.float64)))


class SizeStatistics(NamedTuple):
    """Sizes of an elimination's messages.

    Attributes
    ----------
    messages, sparse_messages : int
        Number of messages, and number of sparse ones.
    dense_entries : float
        Entries of all messages if they were dense.
    stored_entries : float
        Entries of dense messages and rows of sparse ones.
    bytes : int
        Memory of all messages in bytes.
    """

    messages: int
    sparse_messages: int
    dense_entries: float
    stored_entries: float
    bytes: int


class BucketCost(NamedTuple):
    """The estimated cost of a bucket's elimination, in units of the time per dense joined cell.

    Attributes
    ----------
    cells : float
        Number of joined cells.
    size : int
        Domain size of the eliminated variable.
    """

    cells: float
    size: int

    @property
    def work(self) -> float:
        """The cost with dense tables, including the comparison of the message with its bound."""
        return self.cells * (1 + CELLS_PER_DENSE_ENTRY / self.size)

    @property
    def is_short(self) -> bool:
        """Whether it takes less time with dense tables than starting all cores for rows."""
        return self.work <= PARALLEL_START_CELLS

    @property
    def candidates(self) -> float:
        """The number of candidates for rows that take as long as dense tables."""
        return self._candidates(self.work)

    @property
    def candidates_after_start(self) -> float:
        """The same number if all cores have to be started first."""
        return self._candidates(max(0.0, self.work - PARALLEL_START_CELLS))

    def _candidates(self, work: float) -> float:
        """Return the number of candidates that take as long as some work."""
        return work / (CELLS_PER_ROW + CELLS_PER_VALUE * self.size)


def max_dense_cells() -> int:
    """Return the joined cells up to which dense tables take less time than calling the kernels of sparse rows."""
    return tuning.SMALL_STEP_CELLS


def total_statistics(statistics: Sequence[SizeStatistics]) -> SizeStatistics | None:
    """Return the total over several eliminations; None if there are none.

    >>> total_statistics([SizeStatistics(2, 1, 64.0, 9.0, 72), SizeStatistics(1, 0, 8.0, 8.0, 32)])
    SizeStatistics(messages=3, sparse_messages=1, dense_entries=72.0, stored_entries=17.0, bytes=104)
    """
    return SizeStatistics(*map(sum, zip(*statistics, strict=True))) if statistics else None


def forecast(plan: EliminationPlan, fills: Sequence[float], itemsize: int) -> SizeStatistics:
    """Return the expected message sizes without filtering, if the allowed entries of different tables are independent.

    An entry of the join is allowed with probability p, the product of the fractions of the bucket's tables; an entry of
    the message with probability 1 − (1 − p)^d, where d is the domain size of the eliminated variable. A stored row
    takes 8 bytes for its key and ``itemsize`` for its value.

    Parameters
    ----------
    plan
        The plan of the elimination with dense tables.
    fills
        Fraction of each input's entries that is allowed.
    itemsize
        Bytes per entry.

    Examples
    --------
    >>> import numpy as np
    >>> from dmcmc.inference.elimination.plan import plan_elimination
    >>> plan = plan_elimination([(0, 1), (0, 2)], np.array([128, 128, 128]), [0, 1, 2])
    >>> forecast(plan, [0.01, 0.01], 8).sparse_messages
    1
    """
    fill, domains = dict(enumerate(fills)), plan.program.domains.tolist()
    n_sparse, entries, rows, memory = 0, 0.0, 0.0, 0.0
    variables, cells = plan.program.variable.tolist(), plan.program.cells.tolist()
    for b, variable in enumerate(variables):
        joint_fill = 1.0
        for t in plan.inputs(b):
            joint_fill *= fill[t]
        message, size = plan.output(b), float(plan.sizes[plan.output(b)])
        fill[message] = 1.0 - (1.0 - joint_fill) ** domains[variable]
        is_sparse = cells[b] > max_dense_cells() and not is_nearly_full(fill[message] * size, size, itemsize)
        n_sparse += is_sparse
        entries += size
        rows += fill[message] * size if is_sparse else size
        memory += fill[message] * size * (8 + itemsize) if is_sparse else size * itemsize
    return SizeStatistics(plan.buckets, n_sparse, entries, rows, int(memory))


class Substitution(NamedTuple):
    """A variable that has been replaced by a function of another one.

    Attributes
    ----------
    variable : int
        The variable that has been eliminated.
    source : int
        The variable that determines it.
    value : (values of ``source``,) int64
        Its value for each value of ``source``.
    """

    variable: int
    source: int
    value: Ints


def substitute_functional(
    tables: Sequence[AnyTable], variables: Collection[int]
) -> tuple[list[AnyTable], list[Substitution]]:
    """Replace variables that are functions of other variables, one after the other.

    Parameters
    ----------
    tables
        Encoded tables; their sum is maximised over ``variables``.
    variables
        The variables that may be replaced.

    Returns
    -------
    tables : list of table
        Tables whose sum, maximised over the remaining variables, is the same.
    substitutions : list of Substitution
        In the order in which they were made: the source of one may be the variable of a later one.
    """
    remaining, replaced, substitutions = list(tables), set[int](), list[Substitution]()
    while True:
        found = _find(remaining, [v for v in variables if v not in replaced])
        if found is None:
            return remaining, substitutions
        remaining = [_substituted(table, found) for table in remaining]
        replaced.add(found.variable)
        substitutions.append(found)


def _find(tables: Sequence[AnyTable], variables: Collection[int]) -> Substitution | None:
    """Return the first variable that a table makes a function of another one; None if there is none."""
    fixed = {v for table in tables if not _is_replaceable(table) for v in table.scope}
    for table in tables:
        if len(table.scope) != 2 or not any(v in variables and v not in fixed for v in table.scope):
            continue
        allowed = is_allowed(as_dense(table).values)
        for axis, variable in enumerate(table.scope):
            if variable in variables and variable not in fixed and allowed.sum(axis=axis).max(initial=0) <= 1:
                return Substitution(variable, table.scope[1 - axis], allowed.argmax(axis=axis).astype(np.int64))
    return None


def _is_replaceable(table: AnyTable) -> bool:
    """Return whether a variable of the table can be replaced: the table is on the host, and dense or small."""
    if isinstance(table, DeviceTable):
        return False
    return isinstance(table, EncodedTable) or prod(table.shape) <= MAX_EXAMINED_ENTRIES


def _substituted(table: AnyTable, substitution: Substitution) -> AnyTable:
    """Return a table with a variable replaced; the table itself if it does not have the variable."""
    variable, source, value = substitution
    if variable not in table.scope:
        return table
    axis, values = table.scope.index(variable), as_dense(table).values
    if source not in table.scope:
        scope = (*table.scope[:axis], source, *table.scope[axis + 1 :])
        return EncodedTable(scope, np.ascontiguousarray(values.take(value, axis=axis)))
    rest = tuple(v for v in table.scope if v not in (variable, source))
    first = np.moveaxis(values, (axis, table.scope.index(source)), (0, 1))
    return EncodedTable((source, *rest), np.ascontiguousarray(first[value, np.arange(value.size)]))
