# mypy: ignore-errors
"""What a triangle takes in of one of its pairs: eight entries of a row at a time."""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, THRESHOLD
from dmcmc.inference.bounds.dual.tables.llvm_vectors import INTEGER, LANES, Table, constant
from dmcmc.inference.runtime.compile import njit


def _naive(into, table, i, j):
    """As :func:`take_in`, for some entries of row i from column j on."""
    total = into[i, j : j + LANES] + table[i, j : j + LANES]
    into[i, j : j + LANES] = np.where(total < THRESHOLD, DEAD, total)


if config.DISABLE_JIT:
    _lanes = _naive
else:

    def _emit(context, builder, signature, arguments):
        into, table, i, j = arguments
        into, table = (Table(context, builder, signature.args[n], one) for n, one in enumerate((into, table)))
        integers = ir.VectorType(INTEGER, LANES)
        total = builder.add(into.load(i, j, integers), table.load(i, j, integers))
        dead = builder.icmp_signed("<", total, constant(INTEGER, LANES, int(THRESHOLD)))
        into.store(i, j, builder.select(dead, constant(INTEGER, LANES, int(DEAD)), total))
        return context.get_dummy_value()

    @intrinsic
    def _lanes(context, into, table, i, j):
        return types.void(into, table, types.intp, types.intp), _emit


@njit(nogil=True)
def take_in(into, table, rows, columns):
    """Add ``table`` to ``into``; the caller overwrites or clears ``table``. ``columns`` is a multiple of 8."""
    for i in range(rows):
        for j in range(0, columns, LANES):
            _lanes(into, table, i, j)
