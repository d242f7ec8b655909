"""Many rows rounded at once on the GPU: the same assignments as on the CPU."""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.cuda.rounding_kernels import round_rows_there
from dmcmc.inference.bounds.dual.rounding import Rounding
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import shared_device

_THREADS = 64  # of a block
_FIRST, _MOST = 1 << 10, 1 << 16  # rows of a launch: nothing can stop it
_PART = 8  # of the device's memory, for the room of a launch

Ints = NDArray[np.int64]


def round_on_device(rounding: Rounding, rows: Ints, stop: Stop) -> Ints:
    """Return the free variables' values for some rows, (rows, free); first values where it is time to stop."""
    device, found = shared_device(), np.zeros((rows.size, rounding.free), dtype=np.int64)
    n, widest = rounding.noise.shape[1:]
    sizes = ((n,), (n, widest), (rounding.said,), (n,), (n,), (rounding.widest,))
    each = 8 * sum(int(np.prod(size)) for size in sizes)
    names = rounding.shared._fields
    shared = [device.upload_shaped(f"round {name}", getattr(rounding.shared, name)) for name in names]
    noise, begin, many = device.upload_shaped("round noise", rounding.noise), 0, _FIRST
    while begin < rows.size and not stop.over:
        these = rows[begin : begin + max(1, min(many, _MOST, device.limit // _PART // each))]
        room = [
            device.buffer(f"round room {i}", int(np.prod(size)) * these.size, np.dtype(np.int64))[
                : int(np.prod(size)) * these.size
            ].reshape(*size, these.size)
            for i, size in enumerate(sizes)
        ]
        round_rows_there[-(-these.size // _THREADS), _THREADS](
            *shared, rounding.free, device.upload_shaped("round rows", these), noise, *room
        )
        found[begin : begin + these.size] = room[0].copy_to_host()[: rounding.free].T
        begin, many = begin + these.size, 4 * many
    return found
