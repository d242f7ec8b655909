# mypy: ignore-errors
"""CUDA kernels on rows of sparse tables.

Extend, join and filter rows of sparse tables on an NVIDIA GPU (CUBE §IV, Algorithms 3–5).

A step makes candidates from rows: one per value y of a new variable, or one per partner with the same shared values.
The candidates of each row are counted (rows without partner have none), and prefix sums give the first candidate of
each row. One thread processes one candidate and finds its row by bisection, so the numbers per row may be arbitrarily
uneven. A window is a range of consecutive candidates. First all candidates of a window are checked and the survivors
are counted per block; then the survivors are written in order, at the positions that prefix sums give.

A row has a packed key and a vector with one utility per value x of the variable that the bucket eliminates, as on the
CPU. Value x of row i is at ``x · stride + i``, so that neighbouring threads of a block access neighbouring entries.
Every number is computed by the same additions in the same order as in :mod:`dmcmc.inference.sparse.row_kernels`.

The first ``EXACT`` dense tables of a step are added to the candidate. The sum of the others is an upper bound on
everything that is not in it yet. A candidate survives if its utility plus this bound exceeds the threshold for an x.

Shared arguments
----------------
descriptor : int64
    The step: a header of numbers, then lists. The header entry named after a list holds the list's position,
    so ``descriptor[descriptor[w.SHIFT] + f]`` is item f of the list SHIFT. The names are those of
    :mod:`dmcmc.inference.sparse.cuda.row_kernels` (imported as ``w``). KIND: how candidates are made (FIRST:
    vectors of the first table; EXTEND: rows with each value y of a new variable; JOIN: rows with partners);
    X_SIZE, SIZE: domain sizes of the bucket's and of the new variable; BITS: bits that a key grows by;
    TABLES: number of dense tables; OFFSET, X_STRIDE, Y_STRIDE: offset in ``data`` and strides of x and y per
    table; FIELD_START: first key field per table; SHIFT, MASK, STRIDE: a field's place in the key and the
    table's stride; SHARED, SHARED_SHIFT, SHARED_MASK, SHARED_TO: number of the variables shared with a
    partner, their places in the key, and their shifts in the packed shared values.
data : (entries,)
    The entries of the step's dense tables, in the dtype of the arithmetic.
keys : (n,) int64; vectors : (x_size · stride,)
    The rows, and their number ``n`` and ``stride``.
begin, counts : (n,) int64; sums : (parts,) int64
    For a join: first partner of each row; number of candidates of preceding rows in the row's part of
    THREADS rows; number of candidates of preceding parts.
new_values : (vectors,) int64; start : (vectors + 1,) int64; xs : int32; values
    The joined table (or the first one), as vectors over the bucket's variable: packed values of the new
    variables, start of each vector's entries, and for each entry x and its utility.
base : (tables,) int32
    Offset in ``data`` of a candidate's entry in each dense table, for x = 0; local to a thread.
first, count : int
    The window: candidates ``first`` to ``first + count`` − 1.
lowest, half, threshold
    −∞, the bound below which a sum means −∞, and the number that a candidate's bound must exceed.
flags : (candidates,) uint8; blocks : (blocks,) int64
    Whether each candidate of the window survives; number of survivors per block, later their prefix sums.
out_at, out_keys, out_vectors, out_stride
    The output rows, written from row ``out_at`` on.

Layout of the int64 descriptor of one step of making rows on the GPU.

The header has the entries KIND to SHARED_TO. The names of lists stand for the position of the list in the descriptor:

* per dense table: OFFSET (its offset), X_STRIDE and Y_STRIDE (its strides of the bucket's variable x and of the added
  variable y; 0 if it does not depend on it), FIELD_START (index of its first field; tables + 1 values);
* per field, that is, per pair of a dense table and a variable in the row's key: SHIFT and MASK of the variable in the
  key, STRIDE of the table;
* per variable that rows share with a join partner: SHARED_SHIFT and SHARED_MASK in the row's key, SHARED_TO: shift in
  the packed shared values.
"""

