# mypy: ignore-errors
"""A thread's tile of a smoothed product of two small tables on a GPU: sums of products of powers, and their logarithms.

Powers lie in shared memory as :mod:`dmcmc.inference.bounds.dual.cuda.smoothed_triangle_kernels` has left them: each line of the left
table, and of the right one, has its terms side by side, so that a thread takes four at once.
"""

import numpy as np
from numba import cuda, float32, int32

from dmcmc.inference.bounds.dual.cuda.smoothed_triangle_kernels import APART, above, rounding_of, slope_at
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import CELLS, EDGE, tile_of
from dmcmc.inference.bounds.dual.pair_kernels import DEAD
from dmcmc.inference.bounds.dual.tables.log_sum_exp_kernels import LEAST

_DEEP = 4  # terms that a thread takes at once
_TAKEN = 2 * EDGE * _DEEP


@cuda.jit(device=True)
def add_powers(tiles, powers, slot, octets, inner, i0, j0, sums):
    """Set a thread's tile of sums (float32) of a product of powers, which begin at ``powers`` for all triangles."""
    bands = len(octets)
    width, line = np.uint32(8 * bands), np.uint32(8 * bands + APART)
    edge, across, down = tile_of(bands)
    mine, others = cuda.local.array(_TAKEN, float32), cuda.local.array(_DEEP, float32)
    left = np.uint64(np.uint32(powers + (slot * np.uint32(2) * width + i0) * line))
    right = np.uint64(np.uint32(powers + (slot * np.uint32(2) * width + width + j0) * line))
    for q in range(CELLS):
        sums[q] = np.float32(0)
    for _ in range(np.uint32(inner // np.uint32(_DEEP))):
        for q in range(2 * edge):
            for t in range(_DEEP):
                mine[q * _DEEP + t] = tiles[left + np.uint64(q * down * line + t)].view(np.float32)
        for p in range(edge):
            for t in range(_DEEP):
                others[t] = tiles[right + np.uint64(p * across * line + t)].view(np.float32)
            for q in range(2 * edge):
                for t in range(_DEEP):
                    product = np.float32(mine[q * _DEEP + t] * others[t])
                    sums[q * EDGE + p] = np.float32(sums[q * EDGE + p] + product)
        left, right = left + np.uint64(_DEEP), right + np.uint64(_DEEP)


@cuda.jit(device=True)
def find_logarithms(tiles, powers, count, slot, octets, temperature, i0, j0, sums, best):
    """Set a tile (int32) to what its sums stand for, DEAD where one may have lost all; whether one is."""
    bands = len(octets)
    width, line = np.uint32(8 * bands), np.uint32(8 * bands + APART)
    edge, across, down = tile_of(bands)
    back, up, low = np.float32(np.float32(1) / slope_at(temperature)), rounding_of(temperature), False
    at = np.uint64(np.uint32(powers + np.uint32(count) * np.uint32(2) * width * line + slot * np.uint32(2) * width))
    others = cuda.local.array(EDGE, int32)
    for p in range(edge):
        others[p] = np.int32(tiles[at + np.uint64(width + j0) + np.uint64(p * across)] + up)
    for q in range(2 * edge):
        top = tiles[at + np.uint64(i0) + np.uint64(q * down)]
        for p in range(edge):
            total = sums[q * EDGE + p]
            value = np.int32(np.int32(top + others[p]) + above(total, back))
            best[q * EDGE + p] = DEAD if total < LEAST else value
            low = low or total < LEAST
    return low
