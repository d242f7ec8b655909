# mypy: ignore-errors
"""CUDA kernels that join tables, alone or in groups of buckets, and the descriptors of their work.

Join the tables of a bucket and eliminate its variable on an NVIDIA GPU, without writing the joined table to memory.

The separator is split into leading variables h and trailing variables l, as on the CPU. Two launches::

    prepare:  S[x, h] = Σ tables that depend on h only        rows × |x| numbers
              B[x, l] = Σ tables that depend on l only        width × |x| numbers
              offsets of the row of h and of the column of l in each table that depends on both
    join:     cell[h, l] = max over x of S[x, h] + B[x, l] + Σ tables that depend on both, read from memory

A block of 256 threads joins a tile of the message: TH assignments of h times TL of l, for a few tiles side by side. Its
threads form 8 groups of 32. Neighbouring threads of a group have neighbouring l. Every thread keeps TH/8 × TL/32 cells
in registers while slices of S and B pass through shared memory.

Without tables that depend on both h and l, this is a max-plus matrix product, limited by the rate of instructions. With
one or two such tables, the distance of a thread's entries from the table's first entry of x is the same for every x. A
32-bit distance is therefore computed once per tile, and each x only moves the beginning. The kernel for any number of
tables computes a 64-bit offset per entry; it also handles the tables for which 32 bits do not suffice.

One launch can join many buckets: each block finds its bucket in the launch's table.

Shared arguments
----------------
arena : (entries,)
    All tables on the device, in the dtype of the arithmetic.
meta : int64
    The descriptors of buckets and launches, laid out as in :mod:`dmcmc.inference.elimination.cuda.join_kernels`.
table : int
    Position of the launch's table in ``meta``.
sums : (entries,)
    Workspace for S and B of all buckets of the launch.
start : (entries,) int64
    Workspace for the offsets of rows and columns.
lowest, half
    The −∞ of the arithmetic, and the bound below which a sum means −∞.

Layout of the int64 descriptors of buckets that GPU kernels read: one upload serves all eliminations of a batch.

The constants are positions within a descriptor. A bucket's descriptor is a header, the sizes of the axes of h and of l,
and a record for each table: first the tables that depend on h only, then on l only, then on both. x is the variable
that the bucket eliminates; h and l are the leading and trailing variables of its separator, the variables of its
message. S[x, h] and B[x, l] are the sums of the tables that depend on h only and on l only. See
:mod:`dmcmc.inference.elimination.cuda.join_kernels`. :mod:`dmcmc.inference.elimination.cuda.descriptor_kernels` writes
the descriptors.

Assign buckets to CPU or GPU and order them into waves; compiled for the CPU.

A wave is a set of buckets that do not depend on each other, so that they share GPU launches.

Shared arguments, all int64 and fields of :class:`dmcmc.inference.elimination.plan.BucketProgram`:

variable : (buckets,)
    The variable that each bucket eliminates; consecutive buckets of one variable are its mini-buckets.
input_start, inputs : (buckets + 1,), (inputs,)
    The tables that bucket b joins are ``inputs[input_start[b]:input_start[b + 1]]``. Tables are numbered: first the
    input tables, then one message per bucket.
cells : (buckets,)
    Entries of each bucket's joined table, which is never written to memory: the bucket's work.
given : int
    Number of input tables; table ``given + b`` is the message of bucket b.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import config, cuda

from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.runtime.compile import cuda_jit, njit

# A bucket's header: domain size of x, axes of h and of l, rows (assignments of h), width (assignments of l), offset of
# the message; number of tables of each kind; offsets of its parts of the workspaces ``sums`` (S and B) and ``start``
# (rows and columns); tiles that a block joins side by side. The sizes of the axes follow the header.
DOMAIN, HIGH_AXES, LOW_AXES, ROWS, WIDTH, MESSAGE = range(6)
HIGH_TABLES, LOW_TABLES, BOTH_TABLES = range(6, 9)
HIGH_SUMS, LOW_SUMS, ROW_STARTS, COLUMN_STARTS, TILES = range(9, 14)
HEADER = 14
# A table's record: its offset in the arena, its stride of x, and its strides of all axes.
OFFSET, X_STRIDE, STRIDES = range(3)
# A launch's table: number n of its buckets, first block of each bucket and the number of blocks (n + 1 values), then
# the positions of the buckets' descriptors (n values). Launches of max-marginals append the positions of their results
# (n values).
BUCKETS, FIRST_BLOCK, AFTER = range(3)
# A program for looking maximising values up (``choose_kernel``): lengths of the seven arrays of a ``BucketProgram``
# that it reads, a shift that is added to every offset, then the arrays.
(
    DOMAINS, SCOPE_STARTS, SCOPES, OFFSETS, VARIABLES, INPUT_STARTS, INPUTS, SHIFT, ARRAYS,
) = range(9)  # fmt: skip
# A message whose largest entry is found: its offset, its number of entries, the position of the result.
BEGIN, ENTRIES, RESULT, SPAN = range(4)


# 32 threads per group, 8 groups per block; Numba's simulator runs one operating-system thread for each
LANES, GROUPS = (4, 4) if config.ENABLE_CUDASIM else (32, 8)
PREPARE_THREADS = 8 if config.ENABLE_CUDASIM else 256  # threads of a block of ``prepare``
ANY = 3  # number of the kernel for any number of tables; 0 to 2 are for exactly this number, see :func:`join_kernel`
LARGE = 4  # number of the kernel for large messages, see :func:`join_kernel`
VALUES_PER_THREAD = 8  # values of x that one thread prepares; a tuning constant
FAR = 1 << 32  # entries between two values of x from which a 32-bit distance does not suffice
# most tables that depend on both h and l; choose_low_axes never splits a separator so that there are more
MAX_BOTH_TABLES = 8


class JoinKernel(NamedTuple):
    """A compiled join kernel and the size of a block's tile.

    Attributes
    ----------
    launch : kernel
        The compiled kernel.
    th, tl : int
        Height and width of a tile: assignments of h, and assignments of l.
    """

    launch: Any
    th: int
    tl: int


@lru_cache
def join_kernel(dtype: np.dtype[Any], number: int, operation: int) -> JoinKernel:
    """Return the join kernel for a number type.

    Parameters
    ----------
    dtype
        The dtype of the arithmetic.
    number
        0, 1, 2: the number of tables that depend on both h and l. ``ANY``: any number of them, or tables with entries
        ``FAR`` apart. ``LARGE``: no such table, and large messages; for numbers of 4 bytes and maxima its tile is
        larger.
    operation
        The ⊕ of the semiring: ``MAXIMUM`` or ``LOG_SUM``.
    """
    # 8-byte numbers and log-sum-exp need twice the registers per cell: the larger tile does not fit
    heavy = dtype.itemsize == 8 or operation == LOG_SUM
    if number == LARGE and heavy:
        return join_kernel(dtype, 0, operation)
    rh, rl = (LANES // 2, 4) if number == LARGE else (4, 4)
    both = 0 if number == LARGE else number
    return JoinKernel(_build(dtype.type, both, operation, rh, rl), GROUPS * rh, LANES * rl)


@cuda.jit(device=True)
def find_bucket(meta, table, block, thread, threads):
    """Return the index of a block's bucket in a launch's table; called by all threads of the block.

    ``block`` is the block's index in the launch; ``thread`` and ``threads`` are the thread's index and their number.
    """
    found = cuda.shared.array(1, np.int32)
    n = np.int32(meta[table + BUCKETS])
    if n == 1:
        return np.int32(0)
    for i in range(thread, n, threads):
        if meta[table + FIRST_BLOCK + i] <= block < meta[table + FIRST_BLOCK + i + 1]:
            found[0] = i
    cuda.syncthreads()
    return found[0]


def _build(number: Any, both: int, operation: int, rh: int, rl: int) -> Any:
    """Compile the join kernel with its sizes as constants, so that loops are unrolled and cells stay in registers.

    Parameters
    ----------
    number
        The scalar type of the tables.
    both
        Number of tables that depend on both h and l; ``ANY`` for any number.
    operation
        The ⊕ of the semiring.
    rh, rl
        Rows and columns of a thread's cells. A tile has GROUPS · rh rows and LANES · rl columns.
    """
    th, tl = GROUPS * rh, LANES * rl
    # values of x per slice: slices of S and B take equal shared memory for 4 and for 8 bytes per number
    slice_x = 32 if np.dtype(number).itemsize == 4 else 16
    slice_h, slice_l, cells = slice_x * th, slice_x * tl, rh * rl
    log_sum, general = operation == LOG_SUM, both == ANY
    tables = MAX_BOTH_TABLES if general else max(both, 1)
    n_columns, n_starts, n_masses, threads = tables * rl, tables * th, (cells if log_sum else 1), LANES * GROUPS
    n_direct = 0 if general else both
    n_distances = max(1, n_direct * cells)

    @cuda_jit(max_registers=128)  # two blocks per multiprocessor
    def join(arena, meta, table, sums, start, lowest, half):
        """Join the tiles of a launch; a block joins a few tiles side by side.

        Thread (tx, ty) holds the rows ty + GROUPS · i and the columns tx + LANES · j of a tile. ``cell`` holds the
        maxima so far; for log-sum-exp, ``mass`` holds the sum of the exponentials relative to them. In shared memory,
        ``shared_h`` and ``shared_l`` hold the current slices of S and B, and ``shared_start`` the offset of each row of
        the tile in each table that depends on both h and l. ``column_offset`` holds the offsets of the thread's columns
        in these tables, ``base`` its entries of B. ``distance`` holds, for at most two tables, the distance of the
        entry of each cell from the table's first entry of x.
        """
        shared_h = cuda.shared.array(slice_h, number)
        shared_l = cuda.shared.array(slice_l, number)
        shared_start = cuda.shared.array(n_starts, np.int64)
        column_offset = cuda.local.array(n_columns, np.int32)
        cell = cuda.local.array(cells, number)
        mass = cuda.local.array(n_masses, number)
        base = cuda.local.array(rl, number)
        distance = cuda.local.array(n_distances, np.uint32)
        tx, ty = np.int32(cuda.threadIdx.x), np.int32(cuda.threadIdx.y)
        tid = ty * np.int32(LANES) + tx
        bucket = find_bucket(meta, table, np.int64(cuda.blockIdx.x), tid, threads)
        bucket_at = meta[table + AFTER + meta[table + BUCKETS] + bucket]
        block = np.uint32(cuda.blockIdx.x - meta[table + FIRST_BLOCK + bucket])
        # A thread always loads the same column of S and of B into a slice.
        x_size, rows, width = (
            np.int32(meta[bucket_at + DOMAIN]),
            meta[bucket_at + ROWS],
            np.int32(meta[bucket_at + WIDTH]),
        )
        s_at, b_at = meta[bucket_at + HIGH_SUMS], meta[bucket_at + LOW_SUMS]
        rows_at, columns_at = meta[bucket_at + ROW_STARTS], meta[bucket_at + COLUMN_STARTS]
        tiles, down = np.int32(meta[bucket_at + TILES]), np.uint32((rows + (th - 1)) // th)
        record = STRIDES + meta[bucket_at + HIGH_AXES] + meta[bucket_at + LOW_AXES]
        n_single = meta[bucket_at + HIGH_TABLES] + meta[bucket_at + LOW_TABLES]
        first_both = bucket_at + HEADER + record - STRIDES + n_single * record
        n_both = np.int32(meta[bucket_at + BOTH_TABLES]) if general else np.int32(both)
        row = np.int64(block % down) * th
        stride_0 = meta[first_both + X_STRIDE] if n_direct >= 1 else 0
        stride_1 = meta[first_both + record + X_STRIDE] if n_direct == 2 else 0
        begin_0 = meta[first_both + OFFSET] if n_direct >= 1 else 0
        begin_1 = meta[first_both + record + OFFSET] if n_direct == 2 else 0
        table_0, table_1 = arena, arena  # views that begin at the entry of each table for the current x
        for i in range(tid, n_both * th, threads):
            shared_start[i] = start[rows_at + (i // th) * rows + min(row + i % th, rows - 1)]
        cuda.syncthreads()
        for tile in range(tiles):
            first_column = np.int32((np.int64(block // down) * tiles + tile) * tl)
            if first_column >= width:
                break
            for i in range(cells):
                cell[i] = lowest
                if log_sum:
                    mass[i] = 0
            for v in range(n_both):  # this thread's columns in the tables that depend on both
                for j in range(rl):
                    column = min(first_column + tx + np.int32(LANES * j), width - np.int32(1))
                    column_offset[v * rl + j] = np.int32(start[columns_at + v * width + column])
            for i in range(rh):
                for j in range(rl):
                    if n_direct >= 1:
                        distance[i * rl + j] = np.uint32(shared_start[ty + GROUPS * i] - begin_0 + column_offset[j])
                    if n_direct == 2:
                        distance_1 = shared_start[th + ty + GROUPS * i] - begin_1
                        distance[cells + i * rl + j] = np.uint32(distance_1 + column_offset[rl + j])
            for x0 in range(0, x_size, slice_x):
                slice_size = min(np.int32(slice_x), np.int32(x_size - x0))
                cuda.syncthreads()
                if tile == 0 or x_size > slice_x:
                    at = s_at + np.int64(x0 + tid // th) * rows + min(row + tid % th, rows - 1)
                    for x in range(tid // th, slice_size, threads // th):
                        shared_h[np.uint64(x * th + tid % th)] = sums[np.uint64(at)]
                        at += (threads // th) * rows
                at = b_at + np.int64(x0 + tid // tl) * width + min(first_column + tid % tl, width - np.int32(1))
                for x in range(tid // tl, slice_size, threads // tl):
                    shared_l[np.uint64(x * tl + tid % tl)] = sums[np.uint64(at)]
                    at += (threads // tl) * width
                cuda.syncthreads()
                for x in range(slice_size):
                    if n_direct >= 1:
                        table_0 = arena[np.uint64(begin_0 + (x0 + x) * stride_0) :]
                    if n_direct == 2:
                        table_1 = arena[np.uint64(begin_1 + (x0 + x) * stride_1) :]
                    # unsigned: no test for negative indices
                    at_l, at_h = np.uint64(x * tl + tx), np.uint64(x * th + ty)
                    for j in range(rl):
                        base[j] = shared_l[at_l + np.uint64(LANES * j)]
                    for i in range(rh):
                        s_value = shared_h[at_h + np.uint64(GROUPS * i)]
                        for j in range(rl):
                            value = number(s_value + base[j])
                            if n_direct >= 1:
                                value = number(value + table_0[np.uint64(distance[i * rl + j])])
                            if n_direct == 2:
                                value = number(value + table_1[np.uint64(distance[cells + i * rl + j])])
                            if general:
                                for v in range(n_both):
                                    at = shared_start[v * th + ty + GROUPS * i] + column_offset[v * rl + j]
                                    entry = arena[at + (x0 + x) * meta[first_both + v * record + X_STRIDE]]
                                    value = max(number(value + entry), lowest)
                            if log_sum:
                                maximum = max(cell[i * rl + j], value)
                                if maximum > lowest:
                                    before, now = math.exp(cell[i * rl + j] - maximum), math.exp(value - maximum)
                                    mass[i * rl + j] = mass[i * rl + j] * before + now
                                    cell[i * rl + j] = maximum
                            else:
                                cell[i * rl + j] = max(cell[i * rl + j], value)
            for i in range(rh):
                r = row + ty + GROUPS * i
                if r < rows:
                    at = meta[bucket_at + MESSAGE] + r * width + first_column + tx
                    for j in range(rl):
                        result = cell[i * rl + j]
                        if result <= half:
                            result = lowest  # normalise every sum that contains −∞
                        elif log_sum:
                            result += math.log(mass[i * rl + j])
                        if first_column + tx + np.int32(LANES * j) < width:
                            arena[np.uint64(at + LANES * j)] = result

    return join


@cuda.jit(device=True)
def last_at_most(array, first, count, value):
    """Return the largest i below ``count`` with ``array[first + i]`` ≤ ``value``, by bisection; 0 if there is none.

    The entries ascend.
    """
    low, high = np.int64(0), np.int64(count) - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if array[first + middle] <= value:
            low = middle
        else:
            high = middle - 1
    return low


@cuda.jit(device=True)
def offset_of(meta, sizes, strides, axes, index):
    """Return a table's offset for an assignment of some axes, given by its C-order index (below 2^32).

    ``sizes`` and ``strides`` are the positions in ``meta`` of the lists of ``axes`` sizes and strides.
    """
    offset, remainder = np.int64(0), np.uint32(index)  # below 2^32: 32-bit division is many times faster
    for j in range(axes - 1, -1, -1):
        size = np.uint32(meta[sizes + j])
        offset += np.int64(remainder % size) * meta[strides + j]
        remainder = np.uint32(remainder // size)
    return offset


@cuda.jit(device=True)
def sum_single_tables(
    arena, meta, sums, out, span, x_size, sizes, axes, at, record, shift, count, lowest, block, blocks
):
    """Write sums of tables that depend on only h or only l, for every x and assignment, to ``sums`` from ``out`` on.

    The sums are laid out as (x_size, span). One thread handles one assignment and ``VALUES_PER_THREAD`` values of x,
    because the offset of an assignment costs more than the additions. The number of such parts stays below 2^32 if
    ``sums`` has fewer than 2^40 entries.

    Parameters
    ----------
    out, span, x_size : int
        First entry in ``sums``, number of assignments, domain size of x.
    sizes, axes : int
        Position in ``meta`` of the axes' sizes, and the number of axes.
    at, record, count : int
        Position of the first table's record, length of a record, number of tables.
    shift : int
        Position of the strides of these axes within a record's strides.
    block, blocks : int
        This block's index among the blocks of the bucket, and their number.
    """
    number, lanes, chunks = (
        sums.dtype.type,
        np.uint32(cuda.blockDim.x),
        np.uint32((x_size + VALUES_PER_THREAD - 1) // VALUES_PER_THREAD),
    )
    part, parts = np.uint32(block), np.uint32((span + lanes - 1) // lanes * chunks)
    while part < parts:
        first_x, i = np.int64(part % chunks) * VALUES_PER_THREAD, np.int64(part // chunks) * lanes + cuda.threadIdx.x
        if i < span:
            for x in range(first_x, min(first_x + VALUES_PER_THREAD, x_size)):
                sums[np.uint64(out + x * span + i)] = 0
            for t in range(count):
                table_at = at + t * record
                step = meta[table_at + X_STRIDE]
                offset = meta[table_at + OFFSET] + offset_of(meta, sizes, table_at + STRIDES + shift, axes, i)
                for x in range(first_x, min(first_x + VALUES_PER_THREAD, x_size)):
                    target = np.uint64(out + x * span + i)
                    sums[target] = max(number(sums[target] + arena[np.uint64(offset + x * step)]), lowest)
        part = np.uint32(part + np.uint32(blocks))


@cuda_jit()
def prepare(arena, meta, table, sums, start, lowest):
    """Compute S (x_size, rows), B (x_size, width) and the row and column offsets for the buckets of a launch.

    A block belongs to one bucket; its threads share the assignments of h and of l with the bucket's other blocks.
    """
    bucket = find_bucket(meta, table, np.int64(cuda.blockIdx.x), cuda.threadIdx.x, cuda.blockDim.x)
    first_block, last_block = meta[table + FIRST_BLOCK + bucket], meta[table + FIRST_BLOCK + bucket + 1]
    bucket_at = meta[table + AFTER + meta[table + BUCKETS] + bucket]
    block, blocks = cuda.blockIdx.x - first_block, last_block - first_block
    first, step = block * cuda.blockDim.x + cuda.threadIdx.x, blocks * cuda.blockDim.x
    x_size, kh, kl = (
        meta[bucket_at + DOMAIN],
        np.int32(meta[bucket_at + HIGH_AXES]),
        np.int32(meta[bucket_at + LOW_AXES]),
    )
    rows, width = meta[bucket_at + ROWS], meta[bucket_at + WIDTH]
    n_high, n_low = np.int32(meta[bucket_at + HIGH_TABLES]), np.int32(meta[bucket_at + LOW_TABLES])
    rows_at, columns_at = meta[bucket_at + ROW_STARTS], meta[bucket_at + COLUMN_STARTS]
    high, record = bucket_at + HEADER, STRIDES + kh + kl
    low, high_tables = high + kh, high + kh + kl
    s_at, b_at, low_tables = meta[bucket_at + HIGH_SUMS], meta[bucket_at + LOW_SUMS], high_tables + n_high * record
    sum_single_tables(
        arena, meta, sums, s_at, rows, x_size, high, kh, high_tables, record, 0, n_high, lowest, block, blocks
    )
    sum_single_tables(
        arena, meta, sums, b_at, width, x_size, low, kl, low_tables, record, kh, n_low, lowest, block, blocks
    )
    for v in range(np.int32(meta[bucket_at + BOTH_TABLES])):
        at = low_tables + (n_low + v) * record
        for i in range(first, rows, step):
            start[rows_at + v * rows + i] = meta[at + OFFSET] + offset_of(meta, high, at + STRIDES, kh, i)
        for i in range(first, width, step):
            start[columns_at + v * width + i] = offset_of(meta, low, at + STRIDES + kh, kl, i)


@cuda_jit()
def choose_kernel(arena, descriptor, ranges, values, lowest, scores):
    """Set the maximising values of buckets, last to first; one block per (row of ``values``, range).

    The threads of a block share the values of a variable.

    Parameters
    ----------
    arena : (entries,)
        All tables on the device.
    descriptor : int64
        Lengths of a program's arrays, a number that is added to every offset, and the arrays: domains, scope_start,
        scope, at, variable, input_start, inputs. The arrays are the fields of
        :class:`dmcmc.inference.elimination.plan.BucketProgram`.
    ranges : (ranges + 1,) int64
        Range i is the buckets ``ranges[i]`` to ``ranges[i + 1]`` − 1; no range reads a variable that another one sets.
    values : (rows · variables,) int64
        The assignments; maximising values are written in place.
    lowest
        The −∞ of the arithmetic, to which sums are clamped.
    scores : (blocks · largest domain,)
        Workspace, in the dtype of the arithmetic: the sum of each value of a variable.
    """
    domains = ARRAYS
    starts = domains + descriptor[DOMAINS]
    scope = starts + descriptor[SCOPE_STARTS]
    offsets = scope + descriptor[SCOPES]
    variables = offsets + descriptor[OFFSETS]
    input_start = variables + descriptor[VARIABLES]
    inputs = input_start + descriptor[INPUT_STARTS]
    number = scores.dtype.type
    row = cuda.blockIdx.x * descriptor[DOMAINS]
    blocks = cuda.gridDim.x * cuda.gridDim.y
    scores_at = (cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x) * (scores.size // blocks)
    first = ranges[cuda.blockIdx.y]
    b = ranges[cuda.blockIdx.y + 1] - 1
    while b >= first:
        v = descriptor[variables + b]
        size = descriptor[domains + v]
        end = b
        while end > first and descriptor[variables + end - 1] == v:
            end -= 1
        for x in range(cuda.threadIdx.x, size, cuda.blockDim.x):
            total = number(0)
            for mini_bucket in range(b, end - 1, -1):  # the order of the CPU kernel: it matters for sums with −∞
                for i in range(descriptor[input_start + mini_bucket], descriptor[input_start + mini_bucket + 1]):
                    t = descriptor[inputs + i]
                    offset, step = descriptor[offsets + t] + descriptor[SHIFT], np.int64(1)
                    for q in range(descriptor[starts + t + 1] - 1, descriptor[starts + t], -1):
                        u = descriptor[scope + q]
                        offset += values[row + u] * step
                        step *= descriptor[domains + u]
                    total = max(number(total + arena[offset + x * step]), lowest)
            scores[scores_at + x] = total
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            best = 0
            for x in range(1, size):
                if scores[scores_at + x] > scores[scores_at + best]:
                    best = x
            values[row + v] = best
        cuda.syncthreads()
        b = end - 1


@njit(nogil=True)
def group_buckets(variable, input_start, inputs, cells, given, threshold):
    """Return each bucket's group, and the bucket that consumes its message (−1 if none), both (buckets,) int64.

    Group 0 (A) runs on the CPU before the GPU, group 1 (G) on the GPU, group 2 (C) on the CPU afterwards. Buckets with
    at least ``threshold`` joined cells go to the GPU, and with them all buckets between two of them. All mini-buckets
    of a variable are in the same group.

    Parameters
    ----------
    variable, input_start, inputs, cells, given
        See the module.
    threshold : int
        Joined cells from which a bucket goes to the GPU.
    """
    n_buckets = variable.size
    consumer = np.full(n_buckets, -1, dtype=np.int64)
    for b in range(n_buckets):
        for i in range(input_start[b], input_start[b + 1]):
            if inputs[i] >= given:
                consumer[inputs[i] - given] = b
    large = cells >= threshold
    for b in range(1, n_buckets):  # the mini-buckets of a variable stay together
        if variable[b] == variable[b - 1]:
            large[b] |= large[b - 1]
    for b in range(n_buckets - 2, -1, -1):
        if variable[b] == variable[b + 1]:
            large[b] |= large[b + 1]
    # whether a bucket of G consumes the message, directly or through other buckets
    needed = np.zeros(n_buckets, dtype=np.bool_)
    for b in range(n_buckets - 1, -1, -1):
        if consumer[b] >= 0:
            needed[b] = large[consumer[b]] or needed[consumer[b]]
    for b in range(n_buckets - 2, -1, -1):
        if variable[b] == variable[b + 1]:
            needed[b] |= needed[b + 1]
    group = np.zeros(n_buckets, dtype=np.int64)
    b = 0
    while b < n_buckets:
        end = b + 1
        while end < n_buckets and variable[end] == variable[b]:
            end += 1
        has_gpu_input, any_large, any_needed = False, False, False
        for c in range(b, end):
            any_large |= large[c]
            any_needed |= needed[c]
            for i in range(input_start[c], input_start[c + 1]):
                if inputs[i] >= given:
                    has_gpu_input |= group[inputs[i] - given] > 0
        for c in range(b, end):
            group[c] = 1 if any_large or (has_gpu_input and any_needed) else (2 if has_gpu_input else 0)
        b = end
    return group, consumer


@njit(nogil=True)
def bucket_levels(input_start, inputs, given, group):
    """Return the wave of each bucket of group G, (buckets,) int64; −1 outside G.

    The level of a bucket is one more than the highest level among the buckets whose messages it consumes.
    """
    level = np.full(group.size, -1, dtype=np.int64)
    for b in range(group.size):
        if group[b] == 1:
            level[b] = 0
            for i in range(input_start[b], input_start[b + 1]):
                if inputs[i] >= given:
                    level[b] = max(level[b], level[inputs[i] - given] + 1)
    return level


@njit(nogil=True)
def best_threshold(variable, input_start, inputs, cells, given, thresholds, seconds_per_cell, seconds_per_wave):
    """Return the threshold of the cheapest division between CPU and GPU, and its estimated seconds.

    The estimate is seconds_per_cell · (joined cells of all buckets on the CPU) + seconds_per_wave · (waves on the GPU).

    Parameters
    ----------
    thresholds : (candidates,) int64
        Candidate thresholds: joined cells from which a bucket goes to the GPU.
    seconds_per_cell
        Seconds per joined cell on the CPU. The GPU's time per cell is neglected.
    seconds_per_wave
        Seconds per wave for its launches.
    """
    best, best_seconds = thresholds[0], np.inf
    for threshold in thresholds:
        group, _ = group_buckets(variable, input_start, inputs, cells, given, threshold)
        seconds, n_waves = 0.0, 0
        level = bucket_levels(input_start, inputs, given, group)
        for b in range(group.size):
            n_waves = max(n_waves, level[b] + 1)
            if group[b] != 1:
                seconds += seconds_per_cell * cells[b]
        seconds += seconds_per_wave * n_waves
        if seconds < best_seconds:
            best, best_seconds = threshold, seconds
    return best, best_seconds