import numpy as np
from numba import config, cuda

from dmcmc.inference.elimination.cuda.join_kernels import last_at_most
from dmcmc.inference.runtime.compile import cuda_jit, device_function
from dmcmc.inference.sparse.row_kernels import find

# Values of KIND: the candidates are vectors of the first table, rows with each value of a new variable, or rows with
# their partners.
FIRST, EXTEND, JOIN = range(3)
# The header. X_SIZE: domain size of the bucket's variable; SIZE: number of values that extend each row; BITS: bits that
# are added to its key; EXACT: number of tables that are added; TABLES: number of all tables (the others are bounds);
# SHARED: number of shared variables; HEADER: length of the header; other names: position of each list.
(
    KIND, X_SIZE, SIZE, BITS, EXACT, TABLES, OFFSET, X_STRIDE, Y_STRIDE, FIELD_START, SHIFT, MASK, STRIDE, SHARED,
    SHARED_SHIFT, SHARED_MASK, SHARED_TO, HEADER,
) = range(18)  # fmt: skip


# Threads per block; few in Numba's CUDA simulator, which runs each as a slow Python thread.
THREADS = 8 if config.ENABLE_CUDASIM else 256
# Largest number of dense tables of a step, the size of a thread's local array; larger steps run on the CPU.
MAX_TABLES = 64
_find = device_function(find)


@cuda.jit(device=True)
def sum_before(value, shared):
    """Return the sum of ``value`` over the preceding threads of the block, and over all threads of the block.

    ``shared`` (THREADS,) int64 is shared memory. All threads of the block must call this function. It is an
    inclusive scan that doubles the distance in each round (Hillis and Steele), less the thread's value.
    """
    thread = cuda.threadIdx.x
    shared[thread] = value
    cuda.syncthreads()
    distance = 1
    while distance < THREADS:
        preceding = shared[thread - distance] if thread >= distance else 0
        cuda.syncthreads()
        shared[thread] += preceding
        cuda.syncthreads()
        distance *= 2
    before, total = shared[thread] - value, shared[THREADS - 1]
    cuda.syncthreads()
    return before, total


@cuda_jit()
def scan_tiles(counts, n, sums):
    """Replace ``counts`` by exclusive prefix sums within each part of THREADS rows, and write the parts' totals.

    ``sums`` receives one total per part. One thread per row, one block per part.
    """
    shared = cuda.shared.array(THREADS, np.int64)
    i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
    count = counts[i] if i < n else 0
    before, total = sum_before(count, shared)
    if i < n:
        counts[i] = before
    if cuda.threadIdx.x == 0:
        sums[cuda.blockIdx.x] = total


@cuda_jit()
def scan_sums(sums, n, total):
    """Replace ``sums`` (n,) by exclusive prefix sums, and write their total to ``total`` (1,); runs in one block."""
    shared = cuda.shared.array(THREADS, np.int64)
    preceding = np.int64(0)
    for first in range(0, n, THREADS):
        i = first + cuda.threadIdx.x
        count = sums[i] if i < n else 0
        before, tile_total = sum_before(count, shared)
        if i < n:
            sums[i] = preceding + before
        preceding += tile_total
    if cuda.threadIdx.x == 0:
        total[0] = preceding


@cuda_jit()
def count_partners(keys, n, descriptor, groups, shared, group, begin, counts):
    """Write the first partner of each row and the number of its partners; one thread per row.

    ``shared`` (groups,) int64 holds the ascending packed values of the shared variables in the joined table,
    and ``group`` (groups + 1,) int64 the first vector of each group.
    """
    i = cuda.grid(1)
    if i >= n:
        return
    key, packed = keys[i], np.int64(0)
    for j in range(descriptor[SHARED]):
        field = (key >> descriptor[descriptor[SHARED_SHIFT] + j]) & descriptor[descriptor[SHARED_MASK] + j]
        packed |= field << descriptor[descriptor[SHARED_TO] + j]
    found = _find(shared, groups, packed)
    if found >= 0:
        begin[i], counts[i] = group[found], group[found + 1] - group[found]
    else:
        begin[i], counts[i] = 0, 0


