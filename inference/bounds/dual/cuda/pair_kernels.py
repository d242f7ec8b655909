# mypy: ignore-errors
"""Messages of pairs and of tables of higher order on a GPU.

Messages between variables and their pairs, by one block of GPU threads that works on one graph.

One call of ``variable_pass`` is the variable pass of one sweep of dual ascent. For each variable v in order it does
four steps; the block synchronises in between.

1. A thread group (a warp) per pair copies the pairs' tables from device memory to shared memory.
2. A thread per pair and value of v takes the maximum over the other variable: the pair's message to v.
3. A thread per value of v adds the messages to v's table and computes the equal message that v sends on: the sum times
   1 / max(1, pairs behind v, pairs ahead of v), where a pair is behind v if its other variable was visited before v.
4. A thread group per pair subtracts the message that the pair has sent, adds v's message if the pair leads to a
   variable that is still to be visited, and writes the table back.

All threads of the block call every function with the same arguments, which are:

block : Block
    Index arrays of all graphs (``descriptors``), shared memory (``tiles``), and the number W of columns.
graph : int32
    Position of this graph's header in ``descriptors``: the sizes and starts of its other index arrays follow there.
tables : (entries,) int32
    All tables of the graph, in device memory: ``unary`` (n, W), then the pairs (m, W, W), then triangles and
    higher-order factors.

The functions of this module use shared memory, from the start, for: v's outgoing message (W entries), the messages of
v's pairs (W each), v's table (W), and as many tables of v's pairs as fit. A row of a pair's table takes W + 1 entries,
so that threads that read a column access different memory banks.

One incidence of variable v is a record of ``INCIDENCE_RECORD`` entries in ``descriptors``: the start of the pair's
table in ``tables``, whether v is the pair's first variable (indexes its rows), the padded domain size of the other
variable, and the number of the other variable. Entries below ``FORBIDDEN_BELOW`` are forbidden. An allowed entry beyond
±``MAX_MAGNITUDE`` has left the range, and no further message may be sent then.

Local names: ``square`` = W * W is the size of a table in ``tables``, ``size`` = W * (W + 1) that of a table in
``tiles``, and ``bands`` = W / 8. Positions are unsigned and arithmetic is cast to 32 bits: Numba's default, signed
64-bit integers, is slower.

Messages between higher-order factors and their variables, by one block of GPU threads that works on one graph.

A higher-order factor has three or more variables; its table is flat, in C order over its scope (its variables). An
entry below ``FORBIDDEN_BELOW`` is forbidden, and an allowed entry beyond ±``MAX_MAGNITUDE`` has left the range. W is
the number of columns of the unary tables.

All threads of the block call every function. The arguments are:

block : Block
    Index arrays of all graphs (``descriptors``), the number W of columns, and shared memory, whose first W entries hold
    one message.
graph : int32
    Position of this graph's header in ``descriptors``.
tables : (entries,) int32
    All tables of the graph, in device memory.
scope, arity : int32
    Position of the factor's scope in ``descriptors``, and its number of variables.
table_start, entries : int32
    Position of the factor's table in ``tables``, and its number of entries.
axis : int32
    Position in the scope of the variable that a message belongs to.
"""

import numpy as np
from numba import cuda, int32

from dmcmc.inference.bounds.dual.cuda.descriptors import (
    DOMAINS,  # fmt: skip
    ENTRY_START,
    FACTOR_TABLES_AT,
    FACTORS,
    INCIDENCE_RECORD,  # fmt: skip
    INCIDENT,  # fmt: skip
    INCIDENT_START,  # fmt: skip
    IS_FIRST,  # fmt: skip
    LOWER_COUNT,  # fmt: skip
    OTHER,  # fmt: skip
    OTHER_WIDTH,  # fmt: skip
    SCOPE_START,
    SCOPES,
    TABLE,  # fmt: skip
    WIDTHS,  # fmt: skip
    N,  # fmt: skip
)
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import GROUP_SIZE, any_thread, span
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE

_GROUP_SIZE = np.uint32(GROUP_SIZE)  # threads per pair
_LOADS_PER_BATCH = 9  # entries that a thread loads from device memory before it uses the first, to hide the latency


