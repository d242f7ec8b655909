"""Run buckets on the GPU in waves: those that need nothing of each other share their launches."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.cuda import words as w
from dmcmc.inference.elimination.cuda.bucket_group_kernels import bucket_levels
from dmcmc.inference.elimination.cuda.describe_kernels import choose_lows, describe, wave_tables
from dmcmc.inference.elimination.cuda.join_kernels import GROUPS, LANES, LARGE, join_kernel, prepare
from dmcmc.inference.elimination.plan import Program
from dmcmc.inference.runtime.device import Device, shared_device
from dmcmc.inference.runtime.errors import ResourceError

_LARGE_MESSAGE = 1 << 22  # entries of a message that keep the GPU busy in large tiles
_MOST_ROWS = 1 << 32  # the kernels decode rows with 32-bit division
_ROOM = 1 << 26  # entries of scratch that a wave's buckets share
_BLOCKS = 132 * 8  # of a bucket, at least, before a block joins several tiles


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
    """

    meta: NDArray[np.int64]
    launches: NDArray[np.int64]
    sums: int
    start: int


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
    return Waves(np.concatenate([meta, tables]), launches, sums, start)


def run_waves(
    device: Device,
    arena: Any,
    waves: Waves,
    meta: Any,
    lowest: Any,
    operation: int,
    stream: Any = 0,
    slot: str = "",
) -> None:
    """Queue the launches; what is under way at once needs different slots.

    Parameters
    ----------
    meta
        ``waves.meta`` on the device.
    """
    dtype = np.dtype(type(lowest))
    half = dtype.type(lowest // 2) if dtype.kind == "i" else lowest  # below it, sums are −∞
    sums = device.buffer("sums" + slot, waves.sums, dtype)
    start = device.buffer("start" + slot, waves.start, np.dtype(np.int64))
    for number, table, blocks in waves.launches.tolist():
        if number < 0:
            prepare[blocks, 256, stream](arena, meta, table, sums, start, lowest)
        else:
            kernel = join_kernel(dtype, number, operation).launch
            kernel[blocks, (LANES, GROUPS), stream](arena, meta, table, sums, start, lowest, half)


def load_kernels(dtype: np.dtype[Any], operation: int) -> None:
    """Compile all kernels for a number type, or find them on disk."""
    device, number = shared_device(), dtype.type(0)
    tables, longs = device.buffer("kernels", 1, dtype), device.buffer("kernels", 1, np.dtype(np.int64))
    device.load(prepare, (tables, longs, 0, tables, longs, number))
    for kind in range(LARGE + 1):
        device.load(join_kernel(dtype, kind, operation).launch, (tables, longs, 0, tables, longs, number, number))
