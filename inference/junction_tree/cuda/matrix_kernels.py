# mypy: ignore-errors
"""Messages that are matrix products, on an NVIDIA GPU.

A message goes from a clique to a neighbour: it joins the clique's tables and eliminates the variables outside the
separator. x is an assignment of the eliminated variables. The remaining variables are divided into two groups, with
assignments h (rows, "high" in names) and l (columns, "low"). If no table with eliminated variables depends on both h
and l, then::

    message[h, l] = Π tables of h, l · Σ over x of left[x, h] · right[x, l]
    left = Π tables of x, h     right = Π tables of x, l

This is a tiled matrix product. A block computes a tile of SIDE × SIDE entries. Slices of SIDE assignments x of ``left``
and ``right`` are built in shared memory, and each thread keeps ROWS entries of one column in registers. A table entry
is read once per block instead of once per row or column. A table whose innermost eliminated axis is contiguous is read
along it, the others along rows or columns. Maxima of sums are computed in the same way: Π and · become additions, and Σ
becomes the maximum.

Arguments of the kernel, the same as in ``message_kernels`` of this folder:

arena : (entries,)
    All tables on the device: linear scale for sums, utilities for maxima.
descriptor : int64
    The messages' descriptors in the layout of ``cuda/descriptors.py`` (imported as ``w``): per message a header (fields
    w.TABLE ... w.LOW_TABLES), the axes' sizes, and one record per joined table with its offset (w.AT) and its strides.
    The target's record is last.
launch : int
    Position in ``descriptor`` of the launch's table, which lists the launch's messages and their blocks.
state : (4, tables + 1) float64
    Rows: largest entry (peak), least non-zero entry, log shift and underflow flag of each table; used for sums only.
lowest, half
    The −∞ of the arithmetic, and the bound below which a sum means −∞; used for maxima only.
"""

from functools import lru_cache

import numpy as np
from numba import config, cuda

from dmcmc.inference.elimination.cuda.join_kernels import offset_of
from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.junction_tree.cuda.descriptor_kernels import (
    AT,
    AXES,
    ELIMINATED,
    ENTRIES,
    HEADER,
    HIGH,
    HIGH_AXES,
    HIGH_TABLES,
    INNER,
    LOW_TABLES,
    MATRIX_TABLES,
    OUTER_AXES,
    STEP,
    STRIDES,
    TABLE,
    TABLES,
)
from dmcmc.inference.junction_tree.cuda.message_kernels import THREADS, find_message, note_extremes, scale_of
from dmcmc.inference.runtime.compile import cuda_jit

SIDE = 4 if config.ENABLE_CUDASIM else 32  # rows and columns per block, and eliminated assignments per slice
MIN_SIDE = SIDE // 2  # fewer rows or columns do not repay a matrix product: over half a tile would be idle
GROUPS = THREADS // SIDE  # thread t has column t % SIDE and group t // SIDE; its rows are GROUPS apart
ROWS = SIDE // GROUPS  # rows per thread, and entries that it loads per slice
_ROW_LENGTH = SIDE + 1  # row length of a slice in shared memory: no bank conflicts in either direction of reading
_TABLES = MATRIX_TABLES + 1  # the joined tables and the target


