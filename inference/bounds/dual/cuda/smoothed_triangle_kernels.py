# mypy: ignore-errors
"""Smoothed messages of triangles on a GPU.

Smoothed max-marginals of triangles, by a warp or a block of GPU threads.

The maximum over k of L(i, k) + R(k, j) is an entry of the max-plus product of tables L and R. Smoothed at temperature T
it is T log sum over k of exp((L(i, k) + R(k, j)) / T): exponentiate two tables, multiply them as matrices, take
logarithms. The exponential of x is approximated by the float32 whose bit pattern is a linear function of x. The method
is that of ``dmcmc.inference.bounds.dual.smoothed_triangle_kernels``, and the results equal the CPU's, except for the
order in which the terms of a sum are added. This module computes the exponentials; ``log_sum_exp_kernels`` does the
next two steps.

The max-marginal over one side of a triangle is a product of its other two tables, the left and the right one: ac and bc
transposed for side ab, ab and bc for ac, ab transposed and ac for bc. In the block's shared memory the exponentials
follow behind the triangles' tables. For each triangle there is one line of W exponentials per row of the left table and
one per column of the right table. Two lines start W + ``LINE_GAP`` entries apart. The largest entry of each line
follows behind the exponentials of all triangles.

Arguments that several functions share:

block : Block
    Shared memory (``tiles``), in which exponentials are float32 bit patterns, and the number W of columns.
group : TriangleGroup
    The triangles that the thread group works on at once.
k : int
    The side of the triangle that receives a message: 0 for ab, 1 for ac, 2 for bc.

One thread's tile of a smoothed product of two tables: sums of products of exponentials, and their logarithms.

A smoothed product of tables L and R at temperature T is about T log sum over k of exp((L(i, k) + R(k, j)) / T), in
place of the maximum over k. A triangle (triplet region) sends it to one of its pairs; L and R are its other two tables.

``triangle_kernels`` calls both functions. The exponentials lie in shared memory as ``smoothed_triangle_kernels`` writes
them: the terms of each line (row of the left table or column of the right one) are contiguous, so that a thread can
load four at once. A tile has up to ``MAX_TILE_COLUMNS`` columns and twice as many rows, which are spread over the
product; entry (q, p) is element q * ``MAX_TILE_COLUMNS`` + p of the arrays ``sums`` and ``best``.

Arguments that both functions share:

block : Block
    Shared memory (``tiles``), and the number W of columns.
exponentials : uint32
    Position in ``tiles`` of the exponentials of the thread group's first triangle.
triangle : uint32
    Number of the triangle within the thread group.
i0, j0 : uint32
    First row and column of the thread's tile.
sums : (MAX_TILE_CELLS,) float32
    The thread's sums.

Local names: ``bands`` = W / 8; ``line`` is the distance between the exponentials of two lines; ``tile_columns`` is the
number of columns of the tile, ``column_step`` and ``row_step`` the distances between two of its columns and rows.
"""

import numpy as np
from numba import cuda, float32, int32

from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import (
    LINE_THREADS,
    MAX_TILE_CELLS,
    MAX_TILE_COLUMNS,
    thread_tile,
)
from dmcmc.inference.bounds.dual.log_sum_exp_kernels import (
    BITS_PER_DOUBLING,
    MAX_POWER_BITS,
    MAX_PRODUCT_BITS,
    MIN_POWER_BITS,
    MIN_RELIABLE_SUM,
)
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import ROUNDING_MARGIN

_LOADS_PER_BATCH = 3  # entries that a thread loads before it writes the first exponential
LINE_GAP = 4  # gap between two lines, so that threads that load four entries at once access different memory banks


@cuda.jit(device=True)
def bits_per_unit_at(temperature):
    """Return the increase of an exponential's bit pattern per unit of an entry, at a temperature.

    exp(x / T) is 2 to the power of x log2(e) / T, and doubling a float32 adds ``BITS_PER_DOUBLING`` to its bit pattern.
    """
    # 1.4426950408889634 is log2(e).
    return np.float32(np.float32(BITS_PER_DOUBLING * np.float32(1.4426950408889634)) / temperature)


@cuda.jit(device=True)
def excess_over_maxima(total, units_per_bit):
    """Return the amount by which a smoothed maximum exceeds the sum of the two lines' maxima.

    Parameters
    ----------
    total : float32
        Sum of the products of exponentials; the largest possible product has the bit pattern ``MAX_PRODUCT_BITS``.
    units_per_bit : float32
        Entry units per unit of the bit pattern, the reciprocal of ``bits_per_unit_at``.
    """
    return np.int32(np.float32(np.float32(total.view(np.int32)) - MAX_PRODUCT_BITS) * units_per_bit)


@cuda.jit(device=True)
def rounding_margin(temperature):
    """Return the amount that is added to a smoothed maximum so that rounding never takes it below the maximum."""
    return np.int32(np.int32(temperature * ROUNDING_MARGIN) + np.int32(1))


