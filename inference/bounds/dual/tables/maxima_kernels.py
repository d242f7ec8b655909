# mypy: ignore-errors
"""The largest entries of a table's columns or rows: eight columns at a time, each in its place of a register."""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from dmcmc.inference.bounds.dual.tables.entry_values import DEAD
from dmcmc.inference.bounds.dual.tables.llvm_vectors import INTEGER, LANES, Table, constant, larger, largest, repeated
from dmcmc.inference.runtime.compile import njit


def _naive(table, j, count, out):
    """Write the largest entries of some columns from j on, DEAD at least, over so many rows."""
    out[j : j + LANES] = np.maximum(DEAD, table[:count, j : j + LANES].max(axis=0))


def _naive_row(table, i, columns, out):
    """Write the largest entry of a row, DEAD at least."""
    out[i] = max(DEAD, table[i, :columns].max())


if config.DISABLE_JIT:
    _lanes, _row = _naive, _naive_row
else:
    _INTEGERS = ir.VectorType(INTEGER, LANES)

    def _emit(context, builder, signature, arguments):
        table, j, count, out = arguments
        table, out = (Table(context, builder, signature.args[n], one) for n, one in ((0, table), (3, out)))

        def turn(k, tops):
            return [larger(builder, table.load(k, j, _INTEGERS), *tops)]

        out.store(None, j, *repeated(builder, count, [constant(INTEGER, LANES, int(DEAD))], turn))
        return context.get_dummy_value()

    def _emit_row(context, builder, signature, arguments):
        table, i, columns, out = arguments
        table, out = (Table(context, builder, signature.args[n], one) for n, one in ((0, table), (3, out)))
        out.store(None, i, largest(builder, table.row_maxima(i, columns, constant(INTEGER, LANES, int(DEAD)))))
        return context.get_dummy_value()

    @intrinsic
    def _lanes(context, table, j, count, out):
        return types.void(table, types.intp, types.intp, out), _emit

    @intrinsic
    def _row(context, table, i, columns, out):
        return types.void(table, types.intp, types.intp, out), _emit_row


@njit(nogil=True)
def column_maxima(table, rows, columns, out):
    """Write the largest entry of each column, DEAD at least, to ``out``; ``columns`` is a multiple of 8."""
    for j in range(0, columns, LANES):
        _lanes(table, j, rows, out)


@njit(nogil=True)
def row_maxima(table, rows, columns, out):
    """Write the largest entry of each row, DEAD at least, to ``out``; ``columns`` is a multiple of 8."""
    for i in range(rows):
        _row(table, i, columns, out)
