# mypy: ignore-errors
"""Random choices between chains: the rows that a warm round starts from, and exchanges of temperatures.

A row is an assignment of the agent's boundary variables (its interface), numbered in C order; its chains are its runs.
"""

import math

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.rng_kernels import philox, uniform

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


@njit(allocates=False)
def exchanges(cold_temperature, hot_temperature, rise, key0, key1, row, rung, trial):
    """Return whether the runs on two neighbouring rungs are exchanged, by the rule of parallel tempering.

    They are if log(u) < (1 / T_cold − 1 / T_hot) · (U_hot − U_cold), with u uniform in (0, 1).

    Parameters
    ----------
    cold_temperature, hot_temperature : float32
        Temperatures of the two rungs, in chain units.
    rise : float64
        U_hot − U_cold, where U are the utilities in which each violation has a finite penalty (*eased*).
    key0, key1 : uint64
        Key of the agent's chains.
    row, rung, trial : int
        Counter of the random bits: the row, the lower rung and the trial.
    """
    rate_difference = 1.0 / np.float64(cold_temperature) - 1.0 / np.float64(hot_temperature)
    return math.log(uniform(philox(key0, key1, row, rung, trial, SWAP_BLOCK)[0])) < rate_difference * rise
