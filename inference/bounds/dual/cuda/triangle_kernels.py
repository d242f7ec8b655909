# mypy: ignore-errors
"""Messages between triangles and their pairs, by one block of GPU threads that works on one graph.

A triangle is a triplet region a < b < c with one table per pair ab, ac, bc; side k = 0, 1, 2 of a triangle is its table
over ab, ac or bc. In a pass, a triangle adds the tables of its three pairs to its own, and then sends each pair a
fraction of its max-marginal over that pair: M(a, b) = ab(a, b) + max over c of [ac(a, c) + bc(b, c)] for the pair ab.
The maximum of sums is called the max-plus product of the two other tables. The weights 1/3, 1/2, 1 of the three sides
leave nothing in the triangle: the second pair gets half of what remains, the third all of it.

A level is a set of triangles that share no pair, so they can be processed at the same time. An int32 entry below
``FORBIDDEN_BELOW`` is forbidden; an allowed entry beyond ±``MAX_MAGNITUDE`` has left the range. Without smoothing, the
tables equal those of the CPU kernels to the bit.

All threads of the block call every function. A function that sends messages reports whether an entry left the range. If
one did, no more messages may be sent.

Small triangles are processed by one warp each, and the warps only meet at the end of a level. Larger ones are processed
by the whole block. Either is called the thread group of a triangle. Threads load a batch of entries from device memory
before they use the first, to hide the latency.

Arguments that several functions share:

block : Block
    Index arrays of all graphs (``descriptors``), shared memory (``tiles``), and the number W of columns. In shared
    memory a triangle takes three tables ab, ac, bc of W rows of W + 1 entries each; the odd row length lets threads
    that read a column access different memory banks. At a positive temperature, the exponentials and line maxima of the
    thread group's triangles follow.
graph : int32
    Position of this graph's header in ``descriptors``.
group : TriangleGroup
    The triangles that the thread group works on at once.
tables : (entries,) int32
    All tables of the graph, in device memory.
temperature : float32
    Smooths the maxima of the max-marginals; 0 for exact maxima.

Local names: ``square`` = W * W is the size of a table in ``tables``; ``size`` = W * (W + 1) is that of a table in
``tiles``, with rows that are ``stride`` = W + 1 apart; ``bands`` = W / 8; ``alone`` says whether the thread group is a
single warp; ``number`` counts the triangles of the thread group from 0. Positions are unsigned and arithmetic is cast
to 32 bits: Numba's default, signed 64-bit integers, is slower.
"""

import numpy as np
from numba import cuda, float32, int32, uint64

from dmcmc.inference.bounds.dual.cuda.descriptors import (
    CORNER_WIDTH,
    LEVEL_START,
    LEVELS,
    TRIANGLE_LIST,
    TRIANGLE_PAIRS,
    TRIANGLE_RECORD,
    TRIANGLE_TABLES,
    TRIANGLES,
)  # fmt: skip
from dmcmc.inference.bounds.dual.cuda.smoothed_triangle_kernels import (
    LINE_GAP,
    bits_per_unit_at,
    exponentiate_tables,
    find_line_maxima,
    line_maximum,
    sum_products,
    take_logarithms,
)
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import (
    MAX_TILE_CELLS,
    MAX_TILE_COLUMNS,
    MAX_WARP_COLUMNS,
    TriangleGroup,
    any_thread,
    group_barrier,
    thread_group,
    thread_tile,
)
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE

_MAX_TILE_ROWS = 2 * MAX_TILE_COLUMNS  # rows of a product that a thread computes
_LOADS_PER_BATCH = 9  # entries of each of a triangle's tables that a thread loads before it uses the first
_LOADED = 3 * _LOADS_PER_BATCH  # entries of all three tables


