# mypy: ignore-errors
"""The words that describe buckets to :mod:`dmcmc.inference.elimination.cuda.join_kernels`; runs on the host."""

import numpy as np

from dmcmc.inference.elimination.cuda import descriptors as w
from dmcmc.inference.elimination.cuda.join_kernels import ANY, BOTH_MOST, FAR, LARGE, SOME
from dmcmc.inference.elimination.join_kernels import bucket_strides
from dmcmc.inference.runtime.compile import njit

# The kernels below read them; numba freezes globals.
_BOTH_MOST, _ANY, _LARGE, _FAR, _SOME = BOTH_MOST, ANY, LARGE, FAR, SOME

_WIDTHS = (256, 1 << 17)  # assignments of l that suit the kernel: a tile's, and what B may hold for each x
_BEST_WIDTH = 10.0  # log2 of the width that suits it best


@njit(nogil=True)
def choose_low(program, b):
    """Choose how many trailing separator variables are l, for the GPU: few tables that vary with both h and l."""
    output = program.at.size - program.variable.size + b
    first, last = program.scope_start[output], program.scope_start[output + 1]
    best, best_cost = 0, np.inf
    width = 1.0
    rows = float(program.cells[b] // program.domains[program.variable[b]])
    for low in range(last - first + 1):
        if low > 0:
            width *= program.domains[program.scope[last - low]]
        if width > _WIDTHS[1] and best > 0:
            break
        both = 0
        for i in range(program.input_start[b], program.input_start[b + 1]):
            t = program.inputs[i]
            inside = 0
            position = last - 1
            for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
                while program.scope[position] != program.scope[s]:
                    position -= 1
                if position >= last - low:
                    inside += 1
            if 0 < inside < program.scope_start[t + 1] - program.scope_start[t] - 1:
                both += 1
        if both > _BOTH_MOST:
            continue  # low = 0 has none
        narrow = max(0.0, np.log2(_WIDTHS[0]) - np.log2(width))
        few = max(0.0, 7.0 - np.log2(rows / width))
        cost = 4.0 * both + 2.0 * narrow + few + 0.5 * abs(np.log2(width) - _BEST_WIDTH)
        if cost < best_cost:
            best, best_cost = low, cost
    return best


@njit(nogil=True)
def choose_lows(program, first, last):
    """Set ``program.low`` of some buckets by :func:`choose_low`."""
    for b in range(first, last):
        program.low[b] = choose_low(program, b)


@njit(nogil=True)
def merge_axes(sizes, strides):
    """Take neighbouring axes together where every table steps through both with one stride, (tables, axes) each."""
    size, step = sizes.copy(), strides.copy()
    kept = 0
    for j in range(sizes.size):
        same = kept > 0
        for t in range(step.shape[0]):
            same = same and step[t, kept - 1] == strides[t, j] * sizes[j]
        if same:
            kept -= 1
            size[kept] *= sizes[j]
        else:
            size[kept] = sizes[j]
        for t in range(step.shape[0]):
            step[t, kept] = strides[t, j]
        kept += 1
    return size[:kept], step[:, :kept]


@njit(nogil=True)
def describe(program, first, last, device_begin):
    """Return the words of :mod:`.join_kernels` for some buckets, and where each one's start."""
    size = 0
    for b in range(first, last):
        count = program.input_start[b + 1] - program.input_start[b]
        output = program.at.size - program.variable.size + b
        axes = program.scope_start[output + 1] - program.scope_start[output]
        size += w.HEADER + axes + count * (w.STRIDES + axes)
    meta = np.zeros(size, dtype=np.int64)
    where = np.zeros(last - first, dtype=np.int64)
    at = 0
    for b in range(first, last):
        where[b - first] = at
        sizes, strides = bucket_strides(program, b)
        k = sizes.size - program.low[b]
        high, high_strides = merge_axes(sizes[:k], strides[:, 1 : 1 + k])
        low, low_strides = merge_axes(sizes[k:], strides[:, 1 + k :])
        kh, kl = high.size, low.size
        meta[at + w.DOMAIN] = program.domains[program.variable[b]]
        meta[at + w.HIGH_AXES], meta[at + w.LOW_AXES], meta[at + w.ROWS], meta[at + w.WIDTH] = kh, kl, 1, 1
        for j in range(kh):
            meta[at + w.ROWS] *= high[j]
            meta[at + w.HEADER + j] = high[j]
        for j in range(kl):
            meta[at + w.WIDTH] *= low[j]
            meta[at + w.HEADER + kh + j] = low[j]
        meta[at + w.MESSAGE] = program.at[program.at.size - program.variable.size + b] - device_begin
        record = at + w.HEADER + kh + kl
        for kind in range(3):
            for i in range(strides.shape[0]):
                mine = 1
                if strides[i, 1 : 1 + k].any():
                    mine = 2 if strides[i, 1 + k :].any() else 0
                if mine != kind:
                    continue
                meta[at + w.HIGH_TABLES + kind] += 1
                meta[record + w.OFFSET] = program.at[program.inputs[program.input_start[b] + i]] - device_begin
                meta[record + w.X_STRIDE] = strides[i, 0]
                meta[record + w.STRIDES : record + w.STRIDES + kh] = high_strides[i]
                meta[record + w.STRIDES + kh : record + w.STRIDES + kh + kl] = low_strides[i]
                record += w.STRIDES + kh + kl
        at = record
    return meta[:at], where


@njit(nogil=True)
def _kernel_number(meta, b, big):
    """Return the number of the kernel that joins a bucket; ``big`` where its wave has large messages."""
    both = meta[b + w.BOTH_TABLES]
    if both == 0:
        return _LARGE if big else 0
    if both >= _ANY:
        return _ANY
    axes = meta[b + w.HIGH_AXES] + meta[b + w.LOW_AXES]
    others = meta[b + w.HIGH_TABLES] + meta[b + w.LOW_TABLES]
    for t in range(others, others + both):
        record, span = b + w.HEADER + axes + t * (w.STRIDES + axes), 0
        for j in range(axes):
            span += (meta[b + w.HEADER + j] - 1) * meta[record + w.STRIDES + j]
        if span >= _FAR:
            return _ANY
    return both


@njit(nogil=True)
def wave_tables(meta, where, level, heights, width, large, room, plenty):
    """Put buckets into waves, and those into launches: one that prepares, and one join for each kernel that it takes.

    Parameters
    ----------
    meta, where
        From :func:`describe`; the places of scratch and the tiles are filled in.
    level : (buckets,) int64
        Buckets of one level need nothing of each other.
    heights, width
        Of a block's tile, by the kernel's number, and of all.
    large
        Entries of a message from which a wave's launch without tables that vary with both takes large tiles.
    room
        Entries of S and B that a wave takes at most, if it has more than one bucket.
    plenty
        Blocks of a bucket, before one joins several tiles.

    Returns
    -------
    tables : int64
        Of the launches, to be put behind ``meta``.
    launches : (launches, 3) int64
        Kernel's number (−1 prepares), place of its table, number of blocks.
    sums, start : int
        Entries of scratch.
    """
    n = level.size
    order = np.argsort(level, kind="mergesort")
    tables = np.zeros(8 * n, dtype=np.int64)
    launches = np.zeros((2 * n, 3), dtype=np.int64)
    at, count, sums_most, start_most, i = 0, 0, 0, 0, 0
    while i < n:
        begin, sums, starts, big = i, 0, 0, False
        while i < n and level[order[i]] == level[order[begin]]:
            b = where[order[i]]
            x_size, rows = meta[b + w.DOMAIN], meta[b + w.ROWS]
            wide, both = meta[b + w.WIDTH], meta[b + w.BOTH_TABLES]
            if i > begin and sums + x_size * (rows + wide) > room:
                break
            meta[b + w.HIGH_SUMS], meta[b + w.LOW_SUMS] = sums, sums + x_size * rows
            meta[b + w.ROW_STARTS], meta[b + w.COLUMN_STARTS] = starts, starts + both * rows
            sums += x_size * (rows + wide)
            starts += both * (rows + wide)
            big |= both == 0 and rows * wide >= large
            i += 1
        sums_most, start_most = max(sums_most, sums), max(start_most, starts)
        for number in range(-1, heights.size):
            members = 0
            for turn in range(2):  # count, then write
                blocks, written = 0, 0
                for j in range(begin, i):
                    b = where[order[j]]
                    x_size, rows = meta[b + w.DOMAIN], meta[b + w.ROWS]
                    wide, both = meta[b + w.WIDTH], meta[b + w.BOTH_TABLES]
                    if number >= 0 and number != _kernel_number(meta, b, big):
                        continue
                    if turn == 0:
                        members += 1
                        continue
                    tables[at + w.FIRST_BLOCK + written] = blocks
                    tables[at + w.AFTER + members + written] = b
                    written += 1
                    if number < 0:
                        work = max((x_size + _SOME - 1) // _SOME, both) * max(rows, wide)
                        blocks += min((work + 255) // 256, 4096)
                    else:
                        across, down = (wide + width - 1) // width, (rows + heights[number] - 1) // heights[number]
                        tiles = max(1, min(across, down * across // plenty))
                        meta[b + w.TILES] = tiles
                        blocks += down * ((across + tiles - 1) // tiles)
                if members == 0:
                    break
                if turn == 1:
                    tables[at + w.BUCKETS], tables[at + w.FIRST_BLOCK + members] = members, blocks
                    launches[count, 0], launches[count, 1], launches[count, 2] = number, meta.size + at, blocks
                    at += w.AFTER + 2 * members
                    count += 1
    return tables[:at], launches[:count], sums_most, start_most
