# mypy: ignore-errors
"""The DMCMC paper's proposal of Metropolis-Hastings (§3.2), see :mod:`dmcmc.samplers.model.jumps`."""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.jumps import MIDDLE

_ZERO_JUMP_COLUMN = np.int32(MIDDLE)


@njit(allocates=False)
def jump(jumps, at, word):
    """Return a draw of round(N(0, √|D|)) from 32 random bits.

    Parameters
    ----------
    jumps : (any,) uint32
        Alias tables.
    at : int
        Offset of the table to use.
    word : uint64
        32 random bits.
    """
    column = np.uint32(word) >> np.uint32(24)
    entry = jumps[at + np.int32(column)]
    if (np.uint32(word) & np.uint32(0xFFFFFF)) >= (entry >> np.uint32(8)):
        column = entry & np.uint32(0xFF)
    return np.int32(column) - _ZERO_JUMP_COLUMN


@njit(allocates=False)
def reflected(value, size):
    """Return a value reflected into 0..size−1, with mirrors half a step beyond the ends."""
    while value < 0 or value >= size:  # rarely repeated, so cheaper than a division
        value = -np.int32(1) - value if value < 0 else size + size - np.int32(1) - value
    return value
