# mypy: ignore-errors
"""Where a node branches, chosen by a block of GPU threads; see the kernels of the CPU."""

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.branch_and_bound.node_buffers import FAR, LEAF, PART
from dmcmc.inference.bounds.dual.cuda.descriptors import (
    DOMAINS,
    INCIDENT,
    INCIDENT_AT,
    IS_FIRST,
    MAXIMA_AT,
    OTHER,
    PAIR_AT,
    SIDE,
    TABLE,
    N,
)
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, THRESHOLD


@cuda.jit(device=True)
def find_marginals(words, g, part, marginals, octets):
    """Set what each value is worth in the tables over its variable and its pairs; NEVER where it is not live."""
    width = np.int32(8 * len(octets))
    for task in range(np.int32(cuda.threadIdx.x), np.int32(words[g + N] * width), np.int32(cuda.blockDim.x)):
        v = np.int32(task // width)
        i = np.int32(task - v * width)
        own = part[np.uint32(task)]
        if own < THRESHOLD:
            marginals[task] = NEVER
            continue
        value = np.int64(own)
        for position in range(words[words[g + INCIDENT_AT] + v], words[words[g + INCIDENT_AT] + v + 1]):
            side = np.int32(words[g + INCIDENT] + position * SIDE)
            is_first = words[side + IS_FIRST] != 0
            at = np.int32(words[side + TABLE] + (i * width if is_first else i))
            step = np.int32(1) if is_first else width
            best = DEAD
            for _ in range(words[words[g + DOMAINS] + words[side + OTHER]]):
                best = max(best, part[np.uint32(at)])
                at = np.int32(at + step)
            value += best
        marginals[task] = value
    cuda.syncthreads()


@cuda.jit(device=True)
def score(words, g, part, marginals, octets):
    """Put how far each variable's values are together below the sum of maxima behind marginals; -1 for one value."""
    width, n = np.int32(8 * len(octets)), np.int32(words[g + N])
    maxima = np.int32(words[g + MAXIMA_AT])
    for v in range(np.int32(cuda.threadIdx.x), n, np.int32(cuda.blockDim.x)):
        total = np.int64(part[np.uint32(maxima + v)])
        for position in range(words[words[g + INCIDENT_AT] + v], words[words[g + INCIDENT_AT] + v + 1]):
            side = np.int32(words[g + INCIDENT] + position * SIDE)
            e = np.int32((words[side + TABLE] - words[g + PAIR_AT]) // (width * width))
            total += part[np.uint32(maxima + n + e)]
        below, live = np.int64(0), np.int32(0)
        for i in range(width):
            value = marginals[v * width + i]
            if value != NEVER:
                live += np.int32(1)
                below += total - value
        marginals[n * width + v] = below if live > 1 else np.int64(-1)
    cuda.syncthreads()


@cuda.jit(device=True)
def choose(words, g, marginals, slack, first, octets):
    """Return the variable with the highest score, LEAF if there is none; ``first`` becomes its best values."""
    width, n = np.int32(8 * len(octets)), np.int32(words[g + N])
    chosen, highest = np.int64(LEAF), np.int64(-1)
    for v in range(n):
        if marginals[n * width + v] > highest:
            chosen, highest = np.int64(v), marginals[n * width + v]
    for i in range(np.int32(cuda.threadIdx.x), width, np.int32(cuda.blockDim.x)):
        first[i], live, above = 0, np.int32(0), np.int32(0)
        if chosen >= 0 and marginals[chosen * width + i] != NEVER:
            mine = marginals[chosen * width + i]
            for j in range(width):
                other = marginals[chosen * width + j]
                if other != NEVER:
                    live += np.int32(1)
                    if other > mine or (other == mine and j < i):
                        above += np.int32(1)
        if live > 0:
            one = highest // live >= slack >> FAR
            first[i] = above < (np.int32(1) if one else max(np.int32(1), np.int32(live // PART)))
    return chosen
