# mypy: ignore-errors
"""Messages between higher-order factors and their variables, by one block of GPU threads that works on one graph.

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
from numba import cuda

from dmcmc.inference.bounds.dual.cuda.descriptors import (
    DOMAINS,
    ENTRY_START,
    FACTOR_TABLES_AT,
    FACTORS,
    SCOPE_START,
    SCOPES,
)
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import any_thread, span
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE


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
