# mypy: ignore-errors
"""Write the bucket descriptors that :mod:`dmcmc.inference.elimination.cuda.join_kernels` reads; runs on the host.

Shared arguments: ``program`` is a :class:`dmcmc.inference.elimination.plan.BucketProgram`, the plan as flat arrays, in
which tables are numbered: first the inputs, then one message per bucket. ``meta`` (int64) holds the descriptors in the
layout of :mod:`dmcmc.inference.elimination.cuda.join_kernels`: per bucket a header, the sizes of its axes, and one
record per table with its offset and strides. h and l are the leading and trailing separator variables of a bucket that
eliminates x. The kernels store two sums: S[x, h] of the tables that depend on h only, and B[x, l] of those that depend
on l only.
"""

import numpy as np

from dmcmc.inference.elimination.cuda.join_kernels import (
    AFTER,
    ANY,
    BOTH_TABLES,
    BUCKETS,
    COLUMN_STARTS,
    DOMAIN,
    FAR,
    FIRST_BLOCK,
    HEADER,
    HIGH_AXES,
    HIGH_SUMS,
    HIGH_TABLES,
    LARGE,
    LOW_AXES,
    LOW_SUMS,
    LOW_TABLES,
    MAX_BOTH_TABLES,
    MESSAGE,
    OFFSET,
    ROW_STARTS,
    ROWS,
    STRIDES,
    TILES,
    VALUES_PER_THREAD,
    WIDTH,
    X_STRIDE,
)
from dmcmc.inference.elimination.join_kernels import bucket_strides
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.tuning import BEST_WIDTH_BITS, MAX_COLUMNS

# The kernels below read these; Numba freezes globals.
_MAX_BOTH_TABLES = MAX_BOTH_TABLES
_ANY = ANY
_LARGE = LARGE
_FAR = FAR
_VALUES_PER_THREAD = VALUES_PER_THREAD

_TILE_WIDTH = 256  # assignments of l that a tile covers


