# mypy: ignore-errors
"""Compiled steps on the tables of pairs and triangles: maxima, products, transposes and messages.

Maxima of the rows or columns of an int32 table, eight columns at a time in one vector register.

The kernels of dual ascent call ``row_maxima`` and ``column_maxima``. Both clamp the maxima from below to ``FORBIDDEN``.
The ``_naive`` functions are NumPy twins of the intrinsics: they define what these compute, and run where kernels are
interpreted.

The intrinsics are written as functions that emit LLVM code with ``builder``; their other arguments are LLVM values.
``FORBIDDEN`` is the entry that stands for minus infinity.

Messages between an int32 table and one of its two variables, eight entries of a row at a time.

The variable pass of dual ascent uses them. A message is a vector over the values of one variable that is added to, or
subtracted from, every row or column of the table. Forbidden entries (below ``FORBIDDEN_BELOW``) stay forbidden. Every
function reports whether all allowed entries stayed within ±``MAX_MAGNITUDE``.

In all functions ``table`` is (>= rows, >= columns) int32 and ``columns`` is a multiple of 8. The ``_naive`` functions
are NumPy twins of the intrinsics: they define what these compute, and run where kernels are interpreted. Both return 0
if no entry left the range, and another number if one did.

The intrinsics are written as functions that emit LLVM code with ``builder``; their other arguments are LLVM values.

Matrix products of small tables: max-plus of int32 and plus-times of float32, the main cost of a triangle pass.

Plain loops over arrays load and store each entry of the product once per term. Here a tile of the product stays in
registers until all of its terms are added. A tile has ``TILE_ROWS`` or ``SHORT_TILE_ROWS`` rows and 8 or 16 columns.
The max-plus product has the entries max over k of left(i, k) + right(k, j), the plus-times product is the usual one.
Callers use ``max_plus`` and ``plus_times``; ``max_plus_tile`` and ``short_max_plus_tile`` compute a single tile.
Functions that emit something write LLVM code with ``builder`` while Numba compiles an intrinsic; their other arguments
are LLVM values.

Transposition of int32 tables in registers, one block of 8 x 8 entries at a time.

The triangle pass transposes a table before a max-plus product. ``_naive`` is the NumPy twin of the intrinsic: it
defines what this computes, and runs where kernels are interpreted. ``_emit`` writes the intrinsic's LLVM code with
``builder``; its other arguments are LLVM values.

Addition of a pairwise table to a triangle, and the message back to the pair, eight entries of a row at a time.

The triangle pass of dual ascent sends a pair a fraction of the triangle's max-marginal over it. The ``_naive``
functions are NumPy twins of the intrinsics: they define what these compute, and run where kernels are interpreted.

A triangle is a triplet region of three variables with one table per pair of them. Its max-marginal over the pair ab is
the table ab plus the max-plus product of the other two tables. Entries below ``FORBIDDEN_BELOW`` are forbidden. The
intrinsics are written as functions that emit LLVM code with ``builder``; their other arguments are LLVM values.
"""

import numpy as np
from llvmlite import ir
from numba import types

from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE
from dmcmc.inference.bounds.dual.llvm_vectors import (
    FLOAT,
    FLOAT_LANES,
    FORBIDDEN_LANES,
    INTEGER,
    INTEGER_LANES,
    LANES,
    constant,
    elementwise_maximum,
    emit_loop,
    is_forbidden,
    is_out_of_range,
    mask_as_integer,
    multiply_by,
    splat,
    vector_count,
    vector_intrinsic,
)
from dmcmc.inference.runtime.compile import njit


def _naive_columns(table, j, count, out):
    """Write the maxima over the first ``count`` rows of the eight columns from j on to ``out``, from position j on."""
    out[j : j + LANES] = np.maximum(FORBIDDEN, table[:count, j : j + LANES].max(axis=0))


def _naive_row_maximum(table, i, columns, out):
    """Write the maximum of the first ``columns`` entries of row i to ``out[i]``."""
    out[i] = max(FORBIDDEN, table[i, :columns].max())


@vector_intrinsic(_naive_columns)
def _vector_maxima(builder, table, j, count, out):
    """Emit the maxima of eight columns."""
    out.store(None, j, table.column_maxima(j, count))


@vector_intrinsic(_naive_row_maximum)
def _row_maximum(builder, table, i, columns, out):
    """Emit the maximum of a row."""
    out.store(None, i, table.row_maximum(i, columns))


