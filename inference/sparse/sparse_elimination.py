"""Bucket elimination with sparse tables.

Eliminate variables with sparse tables only, for joins whose dense tables would be mostly −∞.

Unlike :mod:`dmcmc.inference.sparse.function_filtering`, this drops no row by a bound: the result is exact.

Join and project whole sparse tables, for results that are made at once and not row by row against a bound.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from math import prod

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.elimination.eliminate import absorb
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.cuda.device_table import DeviceTable
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints, Number
from dmcmc.inference.sparse.row_kernels import repack, starts_of
from dmcmc.inference.sparse.sparse_table import AnyTable, KeyTooWide, SparseBackedTable, SparseTable, as_rows, fields_of
from dmcmc.inference.tuning import MAX_EXAMINED_ENTRIES

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
