# mypy: ignore-errors
"""Nodes' tables in a slot, and from there to where a block works on them; see the kernels of the CPU.

An area has a hidden graph's tables as :mod:`dmcmc.inference.bounds.dual.cuda.words` has them, then a word for each of
their variables' places: which value it stands for. A slot has those up to the triangles' as they are, triangles' with
two entries a word, stars, places with four a word, and how many values each variable has left.
"""

import numpy as np
from numba import cuda, int32

from dmcmc.inference.bounds.branching.store_kernels import LOST, power_for
from dmcmc.inference.bounds.dual.cuda.words import (
    CLIQUE,
    CLIQUES,
    CLUSTER,
    CLUSTER_AT,
    COUNTS_AT,
    ENTRIES,
    ENTRY_AT,
    PAIR,
    STAR_AT,
    STARS,
    TRIANGLES,
    N,
)
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, THRESHOLD

_COPIED = 8  # entries that a thread takes before it writes the first
_power_for = cuda.jit(device=True)(power_for.py_func if hasattr(power_for, "py_func") else power_for)


@cuda.jit(device=True)
def copy_words(source, at, target, to, size):
    """Copy so many entries, some of a thread's at a time."""
    taken = cuda.local.array(_COPIED, int32)
    threads = np.uint32(cuda.blockDim.x)
    i, end = np.uint32(cuda.threadIdx.x), np.uint32(size)
    while i < end:
        for q in range(_COPIED):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                taken[q] = source[np.uint32(np.uint32(at) + place)]
        for q in range(_COPIED):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                target[np.uint32(np.uint32(to) + place)] = taken[q]
        i = np.uint32(i + np.uint32(_COPIED) * threads)


@cuda.jit(device=True)
def halves(words, g, width):
    """Return how many words of a slot triangles' tables take, and how many entries stars have."""
    stars = np.int32(words[words[g + ENTRY_AT] + words[g + STARS]]) if words[g + STARS] > 0 else np.int32(0)
    return np.int32(3 * words[g + TRIANGLES] * width * width // 2), stars


@cuda.jit(device=True)
def fetch(words, g, slot, area, shift, octets):
    """Bring a slot's tables to an area."""
    width, n = np.int32(8 * len(octets)), np.int32(words[g + N])
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    cluster = np.int32(words[g + CLUSTER_AT])
    packed, stars = halves(words, g, width)
    copy_words(slot, 0, area, 0, cluster)
    for i in range(tid, packed, threads):
        both = slot[np.uint32(cluster + i)]
        low, high = np.int32(np.int32(both << 16) >> 16), np.int32(both >> 16)
        area[np.uint32(cluster + 2 * i)] = DEAD if low == LOST else np.int32(low << shift)
        area[np.uint32(cluster + 2 * i + 1)] = DEAD if high == LOST else np.int32(high << shift)
    behind = np.int32(cluster + packed)
    copy_words(slot, behind, area, words[g + STAR_AT], stars)
    behind, names = np.int32(behind + stars), np.int32(words[g + ENTRIES])
    for i in range(tid, np.int32(n * width // 4), threads):
        four = slot[np.uint32(behind + i)]
        for q in range(4):
            area[np.uint32(names + 4 * i + q)] = (four >> (8 * q)) & 255
    behind = np.int32(behind + n * width // 4)
    copy_words(slot, behind, area, words[g + COUNTS_AT], n)
    cuda.syncthreads()


@cuda.jit(device=True)
def store(words, g, area, slot, largest, octets):
    """Keep an area's tables in a slot; return by how many bits triangles' were shifted. The area is of no use after it.

    ``largest`` (1,) int32 is shared.
    """
    width, n = np.int32(8 * len(octets)), np.int32(words[g + N])
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    cluster, square = np.int32(words[g + CLUSTER_AT]), np.int32(width * width)
    packed, stars = halves(words, g, width)
    if tid == 0:
        largest[0] = 0
    cuda.syncthreads()
    most = np.int32(0)
    for i in range(tid, np.int32(2 * packed), threads):
        x = area[np.uint32(cluster + i)]
        most = max(most, np.int32(0) if x < THRESHOLD else abs(x))
    cuda.atomic.max(largest, 0, most)
    cuda.syncthreads()
    shift = np.int32(_power_for(largest[0]))
    for i in range(tid, packed, threads):
        low, high = area[np.uint32(cluster + 2 * i)], area[np.uint32(cluster + 2 * i + 1)]
        low = np.int32(LOST) if low < THRESHOLD else np.int32(low >> shift)
        high = np.int32(LOST) if high < THRESHOLD else np.int32(high >> shift)
        slot[np.uint32(cluster + i)] = np.int32((low & 0xFFFF) | (high << 16))
    if shift > 0:
        # Each thread has the same entries of all pairs, so that none is changed by two at once.
        below = np.int32((np.int32(1) << shift) - 1)
        for t in range(words[g + TRIANGLES]):
            clique = np.int32(words[g + CLIQUES] + t * CLIQUE)
            for k in range(3):
                source = np.int32(words[clique + CLUSTER] + k * square)
                pair = np.int32(words[clique + PAIR + k])
                for i in range(tid, square, threads):
                    x, y = area[np.uint32(source + i)], area[np.uint32(pair + i)]
                    rest = np.int32(0) if x < THRESHOLD else np.int32(x & below)
                    area[np.uint32(pair + i)] = DEAD if y < THRESHOLD else np.int32(y + rest)
        cuda.syncthreads()
    copy_words(area, 0, slot, 0, cluster)
    behind = np.int32(cluster + packed)
    copy_words(area, words[g + STAR_AT], slot, behind, stars)
    behind, names = np.int32(behind + stars), np.int32(words[g + ENTRIES])
    for i in range(tid, np.int32(n * width // 4), threads):
        four = np.int32(0)
        for q in range(4):
            four = np.int32(four | (area[np.uint32(names + 4 * i + q)] << (8 * q)))
        slot[np.uint32(behind + i)] = four
    behind = np.int32(behind + n * width // 4)
    copy_words(area, words[g + COUNTS_AT], slot, behind, n)
    cuda.syncthreads()
    return shift


@cuda.jit(device=True)
def name_values(words, g, area, octets):
    """Let each place of a variable's tables stand for the value of its number."""
    width, names = np.int32(8 * len(octets)), np.int32(words[g + ENTRIES])
    for i in range(np.int32(cuda.threadIdx.x), np.int32(words[g + N] * width), np.int32(cuda.blockDim.x)):
        area[np.uint32(names + i)] = np.int32(i % width)