@njit(nogil=True, allocates=False)
def column_maxima(table, rows, columns, out):
    """Write the largest entry of each column, at least ``FORBIDDEN``, to ``out``.

    Parameters
    ----------
    table : (>= rows, >= columns) int32
    rows : int
    columns : int
        A multiple of 8.
    out : (>= columns,) int32
    """
    for j in range(0, columns, LANES):
        _vector_maxima(table, j, rows, out)


@njit(nogil=True, allocates=False)
def row_maxima(table, rows, columns, out):
    """Write the largest entry of each row, at least ``FORBIDDEN``, to ``out``.

    Parameters
    ----------
    table : (>= rows, >= columns) int32
    rows : int
    columns : int
        A multiple of 8.
    out : (>= rows,) int32
    """
    for i in range(rows):
        _row_maximum(table, i, columns, out)


def _naive_add_message(entries, message):
    """Add ``message`` to ``entries`` in place and return 1 if an allowed entry leaves the range, else 0."""
    total = entries + message
    entries[:] = np.where(total < FORBIDDEN_BELOW, FORBIDDEN, total)
    return int((np.abs(total[total >= FORBIDDEN_BELOW]) > MAX_MAGNITUDE).any())


def _naive_add(table, i, j, message, by_row):
    """Do the work of ``add_to_rows`` or ``add_to_columns`` for eight entries of row i, from column j on."""
    return _naive_add_message(table[i, j : j + LANES], message[i] if by_row else message[j : j + LANES])


def _naive_subtract_row_maximum(table, i, columns, maxima):
    """Do the work of ``subtract_row_maxima`` for row i."""
    maxima[i] = max(FORBIDDEN, table[i, :columns].max())
    return _naive_add_message(table[i, :columns], -maxima[i] if maxima[i] >= FORBIDDEN_BELOW else 0)


def _naive_subtract_column_maxima(table, j, count, maxima):
    """Do the work of ``subtract_column_maxima`` for eight columns, from j on."""
    maxima[j : j + LANES] = np.maximum(FORBIDDEN, table[:count, j : j + LANES].max(axis=0))
    column_maxima = maxima[j : j + LANES]
    return _naive_add_message(
        table[:count, j : j + LANES], np.where(column_maxima >= FORBIDDEN_BELOW, -column_maxima, 0)
    )


_NO_LANES = constant(ir.IntType(1), LANES, 0)


def _emit_add_message(builder, table, i, j, message, overflow):
    """Emit the addition of a vector to eight entries; return ``overflow`` or the mask of lanes out of range."""
    total = builder.add(table.load(i, j, INTEGER_LANES), message)
    forbidden = is_forbidden(builder, total)
    table.store(i, j, builder.select(forbidden, FORBIDDEN_LANES, total))
    return builder.or_(overflow, builder.and_(is_out_of_range(builder, total), builder.not_(forbidden)))


def _negated_maxima(builder, maxima):
    """Return the negated maxima, with 0 in the lanes whose maximum is forbidden."""
    return builder.select(is_forbidden(builder, maxima), constant(INTEGER, LANES, 0), builder.neg(maxima))


@vector_intrinsic(_naive_add, types.int64)
def _add(builder, table, i, j, message, by_row):
    """Emit the addition of a message to eight entries."""
    row_addend = splat(builder, message.load(None, i, INTEGER), LANES)
    addend = builder.select(by_row, row_addend, message.load(None, j, INTEGER_LANES))
    return mask_as_integer(builder, _emit_add_message(builder, table, i, j, addend, _NO_LANES))


@vector_intrinsic(_naive_subtract_row_maximum, types.int64)
def _subtract_row_maximum(builder, table, i, columns, maxima):
    """Emit the maximum of a row and its subtraction."""
    top = table.row_maximum(i, columns)
    maxima.store(None, i, top)
    negated = _negated_maxima(builder, splat(builder, top, LANES))

    def update(k, overflow):
        """Subtract from the k-th vector of the row."""
        return [_emit_add_message(builder, table, i, multiply_by(builder, k, LANES), negated, *overflow)]

    return mask_as_integer(builder, *emit_loop(builder, vector_count(builder, columns), [_NO_LANES], update))


