# mypy: ignore-errors
"""Messages of a junction tree on an NVIDIA GPU: a clique is joined and projected without writing the joined table.

A launch computes all messages of a level. Usually one thread computes one entry: it enumerates the eliminated
assignments and multiplies the tables' entries (sums) or adds them (maxima). If there are few entries and many
eliminated assignments, one block computes one entry, or a part of it, and its threads share the assignments. A message
whose rows and columns occur together in no summed table is a matrix product, see
:mod:`dmcmc.inference.junction_tree.cuda.matrix_kernels`.

Sums are computed in linear scale, as in :mod:`dmcmc.inference.junction_tree.sum_product_kernels`.

Shared arguments
----------------
arena : (entries,)
    All tables on the device: linear scale for sums, utilities for maxima.
descriptor : int64
    The descriptors, see :mod:`dmcmc.inference.junction_tree.cuda.descriptor_kernels`.
launch : int
    Position of the launch's table in ``descriptor``.
state : (4, tables + 1) float64
    Row PEAK: largest entry of each table; LOW: least entry that is not zero (both found while the table is written);
    SHIFT: logarithm of the factor by which the table must be multiplied; UNDERFLOW: first entry 1 if a product could
    underflow, in which case all results are invalid. Products are divided by the peaks of their tables.
lowest, half
    The −∞ of the arithmetic, and the bound below which a sum means −∞; for maxima.
"""

import math
from functools import lru_cache

import numpy as np
from numba import config, cuda

from dmcmc.inference.elimination.cuda.join_kernels import last_at_most, offset_of
from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.junction_tree.cuda.descriptor_kernels import (
    AT,
    AXES,
    ELIMINATED,
    ENTRIES,
    FIRST_BLOCK,
    HEADER,
    INNER,
    MESSAGES,
    NUMBER,
    OUTER_AXES,
    PART_AT,
    PARTS,
    STEP,
    STRIDES,
    TABLE,
    TABLE_COUNTS,
    TABLES,
)
from dmcmc.inference.runtime.compile import cuda_jit

THREADS = 8 if config.ENABLE_CUDASIM else 256  # threads per block
MAX_AXES = 24  # largest number of eliminated axes
PEAK, LOW, SHIFT, UNDERFLOW = range(4)  # rows of ``state``
_MAX_RANGE = 600.0  # largest admissible −ln(product / largest product); a float64 allows 708


@cuda.jit(device=True)
def find_message(descriptor, launch, block):
    """Return the position of the descriptor of a block's message, and the block's index within it, by bisection."""
    n = descriptor[launch + MESSAGES]
    i = last_at_most(descriptor, launch + FIRST_BLOCK, n, block)
    return descriptor[launch + FIRST_BLOCK + n + 1 + i], block - descriptor[launch + FIRST_BLOCK + i]


@cuda.jit(device=True)
def scale_of(descriptor, records_at, record_length, tables, state, target, leader):
    """Return the factor 1 / Π peaks of a message's products, or 0 if a table has no positive entry.

    The ``leader``, one thread per message, also records the shift Σ (shift + ln peak) of the ``target`` table, and an
    underflow if Σ ln(peak / low), the range of the products, reaches ``_MAX_RANGE``.

    ``records_at`` and ``record_length`` say where the records of the ``tables`` joined tables are in
    ``descriptor``.
    """
    scale, peak, low = 1.0, state[PEAK], state[LOW]
    for t in range(tables):
        top = peak[descriptor[records_at + t * record_length + NUMBER]]
        scale = scale / top if top > 0.0 else 0.0
    if leader:
        total, total_range = 0.0, 0.0
        for t in range(tables):
            number = descriptor[records_at + t * record_length + NUMBER]
            if peak[number] > 0.0:
                total += state[SHIFT, number] + math.log(peak[number])
                total_range += math.log(peak[number]) - math.log(low[number])
        state[SHIFT, target] = total
        if not total_range < _MAX_RANGE:
            state[UNDERFLOW, 0] = 1.0
    return scale


@cuda.jit(device=True)
def note_extremes(state, target, top, least, tid):
    """Combine the largest and the least entries of a block's threads with those of a table.

    ``top`` and ``least`` (THREADS,) float64 are shared memory with one entry per thread; all threads call this.
    """
    cuda.syncthreads()
    distance = THREADS // 2
    while distance > 0:
        if tid < distance:
            top[tid] = max(top[tid], top[tid + distance])
            least[tid] = min(least[tid], least[tid + distance])
        cuda.syncthreads()
        distance //= 2
    if tid == 0:
        cuda.atomic.max(state[PEAK], target, top[0])
        cuda.atomic.min(state[LOW], target, least[0])


