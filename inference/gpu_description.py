"""The words that describe buckets to :mod:`dmcmc.inference.join_cuda`; runs on the host."""

import numpy as np
from numba import njit

from dmcmc.inference.join_cpu import split_bucket
from dmcmc.inference.join_cuda import BOTH_MOST, HEADER, LARGE

_BOTH_MOST, _LARGE = BOTH_MOST, LARGE  # the kernels below read them; numba freezes globals

_WIDTHS = (256, 1 << 17)  # assignments of l that suit the kernel: a tile's, and what B may hold for each x
_BEST_WIDTH = 10.0  # log2 of the width that suits it best


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def choose_lows(program, first, last):
    """Set ``program.low`` of some buckets by :func:`choose_low`."""
    for b in range(first, last):
        program.low[b] = choose_low(program, b)


@njit(cache=True, nogil=True)
def merge_axes(high, strides):
    """Take neighbouring variables of h together where every table steps through both with one stride."""
    k = high.size
    size, step = high.copy(), strides.copy()
    kept = 0
    for j in range(k):
        same = kept > 0
        for t in range(step.shape[0]):
            same = same and step[t, kept] == strides[t, 1 + j] * high[j]
        if same:
            size[kept - 1] *= high[j]
        else:
            kept += 1
            size[kept - 1] = high[j]
        for t in range(step.shape[0]):
            step[t, kept] = strides[t, 1 + j]
    return size[:kept], step[:, : 1 + kept]


@njit(cache=True, nogil=True)
def describe(program, first, last, device_begin):
    """Return the words and offsets of :mod:`dmcmc.inference.join_cuda` for some buckets, and where each one starts."""
    size, room = 0, 0
    for b in range(first, last):
        count = program.input_start[b + 1] - program.input_start[b]
        output = program.at.size - program.variable.size + b
        k = program.scope_start[output + 1] - program.scope_start[output]
        width = 1
        for s in range(program.scope_start[output + 1] - program.low[b], program.scope_start[output + 1]):
            width *= program.domains[program.scope[s]]
        size += HEADER + k + count * (3 + k)
        room += count * width
    meta = np.zeros(size, dtype=np.int64)
    lows = np.zeros(room, dtype=np.int32)
    where = np.zeros(last - first + 1, dtype=np.int64)
    at, low_at = 0, 0
    for b in range(first, last):
        where[b - first] = at
        high, width, x_size, level, is_row, table_at, strides, offsets, _ = split_bucket(program, b)
        high, strides = merge_axes(high, strides)
        k = high.size
        output = program.at.size - program.variable.size + b
        rows = 1
        for j in range(k):
            rows *= high[j]
        meta[at], meta[at + 1], meta[at + 2], meta[at + 3] = x_size, k, width, rows
        meta[at + 4] = program.at[output] - device_begin
        meta[at + HEADER : at + HEADER + k] = high
        record = at + HEADER + k
        for kind in range(3):
            for t in range(level.size):
                mine = 1 if level[t] == 0 else (2 if is_row[t] else 0)
                if mine != kind:
                    continue
                meta[at + 5 + kind] += 1
                meta[record] = table_at[t] - device_begin
                meta[record + 1] = strides[t, 0]
                meta[record + 2] = low_at
                meta[record + 3 : record + 3 + k] = strides[t, 1:]
                record += 3 + k
                if kind > 0:
                    for i in range(width):
                        lows[low_at + i] = np.int32(offsets[t, i])
                    low_at += width
        at = record
    where[last - first] = at
    return meta[:at], lows[:low_at], where


@njit(cache=True, nogil=True)
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
            need = meta[b] * (meta[b + 3] + meta[b + 2])
            if i > begin and sums + need > room:
                break
            meta[b + 8], meta[b + 9], meta[b + 10] = sums, sums + meta[b] * meta[b + 3], starts
            sums += need
            starts += meta[b + 7] * meta[b + 3]
            big |= meta[b + 7] == 0 and meta[b + 2] * meta[b + 3] >= large
            i += 1
        sums_most, start_most = max(sums_most, sums), max(start_most, starts)
        for number in range(-1, heights.size):
            members = 0
            for turn in range(2):  # count, then write
                blocks, written = 0, 0
                for j in range(begin, i):
                    b = where[order[j]]
                    x_size, wide, rows, both = meta[b], meta[b + 2], meta[b + 3], meta[b + 7]
                    if number >= 0 and number != (_LARGE if both == 0 and big else min(both, 3)):
                        continue
                    if turn == 0:
                        members += 1
                        continue
                    tables[at + 1 + written], tables[at + 2 + members + written] = blocks, b
                    written += 1
                    if number < 0:
                        work = max(x_size * rows, x_size * wide, both * rows)
                        blocks += min((work + 255) // 256, 4096)
                    else:
                        across, down = (wide + width - 1) // width, (rows + heights[number] - 1) // heights[number]
                        tiles = max(1, min(across, down * across // plenty))
                        meta[b + 11] = tiles
                        blocks += down * ((across + tiles - 1) // tiles)
                if members == 0:
                    break
                if turn == 1:
                    tables[at], tables[at + 1 + members] = members, blocks
                    launches[count, 0], launches[count, 1], launches[count, 2] = number, meta.size + at, blocks
                    at += 2 * members + 2
                    count += 1
    return tables[:at], launches[:count], sums_most, start_most
