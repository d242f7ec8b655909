# mypy: ignore-errors
"""Dual ascent between triangles and their pairs by a block of GPU threads: the same tables, to the bit, as on the CPU.

``words`` describe the graph at ``g`` (see :mod:`dmcmc.inference.bounds.dual.cuda.words`), ``tables`` are its tables,
``tiles`` is shared memory of ``room`` words, ``octets`` a tuple of as many numbers as a table has times 8 columns: its
length is a constant to the compiler, and so is every stride. All threads of a block call every function; what can
overflow returns False where an entry has left the limits: whole shifts have been made then, and nothing more may be
shifted.

In shared memory a table's rows are an odd number of words apart: threads that read a column hit different banks. What
takes longest is the way from the device's memory: a warp takes eight rows of a table at a time, and a thread all of its
entries of them before it uses the first.
"""

import numpy as np
from numba import cuda, float32, int32

from dmcmc.inference.bounds.dual.cuda.block_kernels import AT_ONCE, LANES, anywhere
from dmcmc.inference.bounds.dual.cuda.soft_kernels import above, find_powers, find_tops, slope_at
from dmcmc.inference.bounds.dual.cuda.words import (
    CLIQUE,
    CLIQUES,
    CLUSTER,
    CORNER_WIDTH,
    LEVEL_AT,
    LEVELS,
    PAIR,
    TRIANGLES,
)  # fmt: skip
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, LIMIT, THRESHOLD
from dmcmc.inference.bounds.dual.tables.power_kernels import LEAST

_EDGE, _CELLS = 4, 16  # a thread makes so many times so many entries of a max-plus product


