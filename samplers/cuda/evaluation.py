"""Evaluate the rows of sampled agents on the GPU, where large tables then stay."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.device_table import DeviceTable, new_device_table
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.device import shared_device
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.cuda.evaluation_kernels import evaluate

_THREADS = 256  # threads per block; each evaluates one or more rows
_MAX_BLOCKS = 1 << 12  # maximum number of blocks; more rows are evaluated in turn


def evaluate_on_device(
    flat: FlatTables,
    domains: NDArray[np.int32],
    states: Array,
    interface: tuple[int, ...],
    arithmetic: Arithmetic,
) -> DeviceTable:
    """Return the result of :func:`dmcmc.samplers.model.evaluation.evaluate_rows` as a table on the GPU, bitwise equal.

    Parameters
    ----------
    flat : FlatTables
        The agent's tables.
    domains : (n,) int32
        Domain sizes, hidden variables first.
    states : (rows, hidden) integers
        Hidden values of each row.
    interface : tuple of int
        The variables of the table; their sizes are the last of ``domains``.
    arithmetic : Arithmetic
        Encoding of the table.
    """
    device, (rows, hidden) = shared_device(), states.shape
    shape = tuple(domains[hidden:].tolist())
    strides = [0] * hidden + [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    sizes = np.array([domains.size, flat.tables, hidden], dtype=np.int64)
    descriptor = np.concatenate([sizes, domains, strides, flat.scope_start, flat.at, flat.scope]).astype(np.int64)
    forbidden, lowest = forbidden_value(flat.data.dtype), arithmetic.dtype.type(arithmetic.lowest)
    table = new_device_table(interface, shape, arithmetic.dtype)
    evaluate[max(1, min(_MAX_BLOCKS, -(-rows // _THREADS))), _THREADS](
        device.upload("rows words", descriptor),
        device.upload("rows data", flat.data),
        device.upload("rows states", np.ascontiguousarray(states).reshape(-1)),
        rows,
        flat.data.dtype.type(forbidden),
        lowest,
        table.entries,
    )
    return table
