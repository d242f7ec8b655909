"""Max-marginals of mini-buckets and the bounds of messages, on an NVIDIA GPU; no joined table is written.

A mini-bucket comes prepared as S, B and start, described by words of ``meta``; see :mod:`dmcmc.inference.join_cuda`.
Where elimination takes the maximum over x of

    S[x, h] + B[x, l] + Σ tables that vary with both h and l,

a max-marginal takes it over (h, l). A block has up to 8 groups of 32 threads and keeps to one x. Each thread holds 4
columns l and walks down rows h, a group a row, so that neighbours read neighbouring entries. Without tables that vary
with both, the maxima over h and over l are separate. Blocks meet in one number a value of x, by an atomic maximum: that
is the same in any order.

Numbers that leave the device are ``found``: for each mini-bucket of a matched variable two rows over x whose sum is
its max-marginal, and for each message its largest finite |entry|.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numba import cuda

from dmcmc.inference.join_cuda import BOTH_MOST, GROUPS, HEADER, LANES

COLUMNS = 4  # of a thread
TILE = LANES * COLUMNS
THREADS = LANES * GROUPS


def _raise_by(number: Any) -> Any:
    """Return a device function that raises ``found[slot]`` to the maximum over a block."""

    @cuda.jit(device=True)
    def raise_by(found, slot, value, shared):
        lane = cuda.threadIdx.x
        cuda.syncthreads()  # whoever reads what was there is done
        shared[cuda.threadIdx.y * LANES + lane] = value
        cuda.syncthreads()
        if cuda.threadIdx.y == 0:
            for group in range(1, cuda.blockDim.y):
                value = max(value, shared[group * LANES + lane])
            shared[lane] = value
        cuda.syncthreads()
        if cuda.threadIdx.y == 0 and lane == 0:
            for i in range(1, LANES):
                value = max(value, shared[i])
            cuda.atomic.max(found, slot, value)

    return raise_by


@lru_cache
def marginal_kernel(dtype: np.dtype[Any], both: int) -> Any:
    """Return the max-marginal for a number type and a number of tables that vary with both h and l (3: any).

    Its grid is domain of x times ``pieces``, of which ``across`` lie side by side and share the columns l.
    """
    number, general = dtype.type, both > 2
    places = (BOTH_MOST if general else max(both, 1)) * COLUMNS
    raise_by = _raise_by(number)

    @cuda.jit
    def separate(arena, meta, lows, where, s, b, start, rows, found, slot, pieces, across, lowest, half):
        shared = cuda.shared.array(THREADS, number)
        x_size, width = np.int32(meta[where]), np.int32(meta[where + 2])
        x = np.int64(cuda.blockIdx.x // pieces)
        at_once = cuda.blockDim.y * LANES
        first = np.int64(cuda.blockIdx.x % pieces) * at_once + cuda.threadIdx.y * LANES + cuda.threadIdx.x
        best = lowest
        for h in range(first, rows, pieces * at_once):
            best = max(best, s[np.uint64(x * rows + h)])
        raise_by(found, slot + x, best, shared)
        best = lowest
        for column in range(first, width, pieces * at_once):
            best = max(best, b[np.uint64(x * width + column)])
        raise_by(found, slot + x_size + x, best, shared)

    @cuda.jit
    def joined(arena, meta, lows, where, s, b, start, rows, found, slot, pieces, across, lowest, half):
        shared = cuda.shared.array(THREADS, number)
        place = cuda.local.array(places, np.int32)
        base = cuda.local.array(COLUMNS, number)
        width = np.int32(meta[where + 2])
        record = 3 + meta[where + 1]
        first_both = where + HEADER + meta[where + 1] + (meta[where + 5] + meta[where + 6]) * record
        nv = np.int32(meta[where + 7]) if general else np.int32(both)
        x = np.int64(cuda.blockIdx.x // pieces)
        piece = np.int32(cuda.blockIdx.x % pieces)
        left = (piece % np.int32(across)) * np.int32(TILE) + np.int32(cuda.threadIdx.x)
        step_0 = x * meta[first_both + 1]
        step_1 = x * meta[first_both + record + 1] if both == 2 else np.int64(0)
        for j in range(COLUMNS):  # what lies beyond the last column repeats it
            column = min(left + np.int32(LANES * j), width - np.int32(1))
            base[j] = b[x * width + column]
            for v in range(nv):
                place[v * COLUMNS + j] = lows[meta[first_both + v * record + 2] + column]
        best = lowest
        down = pieces // across
        h = np.int64(piece // np.int32(across)) * cuda.blockDim.y + cuda.threadIdx.y
        while h < rows:
            mine = s[np.uint64(x * rows + h)]  # unsigned: no test for wrapping
            if mine >= half:  # else forbidden for every l
                at_0 = start[np.uint64(h)] + step_0
                at_1 = start[np.uint64(rows + h)] + step_1 if both == 2 else np.int64(0)
                for j in range(COLUMNS):
                    value = number(mine + base[j])
                    if general:
                        for v in range(nv):
                            at = start[v * rows + h] + x * meta[first_both + v * record + 1] + place[v * COLUMNS + j]
                            value = max(number(value + arena[np.uint64(at)]), lowest)
                    else:
                        value = number(value + arena[np.uint64(at_0 + place[j])])
                        if both == 2:
                            value = number(value + arena[np.uint64(at_1 + place[COLUMNS + j])])
                    best = max(best, value)
            h += down * cuda.blockDim.y
        raise_by(found, slot + x, best, shared)

    return joined if both > 0 else separate


@lru_cache
def bound_kernel(dtype: np.dtype[Any]) -> Any:
    """Return the kernel that measures messages, for a number type.

    Its grid is (pieces, messages); ``spans`` (int64) has place, entries and slot of every message of the elimination,
    one after another, and the first that is measured is ``first``.
    """
    number = dtype.type
    raise_by = _raise_by(number)

    @cuda.jit
    def bound(arena, spans, first, found, lowest, half):
        shared = cuda.shared.array(THREADS, number)
        span = 3 * (first + cuda.blockIdx.y)
        at, size = spans[span], spans[span + 1]
        best = number(0)
        at_once = cuda.blockDim.y * LANES
        begin = np.int64(cuda.blockIdx.x) * at_once + cuda.threadIdx.y * LANES + cuda.threadIdx.x
        for i in range(begin, size, cuda.gridDim.x * at_once):
            entry = arena[np.uint64(at + i)]
            if entry >= half and entry > lowest:
                best = max(best, number(abs(entry)))
        raise_by(found, spans[span + 2], best, shared)

    return bound