@cuda.jit(device=True)
def triangle_pass(words, g, tables, tiles, room, octets, temperature):
    """Level triangles with their pairs: as many of a level at once as shared memory holds.

    A ``temperature`` (float32) smooths the maxima of marginals; 0 does not.
    """
    width = 8 * len(octets)
    each = np.int32(3 * width * (width + 1))
    if temperature > 0:
        each = np.int32(each + 2 * width * (width + 2))  # powers and their tops
    slots = np.int32(room // each)
    cliques, level_at = np.int32(words[g + CLIQUES]), np.int32(words[g + LEVEL_AT])
    for level in range(words[g + LEVELS]):
        first, last = np.int32(words[level_at + level]), np.int32(words[level_at + level + 1])
        while first < last:
            count = min(slots, np.int32(last - first))
            begin = np.int32(cliques + first * CLIQUE)
            load_triangles(words, begin, tables, tiles, count, octets, True)
            cuda.syncthreads()
            if temperature > 0:
                warm_side(words, begin, tiles, count, octets, 0, temperature)
            over = level_side(words, begin, tables, tiles, count, octets, 0, np.float32(1 / 3), temperature)
            cuda.syncthreads()
            if temperature > 0:
                warm_side(words, begin, tiles, count, octets, 1, temperature)
            over = level_side(words, begin, tables, tiles, count, octets, 1, np.float32(1 / 2), temperature) or over
            cuda.syncthreads()
            if temperature > 0:
                warm_side(words, begin, tiles, count, octets, 2, temperature)
            over = level_side(words, begin, tables, tiles, count, octets, 2, np.float32(1), temperature) or over
            if anywhere(over):
                return False
            first = np.int32(first + count)
    return True


@cuda.jit(device=True)
def load_triangles(words, begin, tables, tiles, count, octets, with_pairs):
    """Bring some triangles' tables to shared memory, with their pairs' tables added if wanted."""
    bands = len(octets)
    width, square, size, each = 8 * bands, 64 * bands * bands, 8 * bands * (8 * bands + 1), 2 * bands
    taken = cuda.local.array(AT_ONCE, int32)
    task, total = np.uint32(cuda.threadIdx.x), np.uint32(count * (3 * bands * LANES))
    while task < total:
        band = np.uint32(task // np.uint32(LANES))
        table = np.uint32(band // np.uint32(bands))
        slot = np.uint32(table // np.uint32(3))
        k = np.uint32(table - slot * np.uint32(3))
        clique = np.uint32(begin + slot * np.uint32(CLIQUE))
        cell = np.uint32((band - table * np.uint32(bands)) * np.uint32(8 * width) + task % np.uint32(LANES))
        cluster = np.uint64(np.uint32(words[clique + np.uint32(CLUSTER)]) + k * np.uint32(square) + cell)
        pair = np.uint64(np.uint32(words[clique + np.uint32(PAIR) + k]) + cell)
        target = np.uint64(table * np.uint32(size))
        for first in range(0, each, AT_ONCE):
            for q in range(AT_ONCE):
                if first + q < each:
                    taken[q] = tables[cluster + np.uint64(LANES * (first + q))]
            if with_pairs:
                for q in range(AT_ONCE):
                    if first + q < each:
                        x = np.int32(taken[q] + tables[pair + np.uint64(LANES * (first + q))])
                        taken[q] = DEAD if x < THRESHOLD else x
            for q in range(AT_ONCE):
                if first + q < each:
                    place = np.uint32(cell + np.uint32(LANES * (first + q)))
                    row = np.uint32(place // np.uint32(width))
                    tiles[target + np.uint64(np.uint32(place + row))] = taken[q]
        task = np.uint32(task + np.uint32(cuda.blockDim.x))


@cuda.jit(device=True)
def warm_side(words, begin, tiles, count, octets, k, temperature):
    """Make ready what :func:`level_side` needs at a temperature."""
    find_tops(words, begin, tiles, count, octets, k)
    cuda.syncthreads()
    find_powers(words, begin, tiles, count, octets, k, slope_at(temperature))
    cuda.syncthreads()


@cuda.jit(device=True)
def level_side(words, begin, tables, tiles, count, octets, k, weight, temperature):
    """Give pairs ab, ac or bc (k = 0, 1, 2) of triangles their share of the max-marginal; whether one is too large.

    A weight of 1 gives all of it, whatever a float32 holds. At a ``temperature`` the maximum is a smoothed one, of what
    :func:`warm_side` has left behind the tables, but for entries all of whose terms are too small for that.
    """
    width = 8 * len(octets)
    stride, square, size, across = width + 1, width * width, width * (width + 1), width // _EDGE
    # In the product's left table rows are rows unless k = 2, in the right one columns are columns unless k = 0.
    left, left_row, left_k = (1 if k == 0 else 0), (1 if k == 2 else stride), (stride if k == 2 else 1)
    right, right_column, right_k = (1 if k == 2 else 2), (stride if k == 0 else 1), (1 if k == 0 else stride)
    far_left, far_right = across * left_row, across * right_column
    row_corner, column_corner, inner_corner = (1 if k == 2 else 0), (1 if k == 0 else 2), 2 - k
    best = cuda.local.array(_CELLS, int32)
    mine = cuda.local.array(_EDGE, int32)
    sums = cuda.local.array(_CELLS, float32)
    powers = cuda.local.array(_EDGE, float32)
    over = False
    warm, slope = temperature > 0, np.float32(0)
    if warm:
        slope = slope_at(temperature)
    task, tasks = np.uint32(cuda.threadIdx.x), np.uint32(across * across)
    total = np.uint32(np.uint32(count) * tasks)
    while task < total:
        slot = np.uint32(task // tasks)
        rest = np.uint32(task - slot * tasks)
        i0 = np.uint32(rest // np.uint32(across))
        j0 = np.uint32(rest - i0 * np.uint32(across))
        clique = np.uint32(begin + slot * np.uint32(CLIQUE))
        inner = np.int32(words[clique + np.uint32(CORNER_WIDTH + inner_corner)])
        base = np.uint64(slot) * np.uint64(3 * size)
        low = not warm
        if warm:
            for q in range(_CELLS):
                sums[q] = np.float32(0)
            behind = np.uint64(np.uint32(count) * np.uint32(3 * size) + slot * np.uint32(2 * size))
            at_left = behind + np.uint64(i0) * np.uint64(left_row)
            at_right = behind + np.uint64(size) + np.uint64(j0) * np.uint64(right_column)
            for _ in range(inner):
                for q in range(_EDGE):
                    powers[q] = tiles[at_left + np.uint64(q * far_left)].view(np.float32)
                for j in range(_EDGE):
                    power = tiles[at_right + np.uint64(j * far_right)].view(np.float32)
                    for i in range(_EDGE):
                        sums[i * _EDGE + j] = np.float32(sums[i * _EDGE + j] + np.float32(powers[i] * power))
                at_left += np.uint64(left_k)
                at_right += np.uint64(right_k)
            for q in range(_CELLS):
                low = low or sums[q] < LEAST
        if low:
            for q in range(_CELLS):
                best[q] = DEAD
            at_left = base + np.uint64(left * size) + np.uint64(i0) * np.uint64(left_row)
            at_right = base + np.uint64(right * size) + np.uint64(j0) * np.uint64(right_column)
            for _ in range(inner):
                for q in range(_EDGE):
                    mine[q] = tiles[at_left + np.uint64(q * far_left)]
                for j in range(_EDGE):
                    entry = tiles[at_right + np.uint64(j * far_right)]
                    for i in range(_EDGE):
                        best[i * _EDGE + j] = max(best[i * _EDGE + j], np.int32(mine[i] + entry))
                at_left += np.uint64(left_k)
                at_right += np.uint64(right_k)
        if warm:
            tops = np.uint64(np.uint32(count) * np.uint32(5 * size) + slot * np.uint32(2 * width))
            for q in range(_CELLS):
                if sums[q] >= LEAST:
                    i, j = (q // _EDGE) * across, (q % _EDGE) * across
                    top = tiles[tops + np.uint64(i0) + np.uint64(i)]
                    other = tiles[tops + np.uint64(j0) + np.uint64(width + j)]
                    best[q] = np.int32(np.int32(top + other) + above(sums[q], slope, temperature))
        rows = np.uint32(words[clique + np.uint32(CORNER_WIDTH + row_corner)])
        columns = np.uint32(words[clique + np.uint32(CORNER_WIDTH + column_corner)])
        target = base + np.uint64(k * size) + np.uint64(i0) * np.uint64(stride) + np.uint64(j0)
        cell = np.uint64(i0) * np.uint64(width) + np.uint64(j0)
        cluster = np.uint64(words[clique + np.uint32(CLUSTER)]) + np.uint64(k * square) + cell
        pair = np.uint64(words[clique + np.uint32(PAIR + k)]) + cell
        for q in range(_CELLS):
            i, j = (q // _EDGE) * across, (q % _EDGE) * across
            if i0 + np.uint32(i) < rows and j0 + np.uint32(j) < columns:
                mass = tiles[target + np.uint64(i * stride + j)]
                marginal = np.int32(mass + best[q])
                dead = marginal < THRESHOLD
                share = marginal if weight == 1 else np.int32(np.float32(marginal) * weight)
                kept = np.int32(mass - share)
                if not dead and max(abs(kept), abs(share)) > LIMIT:
                    over = True
                kept = DEAD if dead else kept
                tiles[target + np.uint64(i * stride + j)] = kept
                tables[cluster + np.uint64(i * width + j)] = kept
                tables[pair + np.uint64(i * width + j)] = DEAD if dead else share
        task = np.uint32(task + np.uint32(cuda.blockDim.x))
    return over


@cuda.jit(device=True)
def recentre(words, g, tables, tiles, room, octets):
    """Even out what a triangle's tables hold for each of its variables: none of its sums changes."""
    width = 8 * len(octets)
    stride, size = np.int32(width + 1), np.int32(width * (width + 1))
    slots, total, one = np.int32(room // (3 * size)), np.int32(words[g + TRIANGLES]), np.int32(1)
    for first in range(np.int32(0), total, slots):
        count = min(slots, np.int32(total - first))
        begin = np.int32(words[g + CLIQUES] + first * CLIQUE)
        load_triangles(words, begin, tables, tiles, count, octets, False)
        cuda.syncthreads()
        for k in range(3):  # the corners a, b, c: which tables have them, as rows or as columns
            for task in range(np.int32(cuda.threadIdx.x), np.int32(count * width), np.int32(cuda.blockDim.x)):
                slot = np.int32(task // width)
                i = np.int32(task - slot * width)
                widths = np.int32(begin + slot * CLIQUE + CORNER_WIDTH)
                a, b, c = np.int32(words[widths]), np.int32(words[widths + 1]), np.int32(words[widths + 2])
                base = np.int32(slot * 3 * size)
                if k == 0 and i < a:
                    even_out(tiles, base + i * stride, one, b, base + size + i * stride, one, c)
                if k == 1 and i < b:
                    even_out(tiles, base + i, stride, a, base + 2 * size + i * stride, one, c)
                if k == 2 and i < c:
                    even_out(tiles, base + size + i, stride, a, base + 2 * size + i, stride, b)
            cuda.syncthreads()
        store_triangles(words, begin, tables, tiles, count, octets)
        cuda.syncthreads()
    cuda.syncthreads()


@cuda.jit(device=True)
def even_out(tiles, left, left_step, left_size, right, right_step, right_size):
    """Shift two rows, or columns, half their maxima's difference towards each other if both are live."""
    top_left, top_right = DEAD, DEAD
    for i in range(left_size):
        top_left = max(top_left, tiles[np.uint32(left + i * left_step)])
    for i in range(right_size):
        top_right = max(top_right, tiles[np.uint32(right + i * right_step)])
    if min(top_left, top_right) < THRESHOLD:
        return
    shift = np.int32((np.int64(top_left) - top_right) >> 1)
    for i in range(left_size):
        x = tiles[np.uint32(left + i * left_step)]
        tiles[np.uint32(left + i * left_step)] = DEAD if x < THRESHOLD else np.int32(x - shift)
    for i in range(right_size):
        x = tiles[np.uint32(right + i * right_step)]
        tiles[np.uint32(right + i * right_step)] = DEAD if x < THRESHOLD else np.int32(x + shift)


@cuda.jit(device=True)
def store_triangles(words, begin, tables, tiles, count, octets):
    """Bring some triangles' tables back."""
    width = 8 * len(octets)
    square, size = np.uint32(width * width), np.uint32(width * (width + 1))
    at, total = np.uint32(cuda.threadIdx.x), np.uint32(np.uint32(count * 3) * square)
    while at < total:
        table = np.uint32(at // square)
        cell = np.uint32(at - table * square)
        slot = np.uint32(table // np.uint32(3))
        clique = np.uint32(begin + slot * np.uint32(CLIQUE) + np.uint32(CLUSTER))
        place = np.uint32(words[clique]) + np.uint32(table - slot * np.uint32(3)) * square + cell
        tables[np.uint64(place)] = tiles[np.uint64(table * size + cell + np.uint32(cell // np.uint32(width)))]
        at = np.uint32(at + np.uint32(cuda.blockDim.x))
