# mypy: ignore-errors
"""Maxima of the rows or columns of an int32 table, eight columns at a time in one vector register.

The kernels of dual ascent call ``row_maxima`` and ``column_maxima``. Both clamp the maxima from below to ``FORBIDDEN``.
The ``_naive`` functions are NumPy twins of the intrinsics: they define what these compute, and run where kernels are
interpreted.

The intrinsics are written as functions that emit LLVM code with ``builder``; their other arguments are LLVM values.
``FORBIDDEN`` is the entry that stands for minus infinity.
"""

import numpy as np

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN
from dmcmc.inference.bounds.dual.tables.llvm_vectors import LANES, vector_intrinsic
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
