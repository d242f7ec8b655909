# mypy: ignore-errors
"""Tables transposed, 8 x 8 entries at a time: in registers, where entries of two rows change places."""

from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from dmcmc.inference.bounds.dual.tables.llvm_vectors import INTEGER, LANES, Table
from dmcmc.inference.runtime.compile import njit


def _naive(table, out, i, j):
    """Set a block of ``out``, from (j, i) on, to that of the table from (i, j) on, transposed."""
    out[j : j + LANES, i : i + LANES] = table[i : i + LANES, j : j + LANES].T


if config.DISABLE_JIT:
    _block = _naive
else:

    def _exchange(builder, one, other, step):
        """Return two rows of which each has got blocks of ``step`` entries of the other, so that both are in order."""
        kind, places = ir.VectorType(INTEGER, LANES), range(LANES)
        first = [p if p & step == 0 else LANES + p - step for p in places]
        second = [p + step if p & step == 0 else LANES + p for p in places]
        return [builder.shuffle_vector(one, other, ir.Constant(kind, order)) for order in (first, second)]

    def _emit(context, builder, signature, arguments):
        table, out, i, j = arguments
        table, out = (Table(context, builder, signature.args[n], one) for n, one in enumerate((table, out)))
        after = [ir.Constant(i.type, n) for n in range(LANES)]
        rows = [table.load(builder.add(i, n), j, ir.VectorType(INTEGER, LANES)) for n in after]
        for step in (1, 2, 4):
            for n in range(LANES):
                if n & step == 0:
                    rows[n], rows[n + step] = _exchange(builder, rows[n], rows[n + step], step)
        for n, row in zip(after, rows, strict=True):
            out.store(builder.add(j, n), i, row)
        return context.get_dummy_value()

    @intrinsic
    def _block(context, table, out, i, j):
        return types.void(table, out, types.intp, types.intp), _emit


@njit(nogil=True)
def turn(table, out, rows, columns):
    """Set out[j, i] = table[i, j]; ``rows`` and ``columns`` are multiples of 8."""
    for i in range(0, rows, LANES):
        for j in range(0, columns, LANES):
            _block(table, out, i, j)
