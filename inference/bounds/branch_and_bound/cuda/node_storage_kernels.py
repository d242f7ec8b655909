# mypy: ignore-errors
"""Device functions that store a node's tables in a buffer entry and fetch them; they agree with the CPU kernels.

The working tables of a node lie one after the other: unary tables, pairwise tables, three tables per triangle a, b, c
of variables, over its pairs ab, ac and bc (the triplet tables), then higher-order tables. A buffer entry holds the
same tables in the same order, but two 16-bit triplet entries per int32. A triplet entry is stored divided by
2^``bit_shift``, rounded down; its remainder is added to the pairwise table over the same two variables, so the utility
of every assignment stays the same. ``FORBIDDEN_INT16`` stands for a forbidden triplet entry.

All threads of the block call every function. Each thread loads several int32 before it uses the first one, to hide the
latency. Positions are unsigned and arithmetic is cast to 32 bits: Numba's default, signed 64-bit integers, is slower.

Arguments that the functions share:

* block : Block, with the index arrays of all graphs, see ``dmcmc.inference.bounds.dual.cuda.descriptors``. A
  graph has a header, whose fields have named offsets: ``descriptors[graph + TRIANGLES]`` is its number of triangles,
  ``TRIANGLE_TABLES_AT`` and ``FACTOR_TABLES_AT`` the starts of the triplet and the higher-order tables
* graph : int32, position of the header of the node's graph in ``descriptors``
* workspace : (entries,) int32, working tables of the block
* entry : (entry_size,) int32, a buffer entry
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
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import device_function
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW

_PAIRS_PER_LOAD = 8  # int32 that a thread loads before it uses the first one
_ENTRIES_PER_LOAD = 2 * _PAIRS_PER_LOAD
_shift_for = device_function(shift_for)


@cuda.jit(device=True)
def copy_entries(source, source_start, target, target_start, size):
    """Copy ``size`` int32 from ``source``, from ``source_start`` on, to ``target``, from ``target_start`` on."""
    loaded = cuda.local.array(_PAIRS_PER_LOAD, int32)
    threads = np.uint32(cuda.blockDim.x)
    i, end = np.uint32(cuda.threadIdx.x), np.uint32(size)
    while i < end:
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                loaded[q] = source[np.uint32(np.uint32(source_start) + position)]
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                target[np.uint32(np.uint32(target_start) + position)] = loaded[q]
        i = np.uint32(i + np.uint32(_PAIRS_PER_LOAD) * threads)


@cuda.jit(device=True)
def packed_sizes(descriptors, graph, width):
    """Return how many int32 the packed triplet tables and the higher-order tables take in a buffer entry.

    ``width`` is the number W of columns; three tables of W² entries per triangle take 3 W² / 2 int32.
    """
    higher_order_size = (
        np.int32(descriptors[descriptors[graph + ENTRY_START] + descriptors[graph + FACTORS]])
        if descriptors[graph + FACTORS] > 0
        else np.int32(0)
    )
    return np.int32(3 * descriptors[graph + TRIANGLES] * width * width // 2), higher_order_size


@cuda.jit(device=True)
def fetch(block, graph, entry, workspace, bit_shift):
    """Copy a buffer entry to the working tables; ``bit_shift`` is the left shift that restores the triplet entries."""
    loaded, descriptors = cuda.local.array(_PAIRS_PER_LOAD, int32), block.descriptors
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    triplets_at = np.uint32(descriptors[graph + TRIANGLE_TABLES_AT])
    triplet_size, higher_order_size = packed_sizes(descriptors, graph, np.int32(8 * len(block.octets)))
    copy_entries(entry, 0, workspace, 0, triplets_at)
    i, end = tid, np.uint32(triplet_size)
    while i < end:
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                loaded[q] = entry[np.uint32(triplets_at + position)]
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                # both 16-bit halves, with their signs
                low, high = np.int32(np.int32(loaded[q] << 16) >> 16), np.int32(loaded[q] >> 16)
                target = np.uint32(triplets_at + np.uint32(2) * position)
                workspace[target] = FORBIDDEN if low == FORBIDDEN_INT16 else np.int32(low << bit_shift)
                workspace[np.uint32(target + np.uint32(1))] = (
                    FORBIDDEN if high == FORBIDDEN_INT16 else np.int32(high << bit_shift)
                )
        i = np.uint32(i + np.uint32(_PAIRS_PER_LOAD) * threads)
    source = triplets_at + np.uint32(triplet_size)
    copy_entries(entry, source, workspace, descriptors[graph + FACTOR_TABLES_AT], higher_order_size)
    cuda.syncthreads()


@cuda.jit(device=True)
def thread_maximum(workspace, start, size):
    """Return the calling thread's largest absolute allowed entry among ``size`` entries from ``start`` on.

    The result is 0 if the thread sees no allowed entry; forbidden entries do not count.
    """
    loaded, largest_of_thread = cuda.local.array(_ENTRIES_PER_LOAD, int32), np.int32(0)
    i, end, threads = np.uint32(cuda.threadIdx.x), np.uint32(size), np.uint32(cuda.blockDim.x)
    while i < end:
        for q in range(_ENTRIES_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            loaded[q] = workspace[np.uint32(np.uint32(start) + position)] if position < end else np.int32(0)
        for q in range(_ENTRIES_PER_LOAD):
            largest_of_thread = max(largest_of_thread, np.int32(0) if loaded[q] < FORBIDDEN_BELOW else abs(loaded[q]))
        i = np.uint32(i + np.uint32(_ENTRIES_PER_LOAD) * threads)
    return largest_of_thread


@cuda.jit(device=True)
def store(block, graph, workspace, entry, largest):
    """Store the working tables in a buffer entry; return the right shift of the triplet entries in bits.

    The working tables are invalid afterwards. ``largest`` (1,) int32, in shared memory, is workspace: it receives the
    largest absolute triplet entry.
    """
    loaded, descriptors = cuda.local.array(_ENTRIES_PER_LOAD, int32), block.descriptors
    tid, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    triplets_at, width = np.uint32(descriptors[graph + TRIANGLE_TABLES_AT]), np.int32(8 * len(block.octets))
    triplet_size, higher_order_size = packed_sizes(descriptors, graph, width)
    if tid == 0:
        largest[0] = 0
    cuda.syncthreads()
    cuda.atomic.max(largest, 0, np.int32(thread_maximum(workspace, triplets_at, 2 * triplet_size)))
    cuda.syncthreads()
    bit_shift = np.int32(_shift_for(largest[0]))
    i, end = tid, np.uint32(triplet_size)
    while i < end:
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                source = np.uint32(triplets_at + np.uint32(2) * position)
                loaded[2 * q], loaded[2 * q + 1] = workspace[source], workspace[np.uint32(source + np.uint32(1))]
        for q in range(_PAIRS_PER_LOAD):
            position = np.uint32(i + np.uint32(q) * threads)
            if position < end:
                low, high = loaded[2 * q], loaded[2 * q + 1]
                low = np.int32(FORBIDDEN_INT16) if low < FORBIDDEN_BELOW else np.int32(low >> bit_shift)
                high = np.int32(FORBIDDEN_INT16) if high < FORBIDDEN_BELOW else np.int32(high >> bit_shift)
                entry[np.uint32(triplets_at + position)] = np.int32((low & 0xFFFF) | (high << 16))
        i = np.uint32(i + np.uint32(_PAIRS_PER_LOAD) * threads)
    if bit_shift > 0:
        add_remainders(descriptors, graph, workspace, np.int32((np.int32(1) << bit_shift) - 1), np.int32(width * width))
        cuda.syncthreads()
    copy_entries(workspace, 0, entry, 0, triplets_at)
    target = triplets_at + np.uint32(triplet_size)
    copy_entries(workspace, descriptors[graph + FACTOR_TABLES_AT], entry, target, higher_order_size)
    cuda.syncthreads()
    return bit_shift


@cuda.jit(device=True)
def add_remainders(descriptors, graph, workspace, bit_mask, table_size):
    """Add the remainders of the triplet entries to the pairwise tables over the same variables.

    Each thread handles the same positions of all pairs, so no entry is updated by two threads.

    Parameters
    ----------
    bit_mask : int32
        Selects the low bits of an entry that the shift removes.
    table_size : int32
        Entries of a table, W * W.
    """
    for t in range(descriptors[graph + TRIANGLES]):
        clique = np.int32(descriptors[graph + TRIANGLE_LIST] + t * TRIANGLE_RECORD)
        for k in range(3):
            source = np.int32(descriptors[clique + TRIANGLE_TABLES] + k * table_size)
            pair = np.int32(descriptors[clique + TRIANGLE_PAIRS + k])
            for i in range(np.int32(cuda.threadIdx.x), table_size, np.int32(cuda.blockDim.x)):
                x, y = workspace[np.uint32(source + i)], workspace[np.uint32(pair + i)]
                remainder = np.int32(0) if x < FORBIDDEN_BELOW else np.int32(x & bit_mask)
                workspace[np.uint32(pair + i)] = FORBIDDEN if y < FORBIDDEN_BELOW else np.int32(y + remainder)
