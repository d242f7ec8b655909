# mypy: ignore-errors
"""Dual ascent between variables and their pairs by a block of GPU threads; see the module of triangles."""

import numpy as np
from numba import cuda, int32

from dmcmc.inference.bounds.dual.cuda.descriptors import (
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
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import CREW, anywhere
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, LIMIT, THRESHOLD

_CREW = np.uint32(CREW)  # threads that work on a pair
_AT_ONCE = 9  # entries that a thread takes from memory before it uses the first


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
    """Bring some of a variable's pairs to shared memory, a warp each."""
    bands = len(octets)
    width, square, size = np.uint32(8 * bands), np.uint32(64 * bands * bands), np.uint32(8 * bands * (8 * bands + 1))
    taken, even = cuda.local.array(_AT_ONCE, int32), square % (_CREW * np.uint32(_AT_ONCE)) == 0
    crew, lane, crews = (
        np.uint32(cuda.threadIdx.x) // _CREW,
        np.uint32(cuda.threadIdx.x) % _CREW,
        np.uint32(cuda.blockDim.x) // _CREW,
    )
    q = np.uint32(crew)
    while q < np.uint32(count):
        source = np.uint64(np.uint32(words[np.uint32(sides + q * np.uint32(SIDE) + np.uint32(TABLE))]))
        target = np.uint64(np.uint32(np.uint32(loaded) + q * size))
        for first in range(0, np.int32((square + _CREW - np.uint32(1)) // _CREW), _AT_ONCE):
            for p in range(_AT_ONCE):
                cell = np.uint32(lane + np.uint32(first + p) * _CREW)
                if even or cell < square:
                    taken[p] = tables[source + np.uint64(cell)]
            for p in range(_AT_ONCE):
                cell = np.uint32(lane + np.uint32(first + p) * _CREW)
                if even or cell < square:
                    tiles[target + np.uint64(np.uint32(cell + np.uint32(cell // width)))] = taken[p]
        q = np.uint32(q + crews)


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
    """Subtract the pairs' messages from them, add v's to those ahead, a warp each; whether an entry is too large.

    Where the tables are ``kept`` in shared memory, from ``loaded`` on, they are taken from there.
    """
    bands = len(octets)
    width, square, size = np.uint32(8 * bands), np.uint32(64 * bands * bands), np.uint32(8 * bands * (8 * bands + 1))
    crew, lane, crews = (
        np.uint32(cuda.threadIdx.x) // _CREW,
        np.uint32(cuda.threadIdx.x) % _CREW,
        np.uint32(cuda.blockDim.x) // _CREW,
    )
    taken, given = cuda.local.array(_AT_ONCE, int32), cuda.local.array(_AT_ONCE, int32)
    own, even = cuda.local.array(_AT_ONCE, int32), square % (_CREW * np.uint32(_AT_ONCE)) == 0
    reach, q = np.int32(0), np.uint32(crew)
    while q < np.uint32(degree):
        side = np.uint32(sides + q * np.uint32(SIDE))
        source, is_first = np.uint64(np.uint32(words[side + np.uint32(TABLE)])), words[side + np.uint32(IS_FIRST)] != 0
        ahead = (words[side + np.uint32(OTHER)] < v) != forward
        tile, message = (
            np.uint64(np.uint32(np.uint32(loaded) + q * size)),
            np.uint64(np.uint32(width * (q + np.uint32(1)))),
        )
        for first in range(0, np.int32((square + _CREW - np.uint32(1)) // _CREW), _AT_ONCE):
            for p in range(_AT_ONCE):
                cell = np.uint32(lane + np.uint32(first + p) * _CREW)
                if even or cell < square:
                    row = np.uint32(cell // width)
                    i = np.uint64(row if is_first else np.uint32(cell - row * width))
                    given[p], own[p] = tiles[message + i], tiles[i] if ahead else np.int32(0)
                    if kept:
                        taken[p] = tiles[tile + np.uint64(np.uint32(cell + row))]
                    else:
                        taken[p] = tables[source + np.uint64(cell)]
            for p in range(_AT_ONCE):
                cell = np.uint32(lane + np.uint32(first + p) * _CREW)
                if even or cell < square:
                    x, rest = taken[p], np.int32(taken[p] - given[p])
                    total = np.int32(rest + own[p])
                    dead = min(x, total) < THRESHOLD
                    reach = max(reach, abs(rest) if x >= THRESHOLD else np.int32(0))
                    reach = max(reach, np.int32(0) if dead else abs(total))
                    tables[source + np.uint64(cell)] = DEAD if dead else total
        q = np.uint32(q + crews)
    return reach > LIMIT