@vector_intrinsic(_naive_subtract_column_maxima, types.int64)
def _subtract_column_maxima(builder, table, j, count, maxima):
    """Emit the maxima of eight columns and their subtraction."""
    top = table.column_maxima(j, count)
    maxima.store(None, j, top)
    negated = _negated_maxima(builder, top)

    def update(k, overflow):
        """Subtract from the entries of row k."""
        return [_emit_add_message(builder, table, k, j, negated, *overflow)]

    return mask_as_integer(builder, *emit_loop(builder, count, [_NO_LANES], update))


@njit(nogil=True, allocates=False)
def add_to_rows(table, rows, columns, message):
    """Add ``message[i]`` to each row i of a table and return whether all entries stayed in range.

    Parameters
    ----------
    table : (>= rows, >= columns) int32
    rows, columns : int
        ``columns`` is a multiple of 8.
    message : (>= rows,) int32
    """
    overflow = 0
    for i in range(rows):
        for j in range(0, columns, LANES):
            overflow |= _add(table, i, j, message, True)
    return overflow == 0


@njit(nogil=True, allocates=False)
def add_to_columns(table, rows, columns, message):
    """Add ``message[j]`` to each column j of a table and return whether all entries stayed in range.

    Parameters
    ----------
    table : (>= rows, >= columns) int32
    rows, columns : int
        ``columns`` is a multiple of 8.
    message : (>= columns,) int32
    """
    overflow = 0
    for i in range(rows):
        for j in range(0, columns, LANES):
            overflow |= _add(table, i, j, message, False)
    return overflow == 0


@njit(nogil=True, allocates=False)
def subtract_row_maxima(table, rows, columns, maxima):
    """Write each row's maximum and subtract it from the row; return whether all entries stayed in range.

    Parameters
    ----------
    table : (>= rows, >= columns) int32
        Afterwards each row with an allowed entry has maximum 0.
    rows, columns : int
        ``columns`` is a multiple of 8.
    maxima : (>= rows,) int32
        Receives the maxima, at least ``FORBIDDEN``.
    """
    overflow = 0
    for i in range(rows):
        overflow |= _subtract_row_maximum(table, i, columns, maxima)
    return overflow == 0


@njit(nogil=True, allocates=False)
def subtract_column_maxima(table, rows, columns, maxima):
    """Write each column's maximum and subtract it from the column; return whether all entries stayed in range.

    Parameters
    ----------
    table : (>= rows, >= columns) int32
        Afterwards each column with an allowed entry has maximum 0.
    rows, columns : int
        ``columns`` is a multiple of 8.
    maxima : (>= columns,) int32
        Receives the maxima, at least ``FORBIDDEN``.
    """
    overflow = 0
    for j in range(0, columns, LANES):
        overflow |= _subtract_column_maxima(table, j, rows, maxima)
    return overflow == 0


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


def _naive(table, out, i, j):
    """Write the 8 x 8 block of ``table`` at (i, j), transposed, to ``out`` at (j, i) (NumPy twin of the intrinsic)."""
    out[j : j + LANES, i : i + LANES] = table[i : i + LANES, j : j + LANES].T


def _exchange(builder, upper, lower, step):
    """Swap alternate groups of ``step`` entries between two rows: one exchange of the transposition network.

    With A B the groups of ``upper`` and C D those of ``lower``, the result is A C and B D.
    """
    kind, places = ir.VectorType(INTEGER, LANES), range(LANES)
    first = [p if p & step == 0 else LANES + p - step for p in places]
    second = [p + step if p & step == 0 else LANES + p for p in places]
    return [builder.shuffle_vector(upper, lower, ir.Constant(kind, order)) for order in (first, second)]


@vector_intrinsic(_naive)
def _transpose_block(builder, table, out, i, j):
    """Emit the transposition of an 8 x 8 block in registers: three steps of row exchanges."""
    offsets = [ir.Constant(i.type, n) for n in range(LANES)]
    rows = [table.load(builder.add(i, n), j, INTEGER_LANES) for n in offsets]
    for step in (1, 2, 4):
        for n in range(LANES):
            if n & step == 0:
                rows[n], rows[n + step] = _exchange(builder, rows[n], rows[n + step], step)
    for n, row in zip(offsets, rows, strict=True):
        out.store(builder.add(j, n), i, row)


@njit(nogil=True, allocates=False)
def transpose(table, out, rows, columns):
    """Set ``out[j, i] = table[i, j]`` for i < rows and j < columns.

    Parameters
    ----------
    table, out : (>= rows, >= columns) and (>= columns, >= rows) int32
    rows, columns : int
        Multiples of 8.
    """
    for i in range(0, rows, LANES):
        for j in range(0, columns, LANES):
            _transpose_block(table, out, i, j)


