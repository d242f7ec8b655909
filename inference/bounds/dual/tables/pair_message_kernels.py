# mypy: ignore-errors
"""Messages between an int32 table and one of its two variables, eight entries of a row at a time.

The variable pass of dual ascent uses them. A message is a vector over the values of one variable that is added to, or
subtracted from, every row or column of the table. Forbidden entries (below ``FORBIDDEN_BELOW``) stay forbidden. Every
function reports whether all allowed entries stayed within ±``MAX_MAGNITUDE``.

In all functions ``table`` is (>= rows, >= columns) int32 and ``columns`` is a multiple of 8. The ``_naive`` functions
are NumPy twins of the intrinsics: they define what these compute, and run where kernels are interpreted. Both return 0
if no entry left the range, and another number if one did.

The intrinsics are written as functions that emit LLVM code with ``builder``; their other arguments are LLVM values.
"""

import numpy as np
from llvmlite import ir
from numba import types

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE
from dmcmc.inference.bounds.dual.tables.llvm_vectors import (
    FORBIDDEN_LANES,
    INTEGER,
    INTEGER_LANES,
    LANES,
    constant,
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
