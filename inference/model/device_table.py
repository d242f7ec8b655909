"""Tables that stay on the device until their entries are needed on the host; later eliminations read them there."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.model import device_table_kernels as kernels
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device
from dmcmc.inference.runtime.types import Array

NEVER_RESIDENT = 1 << 62  # a minimum number of entries that no table has: all tables are copied to the host
_THREADS = 256  # threads per block


class DeviceTable(EncodedTable):
    """A table on the device; its entries are copied to the host once, on the first access to ``values``.

    ``_host`` is None until that copy, and again after :meth:`add` has changed the entries. ``_owner`` keeps the device
    memory: when it is garbage-collected, the memory is reused.

    Attributes
    ----------
    scope : tuple of int
        Variable indices.
    shape : tuple of int
        Domain sizes of the scope.
    entries : device array of int32, int64 or float64, shape (number of entries,)
        Encoded utilities in C order over the scope.
    """

    shape: tuple[int, ...]
    entries: Any
    _owner: object
    _host: Array | None

    @classmethod
    def of(cls, scope: tuple[int, ...], shape: tuple[int, ...], entries: Any, owner: object = None) -> "DeviceTable":
        """Build a table from entries on the device that stay valid as long as ``owner`` is alive."""
        table = cls(scope, np.zeros(0, dtype=entries.dtype))
        table.shape, table.entries, table._owner, table._host = shape, entries, owner, None
        return table

    @property
    def values(self) -> Array:
        """All entries, on the host."""
        if self._host is None:
            host = np.empty(prod(self.shape), dtype=self.entries.dtype)
            self.entries.copy_to_host(host)
            self._host = host.reshape(self.shape)
        return self._host

    def __iter__(self) -> Iterator[Any]:
        return iter((self.scope, self.values))

    @property
    def on_host(self) -> bool:
        """Whether the entries have been copied to the host."""
        return self._host is not None

    @property
    def nbytes(self) -> int:
        """The size of the entries in bytes."""
        return prod(self.shape) * int(self.entries.dtype.itemsize)

    def count(self, threshold: int | float) -> int:
        """Return the number of entries that are larger than ``threshold``."""
        count = shared_device().upload("held count", np.zeros(1, dtype=np.int64))
        size, limit = prod(self.shape), self.entries.dtype.type(threshold)
        kernels.count_above[_blocks(size), _THREADS](self.entries, size, limit, count)
        return int(count[:1].copy_to_host()[0])

    def largest(self) -> int | float:
        """Return the largest entry."""
        maximum, size = shared_device().upload("held largest", self.entries[:1].copy_to_host()), prod(self.shape)
        kernels.keep_largest[_blocks(size), _THREADS](self.entries, size, maximum)
        largest_number: int | float = maximum[:1].copy_to_host()[0].item()
        return largest_number

    def place(self, target: Any, offset: int, scope: Sequence[int]) -> None:
        """Copy the entries into a device array from position ``offset`` on, with the axes in the order of ``scope``."""
        size = prod(self.shape)
        descriptor = self._axis_descriptor(scope, [self.shape[self.scope.index(v)] for v in scope])
        kernels.place_entries[_blocks(size), _THREADS](self.entries, size, descriptor, target, offset)

    def add(self, other: EncodedTable, lowest: int | float) -> None:
        """Add a table over a subset of the variables in place; each sum is clamped to at least ``lowest``."""
        addend, size, lowest_number = _on_device(other), prod(self.shape), self.entries.dtype.type(lowest)
        descriptor = addend._axis_descriptor(self.scope, self.shape)
        self._host = None
        kernels.add_entries[_blocks(size), _THREADS](addend.entries, size, descriptor, self.entries, lowest_number)

    def _axis_descriptor(self, scope: Sequence[int], sizes: Sequence[int]) -> Any:
        """Upload the descriptor with which kernels read this table in the axis order of ``scope``.

        Returns
        -------
        device array of int64, shape (1 + 2 n,)
            The number of axes n, their sizes, and the stride of each axis in ``entries`` (0 for a variable not in the
            scope of this table).
        """
        strides = {v: prod(self.shape[axis + 1 :]) for axis, v in enumerate(self.scope)}
        descriptor = np.array([len(scope), *sizes, *(strides.get(v, 0) for v in scope)], dtype=np.int64)
        return shared_device().upload("held axes", descriptor)


def largest_entry(table: EncodedTable) -> int | float:
    """Return a table's largest entry; a table on the device is not copied to the host."""
    if isinstance(table, DeviceTable) and not table.on_host:
        return table.largest()
    largest_number: int | float = table.values.max().item()
    return largest_number


