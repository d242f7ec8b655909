# mypy: ignore-errors
"""Packing a node's tables to the values that are left, by a block of GPU threads; see the kernels of the CPU.

A value that is left moves to the first free place of its variable, in all tables over it; what is behind is dead.
"""

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.dual.cuda.block_kernels import anywhere
from dmcmc.inference.bounds.dual.cuda.words import (
    CLIQUE,
    CLIQUES,
    CLUSTER,
    CORNER,
    COUNTS_AT,
    ENDS,
    ENTRIES,
    PAIR_AT,
    PAIRS,
    STARS,
    TRIANGLES,
    N,
)
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, THRESHOLD

_STAYS = -1  # in place of how many values a variable has left: as many as before, or none


@cuda.jit(device=True)
def pack(words, g, part, keep, octets):
    """Pack tables; ``keep`` (n × W + n,) int64 is room: the places that stay of each variable, and how many."""
    width, n = np.int32(8 * len(octets)), np.int32(words[g + N])
    counts, names = np.int32(words[g + COUNTS_AT]), np.int32(words[g + ENTRIES])
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    some = False
    for v in range(tid, n, threads):
        d, left = part[np.uint32(counts + v)], np.int32(0)
        for i in range(d):
            if part[np.uint32(v * width + i)] >= THRESHOLD:
                keep[v * width + left] = i
                left = np.int32(left + 1)
        fewer = 0 < left < d
        keep[n * width + v] = left if fewer else _STAYS
        some = some or fewer
    if not anywhere(some) or words[g + STARS] > 0:  # stars are not padded
        return
    for v in range(tid, n, threads):
        if keep[n * width + v] != _STAYS:
            at = np.int32(v * width)
            for i in range(keep[n * width + v]):
                part[np.uint32(at + i)] = part[np.uint32(at + keep[at + i])]
                part[np.uint32(names + at + i)] = part[np.uint32(names + at + keep[at + i])]
            for i in range(keep[n * width + v], part[np.uint32(counts + v)]):
                part[np.uint32(at + i)] = DEAD
    tables = np.int32(words[g + PAIRS] + 3 * words[g + TRIANGLES])
    for task in range(tid, np.int32(tables * width), threads):
        table = np.int32(task // width)
        at, _, v = table_of(words, g, table, width)
        move(part, np.int32(at + (task - table * width) * width), np.int32(1), v, keep, n, width, counts)
    cuda.syncthreads()
    for task in range(tid, np.int32(tables * width), threads):
        table = np.int32(task // width)
        at, u, _ = table_of(words, g, table, width)
        move(part, np.int32(at + task - table * width), width, u, keep, n, width, counts)
    cuda.syncthreads()
    for v in range(tid, n, threads):
        if keep[n * width + v] != _STAYS:
            part[np.uint32(counts + v)] = np.int32(keep[n * width + v])
    cuda.syncthreads()


@cuda.jit(device=True)
def table_of(words, g, table, width):
    """Return where a pair's table is, or behind those a triangle's, and the variables of its rows and its columns."""
    square, pairs = np.int32(width * width), np.int32(words[g + PAIRS])
    if table < pairs:
        ends = np.int32(words[g + ENDS] + 2 * table)
        return np.int32(words[g + PAIR_AT] + table * square), np.int32(words[ends]), np.int32(words[ends + 1])
    t, k = np.int32((table - pairs) // 3), np.int32((table - pairs) % 3)
    clique = np.int32(words[g + CLIQUES] + t * CLIQUE)
    corners = np.int32(clique + CORNER)
    row, column = np.int32(1 if k == 2 else 0), np.int32(1 if k == 0 else 2)
    return (
        np.int32(words[clique + CLUSTER] + k * square),
        np.int32(words[corners + row]),
        np.int32(words[corners + column]),
    )


@cuda.jit(device=True)
def move(part, at, step, v, keep, n, width, counts):
    """Move what stays of a line of a table over v's values to its front."""
    left = keep[n * width + v]
    if left == _STAYS:
        return
    for i in range(left):
        part[np.uint32(at + i * step)] = part[np.uint32(at + keep[v * width + i] * step)]
    for i in range(left, part[np.uint32(counts + v)]):
        part[np.uint32(at + i * step)] = DEAD
