# mypy: ignore-errors
"""Messages of a junction tree on an NVIDIA GPU: a clique is joined and projected without being written.

A launch makes all messages of a level. A thread makes an entry: it goes through what is eliminated and multiplies the
tables' entries (sums) or adds them up (maxima). Where there are few entries and much is eliminated, a block makes an
entry, or a part of it, which its threads share. A message of which rows and columns meet in no table while it is summed
is a matrix product: see :mod:`.matrix_kernels`.

Sums are of products of numbers, as in :mod:`dmcmc.inference.junction_tree.sum_product_kernels`: each table has its largest entry
``peak`` and its least that is not zero ``low``, found while it is written, and the logarithm ``shift`` of what it has
to be multiplied by: rows of ``state``. What is multiplied is divided by its peaks. The fourth row begins with a number
that is set where a product could underflow: then nothing is right. The words are those of :mod:`.words`.
"""

import math
from functools import lru_cache

import numpy as np
from numba import config, cuda

from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.junction_tree.cuda import descriptors as w
from dmcmc.inference.junction_tree.cuda.descriptor_kernels import WIDTHS
from dmcmc.inference.runtime.compile import cuda_jit

THREADS = 8 if config.ENABLE_CUDASIM else 256  # of a block
MOST_AXES = 24  # of what is eliminated
PEAK, LOW, SHIFT, FAR = range(4)  # rows of a tree's state
_REACH = 600.0


@cuda.jit(device=True)
def find_message(words, launch, block):
    """Return where the description of a block's message is, and the block's number in it."""
    n = words[launch + w.JOBS]
    low, high = np.int64(0), n - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if words[launch + w.FIRST_BLOCK + middle] <= block:
            low = middle
        else:
            high = middle - 1
    return words[launch + w.FIRST_BLOCK + n + 1 + low], block - words[launch + w.FIRST_BLOCK + low]


