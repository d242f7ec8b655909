# mypy: ignore-errors
"""The largest entries of a table's columns: eight columns at a time, each in its place of a register."""

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from dmcmc.inference.bounds.dual.tables.entries import DEAD
from dmcmc.inference.bounds.dual.tables.vectors import INTEGER, LANES, Table, constant, larger, repeated
from dmcmc.inference.runtime.compile import njit


def _naive(table, j, count, out):
    """Write the largest entries of some columns from j on, over so many rows."""
    out[j : j + LANES] = table[:count, j : j + LANES].max(axis=0)


if config.DISABLE_JIT:
    _lanes = _naive
else:

    def _emit(context, builder, signature, arguments):
        table, j, count, out = arguments
        table, out = (Table(context, builder, signature.args[n], one) for n, one in ((0, table), (3, out)))
        integers = ir.VectorType(INTEGER, LANES)

        def turn(k, tops):
            return [larger(builder, table.load(k, j, integers), *tops)]

        out.store(None, j, *repeated(builder, count, [constant(INTEGER, LANES, int(DEAD))], turn))
        return context.get_dummy_value()

    @intrinsic
    def _lanes(context, table, j, count, out):
        return types.void(table, types.intp, types.intp, out), _emit


@njit(nogil=True)
def column_maxima(table, rows, columns, out):
    """Write the largest entry of each column, DEAD at least, to ``out``; ``columns`` is a multiple of 8."""
    for j in range(0, columns, LANES):
        _lanes(table, j, rows, out)
