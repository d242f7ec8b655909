"""Sparse tables: sorted packed keys and their values; every entry that is not stored is −∞.

A key packs the values of the scope's variables, one bit field each, into an int64. The CUBE paper calls such tables
incomplete.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.row_kernels import list_finite, radix_sort, repack, spread_out, starts_of

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