@cuda.jit(device=True)
def variable_pass(block, graph, tables, forward):
    """Visit all variables, in ascending order if ``forward``; return False if an entry left the range.

    The pairs of a variable are processed in batches if their tables do not fit into shared memory together. A pair is
    behind v if its other variable has been visited already, else ahead of it.
    """
    descriptors, tiles, width = block.descriptors, block.tiles, 8 * len(block.octets)
    n, size = np.int32(descriptors[graph + N]), width * (width + 1)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    for step in range(n):
        v = np.int32(step if forward else n - 1 - step)
        d = np.int32(descriptors[descriptors[graph + DOMAINS] + v])
        padded = np.int32(descriptors[descriptors[graph + WIDTHS] + v])
        first, last = span(descriptors, graph, INCIDENT_START, v)
        degree = np.int32(last - first)
        incidences = np.int32(descriptors[graph + INCIDENT] + first * INCIDENCE_RECORD)
        unary_tile = np.int32(width * (1 + degree))  # position of v's table in ``tiles``
        pair_tiles = np.int32(unary_tile + width)  # position of the pairs' tables in ``tiles``
        tile_capacity = np.int32((block.shared_size - pair_tiles) // size)
        all_loaded = degree <= tile_capacity  # all pairs of v fit at once
        for begin in range(0, degree, tile_capacity):
            count = min(tile_capacity, np.int32(degree - begin))
            loaded = np.int32(incidences + begin * INCIDENCE_RECORD)  # position of the first one's incidence record
            load_pairs(block, loaded, tables, pair_tiles, count)
            cuda.syncthreads()
            find_messages(block, loaded, pair_tiles, np.int32(width * (1 + begin)), count)
            cuda.syncthreads()
        n_behind = np.int32(descriptors[descriptors[graph + LOWER_COUNT] + v])
        n_behind = n_behind if forward else np.int32(degree - n_behind)
        n_ahead = np.int32(degree - n_behind)
        weight = np.float32(1 / max(np.int32(1), max(n_behind, n_ahead)))
        overflow = False
        for i in range(tid, padded, threads):
            total = tables[np.uint32(v * width + i)]
            if i < d:
                for q in range(degree):
                    total = np.int32(total + tiles[np.uint32(width * (1 + q) + i)])
                    total = FORBIDDEN if total < FORBIDDEN_BELOW else total
                    overflow = overflow or (total >= FORBIDDEN_BELOW and abs(total) > MAX_MAGNITUDE)
                    # Clamp, so that sums of entries out of range cannot overflow; the pass fails below.
                    total = max(min(total, MAX_MAGNITUDE), FORBIDDEN)
            is_forbidden = total < FORBIDDEN_BELOW
            message = FORBIDDEN if is_forbidden else np.int32(np.float32(total) * weight)
            tiles[np.uint32(i)] = message
            total = FORBIDDEN if is_forbidden else np.int32(total - n_ahead * message)
            tiles[np.uint32(unary_tile + i)] = total
        if any_thread(overflow):
            return False  # no table in device memory has been changed
        for i in range(tid, padded, threads):
            tables[np.uint32(v * width + i)] = tiles[np.uint32(unary_tile + i)]
        if any_thread(send_messages(block, incidences, tables, pair_tiles, all_loaded, degree, v, forward)):
            return False
    return True


@cuda.jit(device=True)
def load_pairs(block, incidences, tables, pair_tiles, count):
    """Copy ``count`` tables of a variable's pairs to shared memory, one thread group per table.

    ``incidences`` is the position of the first pair's incidence record in ``descriptors``; ``pair_tiles`` that of the
    first table in ``tiles``. ``is_even`` tells whether all threads have the same number of entries, so that no index
    has to be checked.
    """
    descriptors, tiles, bands = block.descriptors, block.tiles, len(block.octets)
    width, square, size = np.uint32(8 * bands), np.uint32(64 * bands * bands), np.uint32(8 * bands * (8 * bands + 1))
    entries = cuda.local.array(_LOADS_PER_BATCH, int32)
    is_even = square % (_GROUP_SIZE * np.uint32(_LOADS_PER_BATCH)) == 0
    group = np.uint32(cuda.threadIdx.x) // _GROUP_SIZE
    lane = np.uint32(cuda.threadIdx.x) % _GROUP_SIZE
    groups = np.uint32(cuda.blockDim.x) // _GROUP_SIZE
    q = np.uint32(group)
    while q < np.uint32(count):
        source = np.uint64(
            np.uint32(descriptors[np.uint32(incidences + q * np.uint32(INCIDENCE_RECORD) + np.uint32(TABLE))])
        )
        target = np.uint64(np.uint32(np.uint32(pair_tiles) + q * size))
        for first in range(0, np.int32((square + _GROUP_SIZE - np.uint32(1)) // _GROUP_SIZE), _LOADS_PER_BATCH):
            for p in range(_LOADS_PER_BATCH):
                cell = np.uint32(lane + np.uint32(first + p) * _GROUP_SIZE)
                if is_even or cell < square:
                    entries[p] = tables[source + np.uint64(cell)]
            for p in range(_LOADS_PER_BATCH):
                cell = np.uint32(lane + np.uint32(first + p) * _GROUP_SIZE)
                if is_even or cell < square:
                    tiles[target + np.uint64(np.uint32(cell + np.uint32(cell // width)))] = entries[p]
        q = np.uint32(q + groups)


@cuda.jit(device=True)
def find_messages(block, incidences, pair_tiles, messages, count):
    """Write each loaded pair's maximum for each value of v to ``tiles``, one thread per pair and value.

    The messages start at position ``messages`` of ``tiles``, W entries per pair. ``incidences`` and ``pair_tiles``
    are as for ``load_pairs``.
    """
    descriptors, tiles, width = block.descriptors, block.tiles, 8 * len(block.octets)
    stride, size = np.uint32(width + 1), np.uint32(width * (width + 1))
    task, total = np.uint32(cuda.threadIdx.x), np.uint32(count * width)
    while task < total:
        q = np.uint32(task // np.uint32(width))
        i = np.uint32(task - q * np.uint32(width))
        incidence = np.uint32(incidences + q * np.uint32(INCIDENCE_RECORD))
        is_first = descriptors[incidence + np.uint32(IS_FIRST)] != 0
        cell = np.uint32(pair_tiles + q * size + (i * stride if is_first else i))
        step = np.uint32(1) if is_first else stride
        best = FORBIDDEN
        for _ in range(descriptors[incidence + np.uint32(OTHER_WIDTH)]):
            best = max(best, tiles[np.uint64(cell)])
            cell = np.uint32(cell + step)
        tiles[np.uint64(messages + task)] = best
        task = np.uint32(task + np.uint32(cuda.blockDim.x))


@cuda.jit(device=True)
def send_messages(block, incidences, tables, pair_tiles, all_loaded, degree, v, forward):
    """Subtract each pair's message from it and add v's own to the pairs ahead; return whether an entry left the range.

    One thread group works on one pair. The tables are read from shared memory, from position ``pair_tiles`` on, if
    ``all_loaded``, else from device memory. They are written to device memory. ``incidences`` is the position of v's
    first incidence record in ``descriptors``, and ``degree`` the number of v's pairs. The result is that of this
    thread's entries.
    """
    descriptors, tiles, bands = block.descriptors, block.tiles, len(block.octets)
    width, square, size = np.uint32(8 * bands), np.uint32(64 * bands * bands), np.uint32(8 * bands * (8 * bands + 1))
    group = np.uint32(cuda.threadIdx.x) // _GROUP_SIZE
    lane = np.uint32(cuda.threadIdx.x) % _GROUP_SIZE
    groups = np.uint32(cuda.blockDim.x) // _GROUP_SIZE
    entries, received = cuda.local.array(_LOADS_PER_BATCH, int32), cuda.local.array(_LOADS_PER_BATCH, int32)
    sent, is_even = cuda.local.array(_LOADS_PER_BATCH, int32), square % (_GROUP_SIZE * np.uint32(_LOADS_PER_BATCH)) == 0
    largest, q = np.int32(0), np.uint32(group)
    while q < np.uint32(degree):
        incidence = np.uint32(incidences + q * np.uint32(INCIDENCE_RECORD))
        source = np.uint64(np.uint32(descriptors[incidence + np.uint32(TABLE)]))
        is_first = descriptors[incidence + np.uint32(IS_FIRST)] != 0
        ahead = (descriptors[incidence + np.uint32(OTHER)] < v) != forward
        tile = np.uint64(np.uint32(np.uint32(pair_tiles) + q * size))
        message = np.uint64(np.uint32(width * (q + np.uint32(1))))
        for first in range(0, np.int32((square + _GROUP_SIZE - np.uint32(1)) // _GROUP_SIZE), _LOADS_PER_BATCH):
            for p in range(_LOADS_PER_BATCH):
                cell = np.uint32(lane + np.uint32(first + p) * _GROUP_SIZE)
                if is_even or cell < square:
                    row = np.uint32(cell // width)
                    i = np.uint64(row if is_first else np.uint32(cell - row * width))
                    received[p], sent[p] = tiles[message + i], tiles[i] if ahead else np.int32(0)
                    if all_loaded:
                        entries[p] = tiles[tile + np.uint64(np.uint32(cell + row))]
                    else:
                        entries[p] = tables[source + np.uint64(cell)]
            for p in range(_LOADS_PER_BATCH):
                cell = np.uint32(lane + np.uint32(first + p) * _GROUP_SIZE)
                if is_even or cell < square:
                    entry, remainder = entries[p], np.int32(entries[p] - received[p])
                    total = np.int32(remainder + sent[p])
                    is_forbidden = min(entry, total) < FORBIDDEN_BELOW
                    largest = max(largest, abs(remainder) if entry >= FORBIDDEN_BELOW else np.int32(0))
                    largest = max(largest, np.int32(0) if is_forbidden else abs(total))
                    tables[source + np.uint64(cell)] = FORBIDDEN if is_forbidden else total
        q = np.uint32(q + groups)
    return largest > MAX_MAGNITUDE


@cuda.jit(device=True)
def higher_order_pass(block, graph, tables):
    """Add the unary tables to every higher-order factor and send its max-marginals back in equal portions.

    One thread works on one entry of the factor at a time. With k variables still to be served, a variable receives 1 /
    k of the factor's max-marginal over it, and this message is subtracted from the factor. Return False if an entry
    left the range.
    """
    descriptors, tiles, width = block.descriptors, block.tiles, 8 * len(block.octets)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    for s in range(descriptors[graph + FACTORS]):
        begin, end = span(descriptors, graph, ENTRY_START, s)
        table_start, entries = np.int32(descriptors[graph + FACTOR_TABLES_AT] + begin), np.int32(end - begin)
        first, last = span(descriptors, graph, SCOPE_START, s)
        scope, arity = np.int32(descriptors[graph + SCOPES] + first), np.int32(last - first)
        for axis in range(arity):
            v = np.int32(descriptors[scope + axis])
            for i in range(tid, width, threads):
                tiles[np.uint32(i)] = tables[np.uint32(v * width + i)]
            cuda.syncthreads()
            overflow = add_along_axis(block, graph, tables, scope, arity, axis, table_start, entries, np.int32(1))
            # The factor holds the unary table now, so the allowed unary entries become 0.
            for i in range(tid, width, threads):
                tables[np.uint32(v * width + i)] = np.int32(0) if tiles[np.uint32(i)] >= FORBIDDEN_BELOW else FORBIDDEN
            if any_thread(overflow):
                return False
        for axis in range(arity):
            v = np.int32(descriptors[scope + axis])
            d = np.int32(descriptors[descriptors[graph + DOMAINS] + v])
            inner = inner_size(descriptors, graph, scope, arity, axis)
            for i in range(tid, d, threads):
                tiles[np.uint32(i)] = FORBIDDEN
            cuda.syncthreads()
            for cell in range(tid, entries, threads):
                cuda.atomic.max(tiles, np.int32((cell // inner) % d), tables[np.uint32(table_start + cell)])
            cuda.syncthreads()
            weight = np.float64(1 / (arity - axis))
            for i in range(tid, d, threads):
                max_marginal, unary_entry = tiles[np.uint32(i)], tables[np.uint32(v * width + i)]
                portion = FORBIDDEN if max_marginal < FORBIDDEN_BELOW else np.int32(np.float64(max_marginal) * weight)
                tiles[np.uint32(i)] = portion
                is_forbidden = portion < FORBIDDEN_BELOW or unary_entry < FORBIDDEN_BELOW
                tables[np.uint32(v * width + i)] = FORBIDDEN if is_forbidden else np.int32(unary_entry + portion)
            cuda.syncthreads()
            overflow = add_along_axis(block, graph, tables, scope, arity, axis, table_start, entries, np.int32(-1))
            if any_thread(overflow):
                return False
    return True


@cuda.jit(device=True)
def inner_size(descriptors, graph, scope, arity, axis):
    """Return the distance between two entries of a factor that differ by one along an axis."""
    inner = np.int32(1)
    for k in range(axis + 1, arity):
        inner = np.int32(inner * descriptors[descriptors[graph + DOMAINS] + descriptors[scope + k]])
    return inner


@cuda.jit(device=True)
def add_along_axis(block, graph, tables, scope, arity, axis, table_start, entries, sign):
    """Add ``sign`` times the message in ``tiles`` along a factor's axis; return whether an entry left the range.

    ``sign`` is 1 or -1. An entry becomes forbidden where the message is. The result is that of this thread's entries.
    """
    descriptors, tiles = block.descriptors, block.tiles
    d = np.int32(descriptors[descriptors[graph + DOMAINS] + descriptors[scope + axis]])
    inner = inner_size(descriptors, graph, scope, arity, axis)
    overflow = False
    for cell in range(np.int32(cuda.threadIdx.x), entries, np.int32(cuda.blockDim.x)):
        message_entry, entry = tiles[np.uint32((cell // inner) % d)], tables[np.uint32(table_start + cell)]
        if message_entry < FORBIDDEN_BELOW or entry < FORBIDDEN_BELOW:
            entry = FORBIDDEN
        else:
            entry = np.int32(entry + sign * message_entry)
            overflow = overflow or abs(entry) > MAX_MAGNITUDE
        tables[np.uint32(table_start + cell)] = entry
    return overflow
