"""Sparse tables, their sizes, and bucket elimination with them.

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

Eliminate variables with sparse tables only, for joins whose dense tables would be mostly −∞.

Unlike :mod:`dmcmc.inference.sparse.function_filtering`, this drops no row by a bound: the result is exact.

Join and project whole sparse tables, for results that are made at once and not row by row against a bound.
"""

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import prod
from typing import NamedTuple

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.elimination.eliminate import absorb
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable, is_allowed
from dmcmc.inference.model.device_table import DeviceTable
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, ResourceError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints, Number
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


_BYTES_PER_JOINED_ROW = 16  # a key and a value


def sparse_table_of(factor: Factor, domains: Ints, arithmetic: Arithmetic) -> SparseTable:
    """Return the allowed rows of a factor; a factor that lists them is not expanded.

    Raises
    ------
    KeyTooWide
        If packed keys cannot hold the scope.
    """
    if not isinstance(factor, SparseFactor) or not factor.default_is_forbidden:
        return SparseTable.of(arithmetic.encode(factor), domains, arithmetic)
    fields, (tuples, utilities) = fields_of(factor.scope, domains), factor.allowed_tuples()
    keys = np.zeros(len(tuples), dtype=np.int64)
    for column, shift in zip(tuples.T, fields.shift.tolist(), strict=True):
        keys |= column.astype(np.int64) << shift
    return SparseTable(factor.scope, keys, utilities.astype(arithmetic.dtype))


def all_values(variable: int, domains: Ints, arithmetic: Arithmetic) -> SparseTable:
    """Return the table of one variable in which every value is allowed and has utility zero."""
    size = int(domains[variable])
    return SparseTable((variable,), np.arange(size, dtype=np.int64), np.zeros(size, dtype=arithmetic.dtype))


def join(
    left: SparseTable, right: SparseTable, domains: Ints, max_rows: int, stop: Deadline = NO_DEADLINE
) -> SparseTable:
    """Return the join of two tables: the sums of rows that agree on the shared variables (CUBE §IV).

    Parameters
    ----------
    left, right
        The tables.
    domains : (variables,) int64
        Domain sizes.
    max_rows
        Largest number of rows of the result.
    stop
        When to give up with ``OutOfTime``.

    Raises
    ------
    OutOfMemory
        If the result has more rows.
    KeyTooWide
        If packed keys cannot hold the joint scope.

    Examples
    --------
    >>> domains = np.array([2, 2, 2])
    >>> left = SparseTable((0, 1), np.array([0b00, 0b11]), np.array([1, 2]))
    >>> right = SparseTable((1, 2), np.array([0b10, 0b11]), np.array([10, 20]))
    >>> both = join(left, right, domains, 9)
    >>> both.scope, both.keys.tolist(), both.values.tolist()
    ((0, 1, 2), [6, 7], [12, 22])
    """
    shared = [v for v in left.scope if v in right.scope]
    new = [v for v in right.scope if v not in left.scope]
    scope = (*left.scope, *new)
    fields_of(scope, domains)
    right_sorted, bits = right.reordered((*shared, *new), domains), fields_of(new, domains).bits
    right_keys, left_keys = right_sorted.keys >> bits, project_keys(left, shared, domains)
    begin, end = right_keys.searchsorted(left_keys), right_keys.searchsorted(left_keys, "right")
    count = end - begin
    rows = int(count.sum())
    if rows > max_rows:
        raise OutOfMemory(f"a sparse table has {rows:,} rows; the limit is {max_rows:,}")
    MEMORY_ACCOUNT.claim(_BYTES_PER_JOINED_ROW * rows, "the rows of a sparse table")
    keys, values = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.result_type(left.values, right.values))
    start = np.append(0, np.cumsum(count))
    cuts = np.searchsorted(start, np.arange(0, rows, MAX_EXAMINED_ENTRIES), side="right") - 1
    for first, last in pairwise([*dict.fromkeys(cuts.tolist()), left.rows]):
        stop.check()
        left_row = np.repeat(np.arange(first, last), count[first:last])
        at = slice(start[first], start[last])
        right_row = np.arange(at.start, at.stop) + (begin - start[:-1])[left_row]
        keys[at] = (left.keys[left_row] << bits) | (right_sorted.keys[right_row] & ((1 << bits) - 1))
        values[at] = left.values[left_row] + right_sorted.values[right_row]
    return SparseTable(scope, keys, values)


