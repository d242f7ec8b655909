"""What rows are worth, found on the GPU: large tables of sampled agents begin there."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.cuda.device_table import DeviceTable, leased
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.device import shared_device
from dmcmc.inference.runtime.types import Array

_THREADS, _BLOCKS = 256, 1 << 12


def evaluate_there(
    flat: FlatTables,
    domains: NDArray[np.int32],
    states: Array,
    interface: tuple[int, ...],
    arithmetic: Arithmetic,
) -> DeviceTable:
    """Return what :func:`.evaluate_rows` does as a table that lies on the GPU; the same sums, in the same order.

    Parameters
    ----------
    interface
        The variables that the table is over; their sizes are the last of ``domains``.
    """
    from dmcmc.samplers.cuda.evaluation_kernels import evaluate

    device, (rows, hidden) = shared_device(), states.shape
    shape = tuple(domains[hidden:].tolist())
    steps = [0] * hidden + [prod(shape[place + 1 :]) for place in range(len(shape))]
    head = np.array([domains.size, flat.tables, hidden], dtype=np.int64)
    words = np.concatenate([head, domains, steps, flat.scope_start, flat.at, flat.scope]).astype(np.int64)
    never, lowest = forbidden_value(flat.data.dtype), arithmetic.dtype.type(arithmetic.lowest)
    table = leased(interface, shape, arithmetic.dtype)
    evaluate[max(1, min(_BLOCKS, -(-rows // _THREADS))), _THREADS](
        device.upload("rows words", words),
        device.upload("rows data", flat.data),
        device.upload("rows states", np.ascontiguousarray(states).reshape(-1)),
        rows,
        flat.data.dtype.type(never),
        lowest,
        table.entries,
    )
    return table
