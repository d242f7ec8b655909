"""Round the potentials of a dual ascent to assignments for many rows at once on the GPU.

The assignments are the same as those of ``dmcmc.inference.bounds.dual.rounding`` on the CPU.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.cuda.rounding_kernels import round_rows_kernel
from dmcmc.inference.bounds.dual.rounding import Rounding
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import shared_device

_THREADS_PER_BLOCK = 64
_FIRST_ROWS = 1 << 10  # rows of the first launch; later ones have more, but a launch cannot be interrupted
_MAX_ROWS = 1 << 16  # rows of a launch
_MEMORY_FRACTION = 8  # one in this many bytes of the device's memory may hold the workspace of a launch

Ints = NDArray[np.int64]


def round_on_device(rounding: Rounding, rows: Ints, stop: Deadline) -> Ints:
    """Return the free variables' values for some rows, (rows, free) int64; 0 for rows not reached before ``stop``."""
    device, assignments = shared_device(), np.zeros((rows.size, rounding.free), dtype=np.int64)
    n, max_domain_size = rounding.noise.shape[1:]
    sizes = ((n,), (n, max_domain_size), (rounding.marginal_entries,), (n,), (n,), (rounding.max_arity,))
    row_bytes = 8 * sum(int(np.prod(size)) for size in sizes)
    names = rounding.tables._fields
    tables = [device.upload_shaped(f"round {name}", getattr(rounding.tables, name)) for name in names]
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
            *tables, rounding.free, device.upload_shaped("round rows", part), noise, *workspace
        )
        assignments[first : first + part.size] = workspace[0].copy_to_host()[: rounding.free].T
        first, launch_rows = first + part.size, 4 * launch_rows
    return assignments
