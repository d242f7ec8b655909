# mypy: ignore-errors
"""The DMCMC paper's proposal of Metropolis-Hastings (§3.2), see :mod:`dmcmc.samplers.model.jumps`."""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.jumps import MIDDLE

_MIDDLE = np.int32(MIDDLE)


@njit(inline="always")
def jump(jumps, at, word):
    """Return round(N(0, √|D|)) by one random word (32 bits), from the table that begins at ``at``."""
    column = np.uint32(word) >> np.uint32(24)
    entry = jumps[at + np.int32(column)]
    if (np.uint32(word) & np.uint32(0xFFFFFF)) >= (entry >> np.uint32(8)):
        column = entry & np.uint32(0xFF)
    return np.int32(column) - _MIDDLE


@njit(inline="always")
def reflected(place, size):
    """Return a value reflected into 0..size−1, the mirrors half a step beyond the ends."""
    while place < 0 or place >= size:  # mostly never; a division would take longer
        place = -np.int32(1) - place if place < 0 else size + size - np.int32(1) - place
    return place
