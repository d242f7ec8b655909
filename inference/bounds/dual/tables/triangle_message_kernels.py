# mypy: ignore-errors
"""Addition of a pairwise table to a triangle, and the message back to the pair, eight entries of a row at a time.

The triangle pass of dual ascent sends a pair a fraction of the triangle's max-marginal over it. The ``_naive``
functions are NumPy twins of the intrinsics: they define what these compute, and run where kernels are interpreted.

A triangle is a triplet region of three variables with one table per pair of them. Its max-marginal over the pair ab is
the table ab plus the max-plus product of the other two tables. Entries below ``FORBIDDEN_BELOW`` are forbidden.
The intrinsics are written as functions that emit LLVM code with ``builder``; their other arguments are LLVM values.
"""

import numpy as np
from llvmlite import ir
from numba import types

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE
from dmcmc.inference.bounds.dual.tables.llvm_vectors import (
    FLOAT,
    FLOAT_LANES,
    FORBIDDEN_LANES,
    INTEGER_LANES,
    LANES,
    is_forbidden,
    is_out_of_range,
    mask_as_integer,
    splat,
    vector_intrinsic,
)
from dmcmc.inference.runtime.compile import njit


def _naive_add(into, table, i, j):
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


@vector_intrinsic(_naive_add)
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
