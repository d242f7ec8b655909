# mypy: ignore-errors
"""Device functions that store a node's tables in a buffer entry and fetch them; they agree with the CPU kernels.

The working tables of a node are laid out as in ``dmcmc.inference.bounds.dual.cuda.descriptors``. An entry (int32) holds
the tables before the triplet tables unchanged, then the triplet tables with two 16-bit entries per int32, then the
higher-order tables. Each thread loads several int32 before it uses the first one.

Arguments that the functions share:

* descriptors : int32, packed descriptors of the graphs
* graph : int32, offset of the node's graph in ``descriptors``
* workspace : int32, working tables of the block
* entry : int32, a buffer entry
* octets : tuple, whose length is W / 8: makes the number W of columns a compile-time constant
"""

import numpy as np
from numba import cuda, int32

from dmcmc.inference.bounds.branch_and_bound.node_storage_kernels import FORBIDDEN_INT16, shift_for
from dmcmc.inference.bounds.dual.cuda.descriptors import (
    ENTRY_START,
    FACTOR_TABLES_AT,
    FACTORS,
    TRIANGLE_LIST,
    TRIANGLE_PAIRS,
    TRIANGLE_RECORD,
    TRIANGLE_TABLES,
    TRIANGLE_TABLES_AT,
    TRIANGLES,
)
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW

_WORDS_PER_LOAD = 8  # int32 that a thread loads before it uses the first one
_ENTRIES_PER_LOAD = 2 * _WORDS_PER_LOAD
_shift_for = cuda.jit(device=True)(shift_for.py_func if hasattr(shift_for, "py_func") else shift_for)


@cuda.jit(device=True)
def copy_words(source, at, target, to, size):
    """Copy ``size`` int32 from offset ``at`` of ``source`` to offset ``to`` of ``target``, by all threads."""
    loaded = cuda.local.array(_WORDS_PER_LOAD, int32)
    threads = np.uint32(cuda.blockDim.x)
    i, end = np.uint32(cuda.threadIdx.x), np.uint32(size)
    while i < end:
        for q in range(_WORDS_PER_LOAD):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                loaded[q] = source[np.uint32(np.uint32(at) + place)]
        for q in range(_WORDS_PER_LOAD):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                target[np.uint32(np.uint32(to) + place)] = loaded[q]
        i = np.uint32(i + np.uint32(_WORDS_PER_LOAD) * threads)


