"""Carry ranges of a message's rows through all steps on an NVIDIA GPU: windows of candidates, depth first.

Every step has room for so many rows on the device, known before anything is made. A step takes its candidates window by
window and hands what is left of them on when its room is full, so that only what is left is ever held, however many
candidates there are. What comes out goes to the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.bucket_rows import Making, Rows
from dmcmc.inference.sparse.cuda import descriptors as w
from dmcmc.inference.sparse.cuda.row_kernels import (
    MOST_TABLES,
    THREADS,
    best_rows,
    count_partners,
    judge_rows,
    scan_sums,
    scan_tiles,
    write_rows,
)
from dmcmc.inference.sparse.join_steps import Step

_WINDOW = 1 << 22  # rows that a step has room for, at most: some milliseconds of a kernel
_LEAST = 1 << 12  # and at least: with fewer the launches cost more than the work
_LONGS, _INTS, _FLAGS = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.uint8)


class NoRoom(Exception):
    """Tables that the device has no room for, or more of them than a kernel takes: the CPU does it."""


class _Held(NamedTuple):
    """Rows on the device: value x of row i is ``vectors[x * stride + i]``."""

    rows: int
    keys: Any
    vectors: Any
    stride: int


@dataclass(frozen=True)
class _Tables:
    """A step's tables on the device."""

    words: Any
    data: Any
    fresh: Any
    start: Any
    xs: Any
    values: Any
    shared: Any
    group: Any
    groups: int


