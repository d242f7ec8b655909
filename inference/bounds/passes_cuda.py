"""The passes of dual ascent as a block of GPU threads makes them; the same tables, to the bit, as on the CPU.

:mod:`dmcmc.inference.bounds.kernels` says what a pass does. ``words`` describe the graph at ``g`` (see
:mod:`dmcmc.inference.bounds.words`), ``tables`` are its tables, ``tiles`` is shared memory of ``room`` words, where a
table's rows are an odd number of words apart: threads that read a column hit different banks. All functions are called
by all threads of a block, which has at least as many as a table has columns; all return False where an entry left the
limits. Then whole shifts have been made and nothing more may be shifted: which ones may differ from the CPU.
"""

import numpy as np
from numba import cuda, int32

from dmcmc.inference.bounds.quantise import DEAD as _DEAD
from dmcmc.inference.bounds.quantise import LIMIT as _LIMIT
from dmcmc.inference.bounds.quantise import THRESHOLD as _THRESHOLD
from dmcmc.inference.bounds.words import (
    CLIQUE, CLIQUES, CLUSTER_AT, DOMAINS, ENDS, ENTRY_AT, INCIDENT, INCIDENT_AT, LEVEL_AT, LEVELS, LOWER, N, PAIR_AT,
    SCOPE_AT, SCOPES, STAR_AT, STARS, TRIANGLES, WIDTH, WIDTHS,
)  # fmt: skip

DEAD, LIMIT, THRESHOLD = np.int32(_DEAD), np.int32(_LIMIT), np.int32(_THRESHOLD)
_SIDE, _CELLS = 4, 16  # a thread makes so many times so many entries of a max-plus product


@cuda.jit(device=True)
def anywhere(over):
    """Wait for all threads of the block; return whether it is true for one of them."""
    return cuda.syncthreads_or(np.int32(1) if over else np.int32(0)) != 0


@cuda.jit(device=True)
def sweep(words, g, tables, tiles, room, forward):
    """Make all three passes."""
    if words[g + TRIANGLES] > 0 and not triangle_pass(words, g, tables, tiles, room):
        return False
    if words[g + STARS] > 0 and not star_pass(words, g, tables, tiles):
        return False
    return variable_pass(words, g, tables, tiles, room, forward)


