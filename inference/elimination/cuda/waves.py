"""Run buckets on the GPU in waves: buckets that do not depend on each other share their launches.

Each wave has a launch of ``prepare``, which sums the tables that depend on only one part of the separator, and one
launch per kind of join kernel. A running launch cannot be interrupted. Launches are therefore split so that none takes
longer than about 0.1 s, and with a deadline the time is checked after about every 0.1 s of work.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference import tuning
from dmcmc.inference.elimination.cuda.descriptor_kernels import choose_lows, describe_buckets, wave_tables
from dmcmc.inference.elimination.cuda.join_kernels import (
    AFTER,
    BUCKETS,
    DOMAIN,
    FIRST_BLOCK,
    GROUPS,
    LANES,
    LARGE,
    PREPARE_THREADS,
    ROWS,
    WIDTH,
    bucket_levels,
    choose_kernel,
    join_kernel,
    prepare,
)
from dmcmc.inference.elimination.plan import BucketProgram
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import Device, prepare_launch, shared_device
from dmcmc.inference.runtime.errors import ResourceError

_MAX_ROWS = 1 << 32  # the kernels decode rows with 32-bit division


class Waves(NamedTuple):
    """Launches and the descriptors that they read; see :mod:`dmcmc.inference.elimination.cuda.join_kernels`.

    Attributes
    ----------
    descriptors : int64
        Descriptors of the buckets, then the tables of the launches. A launch's table lists its buckets: their number n,
        the first block of each and the end, and the positions of their descriptors.
    launches : (launches, 3) int64
        Number of the kernel, position of its table in ``descriptors``, number of blocks. Kernel −1 is ``prepare``; 0 to
        4 are the join kernels as ``join_kernel`` numbers them.
    sums, start : int
        Entries that the workspaces need: ``sums`` for the partial sums of tables, ``start`` for offsets in tables.
    cells : (launches,) float64
        Joined cells of each launch, 0 for ``prepare``.
    """

    descriptors: NDArray[np.int64]
    launches: NDArray[np.int64]
    sums: int
    start: int
    cells: NDArray[np.float64]


class LaunchQueue:
    """A queue of launches on one stream, with checks of the deadline.

    It counts the joined cells that were announced since the last check; without a deadline, nothing is counted.

    Parameters
    ----------
    device
        The device.
    stream
        The stream of the launches; 0 is the default stream.
    workspace : str
        Name of the workspace. Queues that run concurrently need different workspaces.
    stop : Deadline
        The deadline.
    """

    def __init__(self, device: Device, stream: Any = 0, workspace: str = "", stop: Deadline = NO_DEADLINE) -> None:
        self.device, self.stream, self.workspace, self.stop = device, stream, workspace, stop
        self._cells = 0.0

    def add(self, cells: float) -> None:
        """Announce a launch: if much work is queued, wait for it and check the deadline.

        Parameters
        ----------
        cells
            Joined cells of the launch.

        Raises
        ------
        OutOfTime
            If the deadline passes.
        """
        if self.stop is NO_DEADLINE:
            return
        if self._cells + cells > tuning.LAUNCH_CELLS:
            self.device.synchronize()
            self.stop.check()
            self._cells = 0.0
        self._cells += cells


def describe_waves(
    program: BucketProgram, first: int, last: int, device_begin: int, dtype: np.dtype[Any], operation: int
) -> Waves:
    """Describe the launches of buckets ``first`` to ``last`` − 1.

    Parameters
    ----------
    program
        The plan's arrays.
    first, last
        The range of buckets.
    device_begin
        Arena offset of the first entry on the device.
    dtype
        The dtype of the arithmetic.
    operation
        The ⊕ of the semiring.

    Raises
    ------
    ResourceError
        If a message has more rows than the kernels can number.
    """
    program = program._replace(row_axes=program.row_axes.copy())
    choose_lows(program, first, last)
    meta, positions = describe_buckets(program, first, last, device_begin)
    most_rows = int(meta[positions + ROWS].max(initial=0))
    if most_rows > _MAX_ROWS:
        raise ResourceError(f"a bucket's message has {most_rows:,} rows; the GPU takes {_MAX_ROWS:,}: use device: cpu")
    group = np.zeros(program.variable.size, dtype=np.int64)
    group[first:last] = 1
    level = bucket_levels(program.input_start, program.inputs, program.at.size - group.size, group)[first:last]
    kernels = [join_kernel(dtype, number, operation) for number in range(LARGE + 1)]
    heights = np.array([kernel.th for kernel in kernels], dtype=np.int64)
    tables, launches, sums, start = wave_tables(
        meta, positions, level, heights, kernels[0].tl, tuning.LARGE_MESSAGE, tuning.MAX_WAVE_SUMS, tuning.ENOUGH_BLOCKS
    )
    return split_large_launches(Waves(np.concatenate([meta, tables]), launches, sums, start, np.zeros(len(launches))))


def split_large_launches(waves: Waves) -> Waves:
    """Split large launches: each part runs some of the blocks and has its own table.

    A block finds its bucket by the first block of each bucket. In the table of a part these numbers are reduced by the
    part's first block.
    """
    tables, launches, cells = list[NDArray[np.int64]](), list[tuple[int, int, int]](), list[float]()
    meta, end = waves.descriptors, waves.descriptors.size
    for number, table, blocks in waves.launches.tolist():
        n = int(meta[table + BUCKETS])
        launch_table = meta[table : table + AFTER + 2 * n]
        buckets = launch_table[AFTER + n :]
        joined = meta[buckets + ROWS].astype(float) * meta[buckets + WIDTH] * meta[buckets + DOMAIN]
        launch_cells = float(joined.sum()) if number >= 0 else 0.0
        for begin, count in split_launch(blocks, launch_cells):
            table_at = table
            if begin:
                part = launch_table.copy()
                part[FIRST_BLOCK : FIRST_BLOCK + n + 1] -= begin
                tables.append(part)
                table_at, end = end, end + part.size
            launches.append((number, table_at, count))
            cells.append(launch_cells * count / blocks)
    if not tables:
        return waves._replace(cells=np.array(cells))
    return waves._replace(
        descriptors=np.concatenate([meta, *tables]), launches=np.array(launches, dtype=np.int64), cells=np.array(cells)
    )


def split_launch(blocks: int, cells: float) -> list[tuple[int, int]]:
    """Return the parts into which a launch is split: first block and number of blocks of each.

    >>> split_launch(10, 100.0), split_launch(10, 3.0 * tuning.LAUNCH_CELLS)
    ([(0, 10)], [(0, 3), (3, 3), (6, 3), (9, 1)])
    """
    size = max(1, int(blocks * tuning.LAUNCH_CELLS / cells)) if cells > tuning.LAUNCH_CELLS else max(1, blocks)
    return [(begin, min(size, blocks - begin)) for begin in range(0, blocks, size)]


def run_waves(queue: LaunchQueue, arena: Any, waves: Waves, meta: Any, lowest: Any, operation: int) -> None:
    """Queue the launches of all waves.

    Parameters
    ----------
    queue
        The queue of launches.
    arena
        The tables on the device.
    waves
        The launches.
    meta
        ``waves.descriptors`` on the device.
    lowest
        The −∞ of the arithmetic.
    operation
        The ⊕ of the semiring.

    Raises
    ------
    OutOfTime
        If the deadline passes; all queued launches are complete then.
    """
    device, stream, workspace = queue.device, queue.stream, queue.workspace
    dtype = np.dtype(type(lowest))
    half = dtype.type(lowest // 2) if dtype.kind == "i" else lowest  # sums below it mean −∞
    sums = device.buffer("sums" + workspace, waves.sums, dtype)
    start = device.buffer("start" + workspace, waves.start, np.dtype(np.int64))
    prepared: dict[int, Callable[[int, int, int | tuple[int, int]], None]] = {}
    default_stream = stream == 0  # Numba takes longer to launch a kernel than a small kernel runs
    for (number, table, blocks), cells in zip(waves.launches.tolist(), waves.cells.tolist(), strict=True):
        queue.add(cells)
        kernel = prepare if number < 0 else join_kernel(dtype, number, operation).launch
        threads = PREPARE_THREADS if number < 0 else (LANES, GROUPS)
        arguments = (arena, meta, table, sums, start, lowest, *(() if number < 0 else (half,)))
        if not default_stream:
            kernel[blocks, threads, stream](*arguments)
            continue
        if number not in prepared:
            prepared[number] = prepare_launch(kernel, arguments, 2)
        prepared[number](table, blocks, threads)


def load_kernels(dtype: np.dtype[Any], operation: int) -> None:
    """Compile all kernels for a number type, or load them from the disk cache."""
    device, number = shared_device(), dtype.type(0)
    tables, longs = device.buffer("kernels", 1, dtype), device.buffer("kernels", 1, np.dtype(np.int64))
    device.load(prepare, (tables, longs, 0, tables, longs, number))
    if operation == MAX_PLUS.operation:  # only max-plus eliminations look maximising values up
        device.load(choose_kernel, (tables, longs, longs, longs, number, tables))
    for number_of_kernel in range(LARGE + 1):
        device.load(
            join_kernel(dtype, number_of_kernel, operation).launch, (tables, longs, 0, tables, longs, number, number)
        )