class Carrier:
    """The steps of a message on a device.

    Parameters
    ----------
    making
        Whose ranges are carried.
    device
        Where.
    limit
        Bytes of it.

    Raises
    ------
    NoRoom
        Before anything is taken.
    """

    def __init__(self, making: Making, device: Device, limit: int) -> None:
        self.making, self.device, self.dtype = making, device, making.dtype
        steps = making.steps
        fixed = sum(_bytes_of(step) for step in steps)
        # Keys, vectors, partners' places and counts of each step's rows; a window's part of the first table, its flags,
        # and what comes out; all buffers are a little larger.
        row, item = 8 + making.size * self.dtype.itemsize, self.dtype.itemsize
        each = (len(steps) + 1) * (row + 16) + 16 + making.size * (4 + item) + item + 4
        self.window = int(min(_WINDOW, (limit - fixed) // (each + each // 7)))
        most = max(step.look.at.size for step in steps)
        if self.window < _LEAST or most > MOST_TABLES or any(step.look.data.size >= 1 << 31 for step in steps):
            raise NoRoom
        self._tables = [None if j == 0 else self._upload(j, step) for j, step in enumerate(steps)]

    def carry(self, begin: int, end: int, start: tuple[int, Rows] | None, stop: Stop) -> list[Rows]:
        """Return what becomes of rows ``begin`` to ``end`` - 1.

        Parameters
        ----------
        start
            The step that comes first and the rows before it; None: the vectors of the first table.

        Raises
        ------
        OutOfTime, TooMuch
        """
        into: list[Rows] = []
        for first in range(begin, end, self.window):
            last = min(end, first + self.window)
            if start is None:
                tables, count = self._first(first, last)
                held = self._buffer(0)
                alive = self._make(tables, _Held(count, tables.fresh, tables.values, 1), 0, count, held, 0)
                self._through(1, held._replace(rows=alive), into, stop)
            else:
                keys, vectors = start[1][0][first:last], start[1][1][first:last]
                up = self.device.upload("rows/keys", np.ascontiguousarray(keys))
                turned = self.device.upload("rows/vectors", np.ascontiguousarray(vectors.T).reshape(-1))
                self._through(start[0], _Held(keys.size, up, turned, keys.size), into, stop)
        return into

    def _through(self, j: int, held: _Held, into: list[Rows], stop: Stop) -> None:
        """Carry rows through the steps from ``j`` on."""
        last = j == len(self.making.steps)
        self.making.room.take(held.rows if last else 0, held.rows)
        if not held.rows:
            return
        if last:
            into.append(self._best(held))
            return
        tables, out = self._tables[j], self._buffer(j)
        assert tables is not None
        total, made, at = self._count(j, tables, held), 0, 0
        while at < total:
            stop.check()
            count = min(total - at, self.window - made)
            made += self._make(tables, held, at, count, out, made, j)
            at += count
            if at == total or self.window - made < self.window // 4:
                self._through(j + 1, out._replace(rows=made), into, stop)
                made = 0

    def _count(self, j: int, tables: _Tables, held: _Held) -> int:
        """Return how many candidates rows have in a step."""
        step = self.making.steps[j]
        if step.partner is None:
            return held.rows * step.size
        begin, counts, sums = self._scratch(j, held.rows)
        blocks, total = -(-held.rows // THREADS), self.device.buffer("rows/total", 1, _LONGS)
        count_partners[blocks, THREADS](
            held.keys, held.rows, tables.words, tables.groups, tables.shared, tables.group, begin, counts
        )
        scan_tiles[blocks, THREADS](counts, held.rows, sums)
        scan_sums[1, THREADS](sums, blocks, total)
        return int(total[:1].copy_to_host()[0])

    def _make(self, tables: _Tables, held: _Held, first: int, count: int, out: _Held, made: int, j: int = 0) -> int:
        """Write those of some candidates that can win behind the rows that are made; return how many they are."""
        lowest, threshold = self.making.limits
        half = self.dtype.type(lowest // 2) if self.dtype.kind == "i" else lowest
        blocks, device = -(-count // THREADS), self.device
        flags, sums = device.buffer("rows/flags", self.window, _FLAGS), self._sums("window", self.window)
        total = device.buffer("rows/total", 1, _LONGS)
        begin, counts, before = self._scratch(j, held.rows)
        common = (
            tables.words, tables.data, held.keys, held.vectors, held.stride, held.rows, begin, counts, before,
            tables.fresh, tables.start, tables.xs, tables.values, first, count, lowest, half, threshold, flags, sums,
        )  # fmt: skip
        judge_rows[blocks, THREADS](*common)
        scan_sums[1, THREADS](sums, blocks, total)
        write_rows[blocks, THREADS](*common, made, out.keys, out.vectors, out.stride)
        return int(total[:1].copy_to_host()[0])

    def _best(self, held: _Held) -> Rows:
        """Return keys and the best of the vectors, on the host."""
        best = self.device.buffer("rows/best", self.window, self.dtype)
        best_rows[-(-held.rows // THREADS), THREADS](held.vectors, held.stride, held.rows, self.making.size, best)
        keys, values = np.empty(held.rows, dtype=np.int64), np.empty(held.rows, dtype=self.dtype)
        held.keys[: held.rows].copy_to_host(keys)
        best[: held.rows].copy_to_host(values)
        return keys, values

    def _buffer(self, j: int) -> _Held:
        """Return the room for what step ``j`` makes."""
        keys = self.device.buffer(f"rows/keys{j}", self.window, _LONGS)
        vectors = self.device.buffer(f"rows/vectors{j}", self.window * self.making.size, self.dtype)
        return _Held(0, keys, vectors, self.window)

    def _scratch(self, j: int, rows: int) -> tuple[Any, Any, Any]:
        """Return room for where partners of a step's rows begin, how many there are, and prefix sums of blocks."""
        partner = self.making.steps[j].partner
        room = max(rows, self.window) if partner is not None else 1
        begin, counts = (self.device.buffer(f"rows/{name}{j}", room, _LONGS) for name in ("begin", "counts"))
        return begin, counts, self._sums(str(j), room)

    def _sums(self, name: str, rows: int) -> Any:
        return self.device.buffer(f"rows/sums{name}", -(-rows // THREADS), _LONGS)

    def _first(self, begin: int, end: int) -> tuple[_Tables, int]:
        """Return vectors of the first table on the device: keys in place of ``fresh``."""
        step = self.making.steps[0]
        table = step.table
        assert table is not None
        rows = slice(int(table.start[begin]), int(table.start[end]))
        start = table.start[begin : end + 1] - rows.start
        own = table.keys[begin:end], start, table.x[rows], table.values[rows]
        return self._on_device("first", step, own), end - begin

    def _upload(self, j: int, step: Step) -> _Tables:
        """Copy a later step's tables to the device."""
        none = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        own: tuple[Ints, Ints, Ints, Array] = (*none, np.zeros(0, dtype=self.dtype))
        partner = step.partner
        if partner is not None:
            own = partner.fresh, partner.start, partner.x, partner.values
        tables = self._on_device(str(j), step, own)
        if partner is None:
            return tables
        shared, group = self._copy(f"shared{j}", partner.shared), self._copy(f"group{j}", partner.group)
        return replace(tables, shared=shared, group=group, groups=partner.shared.size)

    def _on_device(self, name: str, step: Step, own: tuple[Ints, Ints, Ints, Array]) -> _Tables:
        words, data = (
            self._copy("words" + name, _words(step, self.making.size)),
            self._copy("data" + name, step.look.data),
        )
        fresh, start = self._copy("fresh" + name, own[0]), self._copy("start" + name, own[1])
        xs, values = self._copy("xs" + name, own[2].astype(np.int32)), self._copy("values" + name, own[3])
        return _Tables(words, data, fresh, start, xs, values, shared=fresh, group=start, groups=0)

    def _copy(self, name: str, data: Array) -> Any:
        return self.device.upload("rows/" + name, np.ascontiguousarray(data))


def load_kernels(arithmetic: Arithmetic) -> None:
    """Compile what carries rows in these numbers, or find it on disk."""
    device, dtype = shared_device(), arithmetic.dtype
    tables, longs, ints, flags = (device.buffer("kernels", 1, kind) for kind in (dtype, _LONGS, _INTS, _FLAGS))
    number = dtype.type(0)
    threshold = np.int64(0) if arithmetic.exact else np.float64(0)
    common = (
        longs, tables, longs, tables, 0, 0, longs, longs, longs, longs, longs, ints, tables, 0, 0, number, number,
        threshold, flags, longs,
    )  # fmt: skip
    device.load(judge_rows, common)
    device.load(write_rows, (*common, 0, longs, tables, 0))
    device.load(count_partners, (longs, 0, longs, 0, longs, longs, longs, longs))
    device.load(scan_tiles, (longs, 0, longs))
    device.load(scan_sums, (longs, 0, longs))
    device.load(best_rows, (tables, 0, 0, 0, tables))


def _bytes_of(step: Step) -> int:
    """Return what a step's tables take on the device."""
    taken = step.look.data.nbytes + (1 << 12)
    if step.partner is not None:
        partner = step.partner
        taken += sum(a.nbytes for a in (partner.shared, partner.group, partner.fresh, partner.start, partner.values))
        taken += partner.x.size * 4
    return taken + taken // 8  # buffers are a little larger


def _words(step: Step, x_size: int) -> Ints:
    """Return what a step is, as the kernels read it."""
    look, partner = step.look, step.partner
    lists: Sequence[Ints] = (look.at, look.of_x, look.of_y, look.first, look.shift, look.mask, look.stride)
    header = np.zeros(w.HEADER, dtype=np.int64)
    header[w.KIND] = w.FIRST if step.table is not None else w.EXTEND if partner is None else w.JOIN
    header[w.X_SIZE], header[w.SIZE] = x_size, step.size
    header[w.BITS] = step.bits if partner is None else partner.bits
    header[w.EXACT], header[w.TABLES] = look.exact, look.at.size
    if partner is not None:
        header[w.SHARED] = partner.shift.size
        lists = (*lists, partner.shift, partner.mask, partner.to)
    places = (
        w.AT,
        w.OF_X,
        w.OF_Y,
        w.FIELD_START,
        w.SHIFT,
        w.MASK,
        w.STRIDE,
        w.SHARED_SHIFT,
        w.SHARED_MASK,
        w.SHARED_TO,
    )
    at = w.HEADER
    for place, one in zip(places, lists, strict=False):
        header[place] = at
        at += one.size
    return np.concatenate([header, *lists])
