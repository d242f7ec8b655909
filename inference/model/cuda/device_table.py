"""Tables that lie on the device until somebody wants their entries: later eliminations take them from there."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.device import is_out_of_memory, shared_device
from dmcmc.inference.runtime.types import Array

NEVER = 1 << 62
_STAYS = 1 << 16  # entries from which a table stays: less comes to the host with others in one copy
_THREADS = 256


class DeviceTable(Table):
    """A table on the device. Its entries are copied to the host when somebody asks for them, once.

    Attributes
    ----------
    shape : tuple of int
    entries : device array
        In C order.
    """

    shape: tuple[int, ...]
    entries: Any
    _owner: object
    _host: Array | None

    @classmethod
    def of(cls, scope: tuple[int, ...], shape: tuple[int, ...], entries: Any, owner: object = None) -> "DeviceTable":
        """Return a table of entries that are there as long as their owner is."""
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
        """Whether there is a copy on the host."""
        return self._host is not None

    @property
    def nbytes(self) -> int:
        """Bytes of its entries."""
        return prod(self.shape) * int(self.entries.dtype.itemsize)

    def count(self, least: int | float) -> int:
        """Return how many entries are larger than a number."""
        from dmcmc.inference.model.cuda.device_table_kernels import count_above

        device, size = shared_device(), prod(self.shape)
        found = device.upload("held count", np.zeros(1, dtype=np.int64))
        count_above[_blocks(size), _THREADS](self.entries, size, self.entries.dtype.type(least), found)
        host = np.zeros(1, dtype=np.int64)
        found[:1].copy_to_host(host)
        return int(host[0])

    def largest(self) -> int | float:
        """Return the largest entry."""
        from dmcmc.inference.model.cuda.device_table_kernels import keep_largest

        device, size = shared_device(), prod(self.shape)
        host = np.empty(1, dtype=self.entries.dtype)
        self.entries[:1].copy_to_host(host)
        found = device.upload("held largest", host)
        keep_largest[_blocks(size), _THREADS](self.entries, size, found)
        found[:1].copy_to_host(host)
        most: int | float = host[0].item()
        return most

    def place(self, target: Any, at: int, scope: Sequence[int]) -> None:
        """Copy the entries to a device array from a place on, axes in another order of variables."""
        from dmcmc.inference.model.cuda.device_table_kernels import place_entries

        size, words = prod(self.shape), self._read_as(scope, [self.shape[self.scope.index(v)] for v in scope])
        place_entries[_blocks(size), _THREADS](self.entries, size, words, target, at)

    def add(self, other: Table, lowest: int | float) -> None:
        """Add a table over some of the variables, in place; sums are at least ``lowest``."""
        from dmcmc.inference.model.cuda.device_table_kernels import add_entries

        there, size, number = _on_device(other), prod(self.shape), self.entries.dtype.type(lowest)
        words = there._read_as(self.scope, self.shape)
        self._host = None
        add_entries[_blocks(size), _THREADS](there.entries, size, words, self.entries, number)

    def _read_as(self, scope: Sequence[int], sizes: Sequence[int]) -> Any:
        """Return the words by which kernels find an entry, by the values of variables that it may be over."""
        steps = {v: prod(self.shape[axis + 1 :]) for axis, v in enumerate(self.scope)}
        words = np.array([len(scope), *sizes, *(steps.get(v, 0) for v in scope)], dtype=np.int64)
        return shared_device().upload("held axes", words)


def largest(table: Table) -> int | float:
    """Return a table's largest entry, found where the table is."""
    if isinstance(table, DeviceTable) and not table.on_host:
        return table.largest()
    most: int | float = table.values.max().item()
    return most


def alone(table: Table) -> Table:
    """Return a copy of a table, where it is: as long as there is a view of one, all that were made with it stay."""
    if not isinstance(table, DeviceTable):
        return Table(table.scope, table.values.copy())
    try:
        return _leased(table.scope, table.shape, table.entries)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return Table(table.scope, table.values.copy())


def added(into: Table, other: Table, arithmetic: Arithmetic, mine: bool) -> Table | None:
    """Return the sum of two tables, if one of them is on the device, there; None where it is to be made on the host.

    Parameters
    ----------
    into, other
        All of the other's variables are among the first's.
    mine
        Whether the first may change.
    """
    if not isinstance(into, DeviceTable) and not isinstance(other, DeviceTable):
        return None
    try:
        total = into if mine and isinstance(into, DeviceTable) else alone(_on_device(into))
        if not isinstance(total, DeviceTable):
            return None
        total.add(other, arithmetic.lowest)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    return total


def _on_device(table: Table) -> DeviceTable:
    """Return a table on the device, copied if need be."""
    if isinstance(table, DeviceTable):
        return table
    return _leased(table.scope, table.values.shape, np.ascontiguousarray(table.values).reshape(-1))


def leased(scope: tuple[int, ...], shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceTable:
    """Return a table in memory of its own on the device, contents undefined."""
    owner, size = _Owner(), prod(shape)
    return DeviceTable.of(scope, shape, shared_device().lease(size, dtype, owner)[:size], owner)


def _leased(scope: tuple[int, ...], shape: tuple[int, ...], entries: Any) -> DeviceTable:
    """Return a table in memory of its own on the device; entries come from there or from the host."""
    table = leased(scope, shape, entries.dtype)
    table.entries.copy_to_device(entries)
    return table


class _Owner:
    """What device memory belongs to."""


def stays_from() -> int:
    """Return the entries from which tables that eliminations leave stay on the device."""
    return _STAYS


def load_kernels(dtype: np.dtype[Any]) -> None:
    """Compile what works on tables of a number type where they are, or find it on disk."""
    from dmcmc.inference.model.cuda import device_table_kernels as kernels

    device, number = shared_device(), dtype.type(0)
    tables, longs = device.buffer("kernels", 1, dtype), device.buffer("kernels", 1, np.dtype(np.int64))
    device.load(kernels.count_above, (tables, 0, number, longs))
    device.load(kernels.keep_largest, (tables, 0, tables))
    device.load(kernels.place_entries, (tables, 0, longs, tables, 0))
    device.load(kernels.add_entries, (tables, 0, longs, tables, number))


def parted(
    tables: Sequence[Table] | FlatTables, taken: Sequence[int]
) -> tuple[Sequence[Table] | FlatTables, dict[int, DeviceTable]]:
    """Return the tables that an elimination has from the host, and those that lie on the device, by their numbers.

    Parameters
    ----------
    taken
        Numbers of the tables that are taken on the device, and nowhere else.
    """
    if isinstance(tables, FlatTables):
        return tables, {}
    there = {t: table for t in taken if isinstance(table := tables[t], DeviceTable)}
    return ([table for t, table in enumerate(tables) if t not in there] if there else tables), there


def _blocks(size: int) -> int:
    return max(1, min(1 << 12, -(-size // _THREADS)))
