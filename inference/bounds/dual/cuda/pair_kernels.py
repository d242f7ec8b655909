# mypy: ignore-errors
"""Dual ascent between variables and their pairs by a block of GPU threads; see the module of triangles."""

import numpy as np
from numba import cuda, int32

from dmcmc.inference.bounds.dual.cuda.block_kernels import AT_ONCE, LANES, anywhere
from dmcmc.inference.bounds.dual.cuda.words import (
    AROUND,
    DOMAINS,
    INCIDENT,
    INCIDENT_AT,
    IS_FIRST,
    LOWER,
    OTHER,
    SIDE,
    TABLE,
    WIDTHS,
    N,
)  # fmt: skip
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, LIMIT, THRESHOLD


@cuda.jit(device=True)
def variable_pass(words, g, tables, tiles, room, octets, forward):
    """Visit variables in order, or backwards; all pairs of a variable at once.

    Shared memory holds v's message, those of its pairs, v's table, and as many of the pairs' tables as fit.
    """
    width = 8 * len(octets)
    n, size = np.int32(words[g + N]), width * (width + 1)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    for step in range(n):
        v = np.int32(step if forward else n - 1 - step)
        d = np.int32(words[words[g + DOMAINS] + v])
        padded = np.int32(words[words[g + WIDTHS] + v])
        first, last = np.int32(words[words[g + INCIDENT_AT] + v]), np.int32(words[words[g + INCIDENT_AT] + v + 1])
        degree = np.int32(last - first)
        sides = np.int32(words[g + INCIDENT] + first * SIDE)
        own = np.int32(width * (1 + degree))  # where v's table is
        loaded = np.int32(own + width)  # where those of pairs begin
        most = np.int32((room - loaded) // size)
        kept = degree <= most  # all of them are there at once
        for begin in range(0, degree, most):
            count = min(most, np.int32(degree - begin))
            load_pairs(words, np.int32(sides + begin * SIDE), tables, tiles, loaded, count, octets)
            cuda.syncthreads()
            find_messages(
                words, np.int32(sides + begin * SIDE), tiles, loaded, np.int32(width * (1 + begin)), count, octets
            )
            cuda.syncthreads()
        behind = np.int32(words[words[g + LOWER] + v])
        behind = behind if forward else np.int32(degree - behind)
        ahead = np.int32(degree - behind)
        weight = np.float32(1 / max(np.int32(1), max(behind, ahead)))
        over = False
        for i in range(tid, padded, threads):
            total = tables[np.uint32(v * width + i)]
            if i < d:
                for q in range(degree):
                    total = np.int32(total + tiles[np.uint32(width * (1 + q) + i)])
                    total = DEAD if total < THRESHOLD else total
                    over = over or (total >= THRESHOLD and abs(total) > LIMIT)
                    total = max(min(total, LIMIT), DEAD)  # of no use any more if it was more
            dead = total < THRESHOLD
            share = DEAD if dead else np.int32(np.float32(total) * weight)
            tiles[np.uint32(i)] = share
            total = DEAD if dead else np.int32(total - ahead * share)
            tiles[np.uint32(own + i)] = total
        if anywhere(over):
            return False  # nothing has been moved
        for i in range(tid, padded, threads):
            tables[np.uint32(v * width + i)] = tiles[np.uint32(own + i)]
        if anywhere(pass_on(words, sides, tables, tiles, loaded, kept, degree, octets, v, forward)):
            return False
    return True


@cuda.jit(device=True)
def load_pairs(words, sides, tables, tiles, loaded, count, octets):
    """Bring some of a variable's pairs to shared memory, as :func:`.load_triangles` does."""
    bands = len(octets)
    width, size, each = 8 * bands, 8 * bands * (8 * bands + 1), 2 * bands
    taken = cuda.local.array(AT_ONCE, int32)
    task, total = np.uint32(cuda.threadIdx.x), np.uint32(count * (bands * LANES))
    while task < total:
        band = np.uint32(task // np.uint32(LANES))
        q = np.uint32(band // np.uint32(bands))
        cell = np.uint32((band - q * np.uint32(bands)) * np.uint32(8 * width) + task % np.uint32(LANES))
        source = np.uint64(np.uint32(words[np.uint32(sides + q * np.uint32(SIDE) + np.uint32(TABLE))]) + cell)
        target = np.uint64(np.uint32(loaded + q * np.uint32(size)))
        for first in range(0, each, AT_ONCE):
            for p in range(AT_ONCE):
                if first + p < each:
                    taken[p] = tables[source + np.uint64(LANES * (first + p))]
            for p in range(AT_ONCE):
                if first + p < each:
                    place = np.uint32(cell + np.uint32(LANES * (first + p)))
                    row = np.uint32(place // np.uint32(width))
                    tiles[target + np.uint64(np.uint32(place + row))] = taken[p]
        task = np.uint32(task + np.uint32(cuda.blockDim.x))


@cuda.jit(device=True)
def find_messages(words, sides, tiles, loaded, messages, count, octets):
    """Set each loaded pair's maximum for each value of its variable."""
    width = 8 * len(octets)
    stride, size = np.uint32(width + 1), np.uint32(width * (width + 1))
    task, total = np.uint32(cuda.threadIdx.x), np.uint32(count * width)
    while task < total:
        q = np.uint32(task // np.uint32(width))
        i = np.uint32(task - q * np.uint32(width))
        side = np.uint32(sides + q * np.uint32(SIDE))
        is_first = words[side + np.uint32(IS_FIRST)] != 0
        at = np.uint32(loaded + q * size + (i * stride if is_first else i))
        step = np.uint32(1) if is_first else stride
        best = DEAD
        for _ in range(words[side + np.uint32(AROUND)]):
            best = max(best, tiles[np.uint64(at)])
            at = np.uint32(at + step)
        tiles[np.uint64(messages + task)] = best
        task = np.uint32(task + np.uint32(cuda.blockDim.x))


@cuda.jit(device=True)
def pass_on(words, sides, tables, tiles, loaded, kept, degree, octets, v, forward):
    """Subtract the pairs' messages from them, add v's to those ahead; whether an entry is too large.

    Where the tables are ``kept`` in shared memory, from ``loaded`` on, they are taken from there.
    """
    bands = len(octets)
    width, size = 8 * bands, 8 * bands * (8 * bands + 1)
    over = False
    task, total = np.uint32(cuda.threadIdx.x), np.uint32(degree * (bands * LANES))
    while task < total:
        band = np.uint32(task // np.uint32(LANES))
        q = np.uint32(band // np.uint32(bands))
        cell = np.uint32((band - q * np.uint32(bands)) * np.uint32(8 * width) + task % np.uint32(LANES))
        side = np.uint32(sides + q * np.uint32(SIDE))
        source = np.uint64(np.uint32(words[side + np.uint32(TABLE)]) + cell)
        is_first = words[side + np.uint32(IS_FIRST)] != 0
        ahead = (words[side + np.uint32(OTHER)] < v) != forward
        tile, message = np.uint32(loaded + q * np.uint32(size)), np.uint32(np.uint32(width) * (np.uint32(1) + q))
        for p in range(2 * bands):
            place = np.uint32(cell + np.uint32(LANES * p))
            row = np.uint32(place // np.uint32(width))
            x = tiles[np.uint64(np.uint32(tile + place + row))] if kept else tables[source + np.uint64(LANES * p)]
            if x >= THRESHOLD:
                i = row if is_first else np.uint32(place - row * np.uint32(width))
                x = np.int32(x - tiles[np.uint64(np.uint32(message + i))])
                over = over or abs(x) > LIMIT
                if ahead:
                    x = np.int32(x + tiles[np.uint64(i)])
                    over = over or (x >= THRESHOLD and abs(x) > LIMIT)
                    x = DEAD if x < THRESHOLD else x
                tables[source + np.uint64(LANES * p)] = x
        task = np.uint32(task + np.uint32(cuda.blockDim.x))
    return over