@njit(nogil=True, allocates=False)
def choose_low_axes(program, b):
    """Return how many trailing separator variables form l on the GPU, so that few tables depend on both h and l.

    Every number is rated by a heuristic cost, whose weights are tuning constants::

        4 · tables that depend on both + 2 · max(0, 8 − log2 width) + max(0, 7 − log2(assignments of h))
        + |log2 width − 10| / 2,        width = assignments of l

    Tables that depend on both, an l narrower than a tile (2^8), and few rows are expensive. 0 means that l is empty.
    """
    output = program.at.size - program.variable.size + b
    first, last = program.scope_start[output], program.scope_start[output + 1]
    best, best_cost = 0, np.inf
    width = 1.0
    rows = float(program.cells[b] // program.domains[program.variable[b]])
    for n_low in range(last - first + 1):
        if n_low > 0:
            width *= program.domains[program.scope[last - n_low]]
        if width > MAX_COLUMNS and best > 0:
            break
        n_both = 0
        for i in range(program.input_start[b], program.input_start[b + 1]):
            t = program.inputs[i]
            n_in_low = 0
            position = last - 1
            for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
                while program.scope[position] != program.scope[s]:
                    position -= 1
                if position >= last - n_low:
                    n_in_low += 1
            if 0 < n_in_low < program.scope_start[t + 1] - program.scope_start[t] - 1:
                n_both += 1
        if n_both > _MAX_BOTH_TABLES:
            continue  # low = 0 has no such table
        narrow = max(0.0, np.log2(_TILE_WIDTH) - np.log2(width))
        few_rows = max(0.0, 7.0 - np.log2(rows / width))
        cost = 4.0 * n_both + 2.0 * narrow + few_rows + 0.5 * abs(np.log2(width) - BEST_WIDTH_BITS)
        if cost < best_cost:
            best, best_cost = n_low, cost
    return best


@njit(nogil=True, allocates=False)
def choose_lows(program, first, last):
    """Set ``program.row_axes`` of buckets ``first`` to ``last`` − 1 by :func:`choose_low_axes`."""
    for b in range(first, last):
        program.row_axes[b] = choose_low_axes(program, b)


@njit(nogil=True)
def merge_axes(sizes, strides):
    """Merge neighbouring axes if every table steps through both with a single stride: kernels divide once per axis.

    Parameters
    ----------
    sizes : (axes,) int64
        Sizes of the axes.
    strides : (tables, axes) int64
        Strides of the tables.

    Returns
    -------
    tuple of arrays
        The sizes and the strides of the merged axes.
    """
    size, step = sizes.copy(), strides.copy()
    merged = 0
    for j in range(sizes.size):
        mergeable = merged > 0
        for t in range(step.shape[0]):
            mergeable = mergeable and step[t, merged - 1] == strides[t, j] * sizes[j]
        if mergeable:
            merged -= 1
            size[merged] *= sizes[j]
        else:
            size[merged] = sizes[j]
        for t in range(step.shape[0]):
            step[t, merged] = strides[t, j]
        merged += 1
    return size[:merged], step[:, :merged]


@njit(nogil=True)
def describe_buckets(program, first, last, device_begin):
    """Return the descriptors of buckets ``first`` to ``last`` − 1 and the position of each, both int64.

    ``device_begin`` is the arena offset of the first entry on the device; table offsets are relative to it.
    """
    size = 0
    for b in range(first, last):
        count = program.input_start[b + 1] - program.input_start[b]
        output = program.at.size - program.variable.size + b
        axes = program.scope_start[output + 1] - program.scope_start[output]
        size += HEADER + axes + count * (STRIDES + axes)
    meta = np.zeros(size, dtype=np.int64)
    positions = np.zeros(last - first, dtype=np.int64)
    at = 0
    for b in range(first, last):
        positions[b - first] = at
        sizes, strides = bucket_strides(program, b)
        k = sizes.size - program.row_axes[b]
        high, high_strides = merge_axes(sizes[:k], strides[:, 1 : 1 + k])
        low, low_strides = merge_axes(sizes[k:], strides[:, 1 + k :])
        kh, kl = high.size, low.size
        meta[at + DOMAIN] = program.domains[program.variable[b]]
        meta[at + HIGH_AXES], meta[at + LOW_AXES], meta[at + ROWS], meta[at + WIDTH] = kh, kl, 1, 1
        for j in range(kh):
            meta[at + ROWS] *= high[j]
            meta[at + HEADER + j] = high[j]
        for j in range(kl):
            meta[at + WIDTH] *= low[j]
            meta[at + HEADER + kh + j] = low[j]
        meta[at + MESSAGE] = program.at[program.at.size - program.variable.size + b] - device_begin
        record = at + HEADER + kh + kl
        for kind in range(3):  # tables that depend on h only (0), on l only or on neither (1), on both (2)
            for i in range(strides.shape[0]):
                table_kind = 1
                if strides[i, 1 : 1 + k].any():
                    table_kind = 2 if strides[i, 1 + k :].any() else 0
                if table_kind != kind:
                    continue
                meta[at + HIGH_TABLES + kind] += 1
                meta[record + OFFSET] = program.at[program.inputs[program.input_start[b] + i]] - device_begin
                meta[record + X_STRIDE] = strides[i, 0]
                meta[record + STRIDES : record + STRIDES + kh] = high_strides[i]
                meta[record + STRIDES + kh : record + STRIDES + kh + kl] = low_strides[i]
                record += STRIDES + kh + kl
        at = record
    return meta[:at], positions


@njit(nogil=True, allocates=False)
def _kernel_number(meta, b, has_large):
    """Return the number of the kernel that joins a bucket, as defined by ``join_kernels.join_kernel``.

    ``b`` is the position of the bucket's descriptor; ``has_large`` says whether its wave has large messages.
    """
    n_both = meta[b + BOTH_TABLES]
    if n_both == 0:
        return _LARGE if has_large else 0
    if n_both >= _ANY:
        return _ANY
    axes = meta[b + HIGH_AXES] + meta[b + LOW_AXES]
    n_single = meta[b + HIGH_TABLES] + meta[b + LOW_TABLES]
    for t in range(n_single, n_single + n_both):
        record, span = b + HEADER + axes + t * (STRIDES + axes), 0
        for j in range(axes):
            span += (meta[b + HEADER + j] - 1) * meta[record + STRIDES + j]
        if span >= _FAR:
            return _ANY
    return n_both


@njit(nogil=True)
def wave_tables(meta, positions, level, heights, width, large, max_sums, enough_blocks):
    """Group buckets into waves and their launches: one launch prepares a wave, and one launch per kernel joins it.

    Parameters
    ----------
    meta, positions : int64
        From :func:`describe_buckets`; the workspace offsets and the number of tiles are filled in.
    level : (buckets,) int64
        Buckets of one level do not depend on each other.
    heights : (kernels,) int64
        Height of a block's tile in rows, by the kernel's number.
    width : int
        Width of every kernel's tile.
    large : int
        Entries of a message from which a launch without tables on both h and l uses large tiles.
    max_sums : int
        Largest number of entries of S and B for a wave with more than one bucket.
    enough_blocks : int
        Number of blocks of a bucket from which a block joins several tiles.

    Returns
    -------
    tables : int64
        The launches' tables, to be appended to ``meta``.
    launches : (launches, 3) int64
        Number of the kernel (−1 prepares), position of its table, number of blocks.
    largest_sums, largest_starts : int
        Entries of the two workspaces, ``sums`` and ``start``: those of the wave that needs most.
    """
    n = level.size
    order = np.argsort(level, kind="mergesort")
    tables = np.zeros(8 * n, dtype=np.int64)
    launches = np.zeros((2 * n, 3), dtype=np.int64)
    at, count, largest_sums, largest_starts, i = 0, 0, 0, 0, 0
    while i < n:
        wave_begin, sums, starts, has_large = i, 0, 0, False
        while i < n and level[order[i]] == level[order[wave_begin]]:
            b = positions[order[i]]
            x_size, rows = meta[b + DOMAIN], meta[b + ROWS]
            row_width, n_both = meta[b + WIDTH], meta[b + BOTH_TABLES]
            if i > wave_begin and sums + x_size * (rows + row_width) > max_sums:
                break
            meta[b + HIGH_SUMS], meta[b + LOW_SUMS] = sums, sums + x_size * rows
            meta[b + ROW_STARTS], meta[b + COLUMN_STARTS] = starts, starts + n_both * rows
            sums += x_size * (rows + row_width)
            starts += n_both * (rows + row_width)
            has_large |= n_both == 0 and rows * row_width >= large
            i += 1
        largest_sums, largest_starts = max(largest_sums, sums), max(largest_starts, starts)
        for kernel_number in range(-1, heights.size):
            n_members = 0
            for pass_number in range(2):  # first count, then write
                blocks, n_written = 0, 0
                for j in range(wave_begin, i):
                    b = positions[order[j]]
                    x_size, rows = meta[b + DOMAIN], meta[b + ROWS]
                    row_width, n_both = meta[b + WIDTH], meta[b + BOTH_TABLES]
                    if kernel_number >= 0 and kernel_number != _kernel_number(meta, b, has_large):
                        continue
                    if pass_number == 0:
                        n_members += 1
                        continue
                    tables[at + FIRST_BLOCK + n_written] = blocks
                    tables[at + AFTER + n_members + n_written] = b
                    n_written += 1
                    if kernel_number < 0:
                        # threads of ``prepare``: 256 per block, and at most 4096 blocks, which then share the work
                        n_sums = max((x_size + _VALUES_PER_THREAD - 1) // _VALUES_PER_THREAD, n_both) * max(
                            rows, row_width
                        )
                        blocks += min((n_sums + 255) // 256, 4096)
                    else:
                        across, down = (
                            (row_width + width - 1) // width,
                            (rows + heights[kernel_number] - 1) // heights[kernel_number],
                        )
                        tiles = max(1, min(across, down * across // enough_blocks))
                        meta[b + TILES] = tiles
                        blocks += down * ((across + tiles - 1) // tiles)
                if n_members == 0:
                    break
                if pass_number == 1:
                    tables[at + BUCKETS], tables[at + FIRST_BLOCK + n_members] = n_members, blocks
                    launches[count, 0], launches[count, 1], launches[count, 2] = kernel_number, meta.size + at, blocks
                    at += AFTER + 2 * n_members
                    count += 1
    return tables[:at], launches[:count], largest_sums, largest_starts
