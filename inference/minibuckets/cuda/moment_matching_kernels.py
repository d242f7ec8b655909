# mypy: ignore-errors
"""Max-marginals of mini-buckets and magnitudes of messages on an NVIDIA GPU, without writing a joined table.

A bucket that eliminates x is divided into mini-buckets, groups of its tables that are eliminated separately. The
separator of a mini-bucket is split into leading variables h and trailing variables l. The max-marginal of a mini-bucket
is its largest sum for each x. The kernel ``prepare`` of :mod:`dmcmc.inference.elimination.cuda.join_kernels` runs
first. It writes S[x, h], the sum of the tables that depend on h only, and B[x, l], the sum of those that depend on l
only, to ``sums``, and offsets of the other tables to ``start``. While elimination takes the maximum over x of

    S[x, h] + B[x, l] + Σ tables that depend on both h and l,

a max-marginal takes it over (h, l). A block has up to 8 groups of 32 threads and processes one x of one mini-bucket.
Each thread holds 4 columns l and steps over rows h, one row per group, so that neighbouring threads read neighbouring
entries. Without tables that depend on both, the maxima over h and over l are separate. The blocks of one x combine
their results by an atomic maximum, which does not depend on their order.

Shared arguments
----------------
arena : (entries,)
    All tables on the device, in the dtype of the arithmetic.
meta : int64
    The descriptors of buckets and launches in the layout of ``elimination/cuda/descriptors.py`` (imported as ``w``).
    A launch's table lists n buckets: the number n, the first block of each and the end, the positions of their
    descriptors, and, for max-marginals, the position of each bucket's rows in ``results``.
table : int
    Position of the launch's table in ``meta``.
sums, start : (entries,)
    The results of ``prepare``: S and B, in the dtype of the arithmetic; offsets of rows and columns in the tables that
    depend on both, int64.
results : (entries,)
    The numbers that leave the device: for each mini-bucket of a matched variable two rows over x whose sum is its
    max-marginal (initially −∞), and for each message its largest finite |entry| (initially 0).
lowest, half
    The −∞ of the arithmetic, and the bound below which a sum means −∞.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numba import cuda

from dmcmc.inference.elimination.cuda.join_kernels import (
    AFTER,
    BEGIN,
    BOTH_TABLES,
    BUCKETS,
    COLUMN_STARTS,
    DOMAIN,
    ENTRIES,
    FIRST_BLOCK,
    GROUPS,
    HEADER,
    HIGH_AXES,
    HIGH_SUMS,
    HIGH_TABLES,
    LANES,
    LOW_AXES,
    LOW_SUMS,
    LOW_TABLES,
    MAX_BOTH_TABLES,
    RESULT,
    ROW_STARTS,
    ROWS,
    SPAN,
    STRIDES,
    WIDTH,
    X_STRIDE,
    find_bucket,
)
from dmcmc.inference.elimination.cuda.waves import Waves, split_launch
from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.inference.tuning import ENOUGH_BLOCKS, MIN_STEPS_PER_BLOCK

COLUMNS_PER_THREAD = 4  # columns l per thread
TILE = LANES * COLUMNS_PER_THREAD
THREADS = LANES * GROUPS


def split_blocks(lines: int, blocks: int, groups: int) -> int:
    """Return into how many parts each of ``blocks`` blocks is split, so that the GPU is busy.

    Parameters
    ----------
    lines
        Lines of work, one per group of threads and step.
    blocks
        Number of blocks before splitting.
    groups
        Groups of threads per block.
    """
    return max(1, min(lines // (groups * MIN_STEPS_PER_BLOCK), ENOUGH_BLOCKS // blocks))


def add_marginals(
    waves: Waves, result_positions: Sequence[int]
) -> tuple[Waves, list[tuple[int, int, int, int, float]]]:
    """Describe the launches that compute the max-marginals of a variable's mini-buckets.

    Parameters
    ----------
    waves
        The waves of all its mini-buckets, which have a single level.
    result_positions
        Position in ``results`` of the rows of each mini-bucket.

    Returns
    -------
    waves
        The waves, with the tables of the new launches appended to their descriptors.
    launches : list of (number, table, blocks, groups, cells)
        Kernel (−1 prepares, otherwise see :func:`marginal_kernel`), position of its table, number of blocks, groups per
        block, joined cells. Large launches are split as those of the joins.
    """
    meta, tables_at = waves.descriptors, waves.descriptors.size
    launches: list[tuple[int, int, int, int, float]] = []
    tables: list[int] = []
    remaining_results = list(result_positions)
    for number, table, blocks in waves.launches.tolist():
        if number >= 0:
            continue
        launches.append((number, table, blocks, 0, 0.0))
        n = int(meta[table + BUCKETS])
        members = meta[table + AFTER + n : table + AFTER + 2 * n].tolist()
        bucket_results, remaining_results = remaining_results[:n], remaining_results[n:]
        for both in range(4):
            members_of_kernel = [i for i, b in enumerate(members) if min(int(meta[b + BOTH_TABLES]), 3) == both]
            if not members_of_kernel:
                continue
            sizes = (DOMAIN, ROWS, WIDTH, BOTH_TABLES)
            lines_and_blocks = [_work(*(int(meta[members[i] + field]) for field in sizes)) for i in members_of_kernel]
            groups = min(GROUPS, max(lines for lines, _ in lines_and_blocks))
            counts = [min_blocks * split_blocks(lines, min_blocks, groups) for lines, min_blocks in lines_and_blocks]
            begin = np.cumsum([0, *counts]).tolist()
            inner = (DOMAIN, ROWS, WIDTH)
            cells = (
                sum(prod(float(meta[members[i] + field]) for field in inner) for i in members_of_kernel)
                if both
                else 0.0
            )
            for first, count in split_launch(begin[-1], cells):
                launches.append((both, tables_at + len(tables), count, groups, cells * count / begin[-1]))
                tables += [len(members_of_kernel), *(b - first for b in begin)]
                tables += [*(members[i] for i in members_of_kernel), *(bucket_results[i] for i in members_of_kernel)]
    return waves._replace(descriptors=np.concatenate([meta, np.array(tables, dtype=np.int64)])), launches


def _work(x_size: int, rows: int, width: int, both: int) -> tuple[int, int]:
    """Return a bucket's number of lines of work and its smallest number of blocks.

    ``both`` is the number of tables that depend on both h and l. A line is one step of a group of threads: 32 entries
    of S or B if there is no such table, otherwise one row of a tile of columns.
    """
    if both == 0:
        return -(-max(rows, width) // LANES), x_size
    return rows, x_size * -(-width // TILE)


@cuda.jit(device=True)
def block_maximum(results, result_at, value, shared):
    """Raise ``results[result_at]`` to the maximum of ``value`` over a block; called by all its threads.

    ``shared`` (THREADS,) is shared memory, overwritten.
    """
    lane = cuda.threadIdx.x
    cuda.syncthreads()  # wait until no thread reads the previous contents
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
        cuda.atomic.max(results, result_at, value)


@lru_cache
def marginal_kernel(dtype: np.dtype[Any], both: int) -> Any:
    """Return the max-marginal kernel for a number type and a number of tables that depend on both h and l (3: any).

    ``separate`` if no table depends on both, otherwise ``joined``. A bucket's blocks are ordered by x; for each x,
    blocks for neighbouring tiles of columns are neighbours.
    """
    number, general = dtype.type, both > 2
    n_columns = (MAX_BOTH_TABLES if general else max(both, 1)) * COLUMNS_PER_THREAD

    @cuda_jit()
    def separate(arena, meta, table, sums, start, results, lowest, half):
        """Raise the maxima of S over h and of B over l, if no table depends on both; one block per part of an x.

        The results are the two rows of the mini-bucket in ``results``.
        """
        shared = cuda.shared.array(THREADS, number)
        thread = np.int32(cuda.threadIdx.y * LANES + cuda.threadIdx.x)
        threads = cuda.blockDim.y * LANES
        bucket = find_bucket(meta, table, np.int64(cuda.blockIdx.x), thread, threads)
        bucket_at = meta[table + AFTER + meta[table + BUCKETS] + bucket]
        result_at = meta[table + AFTER + 2 * meta[table + BUCKETS] + bucket]
        block = np.int64(cuda.blockIdx.x) - meta[table + FIRST_BLOCK + bucket]
        x_size, rows, width = meta[bucket_at + DOMAIN], meta[bucket_at + ROWS], meta[bucket_at + WIDTH]
        parts = (meta[table + FIRST_BLOCK + bucket + 1] - meta[table + FIRST_BLOCK + bucket]) // x_size
        x = block // parts
        first = (block % parts) * threads + thread
        s_at, b_at = meta[bucket_at + HIGH_SUMS] + x * rows, meta[bucket_at + LOW_SUMS] + x * width
        best = lowest
        for h in range(first, rows, parts * threads):
            best = max(best, sums[np.uint64(s_at + h)])
        block_maximum(results, result_at + x, best, shared)
        best = lowest
        for column in range(first, width, parts * threads):
            best = max(best, sums[np.uint64(b_at + column)])
        block_maximum(results, result_at + x_size + x, best, shared)

    @cuda_jit()
    def joined(arena, meta, table, sums, start, results, lowest, half):
        """Raise the maximum over (h, l); one block per part of an x and tile of columns.

        The result is the first row of the mini-bucket in ``results``; the second row is set to zero.
        """
        shared = cuda.shared.array(THREADS, number)
        column_offset = cuda.local.array(n_columns, np.int32)
        base = cuda.local.array(COLUMNS_PER_THREAD, number)
        thread = np.int32(cuda.threadIdx.y * LANES + cuda.threadIdx.x)
        bucket = find_bucket(meta, table, np.int64(cuda.blockIdx.x), thread, cuda.blockDim.y * LANES)
        bucket_at = meta[table + AFTER + meta[table + BUCKETS] + bucket]
        result_at = meta[table + AFTER + 2 * meta[table + BUCKETS] + bucket]
        block = np.int64(cuda.blockIdx.x) - meta[table + FIRST_BLOCK + bucket]
        rows, width = meta[bucket_at + ROWS], np.int32(meta[bucket_at + WIDTH])
        record = STRIDES + meta[bucket_at + HIGH_AXES] + meta[bucket_at + LOW_AXES]
        n_single = meta[bucket_at + HIGH_TABLES] + meta[bucket_at + LOW_TABLES]
        first_both = bucket_at + HEADER + record - STRIDES + n_single * record
        n_both = np.int32(meta[bucket_at + BOTH_TABLES]) if general else np.int32(both)
        rows_at, columns_at = meta[bucket_at + ROW_STARTS], meta[bucket_at + COLUMN_STARTS]
        x_size = meta[bucket_at + DOMAIN]
        parts = (meta[table + FIRST_BLOCK + bucket + 1] - meta[table + FIRST_BLOCK + bucket]) // x_size
        across = (width + np.int32(TILE - 1)) // np.int32(TILE)
        x = block // parts
        part = np.int32(block % parts)
        first_column = (part % across) * np.int32(TILE) + np.int32(cuda.threadIdx.x)
        s_at, b_at = meta[bucket_at + HIGH_SUMS] + x * rows, meta[bucket_at + LOW_SUMS] + x * width
        step_0 = x * meta[first_both + X_STRIDE]
        step_1 = x * meta[first_both + record + X_STRIDE] if both == 2 else np.int64(0)
        for j in range(COLUMNS_PER_THREAD):  # threads beyond the last column repeat it
            column = min(first_column + np.int32(LANES * j), width - np.int32(1))
            base[j] = sums[b_at + column]
            for v in range(n_both):
                column_offset[v * COLUMNS_PER_THREAD + j] = np.int32(start[columns_at + v * width + column])
        best = lowest
        down = parts // across
        h = np.int64(part // across) * cuda.blockDim.y + cuda.threadIdx.y
        while h < rows:
            s_value = sums[np.uint64(s_at + h)]  # unsigned: no test for negative indices
            if s_value >= half:  # otherwise forbidden for every l
                at_0 = start[np.uint64(rows_at + h)] + step_0
                at_1 = start[np.uint64(rows_at + rows + h)] + step_1 if both == 2 else np.int64(0)
                for j in range(COLUMNS_PER_THREAD):
                    value = number(s_value + base[j])
                    if general:
                        for v in range(n_both):
                            at = start[rows_at + v * rows + h] + column_offset[v * COLUMNS_PER_THREAD + j]
                            entry = arena[np.uint64(at + x * meta[first_both + v * record + X_STRIDE])]
                            value = max(number(value + entry), lowest)
                    else:
                        value = number(value + arena[np.uint64(at_0 + column_offset[j])])
                        if both == 2:
                            value = number(value + arena[np.uint64(at_1 + column_offset[COLUMNS_PER_THREAD + j])])
                    best = max(best, value)
            h += down * cuda.blockDim.y
        block_maximum(results, result_at + x, best, shared)
        if thread == 0:
            results[result_at + x_size + x] = number(0)  # the second row has nothing to add

    return joined if both > 0 else separate


@lru_cache
def magnitude_kernel(dtype: np.dtype[Any]) -> Any:
    """Return the kernel that computes the magnitudes of messages for a number type.

    A magnitude is the largest finite |entry| of a table. The grid is (parts, messages); a block scans one part of one
    message. ``spans`` (3 · messages,) int64 has offset, entries and result position of every message of the
    elimination; ``first`` is the first message of the launch.
    """
    number = dtype.type

    @cuda_jit()
    def bound(arena, spans, first, results, lowest, half):
        """Raise the magnitude of a message to its largest finite |entry|; one block per part of a message."""
        shared = cuda.shared.array(THREADS, number)
        span = SPAN * (first + cuda.blockIdx.y)
        at, size = spans[span + BEGIN], spans[span + ENTRIES]
        best = number(0)
        threads = cuda.blockDim.y * LANES
        begin = np.int64(cuda.blockIdx.x) * threads + cuda.threadIdx.y * LANES + cuda.threadIdx.x
        for i in range(begin, size, cuda.gridDim.x * threads):
            entry = arena[np.uint64(at + i)]
            if entry >= half and entry > lowest:
                best = max(best, number(abs(entry)))
        block_maximum(results, spans[span + RESULT], best, shared)

    return bound