def project_keys(table: SparseTable, onto: Sequence[int], domains: Ints) -> Ints:
    """Return the packed values of some variables in each row, (rows,) int64."""
    source_fields, target_fields = fields_of(table.scope, domains), fields_of(onto, domains)
    columns = [table.scope.index(v) for v in onto]
    packed: Ints = repack(table.keys, source_fields.shift[columns], source_fields.mask[columns], target_fields.shift)
    return packed


def maximise_over(table: SparseTable, eliminated: Sequence[int], domains: Ints) -> SparseTable:
    """Return the maximum of a table over the variables ``eliminated``."""
    remaining = tuple(v for v in table.scope if v not in eliminated)
    ordered = table.reordered((*remaining, *(v for v in table.scope if v in eliminated)), domains)
    bits = fields_of([v for v in table.scope if v in eliminated], domains).bits
    start = starts_of(ordered.keys, bits)
    values: Array = np.maximum.reduceat(ordered.values, start[:-1]) if ordered.rows else ordered.values
    return SparseTable(remaining, ordered.keys[start[:-1]] >> bits, values)


_BYTES_PER_ROW = 40  # bytes per row while tables are joined: keys, values, and the row numbers in both inputs


@dataclass(frozen=True)
class SparseElimination:
    """A finished elimination with sparse tables.

    Attributes
    ----------
    plan : EliminationPlan
        The plan of the same elimination with dense tables.
    tables : list of SparseTable
        The tables of the plan: inputs, then one message per bucket.
    domains : (variables,) int64
        Domain sizes.
    arithmetic : Arithmetic
        The arithmetic of the tables.
    """

    plan: EliminationPlan
    tables: Sequence[SparseTable]
    domains: Ints
    arithmetic: Arithmetic

    def remaining(self) -> tuple[AnyTable, ...]:
        """Return the tables over kept variables; their sum is the result. No scope is a subset of another."""
        scopes = {t: self.plan.scope(t) for t in self.plan.remaining}
        rows = [self.tables[t].reordered(scope, self.domains) for t, scope in scopes.items()]
        if any(set(a) <= set(b) for a, b in permutations(scopes.values(), 2)):
            return absorb([sparse.dense(self.domains, self.arithmetic) for sparse in rows], self.arithmetic)
        rows.sort(key=lambda sparse: -len(sparse.scope))
        return tuple(SparseBackedTable.where_smaller(sparse, self.domains, self.arithmetic) for sparse in rows)

    def maximise(self, values: MutableMapping[int, int]) -> None:
        """Add the maximising value of every eliminated variable to a mapping; ties go to the lowest value.

        If no value is allowed, the choice equals that of dense tables, because sums are clamped in the same order.
        """
        lowest = self.arithmetic.lowest
        for b in reversed(range(self.plan.buckets)):
            variable, best = int(self.plan.program.variable[b]), None
            inputs = [self.tables[t] for t in self.plan.inputs(b)]
            for x in range(int(self.domains[variable])):
                values[variable] = x
                total: Number = 0
                for table in inputs:
                    entry = table.entry(values, self.domains)
                    total = max(total + (lowest if entry is None else entry), lowest)
                if best is None or total > best[0]:
                    best = total, x
            values[variable] = 0 if best is None else best[1]


@dataclass(frozen=True)
class SparseQuery:
    """The query of an elimination, like ``EliminationQuery``; its tables may be sparse."""

    tables: Sequence[AnyTable]
    domains: Ints
    arithmetic: Arithmetic