@cuda.jit(device=True)
def row_of(candidate, counts, sums, n):
    """Return the row of a candidate, and the row's first candidate, by bisection."""
    block = last_at_most(sums, 0, (n - 1) // THREADS + 1, candidate)
    base, first = sums[block], block * THREADS
    row = first + last_at_most(counts, first, min(THREADS, n - first), candidate - base)
    return row, base + counts[row]


@cuda.jit(device=True)
def find_entries(key, y, descriptor, base):
    """Write to ``base`` where the entries of a key with value y of the added variable begin in each dense table."""
    for t in range(descriptor[TABLES]):
        at = descriptor[descriptor[OFFSET] + t] + y * descriptor[descriptor[Y_STRIDE] + t]
        for f in range(descriptor[descriptor[FIELD_START] + t], descriptor[descriptor[FIELD_START] + t + 1]):
            field = (key >> descriptor[descriptor[SHIFT] + f]) & descriptor[descriptor[MASK] + f]
            at += field * descriptor[descriptor[STRIDE] + f]
        base[t] = at


@cuda.jit(device=True)
def bound_outside(descriptor, data, base, lowest):
    """Return the sum of those bounds that do not depend on the bucket's variable."""
    outside = data.dtype.type(0)
    for t in range(descriptor[EXACT], descriptor[TABLES]):
        if descriptor[descriptor[X_STRIDE] + t] == 0:
            outside = max(outside + data[base[t]], lowest)
    return outside


@cuda.jit(device=True)
def filter_value(value, x, outside, descriptor, data, base, lowest, half, threshold):
    """Return a utility for x plus the exact tables; −∞ if its bound does not exceed the threshold.

    ``outside`` is what :func:`bound_outside` returns.
    """
    total = value
    for t in range(descriptor[EXACT]):
        total = max(total + data[base[t] + x * descriptor[descriptor[X_STRIDE] + t]], lowest)
    bound = max(total + outside, lowest)
    if total > half and bound > half:
        for t in range(descriptor[EXACT], descriptor[TABLES]):
            step = descriptor[descriptor[X_STRIDE] + t]
            if step > 0:
                bound = max(bound + data[base[t] + x * step], lowest)
    return total if total > half and bound > threshold else lowest


@cuda.jit(device=True)
def locate(candidate, descriptor, keys, n, begin, counts, sums, new_values):
    """Return how a candidate is made.

    Returns
    -------
    i : int64
        Its row; −1 for a vector of the first table.
    e : int64
        Its vector in the joined (or first) table; −1 if a variable is added.
    y : int64
        Value of the added variable; 0 if there is none.
    key : int64
        Its key, without y.
    """
    kind = descriptor[KIND]
    if kind == FIRST:
        return np.int64(-1), candidate, np.int64(0), keys[candidate]
    if kind == EXTEND:
        i, y = candidate // descriptor[SIZE], candidate % descriptor[SIZE]
        return i, np.int64(-1), y, keys[i]
    i, at = row_of(candidate, counts, sums, n)
    e = begin[i] + candidate - at
    return np.int64(i), e, np.int64(0), (keys[i] << descriptor[BITS]) | new_values[e]


@cuda.jit(device=True)
def entry_of(r, i, e, vectors, stride, xs, values, lowest):
    """Return x and its utility for entry ``r`` of a candidate that :func:`locate` described by ``i`` and ``e``.

    ``r`` is x itself if there is no vector (``e`` < 0), otherwise an index of ``xs`` and ``values``.
    """
    if e < 0:
        return np.int64(r), vectors[r * stride + i]
    if i < 0:
        return np.int64(xs[r]), values[r]
    both = max(vectors[xs[r] * stride + i] + values[r], lowest)
    return np.int64(xs[r]), values.dtype.type(both)


@cuda_jit()
def flag_candidates(
    descriptor, data, keys, vectors, stride, n, begin, counts, sums, new_values, start, xs, values, first, count,
    lowest, half, threshold, flags, blocks,
):  # fmt: skip
    """Flag the candidates of the window that survive, and count them per block; one thread per candidate."""
    base = cuda.local.array(MAX_TABLES, np.int32)
    survivors = cuda.shared.array(1, np.int32)
    t = cuda.threadIdx.x
    if t == 0:
        survivors[0] = 0
    cuda.syncthreads()
    c = cuda.blockIdx.x * THREADS + t
    if c < count:
        i, e, y, key = locate(first + c, descriptor, keys, n, begin, counts, sums, new_values)
        find_entries(key, y, descriptor, base)
        outside = bound_outside(descriptor, data, base, lowest)
        r, end = (np.int64(0), descriptor[X_SIZE]) if e < 0 else (np.int64(start[e]), np.int64(start[e + 1]))
        can_win = False
        while r < end and not can_win:
            x, value = entry_of(r, i, e, vectors, stride, xs, values, lowest)
            can_win = filter_value(value, x, outside, descriptor, data, base, lowest, half, threshold) > half
            r += 1
        flags[c] = 1 if can_win else 0
        if can_win:
            cuda.atomic.add(survivors, 0, 1)
    cuda.syncthreads()
    if t == 0:
        blocks[cuda.blockIdx.x] = survivors[0]


@cuda_jit()
def write_rows(
    descriptor, data, keys, vectors, stride, n, begin, counts, sums, new_values, start, xs, values, first, count,
    lowest, half, threshold, flags, blocks, out_at, out_keys, out_vectors, out_stride,
):  # fmt: skip
    """Write the flagged candidates to the output rows; ``blocks`` holds prefix sums. One thread per candidate."""
    base = cuda.local.array(MAX_TABLES, np.int32)
    shared = cuda.shared.array(THREADS, np.int64)
    c = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
    flag = np.int64(flags[c]) if c < count else np.int64(0)
    before, _ = sum_before(flag, shared)
    if flag == 0:
        return
    target = out_at + blocks[cuda.blockIdx.x] + before
    i, e, y, key = locate(first + c, descriptor, keys, n, begin, counts, sums, new_values)
    find_entries(key, y, descriptor, base)
    outside = bound_outside(descriptor, data, base, lowest)
    r, end = (np.int64(0), descriptor[X_SIZE]) if e < 0 else (np.int64(start[e]), np.int64(start[e + 1]))
    next_x = np.int64(0)  # next value of the bucket's variable to be written
    while r < end:
        x, value = entry_of(r, i, e, vectors, stride, xs, values, lowest)
        total = filter_value(value, x, outside, descriptor, data, base, lowest, half, threshold)
        while next_x < x:
            out_vectors[next_x * out_stride + target] = lowest
            next_x += 1
        out_vectors[x * out_stride + target] = total
        next_x, r = x + 1, r + 1
    while next_x < descriptor[X_SIZE]:
        out_vectors[next_x * out_stride + target] = lowest
        next_x += 1
    out_keys[target] = (key << descriptor[BITS]) | y if descriptor[KIND] == EXTEND else key


@cuda_jit()
def best_rows(vectors, stride, n, size, out):
    """Write the largest of the ``size`` utilities of each row to ``out`` (n,); one thread per row."""
    i = cuda.grid(1)
    if i < n:
        best = vectors[i]
        for x in range(1, size):
            best = max(best, vectors[x * stride + i])
        out[i] = best
