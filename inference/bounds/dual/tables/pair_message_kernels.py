# mypy: ignore-errors
"""What is shifted between a table and the values of one of its variables: eight entries of a row at a time."""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, LIMIT, THRESHOLD
from dmcmc.inference.bounds.dual.tables.llvm_vectors import (
    INTEGER,
    LANES,
    Table,
    blocks,
    constant,
    larger,
    largest,
    repeated,
    splat,
    times,
)
from dmcmc.inference.runtime.compile import njit


def _naive_shift(entries, shifts):
    """Add shifts to entries in place, what is dead stays dead; return 0 where all are within the limits."""
    total = entries + shifts
    entries[:] = np.where(total < THRESHOLD, DEAD, total)
    return int((np.abs(total[total >= THRESHOLD]) > LIMIT).any())


def _naive_add(table, i, j, shifts, by_row):
    """As :func:`add_to_rows` or :func:`add_to_columns`, for some entries of row i from column j on."""
    return _naive_shift(table[i, j : j + LANES], shifts[i] if by_row else shifts[j : j + LANES])


def _naive_level_row(table, i, columns, tops):
    """As :func:`level_rows`, for a row."""
    tops[i] = max(DEAD, table[i, :columns].max())
    return _naive_shift(table[i, :columns], -tops[i] if tops[i] >= THRESHOLD else 0)


def _naive_level_columns(table, j, count, tops):
    """As :func:`level_columns`, for some columns from j on."""
    tops[j : j + LANES] = np.maximum(DEAD, table[:count, j : j + LANES].max(axis=0))
    here = tops[j : j + LANES]
    return _naive_shift(table[:count, j : j + LANES], np.where(here >= THRESHOLD, -here, 0))


if config.DISABLE_JIT:
    _add, _level_row, _level_columns = _naive_add, _naive_level_row, _naive_level_columns
else:
    _INTEGERS, _DEADS = ir.VectorType(INTEGER, LANES), constant(INTEGER, LANES, int(DEAD))
    _NONE = constant(ir.IntType(1), LANES, 0)

    def _shift(builder, table, i, j, shifts, beyond):
        """Add shifts to entries; return ``beyond`` with those that are outside the limits."""
        total = builder.add(table.load(i, j, _INTEGERS), shifts)
        dead = builder.icmp_signed("<", total, constant(INTEGER, LANES, int(THRESHOLD)))
        moved = builder.add(total, constant(INTEGER, LANES, int(LIMIT)))
        over = builder.icmp_unsigned(">", moved, constant(INTEGER, LANES, 2 * int(LIMIT)))
        table.store(i, j, builder.select(dead, _DEADS, total))
        return builder.or_(beyond, builder.and_(over, builder.not_(dead)))

    def _less(builder, tops):
        """Return what takes live tops to 0, and leaves what is dead."""
        alive = builder.icmp_signed(">=", tops, constant(INTEGER, LANES, int(THRESHOLD)))
        return builder.select(alive, builder.neg(tops), constant(INTEGER, LANES, 0))

    def _said(builder, beyond):
        return builder.zext(builder.bitcast(beyond, ir.IntType(LANES)), ir.IntType(64))

    def _emit_add(context, builder, signature, arguments):
        table, i, j, shifts, by_row = arguments
        table, shifts = (Table(context, builder, signature.args[n], one) for n, one in ((0, table), (3, shifts)))
        one = splat(builder, shifts.load(None, i, INTEGER), LANES)
        each = builder.select(by_row, one, shifts.load(None, j, _INTEGERS))
        return _said(builder, _shift(builder, table, i, j, each, _NONE))

    def _emit_level_row(context, builder, signature, arguments):
        table, i, columns, tops = arguments
        table, tops = (Table(context, builder, signature.args[n], one) for n, one in ((0, table), (3, tops)))
        top = largest(builder, table.row_maxima(i, columns, _DEADS))
        tops.store(None, i, top)
        less = _less(builder, splat(builder, top, LANES))

        def turn(k, beyond):
            return [_shift(builder, table, i, times(builder, k, LANES), less, *beyond)]

        return _said(builder, *repeated(builder, blocks(builder, columns), [_NONE], turn))

    def _emit_level_columns(context, builder, signature, arguments):
        table, j, count, tops = arguments
        table, tops = (Table(context, builder, signature.args[n], one) for n, one in ((0, table), (3, tops)))

        def find(k, found):
            return [larger(builder, table.load(k, j, _INTEGERS), *found)]

        (top,) = repeated(builder, count, [_DEADS], find)
        tops.store(None, j, top)
        less = _less(builder, top)

        def turn(k, beyond):
            return [_shift(builder, table, k, j, less, *beyond)]

        return _said(builder, *repeated(builder, count, [_NONE], turn))

    @intrinsic
    def _add(context, table, i, j, shifts, by_row):
        return types.int64(table, types.intp, types.intp, shifts, types.boolean), _emit_add

    @intrinsic
    def _level_row(context, table, i, columns, tops):
        return types.int64(table, types.intp, types.intp, tops), _emit_level_row

    @intrinsic
    def _level_columns(context, table, j, count, tops):
        return types.int64(table, types.intp, types.intp, tops), _emit_level_columns


@njit(nogil=True)
def add_to_rows(table, rows, columns, shifts):
    """Add a shift to each row, what is dead stays dead; return whether all fit the limits.

    ``columns`` is a multiple of 8, here and in all functions of this module.
    """
    beyond = 0
    for i in range(rows):
        for j in range(0, columns, LANES):
            beyond |= _add(table, i, j, shifts, True)
    return beyond == 0


@njit(nogil=True)
def add_to_columns(table, rows, columns, shifts):
    """Add a shift to each column, what is dead stays dead; return whether all fit the limits."""
    beyond = 0
    for i in range(rows):
        for j in range(0, columns, LANES):
            beyond |= _add(table, i, j, shifts, False)
    return beyond == 0


@njit(nogil=True)
def level_rows(table, rows, columns, tops):
    """Write the largest entry of each row, DEAD at least, to ``tops`` and take it off; return whether all fit."""
    beyond = 0
    for i in range(rows):
        beyond |= _level_row(table, i, columns, tops)
    return beyond == 0


@njit(nogil=True)
def level_columns(table, rows, columns, tops):
    """Write the largest entry of each column, DEAD at least, to ``tops`` and take it off; return whether all fit."""
    beyond = 0
    for j in range(0, columns, LANES):
        beyond |= _level_columns(table, j, rows, tops)
    return beyond == 0