@cuda.jit(device=True)
def triangle_pass(block, graph, tables, temperature):
    """Send messages between all triangles and their pairs, level by level; return False if an entry left the range.

    As many triangles of a level are processed at once as shared memory and the number of warps permit.
    """
    descriptors, width = block.descriptors, 8 * len(block.octets)
    triangle_size = np.uint32(3 * width * (width + 1))
    if temperature > 0:
        # Exponentials and line maxima.
        triangle_size = np.uint32(triangle_size + np.uint32(2 * width * (width + LINE_GAP + 1)))
    triangle_list = np.uint32(descriptors[graph + TRIANGLE_LIST])
    level_starts = np.uint32(descriptors[graph + LEVEL_START])
    # This group's first triangle of a level, triangles that the block and this group process at once, thread in group.
    first, step, max_count, lane, lanes = thread_group(np.uint32(np.uint32(block.shared_size) // triangle_size), width)
    tile_start = np.uint32(first * triangle_size)
    for level in range(descriptors[graph + LEVELS]):
        position = np.uint32(descriptors[level_starts + np.uint32(level)])
        end = np.uint32(descriptors[level_starts + np.uint32(level + 1)])
        position, overflow = np.uint32(position + first), False
        while position < end and first < step:
            begin = np.uint32(triangle_list + position * np.uint32(TRIANGLE_RECORD))
            count = min(max_count, np.uint32(end - position))
            group = TriangleGroup(begin, tile_start, count, lane, lanes)
            overflow = process_triangles(block, group, tables, temperature) or overflow
            position = np.uint32(position + step)
        if any_thread(overflow):
            return False
    return True


@cuda.jit(device=True)
def process_triangles(block, group, tables, temperature):
    """Send the messages of a group's triangles, all of one level; return whether an entry left the range."""
    alone = 8 * len(block.octets) <= MAX_WARP_COLUMNS
    load_triangles(block, group, tables, True)
    group_barrier(alone)
    overflow = send_side(block, group, tables, 0, np.float32(1 / 3), temperature)
    group_barrier(alone)
    overflow = send_side(block, group, tables, 1, np.float32(1 / 2), temperature) or overflow
    group_barrier(alone)
    overflow = send_side(block, group, tables, 2, np.float32(1), temperature) or overflow
    group_barrier(alone)
    return overflow


@cuda.jit(device=True)
def load_triangles(block, group, tables, with_pairs):
    """Copy the tables of a group's triangles to shared memory, with their pairs' tables added if ``with_pairs``."""
    descriptors, tiles, bands = block.descriptors, block.tiles, len(block.octets)
    begin, tile_start, count, lane, lanes = group
    width, square, size = np.uint32(8 * bands), np.uint32(64 * bands * bands), np.uint32(8 * bands * (8 * bands + 1))
    entries, pair_entries = cuda.local.array(_LOADED, int32), cuda.local.array(_LOADED, int32)
    pairs = cuda.local.array(3, uint64)
    is_even = square % (lanes * np.uint32(_LOADS_PER_BATCH)) == 0  # every thread then has the same number of entries
    for number in range(count):
        triangle = np.uint32(begin + np.uint32(number) * np.uint32(TRIANGLE_RECORD))
        triangle_start = np.uint64(np.uint32(descriptors[triangle + np.uint32(TRIANGLE_TABLES)]))
        target = np.uint64(tile_start)
        for k in range(3):
            pairs[k] = np.uint64(np.uint32(descriptors[triangle + np.uint32(TRIANGLE_PAIRS + k)]))
        target += np.uint64(np.uint32(number) * np.uint32(3) * size)
        for first in range(0, np.int32((square + lanes - np.uint32(1)) // lanes), _LOADS_PER_BATCH):
            for k in range(3):
                for q in range(_LOADS_PER_BATCH):
                    cell = np.uint32(lane + np.uint32(first + q) * lanes)
                    if is_even or cell < square:
                        entries[k * _LOADS_PER_BATCH + q] = tables[
                            triangle_start + np.uint64(k * square) + np.uint64(cell)
                        ]
                        if with_pairs:
                            pair_entries[k * _LOADS_PER_BATCH + q] = tables[pairs[k] + np.uint64(cell)]
            for q in range(_LOADS_PER_BATCH):
                cell = np.uint32(lane + np.uint32(first + q) * lanes)
                position = target + np.uint64(np.uint32(cell + np.uint32(cell // width)))
                if is_even or cell < square:
                    for k in range(3):
                        x = entries[k * _LOADS_PER_BATCH + q]
                        if with_pairs:
                            x = np.int32(x + pair_entries[k * _LOADS_PER_BATCH + q])
                            x = FORBIDDEN if x < FORBIDDEN_BELOW else x
                        tiles[position + np.uint64(k * size)] = x


@cuda.jit(device=True)
def send_side(block, group, tables, k, weight, temperature):
    """Send the pair of side k (0, 1, 2 for ab, ac, bc) of each triangle the fraction ``weight`` of its max-marginal.

    Each thread computes tiles of the max-plus product of the other two tables, adds the side's own table, and writes
    the message to the pair and the remainder to the triangle. A weight of 1 sends the exact max-marginal, without
    rounding to float32. At a positive temperature the maxima are smoothed, except where all terms are too small. Return
    whether an entry left the range.
    """
    descriptors, tiles, bands = block.descriptors, block.tiles, len(block.octets)
    begin, tile_start, count, lane, lanes = group
    alone = 8 * bands <= MAX_WARP_COLUMNS
    if temperature > 0:
        find_line_maxima(block, group, k)
        group_barrier(alone)
        exponentiate_tables(block, group, k, bits_per_unit_at(temperature))
        group_barrier(alone)
    width, stride, square = np.uint32(8 * bands), np.uint32(8 * bands + 1), np.uint32(64 * bands * bands)
    size = np.uint32(width * stride)
    # Columns of this thread's tile (it has twice as many rows), and the distance between two columns and two rows.
    tile_columns, column_step, row_step = thread_tile(bands)
    products, sums = cuda.local.array(MAX_TILE_CELLS, int32), cuda.local.array(MAX_TILE_CELLS, float32)
    entries = cuda.local.array(MAX_TILE_CELLS, int32)
    overflow, task, tasks = False, np.uint32(lane), np.uint32(column_step * row_step)
    while task < np.uint32(np.uint32(count) * tasks):
        number = np.uint32(task // tasks)
        i0 = np.uint32(np.uint32(task - number * tasks) // column_step)
        j0 = np.uint32(task % column_step)
        triangle = np.uint32(begin + number * np.uint32(TRIANGLE_RECORD))
        inner = np.uint32(descriptors[triangle + np.uint32(CORNER_WIDTH + 2 - k)])
        triangle_tile = np.uint32(tile_start + number * np.uint32(3) * size)
        use_maxima = True
        if temperature > 0:
            exponentials = np.uint32(tile_start + np.uint32(count) * np.uint32(3) * size)
            sum_products(block, exponentials, number, inner, i0, j0, sums)
            use_maxima = take_logarithms(block, exponentials, count, number, temperature, i0, j0, sums, products)
        else:
            for q in range(MAX_TILE_CELLS):
                products[q] = FORBIDDEN
        if use_maxima:
            raise_to_maxima(block, triangle_tile, k, inner, i0, j0, products)
        target = np.uint64(np.uint32(triangle_tile + np.uint32(k) * size + i0 * stride + j0))
        triangle_start = np.uint64(
            np.uint32(np.uint32(descriptors[triangle + np.uint32(TRIANGLE_TABLES)]) + np.uint32(k) * square)
        )
        triangle_start = triangle_start + np.uint64(i0 * width + j0)
        pair_start = np.uint64(np.uint32(descriptors[triangle + np.uint32(TRIANGLE_PAIRS + k)]))
        pair_start += np.uint64(i0 * width + j0)
        for q in range(2 * tile_columns):
            for p in range(tile_columns):
                entries[q * MAX_TILE_COLUMNS + p] = tiles[target + np.uint64(q * row_step * stride + p * column_step)]
        for q in range(2 * tile_columns):
            for p in range(tile_columns):
                position = target + np.uint64(q * row_step * stride + p * column_step)
                offset = np.uint64(q * row_step * width + p * column_step)
                entry = entries[q * MAX_TILE_COLUMNS + p]
                marginal = np.int32(entry + products[q * MAX_TILE_COLUMNS + p])
                message = marginal if weight == 1 else np.int32(np.float32(marginal) * weight)
                remainder = np.int32(entry - message)
                if marginal < FORBIDDEN_BELOW:
                    remainder = message = FORBIDDEN
                elif max(abs(remainder), abs(message)) > MAX_MAGNITUDE:
                    overflow = True
                tiles[position] = remainder
                tables[triangle_start + offset] = remainder
                tables[pair_start + offset] = message
        task = np.uint32(task + np.uint32(lanes))
    return overflow


@cuda.jit(device=True)
def raise_to_maxima(block, base, k, inner, i0, j0, best):
    """Raise the entries of a thread's tile to those of the max-plus product of the triangle's other two tables.

    The left and the right table of the product are ac and bc transposed for k = 0, ab and bc for k = 1, and ab
    transposed and ac for k = 2.

    Parameters
    ----------
    base : uint32
        Position of the triangle's tables in ``tiles``.
    k : int
        The side of the triangle that receives the message.
    inner : uint32
        Number of terms: padded domain size of the variable that is not on side k.
    i0, j0 : uint32
        First row and column of the tile.
    best : (MAX_TILE_CELLS,) int32
        The tile; entry (q, p) is element q * ``MAX_TILE_COLUMNS`` + p.
    """
    tiles, bands = block.tiles, len(block.octets)
    stride, size = np.uint32(8 * bands + 1), np.uint32(8 * bands * (8 * bands + 1))
    tile_columns, column_step, row_step = thread_tile(bands)
    # The left table's rows are the product's rows unless k = 2; the right one's columns are its columns unless k = 0.
    left_row_step, left_step = np.uint32(1 if k == 2 else stride), np.uint32(stride if k == 2 else 1)
    right_column_step, right_step = np.uint32(stride if k == 0 else 1), np.uint32(1 if k == 0 else stride)
    left_entries = cuda.local.array(_MAX_TILE_ROWS, int32)
    left = np.uint64(np.uint32(base + np.uint32(size if k == 0 else 0) + i0 * left_row_step))
    right = np.uint64(np.uint32(base + np.uint32(size if k == 2 else 2 * size) + j0 * right_column_step))
    for _ in range(inner):
        for q in range(2 * tile_columns):
            left_entries[q] = tiles[left + np.uint64(q * row_step * left_row_step)]
        for p in range(tile_columns):
            entry = tiles[right + np.uint64(p * column_step * right_column_step)]
            for q in range(2 * tile_columns):
                best[q * MAX_TILE_COLUMNS + p] = max(best[q * MAX_TILE_COLUMNS + p], np.int32(left_entries[q] + entry))
        left, right = left + np.uint64(left_step), right + np.uint64(right_step)


@cuda.jit(device=True)
def recentre(block, graph, tables):
    """Equalise the maxima of a triangle's two tables at each value of each of its variables.

    At value i of variable a, for instance, half the difference of the maxima of ab(i, .) and ac(i, .) moves from one
    table to the other. The sum of the three tables does not change.
    """
    descriptors, tiles, width = block.descriptors, block.tiles, 8 * len(block.octets)
    alone = width <= MAX_WARP_COLUMNS
    stride, size, unit_step = np.uint32(width + 1), np.uint32(width * (width + 1)), np.uint32(1)
    capacity = np.uint32(np.uint32(block.shared_size) // np.uint32(3 * size))
    first, step, max_count, lane, lanes = thread_group(capacity, width)
    tile_start, position, end = np.uint32(first * np.uint32(3 * size)), first, np.uint32(descriptors[graph + TRIANGLES])
    while position < end and first < step:
        begin = np.uint32(descriptors[graph + TRIANGLE_LIST] + position * np.uint32(TRIANGLE_RECORD))
        count = min(max_count, np.uint32(end - position))
        group = TriangleGroup(begin, tile_start, count, lane, lanes)
        load_triangles(block, group, tables, False)
        group_barrier(alone)
        for k in range(3):  # for the corners a, b, c: equalise the two tables that contain it, as rows or columns
            task = lane
            while task < np.uint32(count * np.uint32(width)):
                number = np.uint32(task // np.uint32(width))
                i = np.uint32(task - number * np.uint32(width))
                widths = np.uint32(begin + number * np.uint32(TRIANGLE_RECORD) + np.uint32(CORNER_WIDTH))
                a, b, c = descriptors[widths], descriptors[widths + np.uint32(1)], descriptors[widths + np.uint32(2)]
                ab = np.uint32(tile_start + number * np.uint32(3 * size))
                ac, bc = np.uint32(ab + size), np.uint32(ab + size + size)
                if k == 0 and i < a:
                    balance_lines(tiles, ab + i * stride, unit_step, b, ac + i * stride, unit_step, c)
                if k == 1 and i < b:
                    balance_lines(tiles, ab + i, stride, a, bc + i * stride, unit_step, c)
                if k == 2 and i < c:
                    balance_lines(tiles, ac + i, stride, a, bc + i, stride, b)
                task = np.uint32(task + lanes)
            group_barrier(alone)
        store_triangles(block, group, tables)
        group_barrier(alone)
        position = np.uint32(position + step)
    cuda.syncthreads()


@cuda.jit(device=True)
def balance_lines(tiles, left, left_step, left_size, right, right_step, right_size):
    """Shift two lines (rows or columns) by half the difference of their maxima, if both have allowed entries.

    A line is given by the position of its first entry in ``tiles``, the distance between two entries, and their number.
    The half, rounded down, is subtracted from the left line and added to the right one.
    """
    top_left = line_maximum(tiles, np.uint64(np.uint32(left)), np.uint64(left_step), left_size)
    top_right = line_maximum(tiles, np.uint64(np.uint32(right)), np.uint64(right_step), right_size)
    if min(top_left, top_right) >= FORBIDDEN_BELOW:
        shift = np.int32((np.int64(top_left) - top_right) >> 1)
        add_to_line(tiles, left, left_step, left_size, np.int32(-shift))
        add_to_line(tiles, right, right_step, right_size, shift)


@cuda.jit(device=True)
def add_to_line(tiles, at, step, size, shift):
    """Add ``shift`` to all allowed entries of a row or column: ``size`` entries from ``at`` on, ``step`` apart."""
    position = np.uint64(np.uint32(at))
    for _ in range(size):
        x = tiles[position]
        tiles[position] = FORBIDDEN if x < FORBIDDEN_BELOW else np.int32(x + shift)
        position += np.uint64(step)


@cuda.jit(device=True)
def store_triangles(block, group, tables):
    """Copy the tables of a group's triangles back to device memory."""
    descriptors, tiles, bands = block.descriptors, block.tiles, len(block.octets)
    begin, tile_start, count, lane, lanes = group
    width, square, size = np.uint32(8 * bands), np.uint32(64 * bands * bands), np.uint32(8 * bands * (8 * bands + 1))
    for table in range(np.int32(count * np.uint32(3))):
        number = np.uint32(np.uint32(table) // np.uint32(3))
        k = np.uint32(np.uint32(table) - number * np.uint32(3))
        triangle_start = np.uint64(
            np.uint32(descriptors[np.uint32(begin + number * np.uint32(TRIANGLE_RECORD) + np.uint32(TRIANGLE_TABLES))])
        )
        triangle_start = triangle_start + np.uint64(k * square)
        source = np.uint64(np.uint32(tile_start + np.uint32(table) * size))
        cell = lane
        while cell < square:
            tables[triangle_start + np.uint64(cell)] = tiles[
                source + np.uint64(np.uint32(cell + np.uint32(cell // width)))
            ]
            cell = np.uint32(cell + lanes)
