"""Round the potentials of a dual ascent to assignments for many rows at once on the GPU.

The assignments are the same as those of ``dmcmc.inference.bounds.dual.rounding`` on the CPU.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.cuda.rounding_kernels import round_rows_kernel
from dmcmc.inference.bounds.dual.rounding import Rounding
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import shared_device

_THREADS_PER_BLOCK = 64  # a thread rounds one row; two warps per block
_FIRST_ROWS = 1 << 10  # rows of the first launch, which is short because a launch cannot be interrupted
_MAX_ROWS = 1 << 16  # most rows of a launch; each launch has four times as many as the one before, up to this
_MEMORY_FRACTION = 8  # the workspace of a launch takes at most 1 / 8 of the device memory that may be used
_GRAPH_ARRAYS = ("domains", "scope_start", "scope", "stride", "table_start", "data", "start", "factor", "position")

Ints = NDArray[np.int64]


def round_on_device(rounding: Rounding, rows: Ints, stop: Deadline) -> Ints:
    """Return the free variables' values for some rows, (rows, free) int64; 0 for rows not reached before ``stop``.

    Parameters
    ----------
    rounding : Rounding
        The tables; its first ``free`` variables are free, and a row fixes the others.
    rows : (rows,) int64
        Row numbers, in C order over the fixed variables.
    stop : Deadline
        No launch starts after it.
    """
    device, assignments = shared_device(), np.zeros((rows.size, rounding.free), dtype=np.int64)
    n, max_domain_size = rounding.noise.shape[1:]
    # Shapes of one row of the ``RoundingWorkspace``: values, scores, marginals, margins, best_values, counter.
    sizes = ((n,), (n, max_domain_size), (rounding.marginal_entries,), (n,), (n,), (rounding.max_arity,))
    row_bytes = 8 * sum(int(np.prod(size)) for size in sizes)
    graph = [device.upload_shaped(f"round {name}", getattr(rounding.graph, name)) for name in _GRAPH_ARRAYS]
    marginal_start = device.upload_shaped("round marginal_start", rounding.marginal_start)
    noise, first, launch_rows = device.upload_shaped("round noise", rounding.noise), 0, _FIRST_ROWS
    while first < rows.size and not stop.over:
        part = rows[first : first + max(1, min(launch_rows, _MAX_ROWS, device.limit // _MEMORY_FRACTION // row_bytes))]
        workspace = [
            device.buffer(f"round workspace {i}", int(np.prod(size)) * part.size, np.dtype(np.int64))[
                : int(np.prod(size)) * part.size
            ].reshape(*size, part.size)
            for i, size in enumerate(sizes)
        ]
        round_rows_kernel[-(-part.size // _THREADS_PER_BLOCK), _THREADS_PER_BLOCK](
            *graph, rounding.free, marginal_start, device.upload_shaped("round rows", part), noise, *workspace
        )
        assignments[first : first + part.size] = workspace[0].copy_to_host()[: rounding.free].T
        first, launch_rows = first + part.size, 4 * launch_rows
    return assignments
