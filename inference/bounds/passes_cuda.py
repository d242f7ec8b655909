"""The passes of dual ascent as a block of GPU threads makes them; the same tables, to the bit, as on the CPU.

:mod:`dmcmc.inference.bounds.kernels` says what a pass does. ``words`` describe the graph at ``g`` (see
:mod:`dmcmc.inference.bounds.words`), ``tables`` are its tables, ``tiles`` is shared memory of ``room`` words, where a
table's rows are an odd number of words apart: threads that read a column hit different banks. ``octets`` is a tuple of
as many numbers as a table has times 8 columns: its length is a constant to the compiler, and so is every stride. All
functions are called by all threads of a block; passes return False where an entry left the limits. Then whole shifts
have been made and nothing more may be shifted: which ones may differ from the CPU.
"""

import numpy as np
from numba import cuda, int32

from dmcmc.inference.bounds.quantise import DEAD as _DEAD
from dmcmc.inference.bounds.quantise import LIMIT as _LIMIT
from dmcmc.inference.bounds.quantise import THRESHOLD as _THRESHOLD
from dmcmc.inference.bounds.words import (
    AROUND,
    CLIQUE,
    CLIQUES,
    CLUSTER,
    CORNER_WIDTH,
    DOMAINS,
    ENTRY_AT,
    INCIDENT,
    INCIDENT_AT,
    IS_FIRST,
    LEVEL_AT,
    LEVELS,
    LOWER,
    OTHER,
    PAIR,
    SCOPE_AT,
    SCOPES,
    SIDE,
    STAR_AT,
    STARS,
    TABLE,
    TRIANGLES,
    WIDTHS,
    N,
)  # fmt: skip

DEAD, LIMIT, THRESHOLD = np.int32(_DEAD), np.int32(_LIMIT), np.int32(_THRESHOLD)
_EDGE, _CELLS = 4, 16  # a thread makes so many times so many entries of a max-plus product


@cuda.jit(device=True)
def anywhere(over):
    """Wait for all threads of the block; return whether it is true for one of them."""
    return cuda.syncthreads_or(np.int32(1) if over else np.int32(0)) != 0


@cuda.jit(device=True)
def sweep(words, g, tables, tiles, room, octets, forward):
    """Make all three passes."""
    if words[g + TRIANGLES] > 0 and not triangle_pass(words, g, tables, tiles, room, octets):
        return False
    if words[g + STARS] > 0 and not star_pass(words, g, tables, tiles, octets):
        return False
    return variable_pass(words, g, tables, tiles, room, octets, forward)


