# mypy: ignore-errors
"""Nodes' tables in a slot, and from there: triangles' tables in 16 bits, without a change of any sum.

A triangle's entry is kept as a multiple of a power of two, the same for all of a node, and what is above that goes to
the pair over the same variables. Rounded down, so a triangle is still worth 0 at most. Mostly the power is 1.
"""

import numpy as np

from dmcmc.inference.bounds.dual.pair_kernels import DEAD, THRESHOLD, size_of
from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

MOST = (1 << 15) - 1  # the largest number of 16 bits
LOST = -MOST - 1  # stands for a dead entry


@njit(nogil=True)
def power_for(largest):
    """Return the power of two of which triangles' entries are kept as multiples, where the largest one is given."""
    shift = 0
    while largest >> shift > MOST:
        shift += 1
    return shift


@njit(nogil=True)
def store(pool, slot, area, graph):
    """Keep an area's tables in a slot; the area is of no use after it."""
    entries, kept = area.cluster.reshape(-1), pool.cluster[slot].reshape(-1)
    largest = np.int32(0)
    for i in range(entries.size):
        largest = max(largest, size_of(entries[i]))
    shift = power_for(largest)
    for i in range(entries.size):
        kept[i] = np.int16(LOST) if entries[i] < THRESHOLD else np.int16(entries[i] >> shift)
    if shift > 0:
        for t in range(graph.triangles.shape[0]):
            for k in range(3):
                _add_rest(area.cluster[t, k], area.pair[graph.triangles[t, k]], np.int32((1 << shift) - 1))
    copy_entries(area.pair.reshape(-1), pool.pair[slot].reshape(-1))
    copy_entries(area.unary.reshape(-1), pool.unary[slot].reshape(-1))
    copy_entries(area.star, pool.star[slot])
    copy_entries(area.domains, pool.domains[slot])
    copy_entries(area.names.reshape(-1), pool.names[slot].reshape(-1))
    pool.shifts[slot] = shift


@njit(nogil=True)
def _add_rest(entries, pair, below):
    """Add to a pair what is lost of a triangle's entries over it, the bits of ``below``."""
    for i in range(entries.shape[0]):
        for j in range(entries.shape[1]):
            x = pair[i, j]
            rest = np.int32(0) if entries[i, j] < THRESHOLD else np.int32(entries[i, j] & below)
            pair[i, j] = DEAD if x < THRESHOLD else np.int32(x + rest)


@njit(nogil=True)
def fetch(pool, slot, area):
    """Bring a slot's tables to an area."""
    kept, entries = pool.cluster[slot].reshape(-1), area.cluster.reshape(-1)
    shift = np.int32(pool.shifts[slot])
    for i in range(kept.size):
        x = np.int32(kept[i])
        entries[i] = DEAD if x == LOST else np.int32(x << shift)
    copy_entries(pool.pair[slot].reshape(-1), area.pair.reshape(-1))
    copy_entries(pool.unary[slot].reshape(-1), area.unary.reshape(-1))
    copy_entries(pool.star[slot], area.star)
    copy_entries(pool.domains[slot], area.domains)
    copy_entries(pool.names[slot].reshape(-1), area.names.reshape(-1))
