"""Which buckets a GPU gets, and the words that describe them to :mod:`dmcmc.inference.join_cuda`; runs on the host."""

import numpy as np
from numba import njit

from dmcmc.inference.join_cpu import split_bucket
from dmcmc.inference.join_cuda import BOTH_MOST, HEADER

_BOTH_MOST = BOTH_MOST

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
def group_buckets(variable, input_start, inputs, cells, given, threshold):
    """Return 0, 1, 2 for a bucket of A, G, C, and the bucket that takes each bucket's message (−1: none)."""
    n = variable.size
    taker = np.full(n, -1, dtype=np.int64)
    for b in range(n):
        for i in range(input_start[b], input_start[b + 1]):
            if inputs[i] >= given:
                taker[inputs[i] - given] = b
    large = cells >= threshold
    for b in range(1, n):  # the mini-buckets of a variable stay together
        if variable[b] == variable[b - 1]:
            large[b] |= large[b - 1]
    for b in range(n - 2, -1, -1):
        if variable[b] == variable[b + 1]:
            large[b] |= large[b + 1]
    needed = np.zeros(n, dtype=np.bool_)  # by a bucket of G, however far
    for b in range(n - 1, -1, -1):
        if taker[b] >= 0:
            needed[b] = large[taker[b]] or needed[taker[b]]
    for b in range(n - 2, -1, -1):
        if variable[b] == variable[b + 1]:
            needed[b] |= needed[b + 1]
    group = np.zeros(n, dtype=np.int64)
    b = 0
    while b < n:
        end = b + 1
        while end < n and variable[end] == variable[b]:
            end += 1
        fed, any_large, wanted = False, False, False
        for c in range(b, end):
            any_large |= large[c]
            wanted |= needed[c]
            for i in range(input_start[c], input_start[c + 1]):
                if inputs[i] >= given:
                    fed |= group[inputs[i] - given] > 0
        for c in range(b, end):
            group[c] = 1 if any_large or (fed and wanted) else (2 if fed else 0)
        b = end
    return group, taker