@cuda.jit(device=True)
def triangle_pass(words, g, tables, tiles, room, octets):
    """Level triangles with their pairs: as many of a level at once as shared memory holds."""
    width = 8 * len(octets)
    slots = np.int32(room // (3 * width * (width + 1)))
    cliques, level_at = np.int32(words[g + CLIQUES]), np.int32(words[g + LEVEL_AT])
    for level in range(words[g + LEVELS]):
        first, last = np.int32(words[level_at + level]), np.int32(words[level_at + level + 1])
        while first < last:
            count = min(slots, np.int32(last - first))
            begin = np.int32(cliques + first * CLIQUE)
            load_triangles(words, begin, tables, tiles, count, octets, True)
            cuda.syncthreads()
            over = level_side(words, begin, tables, tiles, count, octets, 0, np.float32(1 / 3))
            cuda.syncthreads()
            over = level_side(words, begin, tables, tiles, count, octets, 1, np.float32(1 / 2)) or over
            cuda.syncthreads()
            over = level_side(words, begin, tables, tiles, count, octets, 2, np.float32(1)) or over
            if anywhere(over):
                return False
            first = np.int32(first + count)
    return True


@cuda.jit(device=True)
def load_triangles(words, begin, tables, tiles, count, octets, with_pairs):
    """Bring some triangles' tables to shared memory, with their pairs' tables added if wanted."""
    width = 8 * len(octets)
    square, size = np.uint32(width * width), np.uint32(width * (width + 1))
    for at in range(np.uint32(cuda.threadIdx.x), np.uint32(count * 3) * square, np.uint32(cuda.blockDim.x)):
        table = np.uint32(at // square)
        cell = np.uint32(at - table * square)
        slot = np.uint32(table // np.uint32(3))
        k = np.uint32(table - slot * np.uint32(3))
        clique = np.uint32(begin + slot * np.uint32(CLIQUE))
        x = tables[np.uint64(np.uint32(words[clique + np.uint32(CLUSTER)]) + k * square + cell)]
        if with_pairs:
            x = np.int32(x + tables[np.uint64(np.uint32(words[clique + np.uint32(PAIR) + k]) + cell)])
            x = DEAD if x < THRESHOLD else x
        tiles[np.uint64(table * size + cell + np.uint32(cell // np.uint32(width)))] = x


@cuda.jit(device=True)
def level_side(words, begin, tables, tiles, count, octets, k, weight):
    """Give pairs ab, ac or bc (k = 0, 1, 2) of triangles their share of the max-marginal; whether one is too large.

    A weight of 1 gives all of it, whatever a float32 holds.
    """
    width = 8 * len(octets)
    stride, square, size, across = width + 1, width * width, width * (width + 1), width // _EDGE
    # In the product's left table rows are rows unless k = 2, in the right one columns are columns unless k = 0.
    left, left_row, left_k = (1 if k == 0 else 0), (1 if k == 2 else stride), (stride if k == 2 else 1)
    right, right_column, right_k = (1 if k == 2 else 2), (stride if k == 0 else 1), (1 if k == 0 else stride)
    far_left, far_right = across * left_row, across * right_column
    row_corner, column_corner, inner_corner = (1 if k == 2 else 0), (1 if k == 0 else 2), 2 - k
    best = cuda.local.array(_CELLS, int32)
    mine = cuda.local.array(_EDGE, int32)
    over = False
    tasks = np.uint32(across * across)
    for task in range(np.uint32(cuda.threadIdx.x), np.uint32(count) * tasks, np.uint32(cuda.blockDim.x)):
        slot = np.uint32(task // tasks)
        rest = np.uint32(task - slot * tasks)
        i0 = np.uint32(rest // np.uint32(across))
        j0 = np.uint32(rest - i0 * np.uint32(across))
        clique = np.uint32(begin + slot * np.uint32(CLIQUE))
        inner = np.int32(words[clique + np.uint32(CORNER_WIDTH + inner_corner)])
        for q in range(_CELLS):
            best[q] = DEAD
        base = np.uint64(slot) * np.uint64(3 * size)
        at_left = base + np.uint64(left * size) + np.uint64(i0) * np.uint64(left_row)
        at_right = base + np.uint64(right * size) + np.uint64(j0) * np.uint64(right_column)
        for _ in range(inner):
            for q in range(_EDGE):
                mine[q] = tiles[at_left + np.uint64(q * far_left)]
            for j in range(_EDGE):
                entry = tiles[at_right + np.uint64(j * far_right)]
                for i in range(_EDGE):
                    best[i * _EDGE + j] = max(best[i * _EDGE + j], np.int32(mine[i] + entry))
            at_left += np.uint64(left_k)
            at_right += np.uint64(right_k)
        rows = np.uint32(words[clique + np.uint32(CORNER_WIDTH + row_corner)])
        columns = np.uint32(words[clique + np.uint32(CORNER_WIDTH + column_corner)])
        target = base + np.uint64(k * size) + np.uint64(i0) * np.uint64(stride) + np.uint64(j0)
        cell = np.uint64(i0) * np.uint64(width) + np.uint64(j0)
        cluster = np.uint64(words[clique + np.uint32(CLUSTER)]) + np.uint64(k * square) + cell
        pair = np.uint64(words[clique + np.uint32(PAIR + k)]) + cell
        for q in range(_CELLS):
            i, j = (q // _EDGE) * across, (q % _EDGE) * across
            if i0 + np.uint32(i) < rows and j0 + np.uint32(j) < columns:
                mass = tiles[target + np.uint64(i * stride + j)]
                marginal = np.int32(mass + best[q])
                dead = marginal < THRESHOLD
                share = marginal if weight == 1 else np.int32(np.float32(marginal) * weight)
                kept = np.int32(mass - share)
                if not dead and max(abs(kept), abs(share)) > LIMIT:
                    over = True
                kept = DEAD if dead else kept
                tiles[target + np.uint64(i * stride + j)] = kept
                tables[cluster + np.uint64(i * width + j)] = kept
                tables[pair + np.uint64(i * width + j)] = DEAD if dead else share
    return over


@cuda.jit(device=True)
def variable_pass(words, g, tables, tiles, room, octets, forward):
    """Visit variables in order, or backwards; all pairs of a variable at once.

    Shared memory holds v's message, those of its pairs, and as many of their tables as fit.
    """
    width = 8 * len(octets)
    n, size = np.int32(words[g + N]), width * (width + 1)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    for step in range(n):
        v = np.int32(step if forward else n - 1 - step)
        d = np.int32(words[words[g + DOMAINS] + v])
        padded = np.int32(words[words[g + WIDTHS] + v])
        first, last = np.int32(words[words[g + INCIDENT_AT] + v]), np.int32(words[words[g + INCIDENT_AT] + v + 1])
        degree = np.int32(last - first)
        sides = np.int32(words[g + INCIDENT] + first * SIDE)
        loaded = np.int32(width * (1 + degree))  # where tables begin
        most = np.int32((room - loaded) // size)
        for begin in range(0, degree, most):
            count = min(most, np.int32(degree - begin))
            load_pairs(words, np.int32(sides + begin * SIDE), tables, tiles, loaded, count, octets)
            cuda.syncthreads()
            find_messages(
                words, np.int32(sides + begin * SIDE), tiles, loaded, np.int32(width * (1 + begin)), count, octets
            )
            cuda.syncthreads()
        behind = np.int32(words[words[g + LOWER] + v])
        behind = behind if forward else np.int32(degree - behind)
        ahead = np.int32(degree - behind)
        weight = np.float32(1 / max(np.int32(1), max(behind, ahead)))
        over = False
        for i in range(tid, padded, threads):
            total = tables[np.uint32(v * width + i)]
            if i < d:
                for q in range(degree):
                    total = np.int32(total + tiles[np.uint32(width * (1 + q) + i)])
                    total = DEAD if total < THRESHOLD else total
                    over = over or (total >= THRESHOLD and abs(total) > LIMIT)
                    total = max(min(total, LIMIT), DEAD)  # of no use any more if it was more
            dead = total < THRESHOLD
            share = DEAD if dead else np.int32(np.float32(total) * weight)
            tiles[np.uint32(i)] = share
            total = DEAD if dead else np.int32(total - ahead * share)
            tiles[np.uint32(loaded + i)] = total
        if anywhere(over):
            return False  # nothing has been moved
        for i in range(tid, padded, threads):
            tables[np.uint32(v * width + i)] = tiles[np.uint32(loaded + i)]
        if anywhere(pass_on(words, sides, tables, tiles, degree, octets, v, forward)):
            return False
    return True


@cuda.jit(device=True)
def load_pairs(words, sides, tables, tiles, loaded, count, octets):
    """Bring some of a variable's pairs to shared memory."""
    width = 8 * len(octets)
    square, size = np.uint32(width * width), np.uint32(width * (width + 1))
    for at in range(np.uint32(cuda.threadIdx.x), np.uint32(count) * square, np.uint32(cuda.blockDim.x)):
        q = np.uint32(at // square)
        cell = np.uint32(at - q * square)
        table = np.uint32(words[np.uint32(sides + q * np.uint32(SIDE) + np.uint32(TABLE))])
        row = np.uint32(cell // np.uint32(width))
        tiles[np.uint64(loaded + q * size + cell + row)] = tables[np.uint64(table + cell)]


@cuda.jit(device=True)
def find_messages(words, sides, tiles, loaded, messages, count, octets):
    """Set each loaded pair's maximum for each value of its variable."""
    width = 8 * len(octets)
    stride, size = np.uint32(width + 1), np.uint32(width * (width + 1))
    for task in range(np.uint32(cuda.threadIdx.x), np.uint32(count * width), np.uint32(cuda.blockDim.x)):
        q = np.uint32(task // np.uint32(width))
        i = np.uint32(task - q * np.uint32(width))
        side = np.uint32(sides + q * np.uint32(SIDE))
        is_first = words[side + np.uint32(IS_FIRST)] != 0
        at = np.uint32(loaded + q * size + (i * stride if is_first else i))
        step = np.uint32(1) if is_first else stride
        best = DEAD
        for _ in range(words[side + np.uint32(AROUND)]):
            best = max(best, tiles[np.uint64(at)])
            at = np.uint32(at + step)
        tiles[np.uint64(messages + task)] = best


@cuda.jit(device=True)
def pass_on(words, sides, tables, tiles, degree, octets, v, forward):
    """Subtract the pairs' messages from them, add v's to those ahead; whether an entry is too large."""
    width = 8 * len(octets)
    square = np.uint32(width * width)
    over = False
    for at in range(np.uint32(cuda.threadIdx.x), np.uint32(degree) * square, np.uint32(cuda.blockDim.x)):
        q = np.uint32(at // square)
        cell = np.uint32(at - q * square)
        row = np.uint32(cell // np.uint32(width))
        side = np.uint32(sides + q * np.uint32(SIDE))
        place = np.uint64(np.uint32(words[side + np.uint32(TABLE)]) + cell)
        x = tables[place]
        if x >= THRESHOLD:
            i = row if words[side + np.uint32(IS_FIRST)] != 0 else np.uint32(cell - row * np.uint32(width))
            x = np.int32(x - tiles[np.uint64(np.uint32(width) * (np.uint32(1) + q) + i)])
            over = over or abs(x) > LIMIT
            if (words[side + np.uint32(OTHER)] < v) != forward:
                x = np.int32(x + tiles[np.uint64(i)])
                over = over or (x >= THRESHOLD and abs(x) > LIMIT)
                x = DEAD if x < THRESHOLD else x
            tables[place] = x
    return over


@cuda.jit(device=True)
def star_pass(words, g, tables, tiles, octets):
    """Level every large factor with its variables."""
    width = 8 * len(octets)
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
                tables[np.uint32(v * width + i)] = np.int32(0) if tiles[np.uint32(i)] >= THRESHOLD else DEAD
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
def recentre(words, g, tables, tiles, room, octets):
    """Even out what a triangle's tables hold for each of its variables: none of its sums changes."""
    width = 8 * len(octets)
    stride, size = np.int32(width + 1), np.int32(width * (width + 1))
    slots, total, one = np.int32(room // (3 * size)), np.int32(words[g + TRIANGLES]), np.int32(1)
    for first in range(np.int32(0), total, slots):
        count = min(slots, np.int32(total - first))
        begin = np.int32(words[g + CLIQUES] + first * CLIQUE)
        load_triangles(words, begin, tables, tiles, count, octets, False)
        cuda.syncthreads()
        for k in range(3):  # the corners a, b, c: which tables have them, as rows or as columns
            for task in range(np.int32(cuda.threadIdx.x), np.int32(count * width), np.int32(cuda.blockDim.x)):
                slot = np.int32(task // width)
                i = np.int32(task - slot * width)
                widths = np.int32(begin + slot * CLIQUE + CORNER_WIDTH)
                a, b, c = np.int32(words[widths]), np.int32(words[widths + 1]), np.int32(words[widths + 2])
                base = np.int32(slot * 3 * size)
                if k == 0 and i < a:
                    even_out(tiles, base + i * stride, one, b, base + size + i * stride, one, c)
                if k == 1 and i < b:
                    even_out(tiles, base + i, stride, a, base + 2 * size + i * stride, one, c)
                if k == 2 and i < c:
                    even_out(tiles, base + size + i, stride, a, base + 2 * size + i, stride, b)
            cuda.syncthreads()
        store_triangles(words, begin, tables, tiles, count, octets)
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
def store_triangles(words, begin, tables, tiles, count, octets):
    """Bring some triangles' tables back."""
    width = 8 * len(octets)
    square, size = np.uint32(width * width), np.uint32(width * (width + 1))
    for at in range(np.uint32(cuda.threadIdx.x), np.uint32(count * 3) * square, np.uint32(cuda.blockDim.x)):
        table = np.uint32(at // square)
        cell = np.uint32(at - table * square)
        slot = np.uint32(table // np.uint32(3))
        clique = np.uint32(begin + slot * np.uint32(CLIQUE) + np.uint32(CLUSTER))
        place = np.uint32(words[clique]) + np.uint32(table - slot * np.uint32(3)) * square + cell
        tables[np.uint64(place)] = tiles[np.uint64(table * size + cell + np.uint32(cell // np.uint32(width)))]
