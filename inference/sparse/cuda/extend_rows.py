"""Rows of sparse tables extended on a GPU.

Carry ranges of a message's rows through all steps on an NVIDIA GPU: windows of candidates, depth first.

Every step has a buffer for a fixed number of rows, allocated before anything is made. A step takes its candidates
window by window (a window is a range of consecutive candidates that fits the buffer) and passes the survivors on when
its buffer is full. Only survivors are therefore held, however many candidates there are. Finished rows are copied to
the host. ``Rows`` is a pair of keys (n,) int64 and vectors (n, x_size), or values (n,) once the rows are finished.

The tables of a step of a message on the GPU, which the kernels of ``row_kernels`` read, and their sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.bucket_rows import RowBuilder
from dmcmc.inference.sparse.cuda.row_kernels import (
    BITS,
    EXACT,
    EXTEND,
    FIELD_START,
    FIRST,
    HEADER,
    JOIN,
    KIND,
    MASK,
    MAX_TABLES,
    OFFSET,
    SHARED,
    SHARED_MASK,
    SHARED_SHIFT,
    SHARED_TO,
    SHIFT,
    SIZE,
    STRIDE,
    TABLES,
    THREADS,
    X_SIZE,
    X_STRIDE,
    Y_STRIDE,
    best_rows,
    count_partners,
    flag_candidates,
    scan_sums,
    scan_tiles,
    write_rows,
)
from dmcmc.inference.sparse.join_steps import JoinStep, Rows
from dmcmc.inference.tuning import MAX_ROWS_PER_LAUNCH, ROWS_PER_BLOCK


@dataclass(frozen=True)
class DeviceStepTables:
    """The tables of a step on the device.

    Attributes
    ----------
    descriptor : int64
        The step, see :mod:`dmcmc.inference.sparse.cuda.row_kernels`.
    data
        The entries of the dense tables.
    new_values, start, xs, values
        The joined table (or the first one) as vectors over the bucket's variable: packed values of the new variables,
        start of each vector's entries, and for each entry its value x and its utility.
    shared, group_start
        Packed values of the variables that the joined table shares with the rows, and first vector for each of them.
    groups : int
        Number of entries of ``shared``.
    """

    descriptor: Any
    data: Any
    new_values: Any
    start: Any
    xs: Any
    values: Any
    shared: Any
    group_start: Any
    groups: int


def first_tables(device: Device, step: JoinStep, x_size: int, begin: int, end: int) -> DeviceStepTables:
    """Return vectors ``begin`` to ``end`` − 1 of the first table, with keys in place of ``new_values``.

    Parameters
    ----------
    device
        The device.
    step
        The first step of the message.
    x_size
        Number of values of the bucket's variable.
    begin, end
        The range of vectors.
    """
    table = step.table
    assert table is not None
    rows = slice(int(table.start[begin]), int(table.start[end]))
    start = table.start[begin : end + 1] - rows.start
    return _copy_step(device, "first", step, x_size, (table.keys[begin:end], start, table.x[rows], table.values[rows]))


def later_tables(device: Device, j: int, step: JoinStep, x_size: int, dtype: np.dtype[Any]) -> DeviceStepTables:
    """Return the tables of step ``j``, which is not the first one, on the device.

    The other parameters are those of :func:`first_tables`; ``dtype`` is that of the utilities.
    """
    partner = step.partner
    if partner is None:
        none = np.zeros(0, dtype=np.int64)
        return _copy_step(device, str(j), step, x_size, (none, none, none, np.zeros(0, dtype=dtype)))
    lists = partner.new_values, partner.start, partner.x, partner.values
    tables = _copy_step(device, str(j), step, x_size, lists)
    shared, group = _copy(device, f"shared{j}", partner.shared), _copy(device, f"group{j}", partner.group_start)
    return replace(tables, shared=shared, group_start=group, groups=partner.shared.size)


def _copy_step(
    device: Device, name: str, step: JoinStep, x_size: int, lists: tuple[Ints, Ints, Ints, Array]
) -> DeviceStepTables:
    """Copy the descriptor, the dense tables and the given lists of a step to the device."""
    descriptor = _copy(device, "words" + name, _step_descriptor(step, x_size))
    data = _copy(device, "data" + name, step.lookups.data)
    new_values, start = _copy(device, "new_values" + name, lists[0]), _copy(device, "start" + name, lists[1])
    xs, values = _copy(device, "xs" + name, lists[2].astype(np.int32)), _copy(device, "values" + name, lists[3])
    return DeviceStepTables(
        descriptor, data, new_values, start, xs, values, shared=new_values, group_start=start, groups=0
    )


def _copy(device: Device, name: str, data: Array) -> Any:
    """Copy an array to a named buffer on the device."""
    return device.upload("rows/" + name, np.ascontiguousarray(data))


def step_bytes(step: JoinStep) -> int:
    """Return the device memory of a step's tables in bytes."""
    memory = step.lookups.data.nbytes + (1 << 12)  # 4 KiB for the descriptor
    if step.partner is not None:
        partner = step.partner
        memory += sum(
            a.nbytes for a in (partner.shared, partner.group_start, partner.new_values, partner.start, partner.values)
        )
        memory += partner.x.size * 4
    return memory + memory // 8  # buffers are allocated a little larger


