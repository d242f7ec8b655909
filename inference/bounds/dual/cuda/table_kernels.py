# mypy: ignore-errors
"""Triangles' tables on their way to shared memory and back, and how much of them counts."""

import numpy as np
from numba import cuda, int32, uint32, uint64

from dmcmc.inference.bounds.dual.cuda.block_kernels import ALONE, rows_of
from dmcmc.inference.bounds.dual.cuda.words import CLIQUE, CLUSTER, CORNER, COUNTS_AT, PAIR
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, THRESHOLD

_AT_ONCE = 9  # entries of each of a triangle's tables that a thread takes before it uses the first
_TAKEN = 3 * _AT_ONCE


@cuda.jit(device=True)
def counts_of(words, g, tables, clique):
    """Return how many values each corner of a triangle has left."""
    corner, counts = np.uint32(clique + np.uint32(CORNER)), np.uint32(words[g + COUNTS_AT])
    return (
        np.uint32(tables[np.uint64(np.uint32(counts + np.uint32(words[corner])))]),
        np.uint32(tables[np.uint64(np.uint32(counts + np.uint32(words[corner + np.uint32(1)])))]),
        np.uint32(tables[np.uint64(np.uint32(counts + np.uint32(words[corner + np.uint32(2)])))]),
    )


@cuda.jit(device=True)
def sides_of(k, counts):
    """Return how many rows and columns of side k's product count, and how many terms each sum has."""
    a, b, c = counts
    return (b if k == 2 else a), (b if k == 0 else c), (c if k == 0 else b if k == 1 else a)


@cuda.jit(device=True)
def load_triangles(words, g, begin, tables, tiles, own, count, octets, with_pairs, only, lane, lanes):
    """Bring some triangles' tables to shared memory, the rows that count, with their pairs' tables added if wanted.

    ``only`` is how many values the corners have left where there is one triangle.
    """
    bands = len(octets)
    alone = 8 * bands <= ALONE
    width, square, size = np.uint32(8 * bands), np.uint32(64 * bands * bands), np.uint32(8 * bands * (8 * bands + 1))
    taken, others = cuda.local.array(_TAKEN, int32), cuda.local.array(_TAKEN, int32)
    pairs, ends = cuda.local.array(3, uint64), cuda.local.array(3, uint32)
    for slot in range(count):
        clique = np.uint32(begin + np.uint32(slot) * np.uint32(CLIQUE))
        cluster, target = np.uint64(np.uint32(words[clique + np.uint32(CLUSTER)])), np.uint64(own)
        for k in range(3):
            pairs[k] = np.uint64(np.uint32(words[clique + np.uint32(PAIR + k)]))
        a, b, _ = only if alone else counts_of(words, g, tables, clique)
        ends[0] = ends[1] = np.uint32(rows_of(bands, a) * width)
        ends[2] = np.uint32(rows_of(bands, b) * width)
        last = max(ends[0], ends[2])
        target += np.uint64(np.uint32(slot) * np.uint32(3) * size)
        for first in range(0, np.int32((square + lanes - np.uint32(1)) // lanes), _AT_ONCE):
            if np.uint32(first) * lanes < last:
                for k in range(3):
                    for q in range(_AT_ONCE):
                        cell = np.uint32(lane + np.uint32(first + q) * lanes)
                        if cell < ends[k]:
                            taken[k * _AT_ONCE + q] = tables[cluster + np.uint64(k * square) + np.uint64(cell)]
                            if with_pairs:
                                others[k * _AT_ONCE + q] = tables[pairs[k] + np.uint64(cell)]
                for q in range(_AT_ONCE):
                    cell = np.uint32(lane + np.uint32(first + q) * lanes)
                    place = target + np.uint64(np.uint32(cell + np.uint32(cell // width)))
                    for k in range(3):
                        if cell < ends[k]:
                            x = taken[k * _AT_ONCE + q]
                            if with_pairs:
                                x = np.int32(x + others[k * _AT_ONCE + q])
                                x = DEAD if x < THRESHOLD else x
                            tiles[place + np.uint64(k * size)] = x


@cuda.jit(device=True)
def store_triangles(words, g, begin, tables, tiles, own, count, octets, only, lane, lanes):
    """Bring some triangles' tables back, the rows that were loaded."""
    bands = len(octets)
    alone = 8 * bands <= ALONE
    width, square, size = np.uint32(8 * bands), np.uint32(64 * bands * bands), np.uint32(8 * bands * (8 * bands + 1))
    for table in range(np.int32(count * np.uint32(3))):
        slot = np.uint32(np.uint32(table) // np.uint32(3))
        k = np.uint32(np.uint32(table) - slot * np.uint32(3))
        clique = np.uint32(begin + slot * np.uint32(CLIQUE))
        a, b, _ = only if alone else counts_of(words, g, tables, clique)
        cluster = np.uint64(np.uint32(words[np.uint32(clique + np.uint32(CLUSTER))]))
        cluster, source = cluster + np.uint64(k * square), np.uint64(np.uint32(own + np.uint32(table) * size))
        cell, end = np.uint32(lane), np.uint32(rows_of(bands, b if k == 2 else a) * width)
        while cell < end:
            tables[cluster + np.uint64(cell)] = tiles[source + np.uint64(np.uint32(cell + np.uint32(cell // width)))]
            cell = np.uint32(cell + lanes)
