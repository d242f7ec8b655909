# mypy: ignore-errors
"""Addition of a pairwise table to a triangle's table over the same pair, eight entries of a row at a time.

The triangle pass of dual ascent begins with it. ``_naive`` is the NumPy twin of the intrinsic: it defines what this
computes, and runs where kernels are interpreted.

A triangle is a triplet region of three variables with one table per pair of them. ``_emit`` writes the intrinsic's LLVM
code with ``builder``: ``arguments`` holds the LLVM values of the intrinsic's arguments, and ``signature`` their Numba
types.
"""

import numpy as np
from llvmlite import ir
from numba import types

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN, FORBIDDEN_BELOW
from dmcmc.inference.bounds.dual.tables.llvm_vectors import INTEGER, LANES, VectorTable, constant
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.runtime.interpreted import intrinsic


def _naive(into, table, i, j):
    """Do the work of ``add_table`` for eight entries of row i, from column j on (NumPy twin of the intrinsic)."""
    total = into[i, j : j + LANES] + table[i, j : j + LANES]
    into[i, j : j + LANES] = np.where(total < FORBIDDEN_BELOW, FORBIDDEN, total)


def _emit(context, builder, signature, arguments):
    """Emit the addition of eight entries of a row."""
    into, table, i, j = arguments
    into, table = (VectorTable(context, builder, signature.args[n], value) for n, value in enumerate((into, table)))
    integers = ir.VectorType(INTEGER, LANES)
    total = builder.add(into.load(i, j, integers), table.load(i, j, integers))
    is_forbidden = builder.icmp_signed("<", total, constant(INTEGER, LANES, int(FORBIDDEN_BELOW)))
    into.store(i, j, builder.select(is_forbidden, constant(INTEGER, LANES, int(FORBIDDEN)), total))
    return context.get_dummy_value()


@intrinsic(_naive)
def _add_vector(context, into, table, i, j):
    """Add eight entries of ``table``, row i from column j on, to ``into``."""
    return types.void(into, table, types.intp, types.intp), _emit


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