@cuda.jit(device=True)
def find_line_maxima(block, group, k):
    """Write the maxima of the left tables' rows and of the right tables' columns for side k, one thread per line."""
    tiles, wide = block.tiles, 8 * len(block.octets)
    _, tile_start, count, lane, lanes = group
    width, lines = np.uint32(wide), np.uint32(2 * wide)
    stride, size = np.uint32(width + 1), np.uint32(width * (width + 1))
    task, total = np.uint32(lane), np.uint32(np.uint32(count) * lines)
    line_maxima = np.uint32(
        tile_start + np.uint32(count) * np.uint32(np.uint32(3) * size + lines * np.uint32(width + LINE_GAP))
    )
    while task < total:
        triangle = np.uint32(task // lines)
        i = np.uint32(task - triangle * lines)
        line_start = np.uint32(tile_start + triangle * np.uint32(3) * size)
        if i < width:
            line_start = np.uint32(
                line_start + np.uint32(size if k == 0 else 0) + i * np.uint32(1 if k == 2 else stride)
            )
            best = line_maximum(tiles, np.uint64(line_start), np.uint64(stride if k == 2 else 1), wide)
        else:
            j = np.uint32(i - width)
            line_start = np.uint32(
                line_start + np.uint32(size if k == 2 else 2 * size) + j * np.uint32(stride if k == 0 else 1)
            )
            best = line_maximum(tiles, np.uint64(line_start), np.uint64(1 if k == 0 else stride), wide)
        tiles[np.uint64(line_maxima + task)] = best
        task = np.uint32(task + np.uint32(lanes))


@cuda.jit(device=True)
def line_maximum(tiles, at, step, size):
    """Return the largest of ``size`` entries from position ``at`` on that are ``step`` entries apart."""
    best = FORBIDDEN
    for i in range(size):
        best = max(best, tiles[at + np.uint64(i) * step])
    return best


@cuda.jit(device=True)
def exponentiate_tables(block, group, k, bits_per_unit):
    """Write the exponentials of the left and the right tables for side k, relative to the maximum of each line.

    The maxima are those that ``find_line_maxima`` has written. ``bits_per_unit`` is the increase of an exponential's
    bit pattern per unit of an entry.
    """
    tile_start, count, width = group.tile_start, group.count, np.uint32(8 * len(block.octets))
    stride, size, line = np.uint32(width + 1), np.uint32(width * (width + 1)), np.uint32(width + LINE_GAP)
    exponentials = np.uint32(tile_start + np.uint32(count) * np.uint32(3 * size))
    line_maxima = np.uint32(exponentials + np.uint32(count) * np.uint32(np.uint32(2) * width * line))
    left = np.uint32(size if k == 0 else 0)
    left_line = np.uint32(1 if k == 2 else stride)
    left_step = np.uint32(stride if k == 2 else 1)
    right = np.uint32(size if k == 2 else 2 * size)
    right_line = np.uint32(stride if k == 0 else 1)
    right_step = np.uint32(1 if k == 0 else stride)
    table = np.uint32(tile_start + left)
    exponentiate_lines(block, group, table, left_line, left_step, line_maxima, exponentials, bits_per_unit)
    line_maxima, exponentials = np.uint32(line_maxima + width), np.uint32(exponentials + width * line)
    table = np.uint32(tile_start + right)
    exponentiate_lines(block, group, table, right_line, right_step, line_maxima, exponentials, bits_per_unit)


@cuda.jit(device=True)
def exponentiate_lines(block, group, table, line, step, line_maxima, exponentials, bits_per_unit):
    """Write the exponentials of one table of each triangle, ``LINE_THREADS`` threads per line.

    Parameters
    ----------
    table : uint32
        Position in ``tiles`` of the first triangle's table.
    line, step : uint32
        Distance between two lines, and between two entries of a line.
    line_maxima, exponentials : uint32
        Positions in ``tiles`` of the first triangle's line maxima and exponentials.
    bits_per_unit : float32
        Increase of an exponential's bit pattern per unit of an entry.
    """
    tiles, width, (_, _, count, lane, lanes) = block.tiles, np.uint32(8 * len(block.octets)), group
    entries = cuda.local.array(_LOADS_PER_BATCH, int32)
    line_stride, entries_per_thread = np.uint32(width + LINE_GAP), np.int32(width // np.uint32(LINE_THREADS))
    i = np.uint32(lane // np.uint32(LINE_THREADS))
    j = np.uint32(lane % np.uint32(LINE_THREADS))
    lines_at_once = np.uint32(lanes // np.uint32(LINE_THREADS))
    for triangle in range(count):
        maximum_at = np.uint64(np.uint32(line_maxima + np.uint32(triangle) * np.uint32(2) * width + i))
        source = np.uint64(
            np.uint32(table + np.uint32(triangle) * np.uint32(3) * width * (width + np.uint32(1)) + i * line + j * step)
        )
        target = np.uint64(np.uint32(exponentials + (np.uint32(triangle) * np.uint32(2) * width + i) * line_stride + j))
        for round_ in range(np.int32(np.uint32(width + lines_at_once - np.uint32(1)) // lines_at_once)):
            if i + np.uint32(round_) * lines_at_once < width:
                maximum = tiles[maximum_at + np.uint64(round_ * lines_at_once)]
                line_start = source + np.uint64(round_ * lines_at_once * line)
                for begin in range(0, entries_per_thread, _LOADS_PER_BATCH):
                    for p in range(_LOADS_PER_BATCH):
                        if begin + p < entries_per_thread:
                            entries[p] = tiles[
                                line_start + np.uint64(np.uint32(begin + p) * np.uint32(LINE_THREADS) * step)
                            ]
                    for p in range(_LOADS_PER_BATCH):
                        bits = max(
                            np.float32(
                                MAX_POWER_BITS + np.float32(np.float32(np.int32(entries[p] - maximum)) * bits_per_unit)
                            ),
                            MIN_POWER_BITS,
                        )
                        if begin + p < entries_per_thread:
                            tiles[
                                target + np.uint64(round_ * lines_at_once * line_stride + (begin + p) * LINE_THREADS)
                            ] = np.int32(bits)


_TERMS_PER_LOAD = 4  # terms that a thread loads at once: 16 bytes
_LOADED = 2 * MAX_TILE_COLUMNS * _TERMS_PER_LOAD  # terms of all rows of a tile


@cuda.jit(device=True)
def sum_products(block, exponentials, triangle, inner, i0, j0, sums):
    """Write the sums over ``inner`` terms of products of exponentials to the thread's tile ``sums``.

    ``inner`` (uint32) is the padded domain size of the variable that is summed over, a multiple of 8.
    """
    tiles, bands = block.tiles, len(block.octets)
    width, line = np.uint32(8 * bands), np.uint32(8 * bands + LINE_GAP)
    tile_columns, column_step, row_step = thread_tile(bands)
    left_terms, right_terms = cuda.local.array(_LOADED, float32), cuda.local.array(_TERMS_PER_LOAD, float32)
    left = np.uint64(np.uint32(exponentials + (triangle * np.uint32(2) * width + i0) * line))
    right = np.uint64(np.uint32(exponentials + (triangle * np.uint32(2) * width + width + j0) * line))
    for q in range(MAX_TILE_CELLS):
        sums[q] = np.float32(0)
    for _ in range(np.uint32(inner // np.uint32(_TERMS_PER_LOAD))):
        for q in range(2 * tile_columns):
            for t in range(_TERMS_PER_LOAD):
                left_terms[q * _TERMS_PER_LOAD + t] = tiles[left + np.uint64(q * row_step * line + t)].view(np.float32)
        for p in range(tile_columns):
            for t in range(_TERMS_PER_LOAD):
                right_terms[t] = tiles[right + np.uint64(p * column_step * line + t)].view(np.float32)
            for q in range(2 * tile_columns):
                for t in range(_TERMS_PER_LOAD):
                    product = np.float32(left_terms[q * _TERMS_PER_LOAD + t] * right_terms[t])
                    sums[q * MAX_TILE_COLUMNS + p] = np.float32(sums[q * MAX_TILE_COLUMNS + p] + product)
        left, right = left + np.uint64(_TERMS_PER_LOAD), right + np.uint64(_TERMS_PER_LOAD)


@cuda.jit(device=True)
def take_logarithms(block, exponentials, count, triangle, temperature, i0, j0, sums, best):
    """Write the smoothed maxima that the sums stand for to ``best``; return whether one of them is unreliable.

    The smoothed maximum is the left row's maximum plus the right column's maximum plus the scaled logarithm of the sum,
    plus a small margin for rounding. An entry is unreliable if its sum may have lost its largest term to underflow; it
    becomes ``FORBIDDEN``, and the caller raises it to the exact maximum.

    Parameters
    ----------
    count : uint32
        Number of triangles of the thread group.
    temperature : float32
        T, positive, in the unit of the tables' entries.
    best : (MAX_TILE_CELLS,) int32
        Receives the tile.
    """
    tiles, bands = block.tiles, len(block.octets)
    width, line = np.uint32(8 * bands), np.uint32(8 * bands + LINE_GAP)
    tile_columns, column_step, row_step = thread_tile(bands)
    units_per_bit = np.float32(np.float32(1) / bits_per_unit_at(temperature))
    margin = rounding_margin(temperature)
    any_unreliable = False
    maxima_start = np.uint64(
        np.uint32(exponentials + np.uint32(count) * np.uint32(2) * width * line + triangle * np.uint32(2) * width)
    )
    column_maxima = cuda.local.array(MAX_TILE_COLUMNS, int32)
    for p in range(tile_columns):
        column_maxima[p] = np.int32(tiles[maxima_start + np.uint64(width + j0) + np.uint64(p * column_step)] + margin)
    for q in range(2 * tile_columns):
        row_maximum = tiles[maxima_start + np.uint64(i0) + np.uint64(q * row_step)]
        for p in range(tile_columns):
            total = sums[q * MAX_TILE_COLUMNS + p]
            value = np.int32(np.int32(row_maximum + column_maxima[p]) + excess_over_maxima(total, units_per_bit))
            best[q * MAX_TILE_COLUMNS + p] = FORBIDDEN if total < MIN_RELIABLE_SUM else value
            any_unreliable = any_unreliable or total < MIN_RELIABLE_SUM
    return any_unreliable
