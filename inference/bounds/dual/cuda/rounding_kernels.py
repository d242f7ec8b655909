# mypy: ignore-errors
"""Tables rounded on an NVIDIA GPU: a thread a row, by the CPU's functions; rooms of neighbours lie side by side."""

from numba import cuda

from dmcmc.inference.bounds.dual.rounding_kernels import Room, Shared, round_row
from dmcmc.inference.runtime.compile import cuda_jit


@cuda_jit()
def round_rows_there(
    domains, scope_start, scope, stride, at, data, start, slot, table_of, places, free, rows, noise, values, scores,
    says, leads, bests, digit,
):  # fmt: skip
    """Round rows; what is found is left in ``values``.

    Parameters
    ----------
    rows : (rows,) int64
    values, scores, says, leads, bests, digit
        A :class:`Room` with a last axis for rows.
    """
    i = cuda.grid(1)
    if i >= rows.size:
        return
    shared = Shared(domains, scope_start, scope, stride, at, data, start, slot, table_of, places)
    room = Room(values[:, i], scores[:, :, i], says[:, i], leads[:, i], bests[:, i], digit[:, i])
    round_row(shared, free, rows[i], noise, room)