def _naive_add_to_entries(into, table, i, j):
    """Do the work of ``add_table`` for eight entries of row i, from column j on (NumPy twin of the intrinsic)."""
    total = into[i, j : j + LANES] + table[i, j : j + LANES]
    into[i, j : j + LANES] = np.where(total < FORBIDDEN_BELOW, FORBIDDEN, total)


def _naive_send(triangle, pair, other_tables, i, j, weight):
    """Do the work of ``send_to_pair`` for eight entries of row i from column j; return 1 if one leaves the range."""
    remainder, message = triangle[i, j : j + LANES], pair[i, j : j + LANES]
    marginal = remainder + other_tables[i, j : j + LANES]
    is_forbidden = marginal < FORBIDDEN_BELOW
    message[:] = marginal if weight == 1 else (marginal.astype(np.float32) * weight).astype(np.int32)
    remainder -= message
    message[is_forbidden], remainder[is_forbidden] = FORBIDDEN, FORBIDDEN
    allowed = np.abs(np.concatenate([remainder[~is_forbidden], message[~is_forbidden]]))
    return int((allowed > MAX_MAGNITUDE).any())


@vector_intrinsic(_naive_add_to_entries)
def _add_vector(builder, into, table, i, j):
    """Emit the addition of eight entries of a row."""
    total = builder.add(into.load(i, j, INTEGER_LANES), table.load(i, j, INTEGER_LANES))
    into.store(i, j, builder.select(is_forbidden(builder, total), FORBIDDEN_LANES, total))


@vector_intrinsic(_naive_send, types.int64)
def _send_vector(builder, triangle, pair, other_tables, i, j, weight):
    """Emit the message of eight entries; return the mask of entries that left the range as an integer."""
    remainder = triangle.load(i, j, INTEGER_LANES)
    marginal = builder.add(remainder, other_tables.load(i, j, INTEGER_LANES))
    forbidden = is_forbidden(builder, marginal)
    scaled = builder.fmul(builder.sitofp(marginal, FLOAT_LANES), splat(builder, weight, LANES))
    sends_all = builder.fcmp_ordered("==", weight, ir.Constant(FLOAT, 1.0))
    message = builder.select(sends_all, marginal, builder.fptosi(scaled, INTEGER_LANES))
    difference = builder.sub(remainder, message)
    outside = builder.or_(is_out_of_range(builder, difference), is_out_of_range(builder, message))
    pair.store(i, j, builder.select(forbidden, FORBIDDEN_LANES, message))
    triangle.store(i, j, builder.select(forbidden, FORBIDDEN_LANES, difference))
    return mask_as_integer(builder, builder.and_(outside, builder.not_(forbidden)))


@njit(nogil=True, allocates=False)
def add_table(into, table, rows, columns):
    """Add ``table`` to ``into`` entry by entry; forbidden entries of either stay forbidden.

    The caller overwrites or clears ``table`` afterwards, so that the sum of all tables does not change.

    Parameters
    ----------
    into, table : (>= rows, >= columns) int32
    rows, columns : int
        ``columns`` is a multiple of 8.
    """
    for i in range(rows):
        for j in range(0, columns, LANES):
            _add_vector(into, table, i, j)


@njit(nogil=True, allocates=False)
def send_to_pair(triangle, pair, other_tables, weight, rows, columns):
    """Send a pair the fraction ``weight`` of the triangle's max-marginal over it: the pair's table is overwritten.

    The same amount is subtracted from the triangle's own table over the pair.

    Parameters
    ----------
    triangle : (>= rows, >= columns) int32
        The triangle's table over this pair; receives the remainder.
    pair : (>= rows, >= columns) int32
        The pairwise table, already added to the triangle; overwritten.
    other_tables : (>= rows, >= columns) int32
        The other two tables of the triangle, maximised over its third variable.
    weight : float32
        The fraction that is sent. 1 sends the exact max-marginal, without rounding to float32.
    rows, columns : int
        ``columns`` is a multiple of 8.

    Returns
    -------
    bool
        Whether all allowed entries stayed within ±``MAX_MAGNITUDE``.
    """
    overflow = 0
    for i in range(rows):
        for j in range(0, columns, LANES):
            overflow |= _send_vector(triangle, pair, other_tables, i, j, weight)
    return overflow == 0
