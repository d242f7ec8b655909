"""Join the tables of a bucket and eliminate its variable, on an NVIDIA GPU, without writing the joined table.

The picture. The separator is split into leading variables h and trailing variables l, as on the CPU. A block owns a
tile of the message, TH assignments of h times TL of l; its 256 threads are 8 groups of 32, neighbours in a group have
neighbouring l, and every thread keeps TH/8 × TL/32 cells in registers::

    for a slice of the values x:
        S[x, h] = Σ tables that vary with h only      into shared memory, once a block
        B[x, l] = Σ tables that vary with l only      into shared memory, once a block
        cell[h, l] = max(cell[h, l], S[x, h] + B[x, l] + Σ tables that vary with both, read from memory)

Without tables of the last kind this is a max-plus matrix product, bound by instructions; with one it is bound by the
bytes of that table. Assignments of h are decoded once a block; offsets of l come from a list.

A bucket is described by words of ``meta`` (int64), so that one upload serves a whole elimination:

    0 domain of x, 1 k, 2 width, 3 rows, 4 offset of the message, 5-7 number of h tables, l tables, both tables,
    8.. domain sizes of h (k words), then for each table: offset, stride of x, place of its offsets of l in ``lows``,
    strides of h (k words).
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import cuda

from dmcmc.inference.semirings import LOG_SUM, MAXIMUM

HEADER = 8
THREADS = (32, 8)
BOTH_MOST = 12  # tables that vary with h and l whose places the general kernel holds
_BATCH = 16  # tables decoded at a time


@lru_cache
def join_kernel(dtype: np.dtype[Any], both: int, operation: int) -> tuple[Any, int, int]:
    """Return the kernel for a number type and a number of tables that vary with h and l, and its tile (TH, TL)."""
    wide = dtype.itemsize == 8
    rh, rl = (4, 4) if both or wide or operation == LOG_SUM else (8, 4)
    return _build(dtype.type, both, operation, rh, rl, 16), 8 * rh, 32 * rl


def _build(number: Any, both: int, operation: int, rh: int, rl: int, slice_x: int) -> Callable[..., None]:
    """Compile the kernel with its sizes as constants, so that loops unroll and cells stay in registers."""
    th, tl = 8 * rh, 32 * rl
    cells = rh * rl
    tables_both = {0: 1, 1: 1, 2: 2}.get(both, BOTH_MOST)
    general = both > 2
    log_sum = operation == LOG_SUM
    lanes, groups = THREADS
    assert operation in (MAXIMUM, LOG_SUM)

    @cuda.jit
    def join(arena, meta, lows, where, out, out_at, first_row, end_row, lowest):  # type: ignore[no-untyped-def]
        shared_h = cuda.shared.array((slice_x, th), number)
        shared_l = cuda.shared.array((slice_x, tl), number)
        start = cuda.shared.array((_BATCH, th), np.int64)
        place = cuda.local.array(tables_both * rl, np.int32)
        cell = cuda.local.array(cells, number)
        mass = cuda.local.array(cells if log_sum else 1, number)
        base = cuda.local.array(rl, number)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        tid = ty * lanes + tx
        x_size, k, width = np.int32(meta[where]), np.int32(meta[where + 1]), np.int32(meta[where + 2])
        ns, nb, nv = np.int32(meta[where + 5]), np.int32(meta[where + 6]), np.int32(meta[where + 7])
        tables = where + HEADER + k
        record = 3 + k
        row = first_row + np.int64(cuda.blockIdx.x) * th
        left = np.int32(cuda.blockIdx.y) * np.int32(tl)
        for i in range(cells):
            cell[i] = lowest
            if log_sum:
                mass[i] = 0
        for v in range(tables_both):  # this thread's places in the tables that vary with both
            for j in range(rl):
                place[v * rl + j] = 0
                if v < nv:
                    l = min(left + np.int32(tx + lanes * j), width - np.int32(1))
                    low = meta[tables + (ns + nb + v) * record + 2]
                    place[v * rl + j] = lows[low + l]
        for x0 in range(0, x_size, slice_x):
            here = min(np.int32(slice_x), np.int32(x_size - x0))
            for i in range(tid, slice_x * th, lanes * groups):
                shared_h[i // th, i % th] = 0
            cuda.syncthreads()
            for batch in range(0, ns, _BATCH):
                count = min(_BATCH, ns - batch)
                for i in range(tid, count * th, lanes * groups):
                    t, r = i // th, min(row + i % th, end_row - 1)
                    at = tables + (batch + t) * record
                    offset = meta[at] + x0 * meta[at + 1]
                    for j in range(k - 1, -1, -1):
                        size = meta[where + HEADER + j]
                        offset += (r % size) * meta[at + 3 + j]
                        r //= size
                    start[t, i % th] = offset
                cuda.syncthreads()
                for i in range(tid, here * th, lanes * groups):
                    x, r = i // th, i % th
                    total = shared_h[x, r]
                    for t in range(count):
                        stride = meta[tables + (batch + t) * record + 1]
                        total = max(number(total + arena[start[t, r] + x * stride]), lowest)
                    shared_h[x, r] = total
                cuda.syncthreads()
            for i in range(tid, here * tl, lanes * groups):
                x, l = i // tl, min(left + np.int32(i % tl), width - np.int32(1))
                total = number(0)
                for t in range(nb):
                    at = tables + (ns + t) * record
                    entry = arena[meta[at] + lows[meta[at + 2] + l] + (x0 + x) * meta[at + 1]]
                    total = max(number(total + entry), lowest)
                shared_l[x, i % tl] = total
            for i in range(tid, min(nv, tables_both) * th, lanes * groups):
                t, r = i // th, min(row + i % th, end_row - 1)
                at = tables + (ns + nb + t) * record
                offset = meta[at] + x0 * meta[at + 1]
                for j in range(k - 1, -1, -1):
                    size = meta[where + HEADER + j]
                    offset += (r % size) * meta[at + 3 + j]
                    r //= size
                start[t, i % th] = offset
            cuda.syncthreads()
            for x in range(here):
                for j in range(rl):
                    base[j] = shared_l[x, tx + lanes * j]
                for i in range(rh):
                    mine = shared_h[x, ty + groups * i]
                    for j in range(rl):
                        value = number(mine + base[j])
                        if both == 1:
                            stride = meta[tables + (ns + nb) * record + 1]
                            value = number(value + arena[start[0, ty + groups * i] + x * stride + place[j]])
                        elif both == 2:
                            stride = meta[tables + (ns + nb) * record + 1]
                            value = number(value + arena[start[0, ty + groups * i] + x * stride + place[j]])
                            stride = meta[tables + (ns + nb + 1) * record + 1]
                            value = number(value + arena[start[1, ty + groups * i] + x * stride + place[rl + j]])
                        elif general:
                            for v in range(nv):
                                at = tables + (ns + nb + v) * record
                                if v < tables_both:
                                    offset = start[v, ty + groups * i] + x * meta[at + 1] + place[v * rl + j]
                                else:  # so many are rare: decoded at every use
                                    r = min(row + ty + groups * i, end_row - 1)
                                    l = min(left + np.int32(tx + lanes * j), width - np.int32(1))
                                    offset = meta[at] + (x0 + x) * meta[at + 1] + lows[meta[at + 2] + l]
                                    for q in range(k - 1, -1, -1):
                                        size = meta[where + HEADER + q]
                                        offset += (r % size) * meta[at + 3 + q]
                                        r //= size
                                value = max(number(value + arena[offset]), lowest)
                        if log_sum:
                            top = max(cell[i * rl + j], value)
                            if top > lowest:
                                mass[i * rl + j] = mass[i * rl + j] * math.exp(cell[i * rl + j] - top) + math.exp(
                                    value - top
                                )
                                cell[i * rl + j] = top
                        else:
                            cell[i * rl + j] = max(cell[i * rl + j], value)
            cuda.syncthreads()
        for i in range(rh):
            r = row + ty + groups * i
            for j in range(rl):
                l = left + tx + lanes * j
                if r < end_row and l < width:
                    result = max(cell[i * rl + j], lowest)
                    if log_sum and result > lowest:
                        result += math.log(mass[i * rl + j])
                    out[out_at + (r - first_row) * width + l] = result

    return join


@cuda.jit
def choose_kernel(arena, words, sizes, first, last, values, lowest, scores):  # type: ignore[no-untyped-def]
    """Set the maximising values of buckets ``last`` - 1 down to ``first``; one block, a thread a value.

    words (int64) holds, one after another, the arrays of a program whose lengths ``sizes`` (8,) gives: domains,
    scope_start, scope, at, variable, input_start, inputs; sizes[7] is added to every offset. values (variables,) int64;
    scores (largest domain,) is scratch.
    """
    d0 = 0
    starts = sizes[0]
    scope = starts + sizes[1]
    ats = scope + sizes[2]
    variables = ats + sizes[3]
    input_start = variables + sizes[4]
    inputs = input_start + sizes[5]
    b = last - 1
    while b >= first:
        v = words[variables + b]
        size = words[d0 + v]
        end = b
        while end > first and words[variables + end - 1] == v:
            end -= 1
        for x in range(cuda.threadIdx.x, size, cuda.blockDim.x):
            total = arena[0] - arena[0]
            for i in range(words[input_start + end], words[input_start + b + 1]):
                t = words[inputs + i]
                offset, step = words[ats + t] + sizes[7], np.int64(1)
                for s in range(words[starts + t + 1] - 1, words[starts + t], -1):
                    u = words[scope + s]
                    offset += values[u] * step
                    step *= words[d0 + u]
                total = max(total + arena[offset + x * step], lowest)
            scores[x] = total
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            best = 0
            for x in range(1, size):
                if scores[x] > scores[best]:
                    best = x
            values[v] = best
        cuda.syncthreads()
        b = end - 1
