# mypy: ignore-errors
"""One thread's tile of a smoothed product of two tables: sums of products of exponentials, and their logarithms.

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

from dmcmc.inference.bounds.dual.cuda.smoothed_triangle_kernels import (
    LINE_GAP,
    bits_per_unit_at,
    excess_over_maxima,
    rounding_margin,
)
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import MAX_TILE_CELLS, MAX_TILE_COLUMNS, thread_tile
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN
from dmcmc.inference.bounds.dual.tables.log_sum_exp_kernels import MIN_RELIABLE_SUM

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
