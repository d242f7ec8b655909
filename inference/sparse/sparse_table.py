"""Incomplete tables: sorted packed keys and values; what is not listed is −∞."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.row_kernels import list_finite, radix_sort, repack, spread_out, starts_of

KEY_BITS = 62  # of a packed key
_SMALL = 64  # entries of a table that may always have them all


class TooWide(ResourceError):
    """A table over more variables than a packed key has room for."""


def bits_of(size: int) -> int:
    """Return the bits of a variable's field."""
    return max(0, int(size) - 1).bit_length()


class Fields(NamedTuple):
    """Where the variables of a scope stand in a packed key, the first at the high end; all (variables,) int64."""

    shift: Ints
    mask: Ints
    bits: int


def fields_of(scope: Sequence[int], domains: Ints) -> Fields:
    """Return the fields of a scope.

    Raises
    ------
    TooWide

    Examples
    --------
    >>> fields_of([0, 1], np.array([3, 8])).shift.tolist(), fields_of([0, 1], np.array([3, 8])).bits
    ([3, 0], 5)
    """
    widths = [bits_of(int(domains[v])) for v in scope]
    total = sum(widths)
    if total > KEY_BITS:
        raise TooWide(f"rows over {len(scope)} variables need keys of {total} bits, and have {KEY_BITS}")
    after = np.cumsum([0, *widths[::-1]])[:-1][::-1] if widths else np.zeros(0)
    mask = np.array([(1 << w) - 1 for w in widths], dtype=np.int64)
    return Fields(np.ascontiguousarray(after, dtype=np.int64), mask, total)


@dataclass(frozen=True)
class Incomplete:
    """Rows that are not −∞.

    Attributes
    ----------
    scope : tuple of int
        The variables, the first at the high end of the keys.
    keys : (rows,) int64
        Packed values, ascending, no two alike.
    values : (rows,)
        Encoded utilities.
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
        """Bytes of the rows."""
        return self.keys.nbytes + self.values.nbytes

    @classmethod
    def of(cls, table: Table, domains: Ints, arithmetic: Arithmetic) -> "Incomplete":
        """List what is not −∞ in a dense table."""
        fields = fields_of(table.scope, domains)
        flat = np.ascontiguousarray(table.values).reshape(-1)
        hard = (flat < arithmetic.threshold) | (flat == arithmetic.lowest)
        count = int(flat.size - hard.sum())
        keys, values = np.empty(count, dtype=np.int64), np.empty(count, dtype=arithmetic.dtype)
        sizes = domains[list(table.scope)].astype(np.int64)
        list_finite(flat, arithmetic.dtype.type(arithmetic.threshold), sizes, fields.shift, keys, values)
        return cls(table.scope, keys, values)

    def dense(self, domains: Ints, arithmetic: Arithmetic) -> Table:
        """Return all entries."""
        fields = fields_of(self.scope, domains)
        sizes = [int(domains[v]) for v in self.scope]
        stride = strides(sizes)
        table = np.full(int(np.prod(sizes, dtype=np.int64)), arithmetic.lowest, dtype=arithmetic.dtype)
        spread_out(self.keys, self.values, fields.shift, fields.mask, stride, table)
        return Table(self.scope, table.reshape(sizes))

    def reordered(self, scope: Sequence[int], domains: Ints) -> "Incomplete":
        """Return the same rows with the variables in another order."""
        scope = tuple(scope)
        if scope == self.scope:
            return self
        here, there = fields_of(self.scope, domains), fields_of(scope, domains)
        to = there.shift[[scope.index(v) for v in self.scope]]
        keys, values = repack(self.keys, here.shift, here.mask, to), self.values.copy()
        radix_sort(keys, values, there.bits)
        return Incomplete(scope, keys, values)

    def entry(self, values: Mapping[int, int], domains: Ints) -> int | float | None:
        """Return the utility of an assignment; None where it is not listed."""
        fields = fields_of(self.scope, domains)
        key = sum(int(values[v]) << int(s) for v, s in zip(self.scope, fields.shift, strict=True))
        at = int(self.keys.searchsorted(key))
        found: int | float | None = self.values[at].item() if at < self.rows and self.keys[at] == key else None
        return found


@dataclass(frozen=True)
class ListedTable:
    """An incomplete table in place of a dense one: all entries are made when they are asked for.

    Attributes
    ----------
    rows : Incomplete
        What is not −∞.
    shape : tuple of int
        Domain sizes of the scope.
    lowest : int or float
        What all other entries are.
    """

    rows: Incomplete
    shape: tuple[int, ...]
    lowest: int | float

    @property
    def scope(self) -> tuple[int, ...]:
        """Its variables."""
        return self.rows.scope

    @property
    def values(self) -> Array:
        """All entries, made anew."""
        table: Array = np.full(prod(self.shape), self.lowest, dtype=self.rows.values.dtype)
        fields = fields_of(range(len(self.shape)), np.array(self.shape, dtype=np.int64))
        spread_out(self.rows.keys, self.rows.values, fields.shift, fields.mask, strides(self.shape), table)
        return table.reshape(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that it takes as it is."""
        return self.rows.bytes

    @classmethod
    def where_smaller(cls, rows: Incomplete, domains: Ints, arithmetic: Arithmetic) -> "AnyTable":
        """Return rows as they are where that takes at most half of what all entries would, and those are many."""
        shape = tuple(int(domains[v]) for v in rows.scope)
        if prod(shape) >= _SMALL and 2 * rows.bytes <= prod(shape) * arithmetic.dtype.itemsize:
            return cls(rows, shape, arithmetic.lowest)
        return rows.dense(domains, arithmetic)


AnyTable = Table | ListedTable


def as_dense(table: AnyTable) -> Table:
    """Return a table with all of its entries."""
    return table if isinstance(table, Table) else Table(table.scope, table.values)


def as_rows(table: AnyTable, domains: Ints, arithmetic: Arithmetic) -> Incomplete:
    """Return what is not −∞ in a table."""
    return Incomplete.of(table, domains, arithmetic) if isinstance(table, Table) else table.rows


def strides(sizes: Sequence[int]) -> Ints:
    """Return the strides of C order."""
    steps = np.ones(len(sizes), dtype=np.int64)
    for i in range(len(sizes) - 2, -1, -1):
        steps[i] = steps[i + 1] * sizes[i + 1]
    return steps


class Grouped(NamedTuple):
    """An incomplete table with vectors over one variable.

    ``keys`` (vectors,) are those of the other variables, ``start`` (vectors + 1,) is where each one's ``x`` and
    ``values`` begin.
    """

    keys: Ints
    start: Ints
    x: Ints
    values: Array


def grouped(table: Incomplete, others: Sequence[int], variable: int, domains: Ints) -> Grouped:
    """Return the rows of a table over ``others`` and ``variable`` as vectors over that."""
    there = table.reordered((*others, variable), domains)
    low = bits_of(int(domains[variable]))
    start = starts_of(there.keys, low)
    return Grouped(there.keys[start[:-1]] >> low, start, there.keys & ((1 << low) - 1), there.values)


def size_of(scope: Sequence[int], domains: Ints) -> float:
    """Return how many entries a dense table would have."""
    return float(np.prod(domains[list(scope)].astype(np.float64)))