@cuda.jit(device=True)
def triangle_pass(words, g, tables, tiles, room):
    """Level triangles with their pairs: as many of a level at once as shared memory holds."""
    width = np.int32(words[g + WIDTH])
    slots = np.int32(room // (3 * width * (width + 1)))
    for level in range(words[g + LEVELS]):
        first, last = np.int32(words[words[g + LEVEL_AT] + level]), np.int32(words[words[g + LEVEL_AT] + level + 1])
        while first < last:
            count = min(slots, np.int32(last - first))
            load_triangles(words, g, tables, tiles, first, count, True)
            cuda.syncthreads()
            over = level_side(words, g, tables, tiles, first, count, np.int32(0), np.float32(1 / 3))
            cuda.syncthreads()
            over = level_side(words, g, tables, tiles, first, count, np.int32(1), np.float32(1 / 2)) or over
            cuda.syncthreads()
            over = level_side(words, g, tables, tiles, first, count, np.int32(2), np.float32(1)) or over
            if anywhere(over):
                return False
            first = np.int32(first + count)
    return True


@cuda.jit(device=True)
def load_triangles(words, g, tables, tiles, first, count, with_pairs):
    """Bring some triangles' tables to shared memory, with their pairs' tables added if wanted."""
    width = np.int32(words[g + WIDTH])
    square, size = np.int32(width * width), np.int32(width * (width + 1))
    tid = np.int32(cuda.threadIdx.x)
    column, i = np.int32(tid % width), np.int32(tid // width)
    step = np.int32(cuda.blockDim.x // width)
    if i >= step:
        return
    slot, k = np.int32(0), np.int32(0)
    while i >= width:
        i = np.int32(i - width)
        k = np.int32(k + 1)
        if k == 3:
            slot, k = np.int32(slot + 1), np.int32(0)
    while slot < count:
        clique = np.int32(words[g + CLIQUES] + (first + slot) * CLIQUE)
        cell = np.int32(i * width + column)
        x = tables[np.uint32(words[g + CLUSTER_AT] + (words[clique] * 3 + k) * square + cell)]
        if with_pairs:
            x = np.int32(x + tables[np.uint32(words[g + PAIR_AT] + words[clique + 1 + k] * square + cell)])
            x = DEAD if x < THRESHOLD else x
        tiles[np.uint32((slot * 3 + k) * size + i * (width + 1) + column)] = x
        i = np.int32(i + step)
        while i >= width:
            i = np.int32(i - width)
            k = np.int32(k + 1)
            if k == 3:
                slot, k = np.int32(slot + 1), np.int32(0)


@cuda.jit(device=True)
def level_side(words, g, tables, tiles, first, count, k, weight):
    """Give pairs ab, ac or bc (k = 0, 1, 2) of some triangles their share of the max-marginal; whether one is too large.

    A weight of 1 gives all of it, whatever a float32 holds.
    """
    width = np.int32(words[g + WIDTH])
    stride, square = np.int32(width + 1), np.int32(width * width)
    size, across = np.int32(width * stride), np.int32(width // _SIDE)
    # The product's left table has k next to each other, or rows; the right one has k next to each other, or columns.
    left, left_row, left_k = (np.int32(1) if k == 0 else np.int32(0)), stride, np.int32(1)
    right, right_column, right_k = (np.int32(1) if k == 2 else np.int32(2)), np.int32(1), stride
    if k == 0:
        right_column, right_k = stride, np.int32(1)
    if k == 2:
        left_row, left_k = np.int32(1), stride
    row_corner = np.int32(5) if k == 2 else np.int32(4)
    column_corner = np.int32(5) if k == 0 else np.int32(6)
    inner_corner = np.int32(6) if k == 0 else (np.int32(5) if k == 1 else np.int32(4))
    best = cuda.local.array(_CELLS, int32)
    mine = cuda.local.array(_SIDE, int32)
    over = False
    for task in range(np.int32(cuda.threadIdx.x), np.int32(count * across * across), np.int32(cuda.blockDim.x)):
        slot = np.int32(task // (across * across))
        rest = np.int32(task - slot * across * across)
        i0 = np.int32(rest // across)
        j0 = np.int32(rest - i0 * across)
        clique = np.int32(words[g + CLIQUES] + (first + slot) * CLIQUE)
        rows = np.int32(words[words[g + WIDTHS] + words[clique + row_corner]])
        columns = np.int32(words[words[g + WIDTHS] + words[clique + column_corner]])
        inner = np.int32(words[words[g + WIDTHS] + words[clique + inner_corner]])
        for q in range(_CELLS):
            best[q] = DEAD
        at_left = np.int32((slot * 3 + left) * size + i0 * left_row)
        at_right = np.int32((slot * 3 + right) * size + j0 * right_column)
        far_left, far_right = np.int32(across * left_row), np.int32(across * right_column)
        for _ in range(inner):
            for q in range(_SIDE):
                mine[q] = tiles[np.uint32(at_left + q * far_left)]
            for j in range(_SIDE):
                entry = tiles[np.uint32(at_right + j * far_right)]
                for i in range(_SIDE):
                    best[i * _SIDE + j] = max(best[i * _SIDE + j], np.int32(mine[i] + entry))
            at_left = np.int32(at_left + left_k)
            at_right = np.int32(at_right + right_k)
        target = np.int32((slot * 3 + k) * size)
        cluster = np.int32(words[g + CLUSTER_AT] + (words[clique] * 3 + k) * square)
        pair = np.int32(words[g + PAIR_AT] + words[clique + 1 + k] * square)
        for q in range(_CELLS):
            i, j = np.int32(i0 + (q // _SIDE) * across), np.int32(j0 + (q % _SIDE) * across)
            if i < rows and j < columns:
                at = np.uint32(target + i * stride + j)
                mass = tiles[at]
                marginal = np.int32(mass + best[q])
                dead = marginal < THRESHOLD
                share = marginal if weight == 1 else np.int32(np.float32(marginal) * weight)
                left_over = np.int32(mass - share)
                if not dead and max(abs(left_over), abs(share)) > LIMIT:
                    over = True
                kept = DEAD if dead else left_over
                tiles[at] = kept
                tables[np.uint32(cluster + i * width + j)] = kept
                tables[np.uint32(pair + i * width + j)] = DEAD if dead else share
    return over


@cuda.jit(device=True)
def variable_pass(words, g, tables, tiles, room, forward):
    """Visit variables in order, or backwards; pairs of a variable at once."""
    n, width = np.int32(words[g + N]), np.int32(words[g + WIDTH])
    stride = np.int32(width + 1)
    size = np.int32(width * stride)
    most = np.int32((room - width) // (size + width))  # pairs at once: a table and a message each
    messages = np.int32(most * size)
    shares = np.int32(messages + most * width)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    for step in range(n):
        v = np.int32(step if forward else n - 1 - step)
        d, padded = np.int32(words[words[g + DOMAINS] + v]), np.int32(words[words[g + WIDTHS] + v])
        first, last = np.int32(words[words[g + INCIDENT_AT] + v]), np.int32(words[words[g + INCIDENT_AT] + v + 1])
        for begin in range(first, last, most):
            count = min(most, np.int32(last - begin))
            load_pairs(words, g, tables, tiles, begin, count)
            cuda.syncthreads()
            find_messages(words, g, tiles, messages, begin, count, v)
            cuda.syncthreads()
            over = False
            for i in range(tid, d, threads):
                total = tables[np.uint32(v * width + i)]
                for q in range(count):
                    total = np.int32(total + tiles[np.uint32(messages + q * width + i)])
                    total = DEAD if total < THRESHOLD else total
                    over = over or (total >= THRESHOLD and abs(total) > LIMIT)
                    total = max(min(total, LIMIT), DEAD)  # of no use any more if it was more
                tiles[np.uint32(shares + i)] = total
            if anywhere(over):
                return False  # nothing of these pairs has been moved
            for i in range(tid, d, threads):
                tables[np.uint32(v * width + i)] = tiles[np.uint32(shares + i)]
            if anywhere(take_messages(words, g, tables, tiles, messages, begin, count, v)):
                return False
        behind = np.int32(words[words[g + LOWER] + v])
        behind = behind if forward else np.int32(last - first - behind)
        ahead = np.int32(last - first - behind)
        weight = np.float32(1 / max(np.int32(1), max(behind, ahead)))
        for i in range(tid, padded, threads):
            at = np.uint32(v * width + i)
            x = tables[at]
            share = DEAD if x < THRESHOLD else np.int32(np.float32(x) * weight)
            tiles[np.uint32(shares + i)] = share
            tables[at] = DEAD if x < THRESHOLD else np.int32(x - ahead * share)
        cuda.syncthreads()
        if anywhere(give_messages(words, g, tables, tiles, shares, first, last, v, forward)):
            return False
    return True


@cuda.jit(device=True)
def load_pairs(words, g, tables, tiles, begin, count):
    """Bring some of a variable's pairs to shared memory."""
    width = np.int32(words[g + WIDTH])
    tid, step = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x // width)
    column = np.int32(tid % width)
    if tid // width >= step:
        return
    for row in range(np.int32(tid // width), np.int32(count * width), step):
        q = np.int32(row // width)
        i = np.int32(row - q * width)
        e = np.int32(words[words[g + INCIDENT] + begin + q])
        x = tables[np.uint32(words[g + PAIR_AT] + (e * width + i) * width + column)]
        tiles[np.uint32(q * width * (width + 1) + i * (width + 1) + column)] = x


@cuda.jit(device=True)
def find_messages(words, g, tiles, messages, begin, count, v):
    """Set each loaded pair's maximum for each value of v."""
    width = np.int32(words[g + WIDTH])
    stride = np.int32(width + 1)
    for task in range(np.int32(cuda.threadIdx.x), np.int32(count * width), np.int32(cuda.blockDim.x)):
        q = np.int32(task // width)
        i = np.int32(task - q * width)
        ends = np.int32(words[g + ENDS] + 2 * words[words[g + INCIDENT] + begin + q])
        is_first = words[ends] == v
        around = np.int32(words[words[g + WIDTHS] + words[ends] + words[ends + 1] - v])
        at = np.int32(q * width * stride + (i * stride if is_first else i))
        step = np.int32(1) if is_first else stride
        best = DEAD
        for _ in range(around):
            best = max(best, tiles[np.uint32(at)])
            at = np.int32(at + step)
        tiles[np.uint32(messages + task)] = best


@cuda.jit(device=True)
def take_messages(words, g, tables, tiles, messages, begin, count, v):
    """Subtract the messages from the loaded pairs' tables; whether an entry is too large."""
    width = np.int32(words[g + WIDTH])
    tid, step = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x // width)
    column = np.int32(tid % width)
    over = False
    if tid // width >= step:
        return over
    for row in range(np.int32(tid // width), np.int32(count * width), step):
        q = np.int32(row // width)
        i = np.int32(row - q * width)
        e = np.int32(words[words[g + INCIDENT] + begin + q])
        is_first = words[words[g + ENDS] + 2 * e] == v
        x = tiles[np.uint32(q * width * (width + 1) + i * (width + 1) + column)]
        message = tiles[np.uint32(messages + q * width + (i if is_first else column))]
        if x >= THRESHOLD:
            x = np.int32(x - message)
            over = over or abs(x) > LIMIT
            tables[np.uint32(words[g + PAIR_AT] + (e * width + i) * width + column)] = x
    return over


@cuda.jit(device=True)
def give_messages(words, g, tables, tiles, shares, first, last, v, forward):
    """Add v's message to its pairs ahead; whether an entry is too large."""
    width = np.int32(words[g + WIDTH])
    tid, step = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x // width)
    column = np.int32(tid % width)
    over = False
    if tid // width >= step:
        return over
    for row in range(np.int32(tid // width), np.int32((last - first) * width), step):
        q = np.int32(row // width)
        i = np.int32(row - q * width)
        e = np.int32(words[words[g + INCIDENT] + first + q])
        a, b = np.int32(words[words[g + ENDS] + 2 * e]), np.int32(words[words[g + ENDS] + 2 * e + 1])
        rows, columns = np.int32(words[words[g + WIDTHS] + a]), np.int32(words[words[g + WIDTHS] + b])
        if (a + b - v < v) != forward and i < rows and column < columns:
            at = np.uint32(words[g + PAIR_AT] + (e * width + i) * width + column)
            x = np.int32(tables[at] + tiles[np.uint32(shares + (i if a == v else column))])
            x = DEAD if x < THRESHOLD else x
            over = over or (x >= THRESHOLD and abs(x) > LIMIT)
            tables[at] = x
    return over


@cuda.jit(device=True)
def star_pass(words, g, tables, tiles):
    """Level every large factor with its variables."""
    width = np.int32(words[g + WIDTH])
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
                tables[np.uint32(v * width + i)] = (
                    np.int32(0) if tiles[np.uint32(i)] >= THRESHOLD else DEAD
                )
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


@cuda.jit(device=True)
def recentre(words, g, tables, tiles, room):
    """Even out what a triangle's tables hold for each of its variables: none of its sums changes."""
    width = np.int32(words[g + WIDTH])
    stride = np.int32(width + 1)
    size, slots = np.int32(width * stride), np.int32(room // (3 * width * (width + 1)))
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    total, one = np.int32(words[g + TRIANGLES]), np.int32(1)
    for first in range(np.int32(0), total, slots):
        count = min(slots, np.int32(total - first))
        load_triangles(words, g, tables, tiles, first, count, False)
        cuda.syncthreads()
        for k in range(3):  # the corners a, b, c: which tables have them, as rows or as columns
            for task in range(tid, np.int32(count * width), threads):
                slot = np.int32(task // width)
                i = np.int32(task - slot * width)
                corners = np.int32(words[g + CLIQUES] + (first + slot) * CLIQUE + 4)
                a = np.int32(words[words[g + WIDTHS] + words[corners]])
                b = np.int32(words[words[g + WIDTHS] + words[corners + 1]])
                c = np.int32(words[words[g + WIDTHS] + words[corners + 2]])
                base = np.int32(slot * 3 * size)
                if k == 0 and i < a:
                    even_out(tiles, base + i * stride, one, b, base + size + i * stride, one, c)
                if k == 1 and i < b:
                    even_out(tiles, base + i, stride, a, base + 2 * size + i * stride, one, c)
                if k == 2 and i < c:
                    even_out(tiles, base + size + i, stride, a, base + 2 * size + i, stride, b)
            cuda.syncthreads()
        store_triangles(words, g, tables, tiles, first, count)
        cuda.syncthreads()
    cuda.syncthreads()


@cuda.jit(device=True)
def even_out(tiles, left, left_step, left_size, right, right_step, right_size):
    """Shift two rows, or columns, half their maxima's difference towards each other if both are live."""
    top_left, top_right = DEAD, DEAD
    for i in range(left_size):
        top_left = max(top_left, tiles[np.uint32(left + i * left_step)])
    for i in range(right_size):
        top_right = max(top_right, tiles[np.uint32(right + i * right_step)])
    if min(top_left, top_right) < THRESHOLD:
        return
    shift = np.int32((np.int64(top_left) - top_right) >> 1)
    for i in range(left_size):
        x = tiles[np.uint32(left + i * left_step)]
        tiles[np.uint32(left + i * left_step)] = DEAD if x < THRESHOLD else np.int32(x - shift)
    for i in range(right_size):
        x = tiles[np.uint32(right + i * right_step)]
        tiles[np.uint32(right + i * right_step)] = DEAD if x < THRESHOLD else np.int32(x + shift)


@cuda.jit(device=True)
def store_triangles(words, g, tables, tiles, first, count):
    """Bring some triangles' tables back."""
    width = np.int32(words[g + WIDTH])
    tid, step = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x // width)
    column = np.int32(tid % width)
    if tid // width >= step:
        return
    for row in range(np.int32(tid // width), np.int32(count * 3 * width), step):
        table = np.int32(row // width)
        i = np.int32(row - table * width)
        slot = np.int32(table // 3)
        number = np.int32(words[words[g + CLIQUES] + (first + slot) * CLIQUE] * 3 + table - 3 * slot)
        at = np.uint32(words[g + CLUSTER_AT] + (number * width + i) * width + column)
        tables[at] = tiles[np.uint32(table * width * (width + 1) + i * (width + 1) + column)]