@cuda.jit(device=True)
def packed_sizes(descriptors, graph, width):
    """Return the number of int32 of the packed triplet tables, and of the higher-order tables."""
    higher_order_size = (
        np.int32(descriptors[descriptors[graph + ENTRY_START] + descriptors[graph + FACTORS]])
        if descriptors[graph + FACTORS] > 0
        else np.int32(0)
    )
    return np.int32(3 * descriptors[graph + TRIANGLES] * width * width // 2), higher_order_size


@cuda.jit(device=True)
def fetch(descriptors, graph, entry, workspace, bit_shift, octets):
    """Copy a buffer entry to the working tables; ``bit_shift`` is the left shift of the triplet entries."""
    loaded = cuda.local.array(_WORDS_PER_LOAD, int32)
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    triplets_at = np.uint32(descriptors[graph + TRIANGLE_TABLES_AT])
    triplet_words, higher_order_size = packed_sizes(descriptors, graph, np.int32(8 * len(octets)))
    copy_words(entry, 0, workspace, 0, triplets_at)
    i, end = tid, np.uint32(triplet_words)
    while i < end:
        for q in range(_WORDS_PER_LOAD):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                loaded[q] = entry[np.uint32(triplets_at + place)]
        for q in range(_WORDS_PER_LOAD):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                low, high = np.int32(np.int32(loaded[q] << 16) >> 16), np.int32(loaded[q] >> 16)
                into = np.uint32(triplets_at + np.uint32(2) * place)
                workspace[into] = FORBIDDEN if low == FORBIDDEN_INT16 else np.int32(low << bit_shift)
                workspace[np.uint32(into + np.uint32(1))] = (
                    FORBIDDEN if high == FORBIDDEN_INT16 else np.int32(high << bit_shift)
                )
        i = np.uint32(i + np.uint32(_WORDS_PER_LOAD) * threads)
    copy_words(
        entry,
        triplets_at + np.uint32(triplet_words),
        workspace,
        descriptors[graph + FACTOR_TABLES_AT],
        higher_order_size,
    )
    cuda.syncthreads()


@cuda.jit(device=True)
def thread_maximum(workspace, at, size):
    """Return the largest absolute allowed entry among the calling thread's share of ``size`` entries."""
    loaded, largest_of_thread = cuda.local.array(_ENTRIES_PER_LOAD, int32), np.int32(0)
    i, end, threads = np.uint32(cuda.threadIdx.x), np.uint32(size), np.uint32(cuda.blockDim.x)
    while i < end:
        for q in range(_ENTRIES_PER_LOAD):
            place = np.uint32(i + np.uint32(q) * threads)
            loaded[q] = workspace[np.uint32(np.uint32(at) + place)] if place < end else np.int32(0)
        for q in range(_ENTRIES_PER_LOAD):
            largest_of_thread = max(largest_of_thread, np.int32(0) if loaded[q] < FORBIDDEN_BELOW else abs(loaded[q]))
        i = np.uint32(i + np.uint32(_ENTRIES_PER_LOAD) * threads)
    return largest_of_thread


@cuda.jit(device=True)
def store(descriptors, graph, workspace, entry, largest, octets):
    """Store the working tables in a buffer entry; return the right shift of the triplet entries in bits.

    The working tables are invalid afterwards. ``largest`` (1,) int32 is in shared memory.
    """
    loaded = cuda.local.array(_ENTRIES_PER_LOAD, int32)
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    triplets_at, width = np.uint32(descriptors[graph + TRIANGLE_TABLES_AT]), np.int32(8 * len(octets))
    triplet_words, higher_order_size = packed_sizes(descriptors, graph, width)
    if tid == 0:
        largest[0] = 0
    cuda.syncthreads()
    cuda.atomic.max(largest, 0, np.int32(thread_maximum(workspace, triplets_at, 2 * triplet_words)))
    cuda.syncthreads()
    bit_shift = np.int32(_shift_for(largest[0]))
    i, end = tid, np.uint32(triplet_words)
    while i < end:
        for q in range(_WORDS_PER_LOAD):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                source = np.uint32(triplets_at + np.uint32(2) * place)
                loaded[2 * q], loaded[2 * q + 1] = workspace[source], workspace[np.uint32(source + np.uint32(1))]
        for q in range(_WORDS_PER_LOAD):
            place = np.uint32(i + np.uint32(q) * threads)
            if place < end:
                low, high = loaded[2 * q], loaded[2 * q + 1]
                low = np.int32(FORBIDDEN_INT16) if low < FORBIDDEN_BELOW else np.int32(low >> bit_shift)
                high = np.int32(FORBIDDEN_INT16) if high < FORBIDDEN_BELOW else np.int32(high >> bit_shift)
                entry[np.uint32(triplets_at + place)] = np.int32((low & 0xFFFF) | (high << 16))
        i = np.uint32(i + np.uint32(_WORDS_PER_LOAD) * threads)
    if bit_shift > 0:
        add_remainders(descriptors, graph, workspace, np.int32((np.int32(1) << bit_shift) - 1), np.int32(width * width))
        cuda.syncthreads()
    copy_words(workspace, 0, entry, 0, triplets_at)
    copy_words(
        workspace,
        descriptors[graph + FACTOR_TABLES_AT],
        entry,
        triplets_at + np.uint32(triplet_words),
        higher_order_size,
    )
    cuda.syncthreads()
    return bit_shift


@cuda.jit(device=True)
def add_remainders(descriptors, graph, workspace, bit_mask, table_size):
    """Add the low bits of the triplet entries, selected by ``bit_mask``, to the pairwise tables.

    Each thread handles the same positions of all pairs, so no entry is updated by two threads.
    """
    for t in range(descriptors[graph + TRIANGLES]):
        clique = np.int32(descriptors[graph + TRIANGLE_LIST] + t * TRIANGLE_RECORD)
        for k in range(3):
            source, pair = (
                np.int32(descriptors[clique + TRIANGLE_TABLES] + k * table_size),
                np.int32(descriptors[clique + TRIANGLE_PAIRS + k]),
            )
            for i in range(np.int32(cuda.threadIdx.x), table_size, np.int32(cuda.blockDim.x)):
                x, y = workspace[np.uint32(source + i)], workspace[np.uint32(pair + i)]
                remainder = np.int32(0) if x < FORBIDDEN_BELOW else np.int32(x & bit_mask)
                workspace[np.uint32(pair + i)] = FORBIDDEN if y < FORBIDDEN_BELOW else np.int32(y + remainder)