def copy_table(table: EncodedTable) -> EncodedTable:
    """Return a copy of a table in new memory, on the device if the table is there and the copy fits.

    A view keeps the memory of all tables that were made with it alive; a copy does not.
    """
    if not isinstance(table, DeviceTable):
        return EncodedTable(table.scope, table.values.copy())
    try:
        return _copy_to_device(table.scope, table.shape, table.entries)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return EncodedTable(table.scope, table.values.copy())


def sum_on_device(
    into: EncodedTable, other: EncodedTable, arithmetic: Arithmetic, may_overwrite: bool
) -> EncodedTable | None:
    """Return the sum of two tables on the device, or None if the sum has to be computed on the host.

    Parameters
    ----------
    into : EncodedTable
        A table whose scope contains the scope of ``other``.
    other : EncodedTable
        The table to add.
    arithmetic : Arithmetic
        The arithmetic of both tables.
    may_overwrite : bool
        Whether ``into`` may be overwritten with the sum.

    Returns
    -------
    EncodedTable or None
        The sum; None if neither table is on the device or the device has too little memory.
    """
    if not isinstance(into, DeviceTable) and not isinstance(other, DeviceTable):
        return None
    try:
        total = into if may_overwrite and isinstance(into, DeviceTable) else copy_table(_on_device(into))
        if not isinstance(total, DeviceTable):
            return None
        total.add(other, arithmetic.lowest)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    return total


def _on_device(table: EncodedTable) -> DeviceTable:
    """Return the table if it is on the device, otherwise a copy on the device."""
    if isinstance(table, DeviceTable):
        return table
    return _copy_to_device(table.scope, table.values.shape, np.ascontiguousarray(table.values).reshape(-1))


def new_device_table(scope: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceTable:
    """Return a table with new memory on the device; its entries are undefined."""
    owner, size = _MemoryOwner(), prod(shape)
    return DeviceTable.of(scope, shape, shared_device().lease(size, dtype, owner)[:size], owner)


def _copy_to_device(scope: tuple[int, ...], shape: tuple[int, ...], entries: Any) -> DeviceTable:
    """Return a table with new memory on the device, filled with ``entries`` from the device or the host."""
    table = new_device_table(scope, shape, entries.dtype)
    table.entries.copy_to_device(entries)
    return table


class _MemoryOwner:
    """Keeps device memory alive."""


def min_resident_entries() -> int:
    """Return the number of entries from which the tables that eliminations produce stay on the device."""
    return tuning.SMALL_STEP_CELLS


def load_kernels(dtype: np.dtype[Any]) -> None:
    """Compile the kernels of this file for a number type, or load them from the disk cache."""
    device, zero = shared_device(), dtype.type(0)
    tables, longs = device.buffer("kernels", 1, dtype), device.buffer("kernels", 1, np.dtype(np.int64))
    device.load(kernels.count_above, (tables, 0, zero, longs))
    device.load(kernels.keep_largest, (tables, 0, tables))
    device.load(kernels.place_entries, (tables, 0, longs, tables, 0))
    device.load(kernels.add_entries, (tables, 0, longs, tables, zero))


def split_by_location(
    tables: Sequence[EncodedTable] | FlatTables, device_only: Sequence[int]
) -> tuple[Sequence[EncodedTable] | FlatTables, dict[int, DeviceTable]]:
    """Split the tables of an elimination into those on the host and those on the device.

    Parameters
    ----------
    tables : sequence of EncodedTable or FlatTables
        All tables of the elimination.
    device_only : sequence of int
        Indices of the tables that only device kernels read.

    Returns
    -------
    host_tables : sequence of EncodedTable or FlatTables
        The other tables, in their order.
    device_tables : dict from int to DeviceTable
        The tables among ``device_only`` that are on the device, by index.
    """
    if isinstance(tables, FlatTables):
        return tables, {}
    device_tables = {t: table for t in device_only if isinstance(table := tables[t], DeviceTable)}
    return (
        [table for t, table in enumerate(tables) if t not in device_tables] if device_tables else tables
    ), device_tables


def _blocks(size: int) -> int:
    """Return the number of thread blocks of a launch over ``size`` entries; at most 4096, because threads loop."""
    return max(1, min(1 << 12, -(-size // _THREADS)))