@lru_cache
def _gatherer(number, sums):
    """Return the device function that multiplies (adds) entries of some tables into a slice in shared memory.

    ``number`` is the scalar type of the tables; ``sums`` says whether entries are multiplied, otherwise added.
    """

    @cuda.jit(device=True)
    def gather(arena, descriptor, records, tables, kept_offset, eliminated_offset, contiguous, slice_, tid, lowest):
        """Multiply (add) entries of tables ``tables[0]`` to ``tables[1]`` − 1 into a slice, ``left`` or ``right``.

        Parameters
        ----------
        records : (int, int)
            Position of the first table's record in ``descriptor``, and the length of a record.
        tables : (int, int)
            First table and end, in the order of the records.
        kept_offset : (tables, SIDE) int64
            Arena offset of each table in each row (for ``left``) or column (for ``right``) of the tile.
        eliminated_offset : (tables, SIDE) int64
            Offset to be added for each eliminated assignment x of the slice.
        contiguous : bool
            Process only tables whose stride of the innermost eliminated axis is 1, with neighbouring threads on
            neighbouring x; if false, only the other tables, with neighbouring threads on neighbouring rows or
            columns.
        slice_ : (SIDE, _ROW_LENGTH) shared memory
            Indexed by x and by row or column; updated in place.
        tid : int
            The thread's index in the block.
        lowest
            The −∞ of the arithmetic, to which sums are clamped.
        """
        value = cuda.local.array(ROWS, number)
        records_at, record_length = records
        major, minor = tid // SIDE, tid % SIDE
        for e in range(ROWS):
            x, y = (minor, major + e * GROUPS) if contiguous else (major + e * GROUPS, minor)
            value[e] = slice_[x, y]
        for t in range(tables[0], tables[1]):
            if (descriptor[records_at + t * record_length + STEP] == 1) == contiguous:
                for e in range(ROWS):
                    x, y = (minor, major + e * GROUPS) if contiguous else (major + e * GROUPS, minor)
                    entry = arena[np.uint64(kept_offset[t, y] + eliminated_offset[t, x])]
                    value[e] = value[e] * entry if sums else max(number(value[e] + entry), lowest)
        for e in range(ROWS):
            x, y = (minor, major + e * GROUPS) if contiguous else (major + e * GROUPS, minor)
            slice_[x, y] = value[e]

    return gather