def _step_descriptor(step: JoinStep, x_size: int) -> Ints:
    """Return the int64 descriptor of a step: the header, then the lists that its entries point to.

    ``w`` is the module with the layout: the names of the header's entries. The header entry of each list receives the
    list's position in the descriptor.
    """
    lookups, partner = step.lookups, step.partner
    lists: Sequence[Ints] = (
        lookups.offset,
        lookups.x_stride,
        lookups.y_stride,
        lookups.field_start,
        lookups.shift,
        lookups.mask,
        lookups.stride,
    )
    header = np.zeros(HEADER, dtype=np.int64)
    header[KIND] = FIRST if step.table is not None else EXTEND if partner is None else JOIN
    header[X_SIZE], header[SIZE] = x_size, step.size
    header[BITS] = step.bits if partner is None else partner.bits
    header[EXACT], header[TABLES] = lookups.exact, lookups.offset.size
    if partner is not None:
        header[SHARED] = partner.shift.size
        lists = (*lists, partner.shift, partner.mask, partner.target_shift)
    header_entries = (
        OFFSET,
        X_STRIDE,
        Y_STRIDE,
        FIELD_START,
        SHIFT,
        MASK,
        STRIDE,
        SHARED_SHIFT,
        SHARED_MASK,
        SHARED_TO,
    )
    at = HEADER
    for entry, values in zip(header_entries, lists, strict=False):
        header[entry] = at
        at += values.size
    return np.concatenate([header, *lists])


# Dtypes of buffers: keys and descriptors, values of the bucket's variable, and flags of candidates.
_LONGS = np.dtype(np.int64)
_INTS = np.dtype(np.int32)
_FLAGS = np.dtype(np.uint8)


class RowsExceedDevice(Exception):
    """The tables exceed the device's memory, or a step has more tables than a kernel takes: the CPU does the work."""


class _DeviceRows(NamedTuple):
    """Rows on the device: value x of row i is ``vectors[x * stride + i]``."""

    rows: int
    keys: Any
    vectors: Any
    stride: int