@cuda.jit(device=True)
def place_of(words, sizes, strides, axes, index):
    """Return where an assignment of some axes is in a table; ``sizes`` and ``strides`` are places in ``words``."""
    offset, rest = np.int64(0), np.uint32(index)
    for j in range(axes - 1, -1, -1):
        size = np.uint32(words[sizes + j])
        offset += np.int64(rest % size) * words[strides + j]
        rest = np.uint32(rest // size)
    return offset


@cuda.jit(device=True)
def scale_of(words, first, record, tables, state, target, leader):
    """Return what products are multiplied by; the first thread of a message notes its shift, and whether it can be."""
    scale, peak, low = 1.0, state[PEAK], state[LOW]
    for t in range(tables):
        top = peak[words[first + t * record + w.NUMBER]]
        scale = scale / top if top > 0.0 else 0.0
    if leader:
        total, reach = 0.0, 0.0
        for t in range(tables):
            number = words[first + t * record + w.NUMBER]
            if peak[number] > 0.0:
                total += state[SHIFT, number] + math.log(peak[number])
                reach += math.log(peak[number]) - math.log(low[number])
        state[SHIFT, target] = total
        if not reach < _REACH:
            state[FAR, 0] = 1.0
    return scale


@cuda.jit(device=True)
def note_extremes(state, target, top, least, tid):
    """Take the largest and the least entries of a block's threads into those of a table."""
    cuda.syncthreads()
    apart = THREADS // 2
    while apart > 0:
        if tid < apart:
            top[tid] = max(top[tid], top[tid + apart])
            least[tid] = min(least[tid], least[tid + apart])
        cuda.syncthreads()
        apart //= 2
    if tid == 0:
        cuda.atomic.max(state[PEAK], target, top[0])
        cuda.atomic.min(state[LOW], target, least[0])


@cuda_jit()
def forget(targets, n, state):
    """Forget the largest and least entries of what is made anew."""
    i = cuda.grid(1)
    if i < n:
        state[PEAK, targets[i]], state[LOW, targets[i]] = 0.0, np.inf


@lru_cache
def wide_kernel(number, width, operation):
    """Return the kernel whose threads make an entry each, for numbers of a type and so many tables."""
    tables, sums = WIDTHS[width], operation == LOG_SUM

    @cuda_jit()
    def wide(arena, words, launch, state, lowest, half):
        top = cuda.shared.array(THREADS, np.float64)
        least = cuda.shared.array(THREADS, np.float64)
        here = cuda.local.array(tables, np.int64)
        step = cuda.local.array(tables, np.int64)
        digit = cuda.local.array(MOST_AXES, np.int64)
        at, block = find_message(words, launch, np.int64(cuda.blockIdx.x))
        axes, outer_axes = words[at + w.AXES], words[at + w.OUTER_AXES]
        entry, inner = block * THREADS + cuda.threadIdx.x, words[at + w.INNER]
        sizes, outer_sizes = at + w.HEADER, at + w.HEADER + axes
        first, record = outer_sizes + outer_axes, w.STRIDES + axes + outer_axes
        target = words[at + w.TABLE]
        scale = 1.0
        if sums:
            leader = block == 0 and cuda.threadIdx.x == 0
            scale = scale_of(words, first, record, words[at + w.TABLES], state, target, leader)
        mine_too = entry < words[at + w.ENTRIES]
        for t in range(tables):
            mine = first + t * record
            here[t] = words[mine + w.AT]
            if mine_too:
                here[t] += place_of(words, sizes, mine + w.STRIDES, axes, entry)
            step[t] = words[mine + w.STEP]
        for j in range(outer_axes):
            digit[j] = 0
        made = number(0.0) if sums else lowest
        for _ in range(words[at + w.ELIMINATED] // inner if mine_too else 0):
            for x in range(inner):
                value = arena[np.uint64(here[0] + x * step[0])]
                for t in range(1, tables):
                    if sums:
                        value *= arena[np.uint64(here[t] + x * step[t])]
                    else:
                        value = max(number(value + arena[np.uint64(here[t] + x * step[t])]), lowest)
                if sums:
                    made += value
                else:
                    made = max(made, value)
            j = outer_axes - 1
            while j >= 0:
                digit[j] += 1
                back = digit[j] == words[outer_sizes + j]
                for t in range(tables):
                    stride = words[first + t * record + w.STRIDES + axes + j]
                    here[t] += stride * (1 - digit[j]) if back else stride
                if not back:
                    break
                digit[j] = 0
                j -= 1
        mine = first + tables * record
        if mine_too:
            to = words[mine + w.AT] + place_of(words, sizes, mine + w.STRIDES, axes, entry)
            if sums:
                made *= scale
                arena[to] = made
            else:
                arena[to] = made if made > half else lowest
        if sums:  # one meeting of a block at the two numbers
            tid = cuda.threadIdx.x
            top[tid] = made if mine_too else 0.0
            least[tid] = made if mine_too and made > 0.0 else np.inf
            note_extremes(state, target, top, least, tid)

    return wide


@lru_cache
def alone_kernel(number, width, operation):
    """Return the kernel whose blocks make an entry each, or a part of one, for so many tables."""
    tables, sums = WIDTHS[width], operation == LOG_SUM

    @cuda_jit()
    def alone(arena, words, launch, state, lowest, half, parts):
        shared = cuda.shared.array(THREADS, number)
        here = cuda.local.array(tables, np.int64)
        at, block = find_message(words, launch, np.int64(cuda.blockIdx.x))
        axes, outer_axes = words[at + w.AXES], words[at + w.OUTER_AXES]
        cut, inner, eliminated = words[at + w.PARTS], words[at + w.INNER], words[at + w.ELIMINATED]
        entry, part = block // cut, block % cut
        sizes, outer_sizes = at + w.HEADER, at + w.HEADER + axes
        first, record = outer_sizes + outer_axes, w.STRIDES + axes + outer_axes
        tid = np.int64(cuda.threadIdx.x)
        for t in range(tables):
            mine = first + t * record
            here[t] = words[mine + w.AT] + place_of(words, sizes, mine + w.STRIDES, axes, entry)
        made = number(0.0) if sums else lowest
        for i in range(eliminated * part // cut + tid, eliminated * (part + 1) // cut, THREADS):
            x, rest = i % inner, i // inner
            value = number(1.0) if sums else number(0.0)
            for t in range(tables):
                mine = first + t * record
                place = here[t] + x * words[mine + w.STEP]
                place += place_of(words, outer_sizes, mine + w.STRIDES + axes, outer_axes, rest)
                if sums:
                    value *= arena[place]
                else:
                    value = max(number(value + arena[place]), lowest)
            if sums:
                made += value
            else:
                made = max(made, value)
        shared[tid] = made
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
            parts[words[at + w.PART_AT] + block] = shared[0]

    return alone


@lru_cache
def finish_kernel(number, operation):
    """Return the kernel that puts the parts of entries together: a block a message."""
    sums = operation == LOG_SUM

    @cuda_jit()
    def finish(arena, words, launch, state, lowest, half, parts, tables):
        at = words[launch + w.FIRST_BLOCK + words[launch + w.JOBS] + 1 + cuda.blockIdx.x]
        axes, outer_axes, cut = words[at + w.AXES], words[at + w.OUTER_AXES], words[at + w.PARTS]
        sizes, record = at + w.HEADER, w.STRIDES + axes + outer_axes
        first, target = sizes + axes + outer_axes, words[at + w.TABLE]
        scale = 1.0
        if sums:
            leader = cuda.threadIdx.x == 0
            scale = scale_of(words, first, record, words[at + w.TABLES], state, target, leader)
        mine = first + tables * record
        for entry in range(cuda.threadIdx.x, words[at + w.ENTRIES], cuda.blockDim.x):
            made = number(0.0) if sums else lowest
            for part in range(cut):
                value = parts[words[at + w.PART_AT] + entry * cut + part]
                if sums:
                    made += value
                else:
                    made = max(made, value)
            to = words[mine + w.AT] + place_of(words, sizes, mine + w.STRIDES, axes, entry)
            if sums:
                made *= scale
                arena[to] = made
                if made > 0.0:
                    cuda.atomic.max(state[PEAK], target, made)
                    cuda.atomic.min(state[LOW], target, made)
            else:
                arena[to] = made if made > half else lowest

    return finish
