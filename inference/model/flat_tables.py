"""Tables as flat arrays: what compiled code reads instead of Python objects."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Array


class FlatTables(NamedTuple):
    """Tables one after another.

    Attributes
    ----------
    scope_start : (tables + 1,) int64
        The scope of table t is ``scope[scope_start[t]:scope_start[t + 1]]``.
    scope : (variables,) int64
    at : (tables + 1,) int64
        The entries of table t are ``data[at[t]:at[t + 1]]``, in C order over its scope.
    data : (entries,) numbers
    """

    scope_start: NDArray[np.int64]
    scope: NDArray[np.int64]
    at: NDArray[np.int64]
    data: Array

    @property
    def tables(self) -> int:
        """Number of tables."""
        return self.at.size - 1

    def strides(self, domains: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how far apart in ``data`` two values of each variable of ``scope`` are."""
        lengths = np.diff(self.scope_start)
        strides = np.ones(self.scope.size, dtype=np.int64)
        for place in range(2, int(lengths.max(initial=0)) + 1):  # from the last variable of each scope
            at = self.scope_start[1:][lengths >= place] - place
            strides[at] = strides[at + 1] * domains[self.scope[at + 1]]
        return strides

    def entries(self, values: NDArray[np.int64], strides: NDArray[np.int64]) -> list[int | float | None]:
        """Return each table's entry at value indices of all variables; None where it is forbidden."""
        found = self.found(values, strides)
        hard = found == forbidden_value(self.data.dtype)
        entries: list[int | float | None] = found.tolist()
        for table in np.flatnonzero(hard).tolist():
            entries[table] = None
        return entries

    def found(self, values: NDArray[np.int64], strides: NDArray[np.int64]) -> Array:
        """Return the same as the data have it."""
        steps = np.append(0, np.cumsum(values[self.scope] * strides))
        return self.data[self.at[:-1] + np.diff(steps[self.scope_start])]

    def scopes(self) -> list[tuple[int, ...]]:
        """Return the scopes as tuples."""
        flat, start = self.scope.tolist(), self.scope_start.tolist()
        return [tuple(flat[a:b]) for a, b in pairwise(start)]

    def part(self, first: int, last: int) -> "FlatTables":
        """Return tables ``first`` to ``last`` - 1; the entries are a view."""
        scopes, at = self.scope_start[first : last + 1], self.at[first : last + 1]
        return FlatTables(scopes - scopes[0], self.scope[scopes[0] : scopes[-1]], at - at[0], self.data[at[0] : at[-1]])


def side_by_side(parts: Sequence[FlatTables]) -> FlatTables:
    """Return the tables of all parts, which are of one number type, one after another."""
    if len(parts) == 1:
        return parts[0]
    return FlatTables(
        *_following([part.scope_start for part in parts], [part.scope for part in parts]),
        *_following([part.at for part in parts], [part.data for part in parts]),
    )


def _following(starts: Sequence[NDArray[np.int64]], pieces: Sequence[Array]) -> tuple[NDArray[np.int64], Array]:
    """Return where the things of all pieces start when those stand one after another, and those."""
    shifts = np.cumsum([0, *(start[-1] for start in starts)])
    moved = [start[:-1] + shift for start, shift in zip(starts, shifts[:-1], strict=True)]
    return np.concatenate([*moved, shifts[-1:]]), np.concatenate(pieces)


def laid_out(scopes: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where scopes start when they stand one after another, and their variables."""
    start = np.array([0, *accumulate(map(len, scopes))], dtype=np.int64)
    return start, np.array([v for s in scopes for v in s], dtype=np.int64)


def flatten(scopes: Sequence[Sequence[int]], tables: Sequence[Array], dtype: np.dtype[Any] | None = None) -> FlatTables:
    """Lay tables out one after another.

    Parameters
    ----------
    scopes
        One a table.
    tables
        As :func:`dmcmc.inference.model.tables.normalise` leaves them, or all of ``dtype``.
    dtype
        Of the data; None takes the narrowest of int32, int64 and float64 that every table fits, with its −∞.
    """
    if dtype is None:
        kinds = {table.dtype for table in tables}
        dtype = max(kinds, key=lambda d: (d.kind == "f", d.itemsize)) if kinds else np.dtype(np.int32)
        tables = [table if table.dtype == dtype else _recast(table, dtype) for table in tables]
    parts = [table.reshape(-1) for table in tables]
    start, scope = laid_out(scopes)
    return FlatTables(
        scope_start=start,
        scope=scope,
        at=np.array([0, *accumulate(p.size for p in parts)], dtype=np.int64),
        data=np.concatenate(parts) if parts else np.zeros(0, dtype=dtype),
    )


def _recast(table: Array, dtype: np.dtype[Any]) -> Array:
    """Return a table in a wider dtype, −∞ as that dtype has it."""
    wide = table.astype(dtype)
    wide[table == forbidden_value(table.dtype)] = forbidden_value(dtype)
    return wide


def magnitudes(flat: FlatTables) -> list[int | float]:
    """Return each table's largest finite |entry|; Python integers for integers, so that sums never wrap."""
    if not flat.tables:
        return []
    data, never, starts = flat.data, forbidden_value(flat.data.dtype), flat.at[:-1]
    low = np.minimum.reduceat(data, starts)
    if low.min() == never:
        data = np.where(data == never, 0, data)
        low = np.minimum.reduceat(data, starts)
    high = np.maximum.reduceat(data, starts)
    if data.dtype == np.int32:  # whose least number has no opposite
        high, low = high.astype(np.int64), low.astype(np.int64)
    largest: list[int | float] = np.maximum(np.abs(high), np.abs(low)).tolist()
    return largest