@lru_cache
def matrix_kernel(number, operation):
    """Return the kernel whose blocks compute SIDE × SIDE entries.

    ``number`` is the scalar type of the tables, ``operation`` the ⊕ of the semiring: ``LOG_SUM`` for sums of products,
    otherwise maxima of sums.
    """
    sums = operation == LOG_SUM
    one, zero_of_sum = number(1 if sums else 0), number(0)
    gather = _gatherer(number, sums)

    @cuda_jit()
    def matrix(arena, descriptor, launch, state, lowest, half):
        """Compute one tile of a message per block; see the module for the arguments.

        Thread (tx, ty) computes the entries of column tx and rows ty + GROUPS · i of the tile, kept in ``result``.
        Tables 0 to row_tables − 1 depend on x and h, those up to summed_tables − 1 on x and l, those up to
        tables − 1 not on x; table ``tables`` is the target.
        """
        left = cuda.shared.array((SIDE, _ROW_LENGTH), number)
        right = cuda.shared.array((SIDE, _ROW_LENGTH), number)
        row_start = cuda.shared.array((_TABLES, SIDE), np.int64)
        column_start = cuda.shared.array((_TABLES, SIDE), np.int64)
        x_offset = cuda.shared.array((MATRIX_TABLES, SIDE), np.int64)
        result = cuda.local.array(ROWS, number)
        tid = np.int32(cuda.threadIdx.x)
        tx, ty = tid % np.int32(SIDE), tid // np.int32(SIDE)
        at, block = find_message(descriptor, launch, np.int64(cuda.blockIdx.x))
        tables, high = np.int32(descriptor[at + TABLES]), descriptor[at + HIGH]
        low, high_axes = descriptor[at + ENTRIES] // high, descriptor[at + HIGH_AXES]
        axes, outer_axes = descriptor[at + AXES], descriptor[at + OUTER_AXES]
        eliminated, inner = descriptor[at + ELIMINATED], np.uint32(descriptor[at + INNER])
        row_tables, zero = np.int32(descriptor[at + HIGH_TABLES]), np.int32(0)
        summed_tables = row_tables + np.int32(descriptor[at + LOW_TABLES])
        sizes, outer_sizes = at + HEADER, at + HEADER + axes
        records_at, record_length = outer_sizes + outer_axes, STRIDES + axes + outer_axes
        records, rows, columns = (records_at, record_length), (zero, row_tables), (row_tables, summed_tables)
        target, row_tiles = descriptor[at + TABLE], (high + SIDE - 1) // SIDE
        row, column = block % row_tiles * SIDE, block // row_tiles * SIDE
        scale = 1.0
        if sums:
            scale = scale_of(descriptor, records_at, record_length, tables, state, target, block == 0 and tid == 0)
        any_contiguous = False
        for t in range(summed_tables):
            any_contiguous |= descriptor[records_at + t * record_length + STEP] == 1
        # Offsets of each table, the target last, in the rows and in the columns of this tile.
        for i in range(tid, (tables + 1) * SIDE, THREADS):
            record_at = records_at + i // SIDE * record_length
            index = offset_of(descriptor, sizes, record_at + STRIDES, high_axes, min(row + i % SIDE, high - 1))
            row_start[i // SIDE, i % SIDE] = descriptor[record_at + AT] + index
            column_strides, index = record_at + STRIDES + high_axes, min(column + i % SIDE, low - 1)
            column_start[i // SIDE, i % SIDE] = offset_of(
                descriptor, sizes + high_axes, column_strides, axes - high_axes, index
            )
        cuda.syncthreads()
        # A table of columns has the same offset in every row.
        for i in range(tid, (summed_tables - row_tables) * SIDE, THREADS):
            column_start[row_tables + i // SIDE, i % SIDE] += row_start[row_tables + i // SIDE, 0]
        for i in range(ROWS):
            result[i] = zero_of_sum if sums else lowest
        # Slice by slice of the eliminated assignments: load left and right, then multiply and add.
        for x0 in range(0, eliminated, SIDE):
            cuda.syncthreads()
            for i in range(tid, summed_tables * SIDE, THREADS):
                record_at, x = records_at + i // SIDE * record_length, np.uint32(min(x0 + i % SIDE, eliminated - 1))
                outer = offset_of(descriptor, outer_sizes, record_at + STRIDES + axes, outer_axes, x // inner)
                x_offset[i // SIDE, i % SIDE] = np.int64(x % inner) * descriptor[record_at + STEP] + outer
            for e in range(ROWS):
                x = ty + e * GROUPS
                right[x, tx] = one
                if x0 + x < eliminated:
                    left[x, tx] = one
                else:
                    left[x, tx] = zero_of_sum if sums else lowest
            cuda.syncthreads()
            gather(arena, descriptor, records, rows, row_start, x_offset, False, left, tid, lowest)
            gather(arena, descriptor, records, columns, column_start, x_offset, False, right, tid, lowest)
            if any_contiguous:
                cuda.syncthreads()
                gather(arena, descriptor, records, rows, row_start, x_offset, True, left, tid, lowest)
                gather(arena, descriptor, records, columns, column_start, x_offset, True, right, tid, lowest)
            cuda.syncthreads()
            for x in range(SIDE):
                b = right[np.uint32(x), np.uint32(tx)]
                for i in range(ROWS):
                    s = left[np.uint32(x), np.uint32(ty + i * GROUPS)]
                    if sums:
                        result[i] += s * b
                    else:
                        result[i] = max(result[i], number(s + b))
        # Multiply by the tables without eliminated variables, and write the entries.
        largest, smallest = 0.0, np.inf
        for i in range(ROWS):
            h = ty + i * GROUPS
            value = result[i]
            for t in range(summed_tables, tables):
                entry = arena[np.uint64(row_start[t, h] + column_start[t, tx])]
                value = value * entry if sums else max(number(value + entry), lowest)
            if row + h < high and column + tx < low:
                target_at = np.uint64(row_start[tables, h] + column_start[tables, tx])
                if sums:
                    value *= scale
                    arena[target_at] = value
                    largest = max(largest, value)
                    smallest = min(smallest, value) if value > 0.0 else smallest
                else:
                    arena[target_at] = value if value > half else lowest
        if sums:
            top = cuda.shared.array(THREADS, np.float64)
            least = cuda.shared.array(THREADS, np.float64)
            top[tid], least[tid] = largest, smallest
            note_extremes(state, target, top, least, tid)

    return matrix
