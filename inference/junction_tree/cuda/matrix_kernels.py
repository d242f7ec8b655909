# mypy: ignore-errors
"""Messages that are matrix products, on an NVIDIA GPU.

Where no table that varies with what is eliminated (x) joins rows (h) and columns (l) of a message::

    message[h, l] = Π tables of h, l · Σ over x of S[x, h] · B[x, l]     S = Π tables of x, h     B = Π tables of x, l

A block makes a part of it: slices of S and B are multiplied up into shared memory, and each of its threads keeps some
rows of one column in registers. An entry of a table is read once a block instead of once a row or column. A table whose
innermost eliminated axis is contiguous is read along that, the others along rows or columns. Maxima of sums likewise.
"""

from functools import lru_cache

import numpy as np
from numba import config, cuda

from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.junction_tree.cuda import descriptors as w
from dmcmc.inference.junction_tree.cuda.descriptor_kernels import MATRIX_TABLES
from dmcmc.inference.junction_tree.cuda.message_kernels import THREADS, find_message, note_extremes, place_of, scale_of
from dmcmc.inference.runtime.compile import cuda_jit

SIDE = 4 if config.ENABLE_CUDASIM else 32  # rows and columns of a block, and what is eliminated in a slice
LEAST = SIDE // 2  # fewer rows or columns are not worth a product
GROUPS = THREADS // SIDE  # a thread's rows are so far apart
ROWS = SIDE // GROUPS  # of a thread; as many entries of each slice
_APART = SIDE + 1  # rows of a slice in shared memory: neither way of reading meets in its banks
_TABLES = MATRIX_TABLES + 1


@lru_cache
def _gatherer(number, sums):
    """Return what multiplies (adds) entries of some tables into a slice: a slice's entries are read together."""

    @cuda.jit(device=True)
    def gather(arena, words, records, tables, starts, reach, contiguous, into, tid, lowest):
        value = cuda.local.array(ROWS, number)
        first, record = records
        major, minor = tid // SIDE, tid % SIDE
        for e in range(ROWS):
            x, y = (minor, major + e * GROUPS) if contiguous else (major + e * GROUPS, minor)
            value[e] = into[x, y]
        for t in range(tables[0], tables[1]):
            if (words[first + t * record + w.STEP] == 1) == contiguous:
                for e in range(ROWS):
                    x, y = (minor, major + e * GROUPS) if contiguous else (major + e * GROUPS, minor)
                    found = arena[np.uint64(starts[t, y] + reach[t, x])]
                    value[e] = value[e] * found if sums else max(number(value[e] + found), lowest)
        for e in range(ROWS):
            x, y = (minor, major + e * GROUPS) if contiguous else (major + e * GROUPS, minor)
            into[x, y] = value[e]

    return gather


