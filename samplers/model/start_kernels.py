# mypy: ignore-errors
"""Where the chains of a warm round start."""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.rng_kernels import philox

START_BLOCK = 1 << 24  # of a chain's counter: apart from the blocks that its trials draw from
SWAP_BLOCK = 1 << 25


@njit()
def start_row(shape, row, run, key, first):
    """Return the row whose best state chain ``run`` of a row starts a warm round from.

    Parameters
    ----------
    shape : (|B|,) int64
        Domain sizes of the interface variables; rows count in C order.
    key : (2,) uint64
    first : int
        Number of the round's first trial.
    """
    choices = 0
    for b in range(shape.size):
        choices += shape[b] > 1
    if run == 0 or choices == 0:
        return row
    words = philox(key[0], key[1], row, run, first, START_BLOCK)
    left = np.int64((words[0] * np.uint64(choices)) >> np.uint64(32))
    stride = 1
    for b in range(shape.size - 1, -1, -1):
        stride *= shape[b]
    for b in range(shape.size):
        stride //= shape[b]
        if shape[b] == 1:
            continue
        if left == 0:
            own = row // stride % shape[b]
            other = np.int64((words[1] * np.uint64(shape[b] - 1)) >> np.uint64(32))
            return row + (other + (other >= own) - own) * stride
        left -= 1
    return row
