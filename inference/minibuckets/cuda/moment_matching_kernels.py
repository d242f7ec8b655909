# mypy: ignore-errors
"""Max-marginals of mini-buckets and the bounds of messages, on an NVIDIA GPU; no joined table is written.

Mini-buckets come prepared as S, B and start, described by words of ``meta``; see
:mod:`dmcmc.inference.elimination.cuda.join_kernels`.
Where elimination takes the maximum over x of

    S[x, h] + B[x, l] + Σ tables that vary with both h and l,

a max-marginal takes it over (h, l). A block has up to 8 groups of 32 threads and keeps to one x of one mini-bucket.
Each thread holds 4 columns l and walks down rows h, a group a row, so that neighbours read neighbouring entries.
Without tables that vary with both, the maxima over h and over l are separate. Blocks meet in one number a value of x,
by an atomic maximum: that is the same in any order.

Numbers that leave the device are ``found``: for each mini-bucket of a matched variable two rows over x whose sum is
its max-marginal (they start at −∞), and for each message its largest finite |entry|.

A launch's table is that of :mod:`dmcmc.inference.elimination.cuda.join_kernels`, and behind it where each bucket's rows
are in ``found``.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numba import cuda

from dmcmc.inference.elimination.cuda import descriptors as w
from dmcmc.inference.elimination.cuda.join_kernels import BOTH_MOST, GROUPS, LANES, find_bucket
from dmcmc.inference.elimination.cuda.waves import Waves, parts_of
from dmcmc.inference.runtime.compile import cuda_jit

COLUMNS = 4  # of a thread
TILE = LANES * COLUMNS
THREADS = LANES * GROUPS
_BLOCKS = 132 * 16  # of a bucket, about, where there is work for so many
_STEPS = 8  # of a thread, at least, before another block is worth its maximum


def cut(lines: int, blocks: int, groups: int) -> int:
    """Return into how many blocks of so many groups each of ``blocks`` is cut, so that the GPU is busy.

    Parameters
    ----------
    lines
        Of work, a group of threads each.
    """
    return max(1, min(lines // (groups * _STEPS), _BLOCKS // blocks))


def add_marginals(waves: Waves, slots: Sequence[int]) -> tuple[Waves, list[tuple[int, int, int, int, float]]]:
    """Describe the max-marginals of a variable's mini-buckets.

    Parameters
    ----------
    waves
        Those of all its mini-buckets, which have one level.
    slots
        Where the rows of each mini-bucket are in ``found``.

    Returns
    -------
    waves
        The same; their words have tables of the new launches behind them.
    launches : list of (number, table, blocks, groups, cells)
        Number −1 prepares a wave, others are those of :func:`marginal_kernel`, groups are those of a block. Large ones
        are divided, as those of the joins.
    """
    meta, at = waves.meta, waves.meta.size
    launches: list[tuple[int, int, int, int, float]] = []
    tables: list[int] = []
    rest = list(slots)
    for number, table, blocks in waves.launches.tolist():
        if number >= 0:
            continue
        launches.append((number, table, blocks, 0, 0.0))
        n = int(meta[table + w.BUCKETS])
        members = meta[table + w.AFTER + n : table + w.AFTER + 2 * n].tolist()
        mine, rest = rest[:n], rest[n:]
        for both in range(4):
            chosen = [i for i, b in enumerate(members) if min(int(meta[b + w.BOTH_TABLES]), 3) == both]
            if not chosen:
                continue
            sizes = (w.DOMAIN, w.ROWS, w.WIDTH, w.BOTH_TABLES)
            work = [_work(*(int(meta[members[i] + word]) for word in sizes)) for i in chosen]
            groups = min(GROUPS, max(lines for lines, _ in work))
            counts = [least * cut(lines, least, groups) for lines, least in work]
            begin = np.cumsum([0, *counts]).tolist()
            inner = (w.DOMAIN, w.ROWS, w.WIDTH)
            cells = sum(prod(float(meta[members[i] + word]) for word in inner) for i in chosen) if both else 0.0
            for first, count in parts_of(begin[-1], cells):
                launches.append((both, at + len(tables), count, groups, cells * count / begin[-1]))
                tables += [len(chosen), *(b - first for b in begin)]
                tables += [*(members[i] for i in chosen), *(mine[i] for i in chosen)]
    return waves._replace(meta=np.concatenate([meta, np.array(tables, dtype=np.int64)])), launches


def _work(x_size: int, rows: int, width: int, both: int) -> tuple[int, int]:
    """Return the lines of a bucket's blocks, and the blocks that it takes at least."""
    if both == 0:
        return -(-max(rows, width) // LANES), x_size
    return rows, x_size * -(-width // TILE)


@cuda.jit(device=True)
def raise_by(found, slot, value, shared):
    """Raise ``found[slot]`` to the maximum over a block."""
    lane = cuda.threadIdx.x
    cuda.syncthreads()  # whoever reads what was there is done
    shared[cuda.threadIdx.y * LANES + lane] = value
    cuda.syncthreads()
    if cuda.threadIdx.y == 0:
        for group in range(1, cuda.blockDim.y):
            value = max(value, shared[group * LANES + lane])
        shared[lane] = value
    cuda.syncthreads()
    if cuda.threadIdx.y == 0 and lane == 0:
        for i in range(1, LANES):
            value = max(value, shared[i])
        cuda.atomic.max(found, slot, value)


@lru_cache
def marginal_kernel(dtype: np.dtype[Any], both: int) -> Any:
    """Return the max-marginal for a number type and a number of tables that vary with both h and l (3: any).

    A bucket's blocks are those of its first x, then those of its second, ...; tiles of columns lie side by side.
    """
    number, general = dtype.type, both > 2
    places = (BOTH_MOST if general else max(both, 1)) * COLUMNS

    @cuda_jit()
    def separate(arena, meta, table, sums, start, found, lowest, half):
        shared = cuda.shared.array(THREADS, number)
        thread = np.int32(cuda.threadIdx.y * LANES + cuda.threadIdx.x)
        at_once = cuda.blockDim.y * LANES
        bucket = find_bucket(meta, table, np.int64(cuda.blockIdx.x), thread, at_once)
        where = meta[table + w.AFTER + meta[table + w.BUCKETS] + bucket]
        slot = meta[table + w.AFTER + 2 * meta[table + w.BUCKETS] + bucket]
        block = np.int64(cuda.blockIdx.x) - meta[table + w.FIRST_BLOCK + bucket]
        x_size, rows, width = meta[where + w.DOMAIN], meta[where + w.ROWS], meta[where + w.WIDTH]
        pieces = (meta[table + w.FIRST_BLOCK + bucket + 1] - meta[table + w.FIRST_BLOCK + bucket]) // x_size
        x = block // pieces
        first = (block % pieces) * at_once + thread
        s_at, b_at = meta[where + w.HIGH_SUMS] + x * rows, meta[where + w.LOW_SUMS] + x * width
        best = lowest
        for h in range(first, rows, pieces * at_once):
            best = max(best, sums[np.uint64(s_at + h)])
        raise_by(found, slot + x, best, shared)
        best = lowest
        for column in range(first, width, pieces * at_once):
            best = max(best, sums[np.uint64(b_at + column)])
        raise_by(found, slot + x_size + x, best, shared)

    @cuda_jit()
    def joined(arena, meta, table, sums, start, found, lowest, half):
        shared = cuda.shared.array(THREADS, number)
        place = cuda.local.array(places, np.int32)
        base = cuda.local.array(COLUMNS, number)
        thread = np.int32(cuda.threadIdx.y * LANES + cuda.threadIdx.x)
        bucket = find_bucket(meta, table, np.int64(cuda.blockIdx.x), thread, cuda.blockDim.y * LANES)
        where = meta[table + w.AFTER + meta[table + w.BUCKETS] + bucket]
        slot = meta[table + w.AFTER + 2 * meta[table + w.BUCKETS] + bucket]
        block = np.int64(cuda.blockIdx.x) - meta[table + w.FIRST_BLOCK + bucket]
        rows, width = meta[where + w.ROWS], np.int32(meta[where + w.WIDTH])
        record = w.STRIDES + meta[where + w.HIGH_AXES] + meta[where + w.LOW_AXES]
        apart = meta[where + w.HIGH_TABLES] + meta[where + w.LOW_TABLES]
        first_both = where + w.HEADER + record - w.STRIDES + apart * record
        nv = np.int32(meta[where + w.BOTH_TABLES]) if general else np.int32(both)
        rows_at, columns_at = meta[where + w.ROW_STARTS], meta[where + w.COLUMN_STARTS]
        x_size = meta[where + w.DOMAIN]
        pieces = (meta[table + w.FIRST_BLOCK + bucket + 1] - meta[table + w.FIRST_BLOCK + bucket]) // x_size
        across = (width + np.int32(TILE - 1)) // np.int32(TILE)
        x = block // pieces
        piece = np.int32(block % pieces)
        left = (piece % across) * np.int32(TILE) + np.int32(cuda.threadIdx.x)
        s_at, b_at = meta[where + w.HIGH_SUMS] + x * rows, meta[where + w.LOW_SUMS] + x * width
        step_0 = x * meta[first_both + w.X_STRIDE]
        step_1 = x * meta[first_both + record + w.X_STRIDE] if both == 2 else np.int64(0)
        for j in range(COLUMNS):  # what lies beyond the last column repeats it
            column = min(left + np.int32(LANES * j), width - np.int32(1))
            base[j] = sums[b_at + column]
            for v in range(nv):
                place[v * COLUMNS + j] = np.int32(start[columns_at + v * width + column])
        best = lowest
        down = pieces // across
        h = np.int64(piece // across) * cuda.blockDim.y + cuda.threadIdx.y
        while h < rows:
            mine = sums[np.uint64(s_at + h)]  # unsigned: no test for wrapping
            if mine >= half:  # else forbidden for every l
                at_0 = start[np.uint64(rows_at + h)] + step_0
                at_1 = start[np.uint64(rows_at + rows + h)] + step_1 if both == 2 else np.int64(0)
                for j in range(COLUMNS):
                    value = number(mine + base[j])
                    if general:
                        for v in range(nv):
                            at = start[rows_at + v * rows + h] + place[v * COLUMNS + j]
                            entry = arena[np.uint64(at + x * meta[first_both + v * record + w.X_STRIDE])]
                            value = max(number(value + entry), lowest)
                    else:
                        value = number(value + arena[np.uint64(at_0 + place[j])])
                        if both == 2:
                            value = number(value + arena[np.uint64(at_1 + place[COLUMNS + j])])
                    best = max(best, value)
            h += down * cuda.blockDim.y
        raise_by(found, slot + x, best, shared)
        if thread == 0:
            found[slot + x_size + x] = number(0)  # nothing to add

    return joined if both > 0 else separate


@lru_cache
def bound_kernel(dtype: np.dtype[Any]) -> Any:
    """Return the kernel that measures messages, for a number type.

    Its grid is (pieces, messages); ``spans`` (int64) has place, entries and slot of every message of the elimination,
    one after another, and the first that is measured is ``first``.
    """
    number = dtype.type

    @cuda_jit()
    def bound(arena, spans, first, found, lowest, half):
        shared = cuda.shared.array(THREADS, number)
        span = w.SPAN * (first + cuda.blockIdx.y)
        at, size = spans[span + w.BEGIN], spans[span + w.ENTRIES]
        best = number(0)
        at_once = cuda.blockDim.y * LANES
        begin = np.int64(cuda.blockIdx.x) * at_once + cuda.threadIdx.y * LANES + cuda.threadIdx.x
        for i in range(begin, size, cuda.gridDim.x * at_once):
            entry = arena[np.uint64(at + i)]
            if entry >= half and entry > lowest:
                best = max(best, number(abs(entry)))
        raise_by(found, spans[span + w.SLOT], best, shared)

    return bound
