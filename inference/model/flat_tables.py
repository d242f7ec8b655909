"""Several tables in flat arrays, the form that compiled kernels read."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.tables import forbidden, forbidden_value
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import CELLS_PER_CHECK


class FlatTables(NamedTuple):
    """The scopes and entries of several tables, stored one after another.

    Attributes
    ----------
    scope_start : ndarray of int64, shape (tables + 1,)
        The scope of table t is ``scope[scope_start[t]:scope_start[t + 1]]``.
    scope : ndarray of int64, shape (total scope length,)
        Variable indices of all scopes.
    at : ndarray of int64, shape (tables + 1,)
        Offsets: the entries of table t are ``data[at[t]:at[t + 1]]``, in C order over its scope.
    data : ndarray of int32, int64, uint64 or float64, shape (entries,)
        Entries of all tables.
    """

    scope_start: NDArray[np.int64]
    scope: NDArray[np.int64]
    at: NDArray[np.int64]
    data: Array

    @property
    def tables(self) -> int:
        """The number of tables."""
        return self.at.size - 1

    def strides(self, domains: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the stride in ``data`` of each variable of ``scope``, given the domain sizes of all variables."""
        lengths = self.scope_start[1:] - self.scope_start[:-1]  # np.diff takes longer for few tables
        strides = np.ones(self.scope.size, dtype=np.int64)
        for position in range(2, int(lengths.max(initial=0)) + 1):  # position counted from the end of each scope
            indices = self.scope_start[1:][lengths >= position] - position
            strides[indices] = strides[indices + 1] * domains[self.scope[indices + 1]]
        return strides

    def entries(self, values: NDArray[np.int64], strides: NDArray[np.int64]) -> list[int | float | None]:
        """Return each table's entry at an assignment as a Python number; None for a forbidden entry.

        Parameters
        ----------
        values : ndarray of int64, shape (variables,)
            Value indices of all variables of the problem.
        strides : ndarray of int64, shape (total scope length,)
            The result of ``strides``.

        Returns
        -------
        list of int, float or None
            One entry per table.
        """
        selected = self.selected_entries(values, strides)
        is_forbidden = selected == forbidden_value(self.data.dtype)
        entries: list[int | float | None] = selected.tolist()
        for table in np.flatnonzero(is_forbidden).tolist():
            entries[table] = None
        return entries

    def selected_entries(self, values: NDArray[np.int64], strides: NDArray[np.int64]) -> Array:
        """Return each table's entry at an assignment in the dtype of ``data``, shape (tables,); see ``entries``."""
        indices = values.astype(np.int64, copy=False)  # NumPy makes floats of an empty list
        steps = np.zeros(self.scope.size + 1, dtype=np.int64)
        np.cumsum(indices[self.scope] * strides, out=steps[1:])
        bounds = steps[self.scope_start]
        return self.data[self.at[:-1] + (bounds[1:] - bounds[:-1])]

    def scopes(self) -> list[tuple[int, ...]]:
        """Return the scopes as tuples of variable indices."""
        flat, start = self.scope.tolist(), self.scope_start.tolist()
        return [tuple(flat[a:b]) for a, b in pairwise(start)]

    def table_range(self, first: int, last: int) -> "FlatTables":
        """Return the tables ``first`` to ``last`` - 1; the entries are a view."""
        scope_start, at = self.scope_start[first : last + 1], self.at[first : last + 1]
        return FlatTables(
            scope_start - scope_start[0],
            self.scope[scope_start[0] : scope_start[-1]],
            at - at[0],
            self.data[at[0] : at[-1]],
        )


def concatenate_tables(parts: Sequence[FlatTables]) -> FlatTables:
    """Return the tables of all parts, which have the same dtype, one after another."""
    if len(parts) == 1:
        return parts[0]
    return FlatTables(
        *_concatenate_ragged([part.scope_start for part in parts], [part.scope for part in parts]),
        *_concatenate_ragged([part.at for part in parts], [part.data for part in parts]),
    )


def _concatenate_ragged(
    starts: Sequence[NDArray[np.int64]], pieces: Sequence[Array]
) -> tuple[NDArray[np.int64], Array]:
    """Concatenate ragged arrays: return the offsets of all pieces in the concatenation, and the concatenation."""
    shifts = np.cumsum([0, *(start[-1] for start in starts)])
    shifted = [start[:-1] + shift for start, shift in zip(starts, shifts[:-1], strict=True)]
    return np.concatenate([*shifted, shifts[-1:]]), np.concatenate(pieces)