def eliminate_sparse(
    query: SparseQuery, plan: EliminationPlan, memory: int | None, stop: Deadline = NO_DEADLINE
) -> SparseElimination | None:
    """Run the elimination with sparse tables if that pays; return None if dense tables should be used.

    It pays if dense tables do not fit the memory, or if so few rows of the joins are expected that listing them is
    faster. The estimate treats the allowed entries of different tables as independent. If more rows occur, the function
    gives up. Integers only; the sums equal those of dense tables bit by bit.

    Parameters
    ----------
    query
        The query.
    plan
        The exact plan of the query.
    memory
        Memory limit of the tables in bytes; None for no limit.
    stop
        The deadline.

    Returns
    -------
    SparseElimination or None
        None also if the join exceeds its limit on rows, a key is too wide, or the result cannot fit the memory.
    """
    if not query.arithmetic.exact or plan.cells < tuning.SMALL_STEP_CELLS:
        return None
    size, cells = query.arithmetic.dtype.itemsize, float(plan.program.cells.astype(np.float64).sum())
    result_entries = sum(int(plan.sizes[t]) for t in plan.remaining)
    fits = memory is None or plan.entries * size <= memory
    # Even the result, which may be dense and copied once, does not fit.
    if not fits and result_entries * size * 2 > (memory or 0):
        return None
    max_rows = min(
        tuning.CELLS_PER_CHECK, int(cells / tuning.CELLS_PER_ROW) if fits else (memory or 0) // (2 * _BYTES_PER_ROW)
    )
    if expected_rows(plan, query) > max_rows:
        return None
    try:
        return _eliminate(query, plan, max_rows, stop)
    except (OutOfMemory, KeyTooWide):
        return None


def expected_rows(plan: EliminationPlan, query: SparseQuery) -> float:
    """Return the expected number of rows of all joins if the allowed entries of tables are independent.

    A join of tables with fractions f of allowed entries has Π f · cells rows; its message has the fraction
    1 − (1 − Π f)^d, where d is the domain size of the eliminated variable.
    """
    fill = {t: _fill(table, query.arithmetic) for t, table in enumerate(query.tables)}
    rows, cells = 0.0, plan.program.cells.tolist()
    for b, variable in enumerate(plan.program.variable.tolist()):
        joint_fill = 1.0
        for t in plan.inputs(b):
            joint_fill *= fill[t]
        fill[plan.output(b)] = 1.0 - (1.0 - joint_fill) ** int(query.domains[variable])
        rows += joint_fill * cells[b]
    return rows


def _fill(table: AnyTable, arithmetic: Arithmetic) -> float:
    """Return the fraction of a table's entries that is allowed."""
    if isinstance(table, SparseBackedTable):
        return table.rows.rows / max(1, prod(table.shape))
    if isinstance(table, DeviceTable):
        return table.count(arithmetic.forbidden_below) / max(1, prod(table.shape))
    return int(np.count_nonzero(table.values > arithmetic.forbidden_below)) / max(1, table.values.size)


def _eliminate(query: SparseQuery, plan: EliminationPlan, max_rows: int, stop: Deadline) -> SparseElimination:
    """Join and maximise bucket by bucket.

    Raises
    ------
    OutOfMemory
        If all messages together, or a join, have more than ``max_rows`` rows.
    KeyTooWide
        If packed keys cannot hold a joint scope.
    """
    domains = query.domains
    tables = [as_rows(table, domains, query.arithmetic) for table in query.tables]
    for b, variable in enumerate(plan.program.variable.tolist()):
        stop.check()
        parts = sorted((tables[t] for t in plan.inputs(b)), key=lambda table: table.rows)
        joined = parts[0] if parts else SparseTable((variable,), np.arange(domains[variable]), _zeros(query, variable))
        for part in parts[1:]:
            joined = join(joined, part, domains, max_rows, stop)
        message = maximise_over(joined, [variable], domains)
        MEMORY_ACCOUNT.claim(message.bytes, "rows of an elimination")
        max_rows -= message.rows
        if max_rows < 0:  # a bucket with a single table is not joined, so no join has refused it
            raise OutOfMemory("the messages of a sparse elimination have more rows than fit the memory limit")
        tables.append(message)
    return SparseElimination(plan, tables, domains, query.arithmetic)


def _zeros(query: SparseQuery, variable: int) -> Array:
    """Return a vector of zeros over a variable's values."""
    return np.zeros(int(query.domains[variable]), dtype=query.arithmetic.dtype)
