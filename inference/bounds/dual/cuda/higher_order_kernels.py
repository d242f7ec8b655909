# mypy: ignore-errors
"""Dual ascent between large factors and their variables by a block of GPU threads; see the module of triangles."""

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.dual.cuda.descriptors import DOMAINS, ENTRY_AT, SCOPE_AT, SCOPES, STAR_AT, STARS
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import anywhere
from dmcmc.inference.bounds.dual.pair_kernels import DEAD, LIMIT, THRESHOLD


@cuda.jit(device=True)
def star_pass(words, g, tables, tiles, octets):
    """Level every large factor with its variables."""
    width = 8 * len(octets)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    for s in range(words[g + STARS]):
        begin, end = words[words[g + ENTRY_AT] + s], words[words[g + ENTRY_AT] + s + 1]
        at, entries = np.int32(words[g + STAR_AT] + begin), np.int32(end - begin)
        scope = np.int32(words[g + SCOPES] + words[words[g + SCOPE_AT] + s])
        arity = np.int32(words[words[g + SCOPE_AT] + s + 1] - words[words[g + SCOPE_AT] + s])
        for axis in range(arity):
            v = np.int32(words[scope + axis])
            for i in range(tid, width, threads):
                tiles[np.uint32(i)] = tables[np.uint32(v * width + i)]
            cuda.syncthreads()
            over = add_along(words, g, tables, tiles, scope, arity, axis, at, entries, np.int32(1))
            for i in range(tid, width, threads):
                tables[np.uint32(v * width + i)] = np.int32(0) if tiles[np.uint32(i)] >= THRESHOLD else DEAD
            if anywhere(over):
                return False
        for axis in range(arity):
            v = np.int32(words[scope + axis])
            d, inner = np.int32(words[words[g + DOMAINS] + v]), inner_size(words, g, scope, arity, axis)
            for i in range(tid, d, threads):
                tiles[np.uint32(i)] = DEAD
            cuda.syncthreads()
            for cell in range(tid, entries, threads):
                cuda.atomic.max(tiles, np.int32((cell // inner) % d), tables[np.uint32(at + cell)])
            cuda.syncthreads()
            weight = np.float64(1 / (arity - axis))
            for i in range(tid, d, threads):
                x, own = tiles[np.uint32(i)], tables[np.uint32(v * width + i)]
                share = DEAD if x < THRESHOLD else np.int32(np.float64(x) * weight)
                tiles[np.uint32(i)] = share
                dead = share < THRESHOLD or own < THRESHOLD
                tables[np.uint32(v * width + i)] = DEAD if dead else np.int32(own + share)
            cuda.syncthreads()
            over = add_along(words, g, tables, tiles, scope, arity, axis, at, entries, np.int32(-1))
            if anywhere(over):
                return False
    return True


@cuda.jit(device=True)
def inner_size(words, g, scope, arity, axis):
    """Return how many entries of a star lie between two that differ by one along an axis."""
    inner = np.int32(1)
    for k in range(axis + 1, arity):
        inner = np.int32(inner * words[words[g + DOMAINS] + words[scope + k]])
    return inner


@cuda.jit(device=True)
def add_along(words, g, tables, tiles, scope, arity, axis, at, entries, sign):
    """Add ``sign`` × the vector in ``tiles`` over one axis to a star; whether an entry is too large."""
    d, inner = np.int32(words[words[g + DOMAINS] + words[scope + axis]]), inner_size(words, g, scope, arity, axis)
    over = False
    for cell in range(np.int32(cuda.threadIdx.x), entries, np.int32(cuda.blockDim.x)):
        x, entry = tiles[np.uint32((cell // inner) % d)], tables[np.uint32(at + cell)]
        if x < THRESHOLD or entry < THRESHOLD:
            entry = DEAD
        else:
            entry = np.int32(entry + sign * x)
            over = over or abs(entry) > LIMIT
        tables[np.uint32(at + cell)] = entry
    return over