class GpuRowExtender:
    """The steps of a message on a device.

    Parameters
    ----------
    builder
        The message whose ranges are extended.
    device
        The device.
    limit
        Device memory that may be used, in bytes.

    Attributes
    ----------
    window : int
        Number of rows of each step's buffer; also the largest number of candidates that a kernel checks at once.

    Raises
    ------
    RowsExceedDevice
        If the tables or the buffers do not fit; nothing is allocated then.
    """

    def __init__(self, builder: RowBuilder, device: Device, limit: int) -> None:
        self.row_steps, self.device, self.dtype = builder.row_steps, device, builder.row_steps.dtype
        steps, size = builder.row_steps.steps, builder.row_steps.size
        fixed = sum(step_bytes(step) for step in steps)
        # Bytes per row: keys, vectors, first partners and counts of each step; a window's part of the first table, its
        # flags, and the results. Buffers are allocated an eighth larger; a seventh is added for safety.
        bytes_of_row, item = 8 + size * self.dtype.itemsize, self.dtype.itemsize
        bytes_per_row = (len(steps) + 1) * (bytes_of_row + 16) + 16 + size * (4 + item) + item + 4
        self.window = int(min(MAX_ROWS_PER_LAUNCH, (limit - fixed) // (bytes_per_row + bytes_per_row // 7)))
        # The kernels hold offsets of a limited number of tables per thread, as int32.
        max_tables = max(step.lookups.offset.size for step in steps)
        if (
            self.window < ROWS_PER_BLOCK
            or max_tables > MAX_TABLES
            or any(step.lookups.data.size >= 1 << 31 for step in steps)
        ):
            raise RowsExceedDevice
        self._tables = [
            None if j == 0 else later_tables(device, j, step, size, self.dtype) for j, step in enumerate(steps)
        ]

    def carry(self, begin: int, end: int, start: tuple[int, Rows] | None, stop: Deadline) -> list[Rows]:
        """Return the finished rows that rows ``begin`` to ``end`` − 1 become after all steps, in blocks.

        Parameters
        ----------
        begin, end
            The range of initial rows.
        start
            The index of the first step and the initial rows; None: they are the vectors of the first table.
        stop
            The deadline.

        Raises
        ------
        OutOfTime, TooManyRows
            If the deadline passes, or the rows exceed their limits.
        """
        into: list[Rows] = []
        for first in range(begin, end, self.window):
            last = min(end, first + self.window)
            if start is None:
                steps, rows, count = self.row_steps, self._buffer(0), last - first
                tables = first_tables(self.device, steps.steps[0], steps.size, first, last)
                survivors = self._make(
                    tables, _DeviceRows(count, tables.new_values, tables.values, 1), 0, count, rows, 0
                )
                self._run_steps(1, rows._replace(rows=survivors), into, stop)
            else:
                keys, vectors = start[1][0][first:last], start[1][1][first:last]
                device_keys = self.device.upload("rows/keys", np.ascontiguousarray(keys))
                transposed = self.device.upload("rows/vectors", np.ascontiguousarray(vectors.T).reshape(-1))
                self._run_steps(start[0], _DeviceRows(keys.size, device_keys, transposed, keys.size), into, stop)
        return into

    def _run_steps(self, j: int, rows_in: _DeviceRows, into: list[Rows], stop: Deadline) -> None:
        """Carry rows through the steps from ``j`` on; append the finished rows to ``into``.

        The buffer of step ``j`` is passed on when less than a quarter of it is free, so that no kernel starts for a
        small window.
        """
        last = j == len(self.row_steps.steps)
        self.row_steps.row_limits.count(rows_in.rows if last else 0, rows_in.rows)
        if not rows_in.rows:
            return
        if last:
            into.append(self._best(rows_in))
            return
        tables, out = self._tables[j], self._buffer(j)
        assert tables is not None
        total, n_made, at = self._count(j, tables, rows_in), 0, 0
        while at < total:
            stop.check()
            count = min(total - at, self.window - n_made)
            n_made += self._make(tables, rows_in, at, count, out, n_made, j)
            at += count
            if at == total or self.window - n_made < self.window // 4:
                self._run_steps(j + 1, out._replace(rows=n_made), into, stop)
                n_made = 0

    def _count(self, j: int, tables: DeviceStepTables, rows_in: _DeviceRows) -> int:
        """Return the number of candidates of the rows in a step."""
        step = self.row_steps.steps[j]
        if step.partner is None:
            return rows_in.rows * step.size
        begin, counts, sums = self._scratch(j, rows_in.rows)
        blocks, total = -(-rows_in.rows // THREADS), self.device.buffer("rows/total", 1, _LONGS)
        count_partners[blocks, THREADS](
            rows_in.keys,
            rows_in.rows,
            tables.descriptor,
            tables.groups,
            tables.shared,
            tables.group_start,
            begin,
            counts,
        )
        scan_tiles[blocks, THREADS](counts, rows_in.rows, sums)
        scan_sums[1, THREADS](sums, blocks, total)
        return int(total[:1].copy_to_host()[0])

    def _make(
        self,
        tables: DeviceStepTables,
        rows_in: _DeviceRows,
        first: int,
        count: int,
        out: _DeviceRows,
        n_made: int,
        j: int = 0,
    ) -> int:
        """Check ``count`` candidates from ``first`` on; append the survivors to ``out`` and return their number.

        ``n_made`` rows are in ``out`` already.
        """
        lowest, threshold = self.row_steps.lowest_and_threshold
        half = self.dtype.type(lowest // 2) if self.dtype.kind == "i" else lowest
        blocks, device = -(-count // THREADS), self.device
        flags, sums = device.buffer("rows/flags", self.window, _FLAGS), self._sums("window", self.window)
        total = device.buffer("rows/total", 1, _LONGS)
        begin, counts, before = self._scratch(j, rows_in.rows)
        arguments = (
            tables.descriptor, tables.data, rows_in.keys, rows_in.vectors, rows_in.stride, rows_in.rows, begin, counts,
            before, tables.new_values, tables.start, tables.xs, tables.values, first, count, lowest, half, threshold,
            flags, sums,
        )  # fmt: skip
        flag_candidates[blocks, THREADS](*arguments)
        scan_sums[1, THREADS](sums, blocks, total)
        write_rows[blocks, THREADS](*arguments, n_made, out.keys, out.vectors, out.stride)
        return int(total[:1].copy_to_host()[0])

    def _best(self, rows_in: _DeviceRows) -> Rows:
        """Return the keys and the largest value of each vector, on the host."""
        best = self.device.buffer("rows/best", self.window, self.dtype)
        best_rows[-(-rows_in.rows // THREADS), THREADS](
            rows_in.vectors, rows_in.stride, rows_in.rows, self.row_steps.size, best
        )
        keys, values = np.empty(rows_in.rows, dtype=np.int64), np.empty(rows_in.rows, dtype=self.dtype)
        rows_in.keys[: rows_in.rows].copy_to_host(keys)
        best[: rows_in.rows].copy_to_host(values)
        return keys, values

    def _buffer(self, j: int) -> _DeviceRows:
        """Return the buffer for the rows that step ``j`` makes."""
        keys = self.device.buffer(f"rows/keys{j}", self.window, _LONGS)
        vectors = self.device.buffer(f"rows/vectors{j}", self.window * self.row_steps.size, self.dtype)
        return _DeviceRows(0, keys, vectors, self.window)

    def _scratch(self, j: int, rows: int) -> tuple[Any, Any, Any]:
        """Return buffers for the first partners and their numbers in step ``j``, and for the prefix sums of blocks."""
        partner = self.row_steps.steps[j].partner
        capacity = max(rows, self.window) if partner is not None else 1
        begin, counts = (self.device.buffer(f"rows/{name}{j}", capacity, _LONGS) for name in ("begin", "counts"))
        return begin, counts, self._sums(str(j), capacity)

    def _sums(self, name: str, rows: int) -> Any:
        """Return a buffer for one number per block."""
        return self.device.buffer(f"rows/sums{name}", -(-rows // THREADS), _LONGS)


def load_kernels(arithmetic: Arithmetic) -> None:
    """Compile the kernels for an arithmetic, or load them from the disk cache."""
    device, dtype = shared_device(), arithmetic.dtype
    tables, longs, ints, flags = (device.buffer("kernels", 1, kind) for kind in (dtype, _LONGS, _INTS, _FLAGS))
    number = dtype.type(0)
    threshold = np.int64(0) if arithmetic.exact else np.float64(0)
    arguments = (
        longs, tables, longs, tables, 0, 0, longs, longs, longs, longs, longs, ints, tables, 0, 0, number, number,
        threshold, flags, longs,
    )  # fmt: skip
    device.load(flag_candidates, arguments)
    device.load(write_rows, (*arguments, 0, longs, tables, 0))
    device.load(count_partners, (longs, 0, longs, 0, longs, longs, longs, longs))
    device.load(scan_tiles, (longs, 0, longs))
    device.load(scan_sums, (longs, 0, longs))
    device.load(best_rows, (tables, 0, 0, 0, tables))
