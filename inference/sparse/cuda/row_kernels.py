# mypy: ignore-errors
"""Rows of an incomplete table extended, joined and filtered on an NVIDIA GPU (CUBE §IV, Algorithms 3–5).

The picture. A step makes candidates of rows: each value of a new variable, or each partner with the same shared values.
How many a row has is counted (rows without partner have none), prefix sums say where its candidates begin, and a thread
takes one candidate, which it finds its row for by bisection: groups may be as uneven as they like. A candidate that
cannot win is dropped: first all are judged and counted by blocks, then what is left is written, in its order, at the
place that prefix sums give it. Rows are as on the CPU, a key and a vector over the bucket's variable; value x of row i
is at ``x · stride + i``, so that neighbours in a block read neighbours in memory.

Every number is made by the same additions in the same order as in :mod:`dmcmc.inference.sparse.row_kernels`.
"""

import numpy as np
from numba import config, cuda

from dmcmc.inference.runtime.compile import cuda_jit
from dmcmc.inference.sparse.cuda import descriptors as w

THREADS = 8 if config.ENABLE_CUDASIM else 256  # of a block
MOST_TABLES = 64  # dense tables of a step


@cuda.jit(device=True)
def sum_before(mine, shared):
    """Return the sum of what the threads of a block before this one have, and of all; all threads call it."""
    t = cuda.threadIdx.x
    shared[t] = mine
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        other = shared[t - step] if t >= step else 0
        cuda.syncthreads()
        shared[t] += other
        cuda.syncthreads()
        step *= 2
    before, total = shared[t] - mine, shared[THREADS - 1]
    cuda.syncthreads()
    return before, total


@cuda_jit()
def scan_tiles(counts, n, sums):
    """Write prefix sums inside each block's part of ``counts``, in place, and the total of each to ``sums``."""
    shared = cuda.shared.array(THREADS, np.int64)
    i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
    mine = counts[i] if i < n else 0
    before, total = sum_before(mine, shared)
    if i < n:
        counts[i] = before
    if cuda.threadIdx.x == 0:
        sums[cuda.blockIdx.x] = total


@cuda_jit()
def scan_sums(sums, n, total):
    """Write prefix sums of ``sums``, in place, and their total: one block."""
    shared = cuda.shared.array(THREADS, np.int64)
    done = np.int64(0)
    for first in range(0, n, THREADS):
        i = first + cuda.threadIdx.x
        mine = sums[i] if i < n else 0
        before, part = sum_before(mine, shared)
        if i < n:
            sums[i] = done + before
        done += part
    if cuda.threadIdx.x == 0:
        total[0] = done


@cuda_jit()
def count_partners(keys, n, words, groups, shared, group, begin, counts):
    """Write how many partners each row has, and where they begin."""
    i = cuda.grid(1)
    if i >= n:
        return
    key, packed = keys[i], np.int64(0)
    for j in range(words[w.SHARED]):
        field = (key >> words[words[w.SHARED_SHIFT] + j]) & words[words[w.SHARED_MASK] + j]
        packed |= field << words[words[w.SHARED_TO] + j]
    low, high = 0, groups
    while low < high:
        middle = (low + high) >> 1
        if shared[middle] < packed:
            low = middle + 1
        else:
            high = middle
    if low < groups and shared[low] == packed:
        begin[i], counts[i] = group[low], group[low + 1] - group[low]
    else:
        begin[i], counts[i] = 0, 0


@cuda.jit(device=True)
def row_of(candidate, counts, sums, n):
    """Return the last row whose candidates begin at or before this one, and where that is."""
    low, high = 0, (n - 1) // THREADS
    while low < high:  # the part of the prefix sums, then the row
        middle = (low + high + 1) >> 1
        if sums[middle] <= candidate:
            low = middle
        else:
            high = middle - 1
    base = sums[low]
    low, high = low * THREADS, min(low * THREADS + THREADS, n) - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if base + counts[middle] <= candidate:
            low = middle
        else:
            high = middle - 1
    return low, base + counts[low]


@cuda.jit(device=True)
def bases(key, y, words, base):
    """Write where each table has its entries for a row with value y of the variable that is added."""
    for t in range(words[w.TABLES]):
        at = words[words[w.AT] + t] + y * words[words[w.OF_Y] + t]
        for f in range(words[words[w.FIELD_START] + t], words[words[w.FIELD_START] + t + 1]):
            field = (key >> words[words[w.SHIFT] + f]) & words[words[w.MASK] + f]
            at += field * words[words[w.STRIDE] + f]
        base[t] = at


@cuda.jit(device=True)
def bound_outside(words, data, base, lowest):
    """Return the sum of the bounds that do not vary with the bucket's variable."""
    outside = data.dtype.type(0)
    for t in range(words[w.EXACT], words[w.TABLES]):
        if words[words[w.OF_X] + t] == 0:
            outside = max(outside + data[base[t]], lowest)
    return outside


