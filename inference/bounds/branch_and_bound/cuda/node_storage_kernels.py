# mypy: ignore-errors
"""Nodes' tables in a slot, and from there to where a block works on them; see the kernels of the CPU.

An area has a hidden graph's tables as :mod:`dmcmc.inference.bounds.dual.cuda.descriptors` has them. A slot has those before
the triangles' as they are, then triangles' with two entries a word, then stars. A thread takes some words from memory
before it uses the first.
"""

import numpy as np
from numba import cuda, int32

from dmcmc.inference.bounds.branch_and_bound.node_storage_kernels import LOST, power_for
from dmcmc.inference.bounds.dual.cuda.descriptors import (
    CLIQUE,
    CLIQUES,
    CLUSTER,
    CLUSTER_AT,
    ENTRY_AT,
    PAIR,
    STAR_AT,
    STARS,
    TRIANGLES,
)
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, THRESHOLD

_AT_ONCE = 8  # words that a thread takes before it uses the first
_PAIRS = 2 * _AT_ONCE
_power_for = cuda.jit(device=True)(power_for.py_func if hasattr(power_for, "py_func") else power_for)


@cuda.jit(device=True)
def copy_words(source, at, target, to, size):
    """Copy so many entries."""
    taken = cuda.local.array(_AT_ONCE, int32)
    threads = np.uint32(cuda.blockDim.x)
    i, end = np.uint32(cuda.threadIdx.x), np.uint32(size)
    while i < end:
        for q in range(_AT_ONCE):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                taken[q] = source[np.uint32(np.uint32(at) + place)]
        for q in range(_AT_ONCE):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                target[np.uint32(np.uint32(to) + place)] = taken[q]
        i = np.uint32(i + np.uint32(_AT_ONCE) * threads)


@cuda.jit(device=True)
def sizes_of(words, g, width):
    """Return how many words of a slot triangles' tables take, and how many entries stars have."""
    stars = np.int32(words[words[g + ENTRY_AT] + words[g + STARS]]) if words[g + STARS] > 0 else np.int32(0)
    return np.int32(3 * words[g + TRIANGLES] * width * width // 2), stars


@cuda.jit(device=True)
def fetch(words, g, slot, area, shift, octets):
    """Bring a slot's tables to an area."""
    taken = cuda.local.array(_AT_ONCE, int32)
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    cluster = np.uint32(words[g + CLUSTER_AT])
    packed, stars = sizes_of(words, g, np.int32(8 * len(octets)))
    copy_words(slot, 0, area, 0, cluster)
    i, end = tid, np.uint32(packed)
    while i < end:
        for q in range(_AT_ONCE):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                taken[q] = slot[np.uint32(cluster + place)]
        for q in range(_AT_ONCE):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                low, high = np.int32(np.int32(taken[q] << 16) >> 16), np.int32(taken[q] >> 16)
                into = np.uint32(cluster + np.uint32(2) * place)
                area[into] = DEAD if low == LOST else np.int32(low << shift)
                area[np.uint32(into + np.uint32(1))] = DEAD if high == LOST else np.int32(high << shift)
        i = np.uint32(i + np.uint32(_AT_ONCE) * threads)
    copy_words(slot, cluster + np.uint32(packed), area, words[g + STAR_AT], stars)
    cuda.syncthreads()


@cuda.jit(device=True)
def largest_of(area, at, size):
    """Return the largest number, but for signs, among a thread's part of so many entries."""
    taken, most = cuda.local.array(_PAIRS, int32), np.int32(0)
    i, end, threads = np.uint32(cuda.threadIdx.x), np.uint32(size), np.uint32(cuda.blockDim.x)
    while i < end:
        for q in range(_PAIRS):
            place = np.uint32(i + np.uint32(q) * threads)
            taken[q] = area[np.uint32(np.uint32(at) + place)] if place < end else np.int32(0)
        for q in range(_PAIRS):
            most = max(most, np.int32(0) if taken[q] < THRESHOLD else abs(taken[q]))
        i = np.uint32(i + np.uint32(_PAIRS) * threads)
    return most


@cuda.jit(device=True)
def store(words, g, area, slot, largest, octets):
    """Keep an area's tables in a slot; return by how many bits triangles' were shifted. The area is of no use after it.

    ``largest`` (1,) int32 is shared.
    """
    taken = cuda.local.array(_PAIRS, int32)
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    cluster, width = np.uint32(words[g + CLUSTER_AT]), np.int32(8 * len(octets))
    packed, stars = sizes_of(words, g, width)
    if tid == 0:
        largest[0] = 0
    cuda.syncthreads()
    cuda.atomic.max(largest, 0, np.int32(largest_of(area, cluster, 2 * packed)))
    cuda.syncthreads()
    shift = np.int32(_power_for(largest[0]))
    i, end = tid, np.uint32(packed)
    while i < end:
        for q in range(_AT_ONCE):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                source = np.uint32(cluster + np.uint32(2) * place)
                taken[2 * q], taken[2 * q + 1] = area[source], area[np.uint32(source + np.uint32(1))]
        for q in range(_AT_ONCE):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                low, high = taken[2 * q], taken[2 * q + 1]
                low = np.int32(LOST) if low < THRESHOLD else np.int32(low >> shift)
                high = np.int32(LOST) if high < THRESHOLD else np.int32(high >> shift)
                slot[np.uint32(cluster + place)] = np.int32((low & 0xFFFF) | (high << 16))
        i = np.uint32(i + np.uint32(_AT_ONCE) * threads)
    if shift > 0:
        add_rests(words, g, area, np.int32((np.int32(1) << shift) - 1), np.int32(width * width))
        cuda.syncthreads()
    copy_words(area, 0, slot, 0, cluster)
    copy_words(area, words[g + STAR_AT], slot, cluster + np.uint32(packed), stars)
    cuda.syncthreads()
    return shift


@cuda.jit(device=True)
def add_rests(words, g, area, below, square):
    """Add to pairs what is lost of triangles' entries over them, the bits of ``below``.

    Each thread has the same entries of all pairs, so that none is changed by two at once.
    """
    for t in range(words[g + TRIANGLES]):
        clique = np.int32(words[g + CLIQUES] + t * CLIQUE)
        for k in range(3):
            source, pair = np.int32(words[clique + CLUSTER] + k * square), np.int32(words[clique + PAIR + k])
            for i in range(np.int32(cuda.threadIdx.x), square, np.int32(cuda.blockDim.x)):
                x, y = area[np.uint32(source + i)], area[np.uint32(pair + i)]
                rest = np.int32(0) if x < THRESHOLD else np.int32(x & below)
                area[np.uint32(pair + i)] = DEAD if y < THRESHOLD else np.int32(y + rest)
