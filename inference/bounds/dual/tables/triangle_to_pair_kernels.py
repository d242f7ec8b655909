# mypy: ignore-errors
"""The message from a triangle to one of its pairs, eight entries of a row at a time.

The triangle pass of dual ascent sends a pair a fraction of the triangle's max-marginal over it. ``_naive`` is the NumPy
twin of the intrinsic: it defines what this computes, and runs where kernels are interpreted.

A triangle is a triplet region of three variables with one table per pair of them. Its max-marginal over the pair ab is
the table ab plus the max-plus product of the other two tables. Entries below ``FORBIDDEN_BELOW`` are forbidden.
``_emit`` writes the intrinsic's LLVM code with ``builder``: ``arguments`` holds the LLVM values of the intrinsic's
arguments, and ``signature`` their Numba types.
"""

import numpy as np
from llvmlite import ir
from numba import types

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE
from dmcmc.inference.bounds.dual.tables.llvm_vectors import FLOAT, INTEGER, LANES, VectorTable, constant, splat
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.runtime.interpreted import intrinsic


def _naive(triangle, pair, other_tables, i, j, weight):
    """Do the work of ``send_to_pair`` for eight entries of row i from column j; return 1 if one leaves the range."""
    remainder, message = triangle[i, j : j + LANES], pair[i, j : j + LANES]
    marginal = remainder + other_tables[i, j : j + LANES]
    is_forbidden = marginal < FORBIDDEN_BELOW
    message[:] = marginal if weight == 1 else (marginal.astype(np.float32) * weight).astype(np.int32)
    remainder -= message
    message[is_forbidden], remainder[is_forbidden] = FORBIDDEN, FORBIDDEN
    allowed = np.abs(np.concatenate([remainder[~is_forbidden], message[~is_forbidden]]))
    return int((allowed > MAX_MAGNITUDE).any())


def _emit(context, builder, signature, arguments):
    """Emit the message of eight entries; return the mask of entries that left the range as an integer."""
    *tables, i, j, weight = arguments
    triangle, pair, other_tables = (
        VectorTable(context, builder, kind, table) for kind, table in zip(signature.args, tables, strict=False)
    )
    integers = ir.VectorType(INTEGER, LANES)
    floats, forbidden_entry = ir.VectorType(FLOAT, LANES), constant(INTEGER, LANES, int(FORBIDDEN))
    remainder = triangle.load(i, j, integers)
    marginal = builder.add(remainder, other_tables.load(i, j, integers))
    is_forbidden = builder.icmp_signed("<", marginal, constant(INTEGER, LANES, int(FORBIDDEN_BELOW)))
    scaled = builder.fmul(builder.sitofp(marginal, floats), splat(builder, weight, LANES))
    sends_all = builder.fcmp_ordered("==", weight, ir.Constant(FLOAT, 1.0))
    message = builder.select(sends_all, marginal, builder.fptosi(scaled, integers))
    difference = builder.sub(remainder, message)

    def out_of_range(value):
        """Return a mask of the entries outside ±``MAX_MAGNITUDE``, with one unsigned comparison."""
        moved = builder.add(value, constant(INTEGER, LANES, int(MAX_MAGNITUDE)))
        return builder.icmp_unsigned(">", moved, constant(INTEGER, LANES, 2 * int(MAX_MAGNITUDE)))

    out_of_range_lanes = builder.and_(
        builder.or_(out_of_range(difference), out_of_range(message)), builder.not_(is_forbidden)
    )
    pair.store(i, j, builder.select(is_forbidden, forbidden_entry, message))
    triangle.store(i, j, builder.select(is_forbidden, forbidden_entry, difference))
    return builder.zext(builder.bitcast(out_of_range_lanes, ir.IntType(LANES)), ir.IntType(64))


@intrinsic(_naive)
def _send_vector(context, triangle, pair, other_tables, i, j, weight):
    """Compute what ``_naive`` does."""
    return types.int64(triangle, pair, other_tables, types.intp, types.intp, types.float32), _emit


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