@cuda.jit(device=True)
def judge(value, x, outside, words, data, base, lowest, half, threshold):
    """Return a value with the exact tables added; −∞ where the bound says so."""
    made = value
    for t in range(words[w.EXACT]):
        made = max(made + data[base[t] + x * words[words[w.OF_X] + t]], lowest)
    bound = max(made + outside, lowest)
    if made > half and bound > half:
        for t in range(words[w.EXACT], words[w.TABLES]):
            step = words[words[w.OF_X] + t]
            if step > 0:
                bound = max(bound + data[base[t] + x * step], lowest)
    return made if made > half and bound > threshold else lowest


@cuda.jit(device=True)
def locate(candidate, words, keys, n, begin, counts, sums, fresh):
    """Return a candidate's row (none where it begins: −1), its vector in a table, its added value, and its key."""
    kind = words[w.KIND]
    if kind == w.FIRST:
        return np.int64(-1), candidate, np.int64(0), keys[candidate]
    if kind == w.EXTEND:
        i, y = candidate // words[w.SIZE], candidate % words[w.SIZE]
        return i, np.int64(-1), y, keys[i]
    i, at = row_of(candidate, counts, sums, n)
    e = begin[i] + candidate - at
    return np.int64(i), e, np.int64(0), (keys[i] << words[w.BITS]) | fresh[e]


@cuda.jit(device=True)
def entry_of(r, i, e, vectors, stride, xs, values, lowest):
    """Return which value of the bucket's variable entry r of a candidate is, and what it is worth."""
    if e < 0:
        return np.int64(r), vectors[r * stride + i]
    if i < 0:
        return np.int64(xs[r]), values[r]
    both = max(vectors[xs[r] * stride + i] + values[r], lowest)
    return np.int64(xs[r]), values.dtype.type(both)


@cuda_jit()
def judge_rows(
    words, data, keys, vectors, stride, n, begin, counts, sums, fresh, start, xs, values, first, count, lowest, half,
    threshold, flags, blocks,
):  # fmt: skip
    """Write which of the candidates from ``first`` on can win, and how many of each block."""
    base = cuda.local.array(MOST_TABLES, np.int32)
    alive = cuda.shared.array(1, np.int32)
    t = cuda.threadIdx.x
    if t == 0:
        alive[0] = 0
    cuda.syncthreads()
    c = cuda.blockIdx.x * THREADS + t
    if c < count:
        i, e, y, key = locate(first + c, words, keys, n, begin, counts, sums, fresh)
        bases(key, y, words, base)
        outside = bound_outside(words, data, base, lowest)
        r, end = (np.int64(0), words[w.X_SIZE]) if e < 0 else (np.int64(start[e]), np.int64(start[e + 1]))
        can_win = False
        while r < end and not can_win:
            x, value = entry_of(r, i, e, vectors, stride, xs, values, lowest)
            can_win = judge(value, x, outside, words, data, base, lowest, half, threshold) > half
            r += 1
        flags[c] = 1 if can_win else 0
        if can_win:
            cuda.atomic.add(alive, 0, 1)
    cuda.syncthreads()
    if t == 0:
        blocks[cuda.blockIdx.x] = alive[0]


@cuda_jit()
def write_rows(
    words, data, keys, vectors, stride, n, begin, counts, sums, fresh, start, xs, values, first, count, lowest, half,
    threshold, flags, blocks, out_at, out_keys, out_vectors, out_stride,
):  # fmt: skip
    """Write the candidates that can win, from row ``out_at`` on; ``blocks`` are prefix sums by now."""
    base = cuda.local.array(MOST_TABLES, np.int32)
    shared = cuda.shared.array(THREADS, np.int64)
    c = cuda.blockIdx.x * THREADS + cuda.threadIdx.x
    mine = np.int64(flags[c]) if c < count else np.int64(0)
    before, _ = sum_before(mine, shared)
    if mine == 0:
        return
    to = out_at + blocks[cuda.blockIdx.x] + before
    i, e, y, key = locate(first + c, words, keys, n, begin, counts, sums, fresh)
    bases(key, y, words, base)
    outside = bound_outside(words, data, base, lowest)
    r, end = (np.int64(0), words[w.X_SIZE]) if e < 0 else (np.int64(start[e]), np.int64(start[e + 1]))
    z = np.int64(0)  # values of the bucket's variable that are written
    while r < end:
        x, value = entry_of(r, i, e, vectors, stride, xs, values, lowest)
        made = judge(value, x, outside, words, data, base, lowest, half, threshold)
        while z < x:
            out_vectors[z * out_stride + to] = lowest
            z += 1
        out_vectors[x * out_stride + to] = made
        z, r = x + 1, r + 1
    while z < words[w.X_SIZE]:
        out_vectors[z * out_stride + to] = lowest
        z += 1
    out_keys[to] = (key << words[w.BITS]) | y if words[w.KIND] == w.EXTEND else key


@cuda_jit()
def best_rows(vectors, stride, n, size, out):
    """Write each vector's largest value."""
    i = cuda.grid(1)
    if i < n:
        best = vectors[i]
        for x in range(1, size):
            best = max(best, vectors[x * stride + i])
        out[i] = best