@cuda_jit()
def reset_extremes(targets, n, state):
    """Reset the largest and least entries of the tables that are recomputed; one thread per table.

    ``targets`` (n,) int64 holds the numbers of these tables.
    """
    i = cuda.grid(1)
    if i < n:
        state[PEAK, targets[i]], state[LOW, targets[i]] = 0.0, np.inf


@lru_cache
def per_thread_kernel(number, width, operation):
    """Return the kernel with one thread per entry.

    ``number`` is the scalar type of the tables; ``width`` is an index in ``TABLE_COUNTS``, which gives the number of
    joined tables; ``operation`` is the ⊕ of the semiring.
    """
    tables, sums = TABLE_COUNTS[width], operation == LOG_SUM

    @cuda_jit()
    def per_thread(arena, descriptor, launch, state, lowest, half):
        """Compute one entry of a message per thread, summed or maximised over all eliminated assignments.

        ``offset`` holds each table's arena offset at the current outer digits, ``digit`` the values of the eliminated
        axes except the innermost (an odometer), ``step`` each table's stride of the innermost one.
        """
        top = cuda.shared.array(THREADS, np.float64)
        least = cuda.shared.array(THREADS, np.float64)
        offset = cuda.local.array(tables, np.int64)
        step = cuda.local.array(tables, np.int64)
        digit = cuda.local.array(MAX_AXES, np.int64)
        at, block = find_message(descriptor, launch, np.int64(cuda.blockIdx.x))
        axes, outer_axes = descriptor[at + AXES], descriptor[at + OUTER_AXES]
        entry, inner = block * THREADS + cuda.threadIdx.x, descriptor[at + INNER]
        sizes, outer_sizes = at + HEADER, at + HEADER + axes
        records_at, record_length = outer_sizes + outer_axes, STRIDES + axes + outer_axes
        target = descriptor[at + TABLE]
        scale = 1.0
        if sums:
            leader = block == 0 and cuda.threadIdx.x == 0
            scale = scale_of(descriptor, records_at, record_length, descriptor[at + TABLES], state, target, leader)
        active = entry < descriptor[at + ENTRIES]
        for t in range(tables):
            record_at = records_at + t * record_length
            offset[t] = descriptor[record_at + AT]
            if active:
                offset[t] += offset_of(descriptor, sizes, record_at + STRIDES, axes, entry)
            step[t] = descriptor[record_at + STEP]
        for j in range(outer_axes):
            digit[j] = 0
        result = number(0.0) if sums else lowest
        for _ in range(descriptor[at + ELIMINATED] // inner if active else 0):
            for x in range(inner):
                value = arena[np.uint64(offset[0] + x * step[0])]
                for t in range(1, tables):
                    if sums:
                        value *= arena[np.uint64(offset[t] + x * step[t])]
                    else:
                        value = max(number(value + arena[np.uint64(offset[t] + x * step[t])]), lowest)
                if sums:
                    result += value
                else:
                    result = max(result, value)
            j = outer_axes - 1
            while j >= 0:
                digit[j] += 1
                wraps = digit[j] == descriptor[outer_sizes + j]
                for t in range(tables):
                    stride = descriptor[records_at + t * record_length + STRIDES + axes + j]
                    offset[t] += stride * (1 - digit[j]) if wraps else stride
                if not wraps:
                    break
                digit[j] = 0
                j -= 1
        record_at = records_at + tables * record_length
        if active:
            target_at = descriptor[record_at + AT] + offset_of(descriptor, sizes, record_at + STRIDES, axes, entry)
            if sums:
                result *= scale
                arena[target_at] = result
            else:
                arena[target_at] = result if result > half else lowest
        if sums:  # one atomic update per block
            tid = cuda.threadIdx.x
            top[tid] = result if active else 0.0
            least[tid] = result if active and result > 0.0 else np.inf
            note_extremes(state, target, top, least, tid)

    return per_thread


@lru_cache
def per_block_kernel(number, width, operation):
    """Return the kernel with one block per entry, or per part of an entry's eliminated assignments.

    The parameters are those of :func:`per_thread_kernel`. ``parts`` (parts,) receives one result per block, at the
    message's PART_AT; :func:`finish_kernel` combines them.
    """
    tables, sums = TABLE_COUNTS[width], operation == LOG_SUM

    @cuda_jit()
    def per_block(arena, descriptor, launch, state, lowest, half, parts):
        """Compute one entry of a message, or one part of it, per block."""
        shared = cuda.shared.array(THREADS, number)
        offset = cuda.local.array(tables, np.int64)
        at, block = find_message(descriptor, launch, np.int64(cuda.blockIdx.x))
        axes, outer_axes = descriptor[at + AXES], descriptor[at + OUTER_AXES]
        n_parts, inner, eliminated = descriptor[at + PARTS], descriptor[at + INNER], descriptor[at + ELIMINATED]
        entry, part = block // n_parts, block % n_parts
        sizes, outer_sizes = at + HEADER, at + HEADER + axes
        records_at, record_length = outer_sizes + outer_axes, STRIDES + axes + outer_axes
        tid = np.int64(cuda.threadIdx.x)
        for t in range(tables):
            record_at = records_at + t * record_length
            offset[t] = descriptor[record_at + AT] + offset_of(descriptor, sizes, record_at + STRIDES, axes, entry)
        result = number(0.0) if sums else lowest
        for i in range(eliminated * part // n_parts + tid, eliminated * (part + 1) // n_parts, THREADS):
            x, outer = i % inner, i // inner
            value = number(1.0) if sums else number(0.0)
            for t in range(tables):
                record_at = records_at + t * record_length
                entry_at = offset[t] + x * descriptor[record_at + STEP]
                entry_at += offset_of(descriptor, outer_sizes, record_at + STRIDES + axes, outer_axes, outer)
                if sums:
                    value *= arena[entry_at]
                else:
                    value = max(number(value + arena[entry_at]), lowest)
            if sums:
                result += value
            else:
                result = max(result, value)
        shared[tid] = result
        cuda.syncthreads()
        step = THREADS // 2
        while step > 0:
            if tid < step:
                if sums:
                    shared[tid] += shared[tid + step]
                else:
                    shared[tid] = max(shared[tid], shared[tid + step])
            cuda.syncthreads()
            step //= 2
        if tid == 0:
            parts[descriptor[at + PART_AT] + block] = shared[0]

    return per_block


@lru_cache
def finish_kernel(number, operation):
    """Return the kernel that combines the parts of entries; one block per message.

    ``number`` is the scalar type of the tables, ``operation`` the ⊕ of the semiring.
    """
    sums = operation == LOG_SUM

    @cuda_jit()
    def finish(arena, descriptor, launch, state, lowest, half, parts, tables):
        """Combine the parts of a message's entries; one thread per entry at a time.

        ``parts`` is the result of ``per_block``; ``tables`` is the number of records before the target's.
        """
        at = descriptor[launch + FIRST_BLOCK + descriptor[launch + MESSAGES] + 1 + cuda.blockIdx.x]
        axes, outer_axes, n_parts = descriptor[at + AXES], descriptor[at + OUTER_AXES], descriptor[at + PARTS]
        sizes, record_length = at + HEADER, STRIDES + axes + outer_axes
        records_at, target = sizes + axes + outer_axes, descriptor[at + TABLE]
        scale = 1.0
        if sums:
            leader = cuda.threadIdx.x == 0
            scale = scale_of(descriptor, records_at, record_length, descriptor[at + TABLES], state, target, leader)
        record_at = records_at + tables * record_length
        for entry in range(cuda.threadIdx.x, descriptor[at + ENTRIES], cuda.blockDim.x):
            result = number(0.0) if sums else lowest
            for part in range(n_parts):
                value = parts[descriptor[at + PART_AT] + entry * n_parts + part]
                if sums:
                    result += value
                else:
                    result = max(result, value)
            target_at = descriptor[record_at + AT] + offset_of(descriptor, sizes, record_at + STRIDES, axes, entry)
            if sums:
                result *= scale
                arena[target_at] = result
                if result > 0.0:
                    cuda.atomic.max(state[PEAK], target, result)
                    cuda.atomic.min(state[LOW], target, result)
            else:
                arena[target_at] = result if result > half else lowest

    return finish
