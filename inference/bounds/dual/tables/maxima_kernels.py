# mypy: ignore-errors
"""Maxima of the rows or columns of an int32 table, eight columns at a time in one vector register.

The kernels of dual ascent call ``row_maxima`` and ``column_maxima``. Both clamp the maxima from below to ``FORBIDDEN``.
The ``_naive`` functions are NumPy twins of the intrinsics: they define what these compute, and run where kernels are
interpreted.

The ``_emit`` functions write the intrinsics' LLVM code with ``builder``. Their other arguments are LLVM values.
``FORBIDDEN`` is the entry that stands for minus infinity.
"""

import numpy as np
from numba import types

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN
from dmcmc.inference.bounds.dual.tables.llvm_vectors import LANES, emitter
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.runtime.interpreted import intrinsic


def _naive_columns(table, j, count, out):
    """Write the maxima over the first ``count`` rows of the eight columns from j on to ``out``, from position j on."""
    out[j : j + LANES] = np.maximum(FORBIDDEN, table[:count, j : j + LANES].max(axis=0))


def _naive_row_maximum(table, i, columns, out):
    """Write the maximum of the first ``columns`` entries of row i to ``out[i]``."""
    out[i] = max(FORBIDDEN, table[i, :columns].max())


@emitter
def _emit_columns(builder, table, j, count, out):
    """Emit the maxima of eight columns."""
    out.store(None, j, table.column_maxima(j, count))


@emitter
def _emit_row(builder, table, i, columns, out):
    """Emit the maximum of a row."""
    out.store(None, i, table.row_maximum(i, columns))


@intrinsic(_naive_columns)
def _vector_maxima(context, table, j, count, out):
    """Compute what ``_naive_columns`` does."""
    return types.void(table, types.intp, types.intp, out), _emit_columns


@intrinsic(_naive_row_maximum)
def _row_maximum(context, table, i, columns, out):
    """Compute what ``_naive_row_maximum`` does."""
    return types.void(table, types.intp, types.intp, out), _emit_row


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
