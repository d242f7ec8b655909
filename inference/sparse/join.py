"""Join and project whole sparse tables, for results that are made at once and not row by row against a bound."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.row_kernels import repack, starts_of
from dmcmc.inference.sparse.sparse_table import SparseTable, fields_of
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
