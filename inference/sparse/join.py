"""Whole incomplete tables joined and projected: for what is made once, not row by row against a bound."""

from collections.abc import Sequence

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.row_kernels import repack, starts_of
from dmcmc.inference.sparse.sparse_table import Incomplete, fields_of


def rows_of(factor: Factor, domains: Ints, arithmetic: Arithmetic) -> Incomplete:
    """Return what is possible in a factor; one that lists it is not made dense.

    Raises
    ------
    TooWide
        If keys of its scope have no room.
    """
    if not isinstance(factor, SparseFactor) or not factor.lists_possible:
        return Incomplete.of(arithmetic.encode(factor), domains, arithmetic)
    fields, (tuples, utilities) = fields_of(factor.scope, domains), factor.possible()
    keys = np.zeros(len(tuples), dtype=np.int64)
    for column, shift in zip(tuples.T, fields.shift.tolist(), strict=True):
        keys |= column.astype(np.int64) << shift
    return Incomplete(factor.scope, keys, utilities.astype(arithmetic.dtype))


def everything(variable: int, domains: Ints, arithmetic: Arithmetic) -> Incomplete:
    """Return the table of one variable in which all values are possible, and worth nothing."""
    size = int(domains[variable])
    return Incomplete((variable,), np.arange(size, dtype=np.int64), np.zeros(size, dtype=arithmetic.dtype))


def joined(left: Incomplete, right: Incomplete, domains: Ints, most: int) -> Incomplete:
    """Return the sums of the rows of two tables that agree on the variables that both have (CUBE §IV).

    Parameters
    ----------
    most
        Rows that there may be.

    Raises
    ------
    OutOfMemory
        If there are more.
    TooWide

    Examples
    --------
    >>> domains = np.array([2, 2, 2])
    >>> left = Incomplete((0, 1), np.array([0b00, 0b11]), np.array([1, 2]))
    >>> right = Incomplete((1, 2), np.array([0b10, 0b11]), np.array([10, 20]))
    >>> both = joined(left, right, domains, 9)
    >>> both.scope, both.keys.tolist(), both.values.tolist()
    ((0, 1, 2), [6, 7], [12, 22])
    """
    shared = [v for v in left.scope if v in right.scope]
    new = [v for v in right.scope if v not in left.scope]
    scope = (*left.scope, *new)
    fields_of(scope, domains)
    other, bits = right.reordered((*shared, *new), domains), fields_of(new, domains).bits
    theirs, ours = other.keys >> bits, projected(left, shared, domains)
    begin, end = theirs.searchsorted(ours), theirs.searchsorted(ours, "right")
    count = end - begin
    rows = int(count.sum())
    if rows > most:
        raise OutOfMemory(f"an incomplete table of {rows:,} rows, where there is room for {most:,}")
    here = np.repeat(np.arange(left.rows), count)
    there = np.arange(rows) + np.repeat(begin - (np.cumsum(count) - count), count)
    keys = (left.keys[here] << bits) | (other.keys[there] & ((1 << bits) - 1))
    return Incomplete(scope, keys, left.values[here] + other.values[there])


def projected(table: Incomplete, onto: Sequence[int], domains: Ints) -> Ints:
    """Return the values of some variables in each row, packed."""
    here, there = fields_of(table.scope, domains), fields_of(onto, domains)
    at = [table.scope.index(v) for v in onto]
    packed: Ints = repack(table.keys, here.shift[at], here.mask[at], there.shift)
    return packed


def maximised(table: Incomplete, away: Sequence[int], domains: Ints) -> Incomplete:
    """Return the largest values over some variables."""
    kept = tuple(v for v in table.scope if v not in away)
    ordered = table.reordered((*kept, *(v for v in table.scope if v in away)), domains)
    bits = fields_of([v for v in table.scope if v in away], domains).bits
    start = starts_of(ordered.keys, bits)
    values: Array = np.maximum.reduceat(ordered.values, start[:-1]) if ordered.rows else ordered.values
    return Incomplete(kept, ordered.keys[start[:-1]] >> bits, values)