def flatten_scopes(scopes: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the offsets and the variables of scopes that are stored one after another."""
    start = np.array([0, *accumulate(map(len, scopes))], dtype=np.int64)
    return start, np.array([v for s in scopes for v in s], dtype=np.int64)


def flatten(scopes: Sequence[Sequence[int]], tables: Sequence[Array], dtype: np.dtype[Any] | None = None) -> FlatTables:
    """Store tables one after another in flat arrays.

    Parameters
    ----------
    scopes : sequence of sequence of int
        The scope of each table.
    tables : sequence of ndarray
        Utility tables as ``dmcmc.inference.model.tables.normalise`` returns them, or arrays that all have ``dtype``.
    dtype : numpy dtype or None
        Dtype of the data. None selects the narrowest of int32, int64 and float64 that can hold every table; −∞ is
        converted.

    Returns
    -------
    FlatTables
        The tables, in the given order.
    """
    if dtype is None:
        dtypes = {table.dtype for table in tables}
        dtype = max(dtypes, key=lambda d: (d.kind == "f", d.itemsize)) if dtypes else np.dtype(np.int32)
    parts = [table.reshape(-1) for table in tables]
    start, scope = flatten_scopes(scopes)
    at = np.array([0, *accumulate(p.size for p in parts)], dtype=np.int64)
    MEMORY_ACCOUNT.claim(int(at[-1]) * dtype.itemsize, "all tables in one array")
    data = np.concatenate(parts, dtype=dtype, casting="unsafe") if parts else np.zeros(0, dtype=dtype)
    for i, part in enumerate(parts):
        if part.dtype != dtype:
            data[at[i] : at[i + 1]][forbidden(part)] = forbidden_value(dtype)
    return FlatTables(start, scope, at, data)


class TableRanges(NamedTuple):
    """The ranges of several tables.

    Attributes
    ----------
    low, high : ndarray of the tables' dtype, shape (tables,)
        Smallest and largest finite entry of each table; 0 if it has none.
    forbidden : ndarray of int64, shape (tables,)
        Number of forbidden entries of each table.
    """

    low: Array
    high: Array
    forbidden: NDArray[np.int64]

    def of_tables(self, first: int, last: int) -> "TableRanges":
        """Return the ranges of the tables ``first`` to ``last`` - 1."""
        return TableRanges(self.low[first:last], self.high[first:last], self.forbidden[first:last])

    @property
    def magnitudes(self) -> list[int | float]:
        """The largest finite absolute entry of each table; Python ints for integers, so that sums never wrap."""
        low, high = self.low, self.high
        if low.dtype == np.int32:  # the smallest int32 has no negation
            low, high = low.astype(np.int64), high.astype(np.int64)
        largest: list[int | float] = np.maximum(np.abs(high), np.abs(low)).tolist()
        return largest


def table_ranges(flat: FlatTables, stop: Deadline = NO_DEADLINE) -> TableRanges:
    """Return the smallest and largest finite entry of each table, and its number of forbidden entries.

    Raises
    ------
    OutOfTime
        If the deadline passes; it is checked between pieces of the entries.
    """
    starts, size = flat.at[:-1], flat.data.size
    if size <= CELLS_PER_CHECK:
        low, high, counts = _ranges(flat.data, starts)
    else:
        cuts = np.arange(0, size, CELLS_PER_CHECK)
        pieces, parts = np.union1d(starts, cuts), list[tuple[Array, Array, NDArray[np.int64]]]()
        for cut, (first, last) in zip(cuts, pairwise([*np.searchsorted(pieces, cuts), pieces.size]), strict=True):
            stop.check()
            parts.append(_ranges(flat.data[cut : cut + CELLS_PER_CHECK], pieces[first:last] - cut))
        low, high, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
        tables = np.searchsorted(pieces, starts)
        low, high = np.minimum.reduceat(low, tables), np.maximum.reduceat(high, tables)
        counts = np.add.reduceat(counts, tables)
    is_empty = high == forbidden_value(flat.data.dtype)
    low[is_empty] = high[is_empty] = 0
    return TableRanges(low, high, counts)


def _ranges(data: Array, starts: NDArray[np.int64]) -> tuple[Array, Array, NDArray[np.int64]]:
    """Return the ranges of tables that begin at some positions; those without a finite entry keep the number of −∞."""
    counts, number = np.zeros(starts.size, dtype=np.int64), forbidden_value(data.dtype)
    if not starts.size:
        return data[:0].copy(), data[:0].copy(), counts
    low, high = np.minimum.reduceat(data, starts), np.maximum.reduceat(data, starts)
    if low.min() == number:
        is_forbidden = data == number
        counts = np.add.reduceat(is_forbidden, starts, dtype=np.int64)
        largest = np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).max
        low = np.minimum.reduceat(np.where(is_forbidden, data.dtype.type(largest), data), starts)
    return low, high, counts


def varying_entries(flat: FlatTables, ranges: TableRanges) -> int:
    """Return the number of entries that are not forbidden, of the tables in which these entries are not all equal."""
    return int((np.diff(flat.at) - ranges.forbidden)[ranges.low < ranges.high].sum())
