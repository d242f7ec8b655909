# mypy: ignore-errors
"""Join the tables of a bucket and eliminate its variable, on an NVIDIA GPU, without writing the joined table.

The picture. The separator is split into leading variables h and trailing variables l, as on the CPU. Two launches::

    prepare:  S[x, h] = Σ tables that vary with h only        rows × |x| numbers
              B[x, l] = Σ tables that vary with l only        width × |x| numbers
              where the row of h and the column of l begin in each table that varies with both
    join:     cell[h, l] = max over x of S[x, h] + B[x, l] + Σ tables that vary with both, read from memory

A block of 256 threads joins a tile of the message, TH assignments of h times TL of l, for a few tiles side by side. Its
threads are 8 groups of 32; neighbours in a group have neighbouring l; every thread keeps TH/8 × TL/32 cells in
registers while slices of S and B pass through shared memory. Without tables that vary with both this is a max-plus
matrix product, bound by instructions. With one or two of them, what a thread reads is as far from the table's first
entry of x for every x: 32 bits say how far, worked out once a tile, and each x moves the beginning. Places of 64 bits
for every entry were half of all instructions; the kernel for any number of tables still has them, and takes those that
32 bits do not reach.

A launch may join many buckets: a block finds in a launch's table which one it is in. The words of buckets and launches
are those of :mod:`dmcmc.inference.elimination.cuda.descriptors`.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import config, cuda

from dmcmc.inference.elimination.cuda import descriptors as w
from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.runtime.compile import cuda_jit

LANES, GROUPS = (4, 4) if config.ENABLE_CUDASIM else (32, 8)  # the simulator has a real thread for each
PREPARERS = 8 if config.ENABLE_CUDASIM else 256  # threads of a block that prepares
ANY, LARGE = 3, 4  # numbers of kernels, see join_kernel
SOME = 8  # values of x that a thread prepares
FAR = 1 << 32  # entries between two of a value of x
BOTH_MOST = 8  # tables that vary with h and l; choose_low splits no separator so that there are more


class JoinKernel(NamedTuple):
    """A compiled join and the tile that a block makes of it."""

    launch: Any
    th: int
    tl: int


@lru_cache
def join_kernel(dtype: np.dtype[Any], number: int, operation: int) -> JoinKernel:
    """Return a kernel.

    Parameters
    ----------
    number
        0, 1, 2: so many tables vary with both; :data:`ANY`: any number of them, or entries of one are :data:`FAR`
        apart; :data:`LARGE`: none, and messages are large.
    """
    heavy = dtype.itemsize == 8 or operation == LOG_SUM
    rh, rl = (LANES // 2, 4) if number == LARGE and not heavy else (4, 4)
    both = 0 if number == LARGE else number
    return JoinKernel(_build(dtype.type, both, operation, rh, rl), GROUPS * rh, LANES * rl)


@cuda.jit(device=True)
def find_bucket(meta, table, block, thread, threads):
    """Return which bucket of a launch's table a block is in; called by all threads of a block."""
    found = cuda.shared.array(1, np.int32)
    n = np.int32(meta[table + w.BUCKETS])
    if n == 1:
        return np.int32(0)
    for i in range(thread, n, threads):
        if meta[table + w.FIRST_BLOCK + i] <= block < meta[table + w.FIRST_BLOCK + i + 1]:
            found[0] = i
    cuda.syncthreads()
    return found[0]