@lru_cache
def matrix_kernel(number, operation):
    """Return the kernel whose blocks make SIDE rows of SIDE columns, for numbers of a type."""
    sums = operation == LOG_SUM
    one, nothing = number(1 if sums else 0), number(0)
    gather = _gatherer(number, sums)

    @cuda_jit()
    def matrix(arena, words, launch, state, lowest, half):
        left = cuda.shared.array((SIDE, _APART), number)
        right = cuda.shared.array((SIDE, _APART), number)
        row_start = cuda.shared.array((_TABLES, SIDE), np.int64)
        column_start = cuda.shared.array((_TABLES, SIDE), np.int64)
        reach = cuda.shared.array((MATRIX_TABLES, SIDE), np.int64)
        cell = cuda.local.array(ROWS, number)
        tid = np.int32(cuda.threadIdx.x)
        tx, ty = tid % np.int32(SIDE), tid // np.int32(SIDE)
        at, block = find_message(words, launch, np.int64(cuda.blockIdx.x))
        tables, high = np.int32(words[at + w.TABLES]), words[at + w.HIGH]
        low, high_axes = words[at + w.ENTRIES] // high, words[at + w.HIGH_AXES]
        axes, outer_axes = words[at + w.AXES], words[at + w.OUTER_AXES]
        eliminated, inner = words[at + w.ELIMINATED], np.uint32(words[at + w.INNER])
        of_rows, zero = np.int32(words[at + w.HIGH_TABLES]), np.int32(0)
        joined = of_rows + np.int32(words[at + w.LOW_TABLES])
        sizes, outer_sizes = at + w.HEADER, at + w.HEADER + axes
        first, record = outer_sizes + outer_axes, w.STRIDES + axes + outer_axes
        target, down = words[at + w.TABLE], (high + SIDE - 1) // SIDE
        row, column = block % down * SIDE, block // down * SIDE
        scale = 1.0
        if sums:
            scale = scale_of(words, first, record, tables, state, target, block == 0 and tid == 0)
        mixed = False
        for t in range(joined):
            mixed |= words[first + t * record + w.STEP] == 1
        for i in range(tid, (tables + 1) * SIDE, THREADS):
            mine = first + i // SIDE * record
            place = place_of(words, sizes, mine + w.STRIDES, high_axes, min(row + i % SIDE, high - 1))
            row_start[i // SIDE, i % SIDE] = words[mine + w.AT] + place
            beside, place = mine + w.STRIDES + high_axes, min(column + i % SIDE, low - 1)
            column_start[i // SIDE, i % SIDE] = place_of(words, sizes + high_axes, beside, axes - high_axes, place)
        cuda.syncthreads()
        for i in range(tid, (joined - of_rows) * SIDE, THREADS):  # a table of columns begins the same in every row
            column_start[of_rows + i // SIDE, i % SIDE] += row_start[of_rows + i // SIDE, 0]
        for i in range(ROWS):
            cell[i] = nothing if sums else lowest
        for x0 in range(0, eliminated, SIDE):
            cuda.syncthreads()
            for i in range(tid, joined * SIDE, THREADS):
                mine, x = first + i // SIDE * record, np.uint32(min(x0 + i % SIDE, eliminated - 1))
                outer = place_of(words, outer_sizes, mine + w.STRIDES + axes, outer_axes, x // inner)
                reach[i // SIDE, i % SIDE] = np.int64(x % inner) * words[mine + w.STEP] + outer
            for e in range(ROWS):
                x = ty + e * GROUPS
                right[x, tx] = one
                if x0 + x < eliminated:
                    left[x, tx] = one
                else:
                    left[x, tx] = nothing if sums else lowest
            cuda.syncthreads()
            gather(arena, words, (first, record), (zero, of_rows), row_start, reach, False, left, tid, lowest)
            gather(arena, words, (first, record), (of_rows, joined), column_start, reach, False, right, tid, lowest)
            if mixed:
                cuda.syncthreads()
                gather(arena, words, (first, record), (zero, of_rows), row_start, reach, True, left, tid, lowest)
                gather(arena, words, (first, record), (of_rows, joined), column_start, reach, True, right, tid, lowest)
            cuda.syncthreads()
            for x in range(SIDE):
                mine = right[np.uint32(x), np.uint32(tx)]
                for i in range(ROWS):
                    other = left[np.uint32(x), np.uint32(ty + i * GROUPS)]
                    if sums:
                        cell[i] += other * mine
                    else:
                        cell[i] = max(cell[i], number(other + mine))
        largest, smallest = 0.0, np.inf
        for i in range(ROWS):
            h = ty + i * GROUPS
            value = cell[i]
            for t in range(joined, tables):
                found = arena[np.uint64(row_start[t, h] + column_start[t, tx])]
                value = value * found if sums else max(number(value + found), lowest)
            if row + h < high and column + tx < low:
                to = np.uint64(row_start[tables, h] + column_start[tables, tx])
                if sums:
                    value *= scale
                    arena[to] = value
                    largest = max(largest, value)
                    smallest = min(smallest, value) if value > 0.0 else smallest
                else:
                    arena[to] = value if value > half else lowest
        if sums:
            top = cuda.shared.array(THREADS, np.float64)
            least = cuda.shared.array(THREADS, np.float64)
            top[tid], least[tid] = largest, smallest
            note_extremes(state, target, top, least, tid)

    return matrix
