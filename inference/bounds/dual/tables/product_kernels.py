# mypy: ignore-errors
"""Matrix products of small tables: max-plus of int32 and plus-times of float32, the main cost of a triangle pass.

Plain loops over arrays load and store each entry of the product once per term. Here a tile of the product stays in
registers until all of its terms are added. A tile has ``TILE_ROWS`` or ``SHORT_TILE_ROWS`` rows and 8 or 16 columns.
The max-plus product has the entries max over k of left(i, k) + right(k, j), the plus-times product is the usual one.
Callers use ``max_plus`` and ``plus_times``; ``max_plus_tile`` and ``short_max_plus_tile`` compute a single tile.
Functions that emit something write LLVM code with ``builder`` while Numba compiles an intrinsic; their other arguments
are LLVM values.
"""

import numpy as np
from llvmlite import ir

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN
from dmcmc.inference.bounds.dual.tables.llvm_vectors import (
    FLOAT,
    INTEGER,
    constant,
    elementwise_maximum,
    emit_loop,
    splat,
    vector_intrinsic,
)
from dmcmc.inference.runtime.compile import njit

TILE_ROWS = 8  # rows of a tile, which are accumulated in registers at the same time
SHORT_TILE_ROWS = 4  # rows of the last tile where the table's rows are not a multiple of TILE_ROWS
NARROW_COLUMNS = 8  # columns of a narrow tile: one vector
WIDE_COLUMNS = 16  # columns of a wide tile


def _tile(rows, lanes, entry_type, start, step, naive):
    """Return the function ``tile(left, right, out, i, j, inner)`` that sets ``out[i : i + rows, j : j + lanes]``.

    ``inner`` is the number of terms. The function is an intrinsic.

    Parameters
    ----------
    rows, lanes : int
        Rows and columns of the tile.
    entry_type : LLVM type
        Type of an entry.
    start : int or float
        Initial value of each entry.
    step : callable
        ``step(builder, entry, left, right)`` emits the update of an entry by one pair of factors.
    naive : callable
        ``naive(left, right)`` returns the same tile in NumPy; interpreted kernels call it.
    """

    def numpy_tile(left, right, out, i, j, inner):
        """Compute the tile in NumPy."""
        out[i : i + rows, j : j + lanes] = naive(left[i : i + rows, :inner], right[:inner, j : j + lanes])

    @vector_intrinsic(numpy_tile)
    def tile(builder, left, right, out, i, j, inner):
        """Emit the loop over the terms of a tile."""
        row_numbers = [builder.add(i, ir.Constant(i.type, row)) for row in range(rows)]
        initial = constant(entry_type, lanes, start)

        def update(k, entries):
            """Add the k-th term to all entries of the tile."""
            right_row = right.load(k, j, initial.type)
            return [
                step(builder, entry, splat(builder, left.load(line, k, entry_type), lanes), right_row)
                for line, entry in zip(row_numbers, entries, strict=True)
            ]

        for line, entries in zip(row_numbers, emit_loop(builder, inner, [initial] * rows, update), strict=True):
            out.store(line, j, entries)

    return tile


def _max_of_sums(builder, entry, left, right):
    """Emit the maximum of an entry and the sum of a pair of factors."""
    return elementwise_maximum(builder, builder.add(left, right), entry)


def _sum_of_products(builder, entry, left, right):
    """Emit the sum of an entry and the product of a pair of factors."""
    # Not a fused multiply-add, so that all processors give the same result.
    return builder.fadd(entry, builder.fmul(left, right))


def _naive_max_plus(left, right):
    """Return the max-plus product of two int32 tables, at least ``FORBIDDEN``, in NumPy."""
    return np.maximum((left[:, :, None] + right[None]).max(axis=1), FORBIDDEN)


def _naive_plus_times(left, right):
    """Return the plus-times product of two float32 tables, added in the order of the terms, in NumPy."""
    total = np.zeros((left.shape[0], right.shape[1]), dtype=np.float32)
    for k in range(right.shape[0]):
        total += left[:, k, None] * right[k]
    return total


def _max_plus_tile_of(rows, lanes):
    """Return the intrinsic for a tile of a max-plus product."""
    return _tile(rows, lanes, INTEGER, int(FORBIDDEN), _max_of_sums, _naive_max_plus)


def _plus_times_tile_of(rows, lanes):
    """Return the intrinsic for a tile of a plus-times product."""
    return _tile(rows, lanes, FLOAT, 0.0, _sum_of_products, _naive_plus_times)


max_plus_tile, _max_plus_wide_tile, _plus_times_tile, _plus_times_wide_tile = (
    of(TILE_ROWS, lanes) for of in (_max_plus_tile_of, _plus_times_tile_of) for lanes in (NARROW_COLUMNS, WIDE_COLUMNS)
)
short_max_plus_tile, _short_max_plus_wide_tile, _short_plus_times_tile, _short_plus_times_wide_tile = (
    of(SHORT_TILE_ROWS, lanes)
    for of in (_max_plus_tile_of, _plus_times_tile_of)
    for lanes in (NARROW_COLUMNS, WIDE_COLUMNS)
)


@njit(nogil=True, allocates=False)
def max_plus(left, right, out, rows, inner, columns):
    """Set ``out[i, j] = max(FORBIDDEN, max over k of left[i, k] + right[k, j])``.

    Parameters
    ----------
    left : (>= rows, >= inner) int32
    right : (>= inner, >= columns) int32
        Entries of a row are contiguous.
    out : (>= rows, >= columns) int32
        Entries of a row are contiguous.
    rows : int
        A multiple of 4.
    inner : int
        Number of terms, at least 1.
    columns : int
        A multiple of 8.
    """
    wide, full_rows = columns // WIDE_COLUMNS * WIDE_COLUMNS, rows // TILE_ROWS * TILE_ROWS
    for i in range(0, full_rows, TILE_ROWS):
        for j in range(0, wide, WIDE_COLUMNS):
            _max_plus_wide_tile(left, right, out, i, j, inner)
        if wide < columns:
            max_plus_tile(left, right, out, i, wide, inner)
    if full_rows < rows:
        for j in range(0, wide, WIDE_COLUMNS):
            _short_max_plus_wide_tile(left, right, out, full_rows, j, inner)
        if wide < columns:
            short_max_plus_tile(left, right, out, full_rows, wide, inner)


@njit(nogil=True, allocates=False)
def plus_times(left, right, out, rows, inner, columns):
    """Set ``out[i, j]`` to the sum over k of ``left[i, k] * right[k, j]``, added in the order of k.

    Parameters
    ----------
    left, right, out : float32
        Shapes as for ``max_plus``.
    rows, inner, columns : int
        As for ``max_plus``.
    """
    wide, full_rows = columns // WIDE_COLUMNS * WIDE_COLUMNS, rows // TILE_ROWS * TILE_ROWS
    for i in range(0, full_rows, TILE_ROWS):
        for j in range(0, wide, WIDE_COLUMNS):
            _plus_times_wide_tile(left, right, out, i, j, inner)
        if wide < columns:
            _plus_times_tile(left, right, out, i, wide, inner)
    if full_rows < rows:
        for j in range(0, wide, WIDE_COLUMNS):
            _short_plus_times_wide_tile(left, right, out, full_rows, j, inner)
        if wide < columns:
            _short_plus_times_tile(left, right, out, full_rows, wide, inner)