def _build(number: Any, both: int, operation: int, rh: int, rl: int) -> Any:
    """Compile the join with its sizes as constants, so that loops unroll and cells stay in registers."""
    th, tl = GROUPS * rh, LANES * rl
    slice_x = 32 if np.dtype(number).itemsize == 4 else 16
    slice_h, slice_l, cells = slice_x * th, slice_x * tl, rh * rl
    log_sum, general = operation == LOG_SUM, both == ANY
    tables = BOTH_MOST if general else max(both, 1)
    places, starts, masses, threads = tables * rl, tables * th, (cells if log_sum else 1), LANES * GROUPS
    near = 0 if general else both
    nears = max(1, near * cells)

    @cuda_jit(max_registers=128)  # two blocks a multiprocessor
    def join(arena, meta, table, sums, start, lowest, half):
        shared_h = cuda.shared.array(slice_h, number)
        shared_l = cuda.shared.array(slice_l, number)
        shared_start = cuda.shared.array(starts, np.int64)
        place = cuda.local.array(places, np.int32)
        cell = cuda.local.array(cells, number)
        mass = cuda.local.array(masses, number)
        base = cuda.local.array(rl, number)
        apart = cuda.local.array(nears, np.uint32)
        tx, ty = np.int32(cuda.threadIdx.x), np.int32(cuda.threadIdx.y)
        tid = ty * np.int32(LANES) + tx
        bucket = find_bucket(meta, table, np.int64(cuda.blockIdx.x), tid, threads)
        where = meta[table + w.AFTER + meta[table + w.BUCKETS] + bucket]
        block = np.uint32(cuda.blockIdx.x - meta[table + w.FIRST_BLOCK + bucket])
        # While a slice is loaded, a thread keeps to one column of S and one of B.
        x_size, rows, width = np.int32(meta[where + w.DOMAIN]), meta[where + w.ROWS], np.int32(meta[where + w.WIDTH])
        s_at, b_at = meta[where + w.HIGH_SUMS], meta[where + w.LOW_SUMS]
        rows_at, columns_at = meta[where + w.ROW_STARTS], meta[where + w.COLUMN_STARTS]
        tiles, down = np.int32(meta[where + w.TILES]), np.uint32((rows + (th - 1)) // th)
        record = w.STRIDES + meta[where + w.HIGH_AXES] + meta[where + w.LOW_AXES]
        others = meta[where + w.HIGH_TABLES] + meta[where + w.LOW_TABLES]
        first_both = where + w.HEADER + record - w.STRIDES + others * record
        nv = np.int32(meta[where + w.BOTH_TABLES]) if general else np.int32(both)
        row = np.int64(block % down) * th
        stride_0 = meta[first_both + w.X_STRIDE] if near >= 1 else 0
        stride_1 = meta[first_both + record + w.X_STRIDE] if near == 2 else 0
        begin_0 = meta[first_both + w.OFFSET] if near >= 1 else 0
        begin_1 = meta[first_both + record + w.OFFSET] if near == 2 else 0
        first, second = arena, arena
        for i in range(tid, nv * th, threads):
            shared_start[i] = start[rows_at + (i // th) * rows + min(row + i % th, rows - 1)]
        cuda.syncthreads()
        for tile in range(tiles):
            left = np.int32((np.int64(block // down) * tiles + tile) * tl)
            if left >= width:
                break
            for i in range(cells):
                cell[i] = lowest
                if log_sum:
                    mass[i] = 0
            for v in range(nv):  # this thread's places in the tables that vary with both
                for j in range(rl):
                    column = min(left + tx + np.int32(LANES * j), width - np.int32(1))
                    place[v * rl + j] = np.int32(start[columns_at + v * width + column])
            for i in range(rh):
                for j in range(rl):
                    if near >= 1:
                        apart[i * rl + j] = np.uint32(shared_start[ty + GROUPS * i] - begin_0 + place[j])
                    if near == 2:
                        other = shared_start[th + ty + GROUPS * i] - begin_1
                        apart[cells + i * rl + j] = np.uint32(other + place[rl + j])
            for x0 in range(0, x_size, slice_x):
                here = min(np.int32(slice_x), np.int32(x_size - x0))
                cuda.syncthreads()
                if tile == 0 or x_size > slice_x:
                    at = s_at + np.int64(x0 + tid // th) * rows + min(row + tid % th, rows - 1)
                    for x in range(tid // th, here, threads // th):
                        shared_h[np.uint64(x * th + tid % th)] = sums[np.uint64(at)]
                        at += (threads // th) * rows
                at = b_at + np.int64(x0 + tid // tl) * width + min(left + tid % tl, width - np.int32(1))
                for x in range(tid // tl, here, threads // tl):
                    shared_l[np.uint64(x * tl + tid % tl)] = sums[np.uint64(at)]
                    at += (threads // tl) * width
                cuda.syncthreads()
                for x in range(here):
                    if near >= 1:
                        first = arena[np.uint64(begin_0 + (x0 + x) * stride_0) :]
                    if near == 2:
                        second = arena[np.uint64(begin_1 + (x0 + x) * stride_1) :]
                    at_l, at_h = np.uint64(x * tl + tx), np.uint64(x * th + ty)  # unsigned: no test for wrapping
                    for j in range(rl):
                        base[j] = shared_l[at_l + np.uint64(LANES * j)]
                    for i in range(rh):
                        mine = shared_h[at_h + np.uint64(GROUPS * i)]
                        for j in range(rl):
                            value = number(mine + base[j])
                            if near >= 1:
                                value = number(value + first[np.uint64(apart[i * rl + j])])
                            if near == 2:
                                value = number(value + second[np.uint64(apart[cells + i * rl + j])])
                            if general:
                                for v in range(nv):
                                    at = shared_start[v * th + ty + GROUPS * i] + place[v * rl + j]
                                    entry = arena[at + (x0 + x) * meta[first_both + v * record + w.X_STRIDE]]
                                    value = max(number(value + entry), lowest)
                            if log_sum:
                                top = max(cell[i * rl + j], value)
                                if top > lowest:
                                    before, now = math.exp(cell[i * rl + j] - top), math.exp(value - top)
                                    mass[i * rl + j] = mass[i * rl + j] * before + now
                                    cell[i * rl + j] = top
                            else:
                                cell[i * rl + j] = max(cell[i * rl + j], value)
            for i in range(rh):
                r = row + ty + GROUPS * i
                if r < rows:
                    at = meta[where + w.MESSAGE] + r * width + left + tx
                    for j in range(rl):
                        result = cell[i * rl + j]
                        if result <= half:
                            result = lowest  # one −∞, whatever was added to it
                        elif log_sum:
                            result += math.log(mass[i * rl + j])
                        if left + tx + np.int32(LANES * j) < width:
                            arena[np.uint64(at + LANES * j)] = result

    return join


@cuda.jit(device=True)
def offset_of(meta, sizes, strides, axes, index):
    """Return where an assignment of some axes is in a table; ``sizes`` and ``strides`` are places in ``meta``."""
    offset, rest = np.int64(0), np.uint32(index)  # below 2^32: 32-bit division is many times faster
    for j in range(axes - 1, -1, -1):
        size = np.uint32(meta[sizes + j])
        offset += np.int64(rest % size) * meta[strides + j]
        rest = np.uint32(rest // size)
    return offset


@cuda.jit(device=True)
def sum_up(arena, meta, sums, out, span, x_size, sizes, axes, at, record, shift, count, lowest, block, blocks):
    """Set sums from place ``out`` on to those of some tables for every x and assignment of some axes, (x_size, span).

    ``sizes``: the place of the axes' sizes; ``at``: that of the first of ``count`` records; ``shift``: where a record's
    strides of these axes begin. A thread has an assignment and some x, since where a table's entries of an assignment
    begin takes longer than to add them. Parts stay below 2^32 where sums have less than 2^40 entries.
    """
    number, lanes, chunks = sums.dtype.type, np.uint32(cuda.blockDim.x), np.uint32((x_size + SOME - 1) // SOME)
    part, parts = np.uint32(block), np.uint32((span + lanes - 1) // lanes * chunks)
    while part < parts:
        first, i = np.int64(part % chunks) * SOME, np.int64(part // chunks) * lanes + cuda.threadIdx.x
        if i < span:
            for x in range(first, min(first + SOME, x_size)):
                sums[np.uint64(out + x * span + i)] = 0
            for t in range(count):
                here = at + t * record
                step = meta[here + w.X_STRIDE]
                offset = meta[here + w.OFFSET] + offset_of(meta, sizes, here + w.STRIDES + shift, axes, i)
                for x in range(first, min(first + SOME, x_size)):
                    place = np.uint64(out + x * span + i)
                    sums[place] = max(number(sums[place] + arena[np.uint64(offset + x * step)]), lowest)
        part = np.uint32(part + np.uint32(blocks))


@cuda_jit()
def prepare(arena, meta, table, sums, start, lowest):
    """Fill S (domain of x, rows), B (domain of x, width) and the tables' rows and columns of a launch's buckets."""
    bucket = find_bucket(meta, table, np.int64(cuda.blockIdx.x), cuda.threadIdx.x, cuda.blockDim.x)
    first_block, last_block = meta[table + w.FIRST_BLOCK + bucket], meta[table + w.FIRST_BLOCK + bucket + 1]
    where = meta[table + w.AFTER + meta[table + w.BUCKETS] + bucket]
    block, blocks = cuda.blockIdx.x - first_block, last_block - first_block
    first, step = block * cuda.blockDim.x + cuda.threadIdx.x, blocks * cuda.blockDim.x
    x_size, kh, kl = meta[where + w.DOMAIN], np.int32(meta[where + w.HIGH_AXES]), np.int32(meta[where + w.LOW_AXES])
    rows, width = meta[where + w.ROWS], meta[where + w.WIDTH]
    ns, nb = np.int32(meta[where + w.HIGH_TABLES]), np.int32(meta[where + w.LOW_TABLES])
    rows_at, columns_at = meta[where + w.ROW_STARTS], meta[where + w.COLUMN_STARTS]
    high, record = where + w.HEADER, w.STRIDES + kh + kl
    low, tables = high + kh, high + kh + kl
    s_at, b_at, others = meta[where + w.HIGH_SUMS], meta[where + w.LOW_SUMS], tables + ns * record
    sum_up(arena, meta, sums, s_at, rows, x_size, high, kh, tables, record, 0, ns, lowest, block, blocks)
    sum_up(arena, meta, sums, b_at, width, x_size, low, kl, others, record, kh, nb, lowest, block, blocks)
    for v in range(np.int32(meta[where + w.BOTH_TABLES])):
        at = others + (nb + v) * record
        for i in range(first, rows, step):
            start[rows_at + v * rows + i] = meta[at + w.OFFSET] + offset_of(meta, high, at + w.STRIDES, kh, i)
        for i in range(first, width, step):
            start[columns_at + v * width + i] = offset_of(meta, low, at + w.STRIDES + kh, kl, i)


@cuda_jit()
def choose_kernel(arena, words, ranges, values, lowest, scores):
    """Set the maximising values of buckets, last to first; a thread a value, blocks (row of ``values``, range).

    words (int64) holds the lengths of a program's arrays, a number that is added to every offset, and then the arrays:
    domains, scope_start, scope, at, variable, input_start, inputs. ranges (ranges + 1,) int64: range i
    is buckets ``ranges[i]`` to ``ranges[i + 1]`` - 1; no range reads what another one sets. values (rows · variables,)
    int64; scores (blocks · largest domain,) is scratch.
    """
    domains = w.ARRAYS
    starts = domains + words[w.DOMAINS]
    scope = starts + words[w.SCOPE_STARTS]
    ats = scope + words[w.SCOPES]
    variables = ats + words[w.PLACES]
    input_start = variables + words[w.VARIABLES]
    inputs = input_start + words[w.INPUT_STARTS]
    number = scores.dtype.type
    row = cuda.blockIdx.x * words[w.DOMAINS]
    blocks = cuda.gridDim.x * cuda.gridDim.y
    mine = (cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x) * (scores.size // blocks)
    first = ranges[cuda.blockIdx.y]
    b = ranges[cuda.blockIdx.y + 1] - 1
    while b >= first:
        v = words[variables + b]
        size = words[domains + v]
        end = b
        while end > first and words[variables + end - 1] == v:
            end -= 1
        for x in range(cuda.threadIdx.x, size, cuda.blockDim.x):
            total = number(0)
            for mini in range(b, end - 1, -1):  # the CPU's order: that of sums with −∞ in them matters
                for i in range(words[input_start + mini], words[input_start + mini + 1]):
                    t = words[inputs + i]
                    offset, step = words[ats + t] + words[w.SHIFT], np.int64(1)
                    for q in range(words[starts + t + 1] - 1, words[starts + t], -1):
                        u = words[scope + q]
                        offset += values[row + u] * step
                        step *= words[domains + u]
                    total = max(number(total + arena[offset + x * step]), lowest)
            scores[mine + x] = total
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            best = 0
            for x in range(1, size):
                if scores[mine + x] > scores[mine + best]:
                    best = x
            values[row + v] = best
        cuda.syncthreads()
        b = end - 1
