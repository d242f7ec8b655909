"""Run buckets on the GPU in waves: those that need nothing of each other share their launches.

Nothing can stop a launch, so none has more cells than about a tenth of a second's: larger ones are divided, and where
work has to end the time is looked at after every such tenth.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.cuda import descriptors as w
from dmcmc.inference.elimination.cuda.bucket_group_kernels import bucket_levels
from dmcmc.inference.elimination.cuda.descriptor_kernels import choose_lows, describe, wave_tables
from dmcmc.inference.elimination.cuda.join_kernels import (
    GROUPS,
    LANES,
    LARGE,
    PREPARERS,
    choose_kernel,
    join_kernel,
    prepare,
)
from dmcmc.inference.elimination.plan import Program
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.errors import ResourceError

_LARGE_MESSAGE = 1 << 22  # entries of a message that keep the GPU busy in large tiles
_MOST_ROWS = 1 << 32  # the kernels decode rows with 32-bit division
_ROOM = 1 << 26  # entries of scratch that a wave's buckets share
_BLOCKS = 132 * 8  # of a bucket, at least, before a block joins several tiles
_LAUNCH = 1 << 36  # joined cells of a launch, and between two looks at the time: 0.1 s at the rate of an H200


class Waves(NamedTuple):
    """Launches and the words that they read; see :mod:`dmcmc.inference.elimination.cuda.join_kernels`.

    Attributes
    ----------
    meta : int64
        Descriptions of the buckets, then tables of the launches.
    launches : (launches, 3) int64
        Kernel's number (−1 prepares), place of its table, number of blocks.
    sums, start : int
        Entries of scratch.
    cells : (launches,) float64
        Joined cells of each launch.
    """

    meta: NDArray[np.int64]
    launches: NDArray[np.int64]
    sums: int
    start: int
    cells: NDArray[np.float64]


class Queue:
    """Launches one after another.

    Parameters
    ----------
    stream
        Of the device.
    slot : str
        What is under way at once needs different ones: they have their own scratch.
    stop : Stop
        When to end.
    """

    def __init__(self, device: Device, stream: Any = 0, slot: str = "", stop: Stop = NO_STOP) -> None:
        self.device, self.stream, self.slot, self.stop = device, stream, slot, stop
        self._cells = 0.0

    def add(self, cells: float) -> None:
        """Wait for what is queued and look at the time (:class:`OutOfTime`), if it is much with so many cells more."""
        if self.stop is NO_STOP:
            return
        if self._cells + cells > _LAUNCH:
            self.device.synchronize()
            self.stop.check()
            self._cells = 0.0
        self._cells += cells


def describe_waves(
    program: Program, first: int, last: int, device_begin: int, dtype: np.dtype[Any], operation: int
) -> Waves:
    """Describe buckets ``first`` to ``last`` - 1, whose tables the device has from place ``device_begin`` on.

    Raises
    ------
    ResourceError
        If a message has more rows than the kernels count.
    """
    program = program._replace(low=program.low.copy())
    choose_lows(program, first, last)
    meta, places = describe(program, first, last, device_begin)
    most = int(meta[places + w.ROWS].max(initial=0))
    if most > _MOST_ROWS:
        raise ResourceError(f"a bucket's message has {most:,} rows; the GPU takes {_MOST_ROWS:,}: use device: cpu")
    group = np.zeros(program.variable.size, dtype=np.int64)
    group[first:last] = 1
    level = bucket_levels(program.input_start, program.inputs, program.at.size - group.size, group)[first:last]
    kernels = [join_kernel(dtype, number, operation) for number in range(LARGE + 1)]
    heights = np.array([kernel.th for kernel in kernels], dtype=np.int64)
    tables, launches, sums, start = wave_tables(
        meta, places, level, heights, kernels[0].tl, _LARGE_MESSAGE, _ROOM, _BLOCKS
    )
    return divided(Waves(np.concatenate([meta, tables]), launches, sums, start, np.zeros(len(launches))))


def divided(waves: Waves) -> Waves:
    """Return the same with large launches divided: each has a part of the blocks, and a table of its own.

    A block finds its bucket by the first block of each: in the table of a part those are that much less.
    """
    tables, launches, cells = list[NDArray[np.int64]](), list[tuple[int, int, int]](), list[float]()
    meta, end = waves.meta, waves.meta.size
    for number, table, blocks in waves.launches.tolist():
        n = int(meta[table + w.BUCKETS])
        words = meta[table : table + w.AFTER + 2 * n]
        buckets = words[w.AFTER + n :]
        joined = meta[buckets + w.ROWS].astype(float) * meta[buckets + w.WIDTH] * meta[buckets + w.DOMAIN]
        many = float(joined.sum()) if number >= 0 else 0.0
        for begin, count in parts_of(blocks, many):
            place = table
            if begin:
                part = words.copy()
                part[w.FIRST_BLOCK : w.FIRST_BLOCK + n + 1] -= begin
                tables.append(part)
                place, end = end, end + part.size
            launches.append((number, place, count))
            cells.append(many * count / blocks)
    if not tables:
        return waves._replace(cells=np.array(cells))
    return waves._replace(
        meta=np.concatenate([meta, *tables]), launches=np.array(launches, dtype=np.int64), cells=np.array(cells)
    )


def parts_of(blocks: int, cells: float) -> list[tuple[int, int]]:
    """Return into which parts a launch is divided, its first block and the number of blocks of each.

    >>> parts_of(10, 100.0), parts_of(10, 3.0 * _LAUNCH)
    ([(0, 10)], [(0, 3), (3, 3), (6, 3), (9, 1)])
    """
    size = max(1, int(blocks * _LAUNCH / cells)) if cells > _LAUNCH else max(1, blocks)
    return [(begin, min(size, blocks - begin)) for begin in range(0, blocks, size)]


def run_waves(queue: Queue, arena: Any, waves: Waves, meta: Any, lowest: Any, operation: int) -> None:
    """Queue the launches.

    Parameters
    ----------
    meta
        ``waves.meta`` on the device.

    Raises
    ------
    OutOfTime
        As the queue says; nothing is under way then.
    """
    device, stream, slot = queue.device, queue.stream, queue.slot
    dtype = np.dtype(type(lowest))
    half = dtype.type(lowest // 2) if dtype.kind == "i" else lowest  # below it, sums are −∞
    sums = device.buffer("sums" + slot, waves.sums, dtype)
    start = device.buffer("start" + slot, waves.start, np.dtype(np.int64))
    repeated: dict[int, Callable[[int, int, int | tuple[int, int]], None]] = {}
    at_once = stream == 0  # Numba takes longer to launch a kernel than small ones run
    for (number, table, blocks), cells in zip(waves.launches.tolist(), waves.cells.tolist(), strict=True):
        queue.add(cells)
        kernel = prepare if number < 0 else join_kernel(dtype, number, operation).launch
        threads = PREPARERS if number < 0 else (LANES, GROUPS)
        arguments = (arena, meta, table, sums, start, lowest, *(() if number < 0 else (half,)))
        if not at_once:
            kernel[blocks, threads, stream](*arguments)
            continue
        if number not in repeated:
            repeated[number] = device.repeated(kernel, arguments, 2)
        repeated[number](table, blocks, threads)


def load_kernels(dtype: np.dtype[Any], operation: int) -> None:
    """Compile all kernels for a number type, or find them on disk."""
    device, number = shared_device(), dtype.type(0)
    tables, longs = device.buffer("kernels", 1, dtype), device.buffer("kernels", 1, np.dtype(np.int64))
    device.load(prepare, (tables, longs, 0, tables, longs, number))
    if operation == MAX_PLUS.operation:  # what is best is read back
        device.load(choose_kernel, (tables, longs, longs, longs, number, tables))
    for kind in range(LARGE + 1):
        device.load(join_kernel(dtype, kind, operation).launch, (tables, longs, 0, tables, longs, number, number))
