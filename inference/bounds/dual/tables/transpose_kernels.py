# mypy: ignore-errors
"""Transposition of int32 tables in registers, one block of 8 x 8 entries at a time.

The triangle pass transposes a table before a max-plus product. ``_naive`` is the NumPy twin of the intrinsic: it
defines what this computes, and runs where kernels are interpreted. ``_emit`` writes the intrinsic's LLVM code with
``builder``; its other arguments are LLVM values.
"""

from llvmlite import ir

from dmcmc.inference.bounds.dual.tables.llvm_vectors import INTEGER, INTEGER_LANES, LANES, vector_intrinsic
from dmcmc.inference.runtime.compile import njit


def _naive(table, out, i, j):
    """Write the 8 x 8 block of ``table`` at (i, j), transposed, to ``out`` at (j, i) (NumPy twin of the intrinsic)."""
    out[j : j + LANES, i : i + LANES] = table[i : i + LANES, j : j + LANES].T


def _exchange(builder, upper, lower, step):
    """Swap alternate groups of ``step`` entries between two rows: one exchange of the transposition network.

    With A B the groups of ``upper`` and C D those of ``lower``, the result is A C and B D.
    """
    kind, places = ir.VectorType(INTEGER, LANES), range(LANES)
    first = [p if p & step == 0 else LANES + p - step for p in places]
    second = [p + step if p & step == 0 else LANES + p for p in places]
    return [builder.shuffle_vector(upper, lower, ir.Constant(kind, order)) for order in (first, second)]


@vector_intrinsic(_naive)
def _transpose_block(builder, table, out, i, j):
    """Emit the transposition of an 8 x 8 block in registers: three steps of row exchanges."""
    offsets = [ir.Constant(i.type, n) for n in range(LANES)]
    rows = [table.load(builder.add(i, n), j, INTEGER_LANES) for n in offsets]
    for step in (1, 2, 4):
        for n in range(LANES):
            if n & step == 0:
                rows[n], rows[n + step] = _exchange(builder, rows[n], rows[n + step], step)
    for n, row in zip(offsets, rows, strict=True):
        out.store(builder.add(j, n), i, row)


@njit(nogil=True, allocates=False)
def transpose(table, out, rows, columns):
    """Set ``out[j, i] = table[i, j]`` for i < rows and j < columns.

    Parameters
    ----------
    table, out : (>= rows, >= columns) and (>= columns, >= rows) int32
    rows, columns : int
        Multiples of 8.
    """
    for i in range(0, rows, LANES):
        for j in range(0, columns, LANES):
            _transpose_block(table, out, i, j)
