# mypy: ignore-errors
"""Choose the rows whose best states the chains of a warm round start from.

A row is an assignment of the agent's boundary variables (its interface), numbered in C order; its chains are its runs.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.rng_kernels import philox

START_BLOCK = 1 << 24  # first block of a chain's counter that its trials do not use
SWAP_BLOCK = 1 << 25


@njit(allocates=False)
def start_row(shape, row, run, key, first):
    """Return the row whose best state one chain of a warm round starts from.

    Run 0 starts from its own row; other runs start from a row that differs in one interface variable, drawn uniformly.

    Parameters
    ----------
    shape : (|B|,) int64
        Domain sizes of the interface variables; rows are in C order.
    row, run : int
        Numbers of the row and of the run.
    key : (2,) uint64
        Key of the agent's chains.
    first : int
        Number of the round's first trial.
    """
    movable = 0
    for b in range(shape.size):
        movable += shape[b] > 1
    if run == 0 or movable == 0:
        return row
    words = philox(key[0], key[1], row, run, first, START_BLOCK)
    chosen = np.int64((words[0] * np.uint64(movable)) >> np.uint64(32))
    stride = 1
    for b in range(shape.size - 1, -1, -1):
        stride *= shape[b]
    for b in range(shape.size):
        stride //= shape[b]
        if shape[b] == 1:
            continue
        if chosen == 0:
            value = row // stride % shape[b]
            other = np.int64((words[1] * np.uint64(shape[b] - 1)) >> np.uint64(32))
            return row + (other + (other >= value) - value) * stride
        chosen -= 1
    return row
