# mypy: ignore-errors
"""Dual ascent between triangles and their pairs by a block of GPU threads: the same tables, to the bit, as on the CPU.

``words`` describe the graph at ``g`` (see :mod:`dmcmc.inference.bounds.dual.cuda.words`), ``tables`` are its tables,
``tiles`` is shared memory of ``room`` words, ``octets`` a tuple of as many numbers as a table has times 8 columns: its
length is a constant to the compiler, and so is every stride. All threads of a block call every function; what can
overflow returns False where an entry has left the limits: whole shifts have been made then, and nothing more may be
shifted.

In shared memory a table's rows are an odd number of words apart: threads that read a column hit different banks.
"""

import numpy as np
from numba import cuda, int32

from dmcmc.inference.bounds.dual.cuda.block_kernels import anywhere
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

_EDGE, _CELLS = 4, 16  # a thread makes so many times so many entries of a max-plus product


@cuda.jit(device=True)
def triangle_pass(words, g, tables, tiles, room, octets):
    """Level triangles with their pairs: as many of a level at once as shared memory holds."""
    width = 8 * len(octets)
    slots = np.int32(room // (3 * width * (width + 1)))
    cliques, level_at = np.int32(words[g + CLIQUES]), np.int32(words[g + LEVEL_AT])
    for level in range(words[g + LEVELS]):
        first, last = np.int32(words[level_at + level]), np.int32(words[level_at + level + 1])
        while first < last:
            count = min(slots, np.int32(last - first))
            begin = np.int32(cliques + first * CLIQUE)
            load_triangles(words, begin, tables, tiles, count, octets, True)
            cuda.syncthreads()
            over = level_side(words, begin, tables, tiles, count, octets, 0, np.float32(1 / 3))
            cuda.syncthreads()
            over = level_side(words, begin, tables, tiles, count, octets, 1, np.float32(1 / 2)) or over
            cuda.syncthreads()
            over = level_side(words, begin, tables, tiles, count, octets, 2, np.float32(1)) or over
            if anywhere(over):
                return False
            first = np.int32(first + count)
    return True


@cuda.jit(device=True)
def load_triangles(words, begin, tables, tiles, count, octets, with_pairs):
    """Bring some triangles' tables to shared memory, with their pairs' tables added if wanted."""
    width = 8 * len(octets)
    square, size = np.uint32(width * width), np.uint32(width * (width + 1))
    for at in range(np.uint32(cuda.threadIdx.x), np.uint32(count * 3) * square, np.uint32(cuda.blockDim.x)):
        table = np.uint32(at // square)
        cell = np.uint32(at - table * square)
        slot = np.uint32(table // np.uint32(3))
        k = np.uint32(table - slot * np.uint32(3))
        clique = np.uint32(begin + slot * np.uint32(CLIQUE))
        x = tables[np.uint64(np.uint32(words[clique + np.uint32(CLUSTER)]) + k * square + cell)]
        if with_pairs:
            x = np.int32(x + tables[np.uint64(np.uint32(words[clique + np.uint32(PAIR) + k]) + cell)])
            x = DEAD if x < THRESHOLD else x
        tiles[np.uint64(table * size + cell + np.uint32(cell // np.uint32(width)))] = x


@cuda.jit(device=True)
def level_side(words, begin, tables, tiles, count, octets, k, weight):
    """Give pairs ab, ac or bc (k = 0, 1, 2) of triangles their share of the max-marginal; whether one is too large.

    A weight of 1 gives all of it, whatever a float32 holds.
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
    over = False
    tasks = np.uint32(across * across)
    for task in range(np.uint32(cuda.threadIdx.x), np.uint32(count) * tasks, np.uint32(cuda.blockDim.x)):
        slot = np.uint32(task // tasks)
        rest = np.uint32(task - slot * tasks)
        i0 = np.uint32(rest // np.uint32(across))
        j0 = np.uint32(rest - i0 * np.uint32(across))
        clique = np.uint32(begin + slot * np.uint32(CLIQUE))
        inner = np.int32(words[clique + np.uint32(CORNER_WIDTH + inner_corner)])
        for q in range(_CELLS):
            best[q] = DEAD
        base = np.uint64(slot) * np.uint64(3 * size)
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
    for at in range(np.uint32(cuda.threadIdx.x), np.uint32(count * 3) * square, np.uint32(cuda.blockDim.x)):
        table = np.uint32(at // square)
        cell = np.uint32(at - table * square)
        slot = np.uint32(table // np.uint32(3))
        clique = np.uint32(begin + slot * np.uint32(CLIQUE) + np.uint32(CLUSTER))
        place = np.uint32(words[clique]) + np.uint32(table - slot * np.uint32(3)) * square + cell
        tables[np.uint64(place)] = tiles[np.uint64(table * size + cell + np.uint32(cell // np.uint32(width)))]
