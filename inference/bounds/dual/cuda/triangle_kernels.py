# mypy: ignore-errors
"""Dual ascent between triangles and their pairs by a block of GPU threads: the same tables, to the bit, as on the CPU.

``words`` describe the graph at ``g`` (see :mod:`dmcmc.inference.bounds.dual.cuda.descriptors`), ``tables`` are its tables,
``tiles`` is shared memory of ``room`` words, ``octets`` a tuple of as many numbers as a table has times 8 columns: its
length is a constant to the compiler, and so is every stride. All threads of a block call every function; what can
overflow returns False where an entry has left the limits: whole shifts have been made then, and nothing more may be
shifted.

Small triangles have a warp each, which nobody waits for until the level is done; on larger ones all threads work
together. ``lane`` is a thread's number among the ``lanes`` that work on the same ``count`` triangles.

In shared memory a table's rows are an odd number of words apart: threads that read a column hit different banks. A
thread takes a good part of a table from the device's memory before it uses the first entry.
"""

import numpy as np
from numba import cuda, float32, int32, uint64

from dmcmc.inference.bounds.dual.cuda.descriptors import (
    CLIQUE,
    CLIQUES,
    CLUSTER,
    CORNER_WIDTH,
    LEVEL_AT,
    LEVELS,
    PAIR,
    TRIANGLES,
)  # fmt: skip
from dmcmc.inference.bounds.dual.cuda.log_sum_exp_kernels import add_powers, find_logarithms
from dmcmc.inference.bounds.dual.cuda.smoothed_triangle_kernels import APART, find_powers, find_tops, slope_at, top_of
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import ALONE, CELLS, EDGE, anywhere, crew_of, meet, tile_of
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, LIMIT, THRESHOLD

_ROWS = 2 * EDGE
_AT_ONCE = 9  # entries of each of a triangle's tables that a thread takes before it uses the first
_TAKEN = 3 * _AT_ONCE


