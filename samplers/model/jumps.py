"""The DMCMC paper's proposal of Metropolis-Hastings (§3.2) as tables that one random word picks from.

A value z proposes round(z + N(0, √|D|)), reflected at the ends of its domain. Since z is a whole number, that is a jump
of round(N(0, √|D|)), whatever z is: one distribution for each domain size. It is drawn by Walker's alias method: a
table of 256 columns, each of which holds two jumps, in whole numbers, so that CPU and GPU make the same proposals.
"""

from functools import lru_cache
from itertools import pairwise
from math import erfc, sqrt

import numpy as np
from numpy.typing import NDArray

COLUMNS = 256
MIDDLE = COLUMNS // 2  # column of the jump by 0
_FULL = 1 << 24  # what a column holds, of 2^32 in all
_FAR = 127  # the longest jump: beyond seven deviations for any domain of 16 bits


@lru_cache
def jump_table(size: int) -> NDArray[np.uint32]:
    """Return the table of a domain size, shape (256,).

    The upper 8 bits of a random word are a column; if its lower 24 are less than the upper 24 of the column's entry,
    the jump is that of the column, else the one that the entry's lower 8 bits name. Both are less :data:`MIDDLE`.
    """
    weights = _weights(size)
    small = [c for c in range(COLUMNS) if weights[c] < _FULL]
    large = [c for c in range(COLUMNS) if weights[c] >= _FULL]
    left, other = list(weights), list(range(COLUMNS))
    while small:
        column, giver = small.pop(), large[-1]
        other[column] = giver
        left[giver] -= _FULL - left[column]
        if left[giver] < _FULL:
            small.append(large.pop())
    kept = (min(left[c], _FULL - 1) for c in range(COLUMNS))  # a full column names itself
    return np.array([k << 8 | o for k, o in zip(kept, other, strict=True)], dtype=np.uint32)


def _weights(size: int) -> list[int]:
    """Return how many of 2^32 words make each jump; symmetric."""
    deviation = float(size) ** 0.25
    tails = [0.5 * erfc((j - 0.5) / deviation / sqrt(2.0)) for j in range(1, _FAR + 2)]
    one_way = [round((a - b) * 2.0**32) for a, b in pairwise(tails)]
    weights = [0] * COLUMNS
    for jump, weight in enumerate(one_way, 1):
        weights[MIDDLE + jump] = weights[MIDDLE - jump] = weight
    weights[MIDDLE] = (1 << 32) - sum(weights)
    return weights


def jumps_of(domains: NDArray[np.int32]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Return the tables of some domain sizes, one after another, and where each variable's begins."""
    sizes, places = np.unique(domains, return_inverse=True)
    tables = [jump_table(size) for size in sizes.tolist()]
    return np.concatenate(tables or [jump_table(1)]), (COLUMNS * places).astype(np.int32).reshape(-1)
