# mypy: ignore-errors
"""Proposals of a chain, and its jumps.

The DMCMC paper's proposal of Metropolis-Hastings (§3.2), see :mod:`dmcmc.samplers.model.proposal_kernels`.

The DMCMC paper's proposal of Metropolis-Hastings (§3.2) as alias tables, drawn by one random word.

The proposal for a value z is round(z + N(0, √|D|)), reflected at the ends of the domain. Since z is an integer, this is
a jump by round(N(0, √|D|)), for any z: one distribution per domain size. It is drawn by Walker's alias method. A table
has 256 columns of two jumps each, with integer weights, so that CPU and GPU make the same proposals.
"""

from functools import lru_cache
from itertools import pairwise
from math import erfc, sqrt

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.compile import njit

COLUMNS = 256
MIDDLE = COLUMNS // 2  # column of the jump by 0
_COLUMN_WEIGHT = 1 << 24  # weight of a column; the weights of all columns sum to 2^32
_MAX_JUMP = 127  # the longest jump: more than seven standard deviations for any domain of 16 bits


@lru_cache
def jump_table(size: int) -> NDArray[np.uint32]:
    """Return the alias table for a domain size, shape (256,) uint32.

    The upper 8 bits of a random word select a column. If its lower 24 bits are less than the upper 24 bits of the
    column's entry, the jump is that of the column; otherwise it is that of the column named by the entry's lower 8
    bits. The jump of a column is its number less :data:`MIDDLE`.
    """
    weights = _weights(size)
    underfull = [c for c in range(COLUMNS) if weights[c] < _COLUMN_WEIGHT]
    overfull = [c for c in range(COLUMNS) if weights[c] >= _COLUMN_WEIGHT]
    remaining, alias = list(weights), list(range(COLUMNS))
    while underfull:
        column, donor = underfull.pop(), overfull[-1]
        alias[column] = donor
        remaining[donor] -= _COLUMN_WEIGHT - remaining[column]
        if remaining[donor] < _COLUMN_WEIGHT:
            underfull.append(overfull.pop())
    thresholds = (min(remaining[c], _COLUMN_WEIGHT - 1) for c in range(COLUMNS))  # a full column is its own alias
    return np.array([k << 8 | o for k, o in zip(thresholds, alias, strict=True)], dtype=np.uint32)


def _weights(size: int) -> list[int]:
    """Return the number of 32-bit words, out of 2^32, for each jump; symmetric."""
    deviation = float(size) ** 0.25
    tails = [0.5 * erfc((j - 0.5) / deviation / sqrt(2.0)) for j in range(1, _MAX_JUMP + 2)]
    one_way = [round((a - b) * 2.0**32) for a, b in pairwise(tails)]
    weights = [0] * COLUMNS
    for jump, weight in enumerate(one_way, 1):
        weights[MIDDLE + jump] = weights[MIDDLE - jump] = weight
    weights[MIDDLE] = (1 << 32) - sum(weights)
    return weights


def jumps_of(domains: NDArray[np.int32]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Return the alias tables of the distinct domain sizes, concatenated, and the offset of each variable's table.

    Parameters
    ----------
    domains : (hidden,) int32
        Domain sizes.

    Returns
    -------
    tables : (256 · distinct sizes,) uint32
        The alias tables.
    offsets : (hidden,) int32
        Where each variable's table begins.
    """
    sizes = domains.tolist()
    distinct = sorted(set(sizes))
    offsets = {size: COLUMNS * number for number, size in enumerate(distinct)}
    tables = [jump_table(size) for size in distinct] or [jump_table(1)]
    return np.concatenate(tables), np.array([offsets[size] for size in sizes], dtype=np.int32)


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