@cuda.jit(device=True)
def triangle_pass(words, g, tables, tiles, room, octets, temperature):
    """Level triangles with their pairs: as many of a level at once as there are warps and shared memory holds.

    A ``temperature`` (float32) smooths the maxima of marginals; 0 does not.
    """
    width = 8 * len(octets)
    each = np.uint32(3 * width * (width + 1))
    if temperature > 0:
        each = np.uint32(each + np.uint32(2 * width * (width + APART + 1)))  # powers and their tops
    cliques, level_at = np.uint32(words[g + CLIQUES]), np.uint32(words[g + LEVEL_AT])
    first, step, most, lane, lanes = crew_of(np.uint32(np.uint32(room) // each), width)
    own = np.uint32(first * each)
    for level in range(words[g + LEVELS]):
        at, end = np.uint32(words[level_at + np.uint32(level)]), np.uint32(words[level_at + np.uint32(level + 1)])
        at, over = np.uint32(at + first), False
        while at < end and first < step:
            begin, count = np.uint32(cliques + at * np.uint32(CLIQUE)), min(most, np.uint32(end - at))
            over = level_some(words, begin, tables, tiles, own, count, octets, temperature, lane, lanes) or over
            at = np.uint32(at + step)
        if anywhere(over):
            return False
    return True


@cuda.jit(device=True)
def level_some(words, begin, tables, tiles, own, count, octets, temperature, lane, lanes):
    """Level some triangles of a level; whether an entry is too large. Their room begins at ``own``."""
    alone = 8 * len(octets) <= ALONE
    load_triangles(words, begin, tables, tiles, own, count, octets, True, lane, lanes)
    meet(alone)
    over = level_side(words, begin, tables, tiles, own, count, octets, 0, np.float32(1 / 3), temperature, lane, lanes)
    meet(alone)
    over = (
        level_side(words, begin, tables, tiles, own, count, octets, 1, np.float32(1 / 2), temperature, lane, lanes)
        or over
    )
    meet(alone)
    over = (
        level_side(words, begin, tables, tiles, own, count, octets, 2, np.float32(1), temperature, lane, lanes) or over
    )
    meet(alone)
    return over


@cuda.jit(device=True)
def load_triangles(words, begin, tables, tiles, own, count, octets, with_pairs, lane, lanes):
    """Bring some triangles' tables to shared memory, with their pairs' tables added if wanted."""
    bands = len(octets)
    width, square, size = np.uint32(8 * bands), np.uint32(64 * bands * bands), np.uint32(8 * bands * (8 * bands + 1))
    taken, others = cuda.local.array(_TAKEN, int32), cuda.local.array(_TAKEN, int32)
    pairs = cuda.local.array(3, uint64)
    even = square % (lanes * np.uint32(_AT_ONCE)) == 0  # then no thread has an entry less than others
    for slot in range(count):
        clique = np.uint32(begin + np.uint32(slot) * np.uint32(CLIQUE))
        cluster, target = np.uint64(np.uint32(words[clique + np.uint32(CLUSTER)])), np.uint64(own)
        for k in range(3):
            pairs[k] = np.uint64(np.uint32(words[clique + np.uint32(PAIR + k)]))
        target += np.uint64(np.uint32(slot) * np.uint32(3) * size)
        for first in range(0, np.int32((square + lanes - np.uint32(1)) // lanes), _AT_ONCE):
            for k in range(3):
                for q in range(_AT_ONCE):
                    cell = np.uint32(lane + np.uint32(first + q) * lanes)
                    if even or cell < square:
                        taken[k * _AT_ONCE + q] = tables[cluster + np.uint64(k * square) + np.uint64(cell)]
                        if with_pairs:
                            others[k * _AT_ONCE + q] = tables[pairs[k] + np.uint64(cell)]
            for q in range(_AT_ONCE):
                cell = np.uint32(lane + np.uint32(first + q) * lanes)
                place = target + np.uint64(np.uint32(cell + np.uint32(cell // width)))
                if even or cell < square:
                    for k in range(3):
                        x = taken[k * _AT_ONCE + q]
                        if with_pairs:
                            x = np.int32(x + others[k * _AT_ONCE + q])
                            x = DEAD if x < THRESHOLD else x
                        tiles[place + np.uint64(k * size)] = x


@cuda.jit(device=True)
def level_side(words, begin, tables, tiles, own, count, octets, k, weight, temperature, lane, lanes):
    """Give pairs ab, ac or bc (k = 0, 1, 2) of triangles their share of the max-marginal; whether one is too large.

    A weight of 1 gives all of it, whatever a float32 holds. At a ``temperature`` the maximum is a smoothed one, but for
    entries all of whose terms are too small for that.
    """
    bands = len(octets)
    alone = 8 * bands <= ALONE
    if temperature > 0:
        find_tops(tiles, own, count, octets, k, lane, lanes)
        meet(alone)
        find_powers(tiles, own, count, octets, k, slope_at(temperature), lane, lanes)
        meet(alone)
    width, stride, square = np.uint32(8 * bands), np.uint32(8 * bands + 1), np.uint32(64 * bands * bands)
    size = np.uint32(width * stride)
    edge, across, down = tile_of(bands)
    best, sums = cuda.local.array(CELLS, int32), cuda.local.array(CELLS, float32)
    masses = cuda.local.array(CELLS, int32)
    over, task, tasks = False, np.uint32(lane), np.uint32(across * down)
    while task < np.uint32(np.uint32(count) * tasks):
        slot = np.uint32(task // tasks)
        i0 = np.uint32(np.uint32(task - slot * tasks) // across)
        j0 = np.uint32(task % across)
        clique = np.uint32(begin + slot * np.uint32(CLIQUE))
        inner = np.uint32(words[clique + np.uint32(CORNER_WIDTH + 2 - k)])
        base = np.uint32(own + slot * np.uint32(3) * size)
        low = True
        if temperature > 0:
            powers = np.uint32(own + np.uint32(count) * np.uint32(3) * size)
            add_powers(tiles, powers, slot, octets, inner, i0, j0, sums)
            low = find_logarithms(tiles, powers, count, slot, octets, temperature, i0, j0, sums, best)
        else:
            for q in range(CELLS):
                best[q] = DEAD
        if low:
            find_maxima(tiles, base, octets, k, inner, i0, j0, best)
        target = np.uint64(np.uint32(base + np.uint32(k) * size + i0 * stride + j0))
        cluster = np.uint64(np.uint32(np.uint32(words[clique + np.uint32(CLUSTER)]) + np.uint32(k) * square))
        cluster, pair = cluster + np.uint64(i0 * width + j0), np.uint64(np.uint32(words[clique + np.uint32(PAIR + k)]))
        pair += np.uint64(i0 * width + j0)
        for q in range(2 * edge):
            for p in range(edge):
                masses[q * EDGE + p] = tiles[target + np.uint64(q * down * stride + p * across)]
        for q in range(2 * edge):
            for p in range(edge):
                place = target + np.uint64(q * down * stride + p * across)
                there = np.uint64(q * down * width + p * across)
                mass = masses[q * EDGE + p]
                marginal = np.int32(mass + best[q * EDGE + p])
                share = marginal if weight == 1 else np.int32(np.float32(marginal) * weight)
                kept = np.int32(mass - share)
                if marginal < THRESHOLD:
                    kept = share = DEAD
                elif max(abs(kept), abs(share)) > LIMIT:
                    over = True
                tiles[place] = kept
                tables[cluster + there] = kept
                tables[pair + there] = share
        task = np.uint32(task + np.uint32(lanes))
    return over


@cuda.jit(device=True)
def find_maxima(tiles, base, octets, k, inner, i0, j0, best):
    """Raise a thread's tile of side k's product to the largest sums of an entry of the left and of the right table."""
    bands = len(octets)
    stride, size = np.uint32(8 * bands + 1), np.uint32(8 * bands * (8 * bands + 1))
    edge, across, down = tile_of(bands)
    # In the product's left table rows are rows unless k = 2, in the right one columns are columns unless k = 0.
    row, left_step = np.uint32(1 if k == 2 else stride), np.uint32(stride if k == 2 else 1)
    column, right_step = np.uint32(stride if k == 0 else 1), np.uint32(1 if k == 0 else stride)
    mine = cuda.local.array(_ROWS, int32)
    left = np.uint64(np.uint32(base + np.uint32(size if k == 0 else 0) + i0 * row))
    right = np.uint64(np.uint32(base + np.uint32(size if k == 2 else 2 * size) + j0 * column))
    for _ in range(inner):
        for q in range(2 * edge):
            mine[q] = tiles[left + np.uint64(q * down * row)]
        for p in range(edge):
            entry = tiles[right + np.uint64(p * across * column)]
            for q in range(2 * edge):
                best[q * EDGE + p] = max(best[q * EDGE + p], np.int32(mine[q] + entry))
        left, right = left + np.uint64(left_step), right + np.uint64(right_step)


@cuda.jit(device=True)
def recentre(words, g, tables, tiles, room, octets):
    """Even out what a triangle's tables hold for each of its variables: none of its sums changes."""
    width = 8 * len(octets)
    alone = width <= ALONE
    stride, size, one = np.uint32(width + 1), np.uint32(width * (width + 1)), np.uint32(1)
    first, step, most, lane, lanes = crew_of(np.uint32(np.uint32(room) // np.uint32(3 * size)), width)
    own, at, total = np.uint32(first * np.uint32(3 * size)), first, np.uint32(words[g + TRIANGLES])
    while at < total and first < step:
        begin, count = np.uint32(words[g + CLIQUES] + at * np.uint32(CLIQUE)), min(most, np.uint32(total - at))
        load_triangles(words, begin, tables, tiles, own, count, octets, False, lane, lanes)
        meet(alone)
        for k in range(3):  # the corners a, b, c: which tables have them, as rows or as columns
            task = lane
            while task < np.uint32(count * np.uint32(width)):
                slot = np.uint32(task // np.uint32(width))
                i = np.uint32(task - slot * np.uint32(width))
                widths = np.uint32(begin + slot * np.uint32(CLIQUE) + np.uint32(CORNER_WIDTH))
                a, b, c = words[widths], words[widths + np.uint32(1)], words[widths + np.uint32(2)]
                ab = np.uint32(own + slot * np.uint32(3 * size))
                ac, bc = np.uint32(ab + size), np.uint32(ab + size + size)
                if k == 0 and i < a:
                    even_out(tiles, ab + i * stride, one, b, ac + i * stride, one, c)
                if k == 1 and i < b:
                    even_out(tiles, ab + i, stride, a, bc + i * stride, one, c)
                if k == 2 and i < c:
                    even_out(tiles, ac + i, stride, a, bc + i, stride, b)
                task = np.uint32(task + lanes)
            meet(alone)
        store_triangles(words, begin, tables, tiles, own, count, octets, lane, lanes)
        meet(alone)
        at = np.uint32(at + step)
    cuda.syncthreads()


@cuda.jit(device=True)
def even_out(tiles, left, left_step, left_size, right, right_step, right_size):
    """Shift two rows, or columns, half their maxima's difference towards each other if both are live."""
    top_left = top_of(tiles, np.uint64(np.uint32(left)), np.uint64(left_step), left_size)
    top_right = top_of(tiles, np.uint64(np.uint32(right)), np.uint64(right_step), right_size)
    if min(top_left, top_right) >= THRESHOLD:
        shift = np.int32((np.int64(top_left) - top_right) >> 1)
        shift_line(tiles, left, left_step, left_size, np.int32(-shift))
        shift_line(tiles, right, right_step, right_size, shift)


@cuda.jit(device=True)
def shift_line(tiles, at, step, size, shift):
    """Add to all live entries of a row or column."""
    place = np.uint64(np.uint32(at))
    for _ in range(size):
        x = tiles[place]
        tiles[place] = DEAD if x < THRESHOLD else np.int32(x + shift)
        place += np.uint64(step)


@cuda.jit(device=True)
def store_triangles(words, begin, tables, tiles, own, count, octets, lane, lanes):
    """Bring some triangles' tables back."""
    bands = len(octets)
    width, square, size = np.uint32(8 * bands), np.uint32(64 * bands * bands), np.uint32(8 * bands * (8 * bands + 1))
    for table in range(np.int32(count * np.uint32(3))):
        slot = np.uint32(np.uint32(table) // np.uint32(3))
        k = np.uint32(np.uint32(table) - slot * np.uint32(3))
        cluster = np.uint64(np.uint32(words[np.uint32(begin + slot * np.uint32(CLIQUE) + np.uint32(CLUSTER))]))
        cluster, source = cluster + np.uint64(k * square), np.uint64(np.uint32(own + np.uint32(table) * size))
        cell = lane
        while cell < square:
            tables[cluster + np.uint64(cell)] = tiles[source + np.uint64(np.uint32(cell + np.uint32(cell // width)))]
            cell = np.uint32(cell + lanes)
