# mypy: ignore-errors
"""Condition an agent's potentials on an interface assignment, by one block of GPU threads.

The result is the reparametrised tables over the hidden variables alone, from which the ascent of a row starts. The
hidden variables have the lowest numbers, and their pairs and triangles come first, so their tables are copied as a
block. The other tables are conditioned and added to tables over fewer variables. An entry below ``FORBIDDEN_BELOW`` is
forbidden, and an allowed entry beyond ±``MAX_MAGNITUDE`` is out of range. All threads of the block call every function.
The arguments are:

block : Block
    Index arrays of all graphs, and the number W of columns of a table.
whole, hidden : int32
    Positions in the index arrays of the headers of the graph over all variables and of that over hidden variables.
tables : (entries,) int32
    Tables of the whole graph, W columns wide.
conditioned : (entries,) int32
    Receives the tables of the hidden graph.
digits : (interface,) int32
    Value of each interface variable; in shared memory.
"""

import numpy as np
from numba import cuda

from dmcmc.inference.bounds.dual.cuda.descriptors import (
    CORNER,
    DOMAINS,
    ENTRY_START,
    FACTOR_TABLES_AT,
    FACTORS,
    PAIR_AT,
    PAIR_VARIABLES,
    PAIRS,
    SCOPE_START,
    SCOPES,
    SLICED_FACTORS,
    TRIANGLE_LIST,
    TRIANGLE_PAIRS,
    TRIANGLE_RECORD,
    TRIANGLE_TABLES,
    TRIANGLE_TABLES_AT,
    TRIANGLES,
    N,
)  # fmt: skip
from dmcmc.inference.bounds.dual.cuda.thread_block_kernels import span
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.pair_kernels import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE


@cuda.jit(device=True)
def condition(block, whole, hidden, tables, conditioned, digits):
    """Set ``conditioned`` to the tables that remain once the interface has the values ``digits``.

    Each thread copies and adds to the same entries throughout, except for higher-order factors, so no barrier is
    needed. Interface variable v has the value ``digits[v - n]``, where n is the number of hidden variables.

    Returns
    -------
    constant : int64
        Utility of the tables over interface variables alone; ``MINUS_INFINITY`` if they forbid the assignment.
    overflow : bool
        Whether this thread has found an entry out of range.
    """
    descriptors, width = block.descriptors, np.int32(8 * len(block.octets))
    n = np.int32(descriptors[hidden + N])
    square = np.int32(width * width)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    copy(tables, np.int32(0), conditioned, np.int32(0), np.int32(n * width))
    pairs, triangles = np.int32(descriptors[hidden + PAIRS]), np.int32(descriptors[hidden + TRIANGLES])
    for e in range(pairs):
        source = descriptors[whole + PAIR_AT] + e * square
        copy(tables, source, conditioned, descriptors[hidden + PAIR_AT] + e * square, square)
    source, size = descriptors[whole + TRIANGLE_TABLES_AT], np.int32(3 * triangles * square)
    copy(tables, source, conditioned, descriptors[hidden + TRIANGLE_TABLES_AT], size)
    constant, overflow = np.int64(0), False
    # Unary tables of the interface variables, pairs and triangles that contain some, and all higher-order factors.
    for total in range(n, descriptors[whole + N]):
        unary_entry = tables[np.uint32(total * width + digits[total - n])]
        if unary_entry < FORBIDDEN_BELOW:
            return np.int64(MINUS_INFINITY), overflow
        constant += unary_entry
    for e in range(pairs, descriptors[whole + PAIRS]):
        a = np.int32(descriptors[descriptors[whole + PAIR_VARIABLES] + 2 * e])
        b = np.int32(descriptors[descriptors[whole + PAIR_VARIABLES] + 2 * e + 1])
        entry, pair_overflow = condition_pair(
            tables, descriptors[whole + PAIR_AT] + e * square, conditioned, a, b, n, width, digits
        )
        if entry < FORBIDDEN_BELOW:
            return np.int64(MINUS_INFINITY), overflow
        overflow = overflow or pair_overflow
        constant += entry
    for k in range(descriptors[whole + TRIANGLES]):
        triangle = np.int32(descriptors[whole + TRIANGLE_LIST] + k * TRIANGLE_RECORD)
        a, b, c = descriptors[triangle + CORNER], descriptors[triangle + CORNER + 1], descriptors[triangle + CORNER + 2]
        if c < n:
            continue  # a triangle of hidden variables: its tables have been copied
        table_start = np.int32(descriptors[triangle + TRIANGLE_TABLES])
        ab_entry, pair_overflow = np.int64(0), False
        if b < n:
            target = np.int32(
                descriptors[hidden + PAIR_AT] + descriptors[triangle + TRIANGLE_PAIRS] - descriptors[whole + PAIR_AT]
            )
            for cell in range(tid, square, threads):
                total = np.int32(conditioned[np.uint32(target + cell)] + tables[np.uint32(table_start + cell)])
                total = FORBIDDEN if total < FORBIDDEN_BELOW else total
                pair_overflow = pair_overflow or (total >= FORBIDDEN_BELOW and abs(total) > MAX_MAGNITUDE)
                conditioned[np.uint32(target + cell)] = total
        else:
            ab_entry, pair_overflow = condition_pair(tables, table_start, conditioned, a, b, n, width, digits)
        ac_entry, ac_overflow = condition_pair(tables, table_start + square, conditioned, a, c, n, width, digits)
        bc_entry, bc_overflow = condition_pair(tables, table_start + 2 * square, conditioned, b, c, n, width, digits)
        if min(ab_entry, min(ac_entry, bc_entry)) < FORBIDDEN_BELOW:
            return np.int64(MINUS_INFINITY), overflow
        overflow = overflow or pair_overflow or ac_overflow or bc_overflow
        constant += ab_entry + ac_entry + bc_entry
    next_sliced = np.int32(0)
    for s in range(descriptors[whole + FACTORS]):
        first, last = span(descriptors, whole, SCOPE_START, s)
        scope, end = np.int32(descriptors[whole + SCOPES] + first), np.int32(descriptors[whole + SCOPES] + last)
        table_start = np.int32(
            descriptors[whole + FACTOR_TABLES_AT] + descriptors[descriptors[whole + ENTRY_START] + s]
        )
        if (
            next_sliced < descriptors[hidden + FACTORS]
            and descriptors[descriptors[hidden + SLICED_FACTORS] + next_sliced] == s
        ):
            first, last = span(descriptors, hidden, ENTRY_START, next_sliced)
            target, entries = np.int32(descriptors[hidden + FACTOR_TABLES_AT] + first), last - first
            # The factor has hidden variables left: copy the slice that agrees with the interface assignment.
            for cell in range(tid, entries, threads):
                position, step, remainder = np.int32(0), np.int32(1), np.int32(cell)
                for q in range(end - 1, scope - 1, -1):
                    u = np.int32(descriptors[q])
                    d = np.int32(descriptors[descriptors[whole + DOMAINS] + u])
                    if u < n:
                        position = np.int32(position + (remainder % d) * step)
                        remainder = np.int32(remainder // d)
                    else:
                        position = np.int32(position + digits[u - n] * step)
                    step = np.int32(step * d)
                conditioned[np.uint32(target + cell)] = tables[np.uint32(table_start + position)]
            next_sliced = np.int32(next_sliced + 1)
            continue
        position = np.int32(0)
        for q in range(scope, end):
            position = np.int32(
                position * descriptors[descriptors[whole + DOMAINS] + descriptors[q]] + digits[descriptors[q] - n]
            )
        entry = tables[np.uint32(table_start + position)]
        if entry < FORBIDDEN_BELOW:
            return np.int64(MINUS_INFINITY), overflow
        constant += entry
    return constant, overflow


@cuda.jit(device=True)
def copy(source, source_start, target, target_start, size):
    """Copy ``size`` entries of ``source``, from ``source_start`` on, to ``target``, from ``target_start`` on.

    Thread i copies the entries i, i + threads, ... of the range.
    """
    for i in range(np.int32(cuda.threadIdx.x), np.int32(size), np.int32(cuda.blockDim.x)):
        target[np.uint32(target_start + i)] = source[np.uint32(source_start + i)]


@cuda.jit(device=True)
def condition_pair(tables, at, conditioned, a, b, n, width, digits):
    """Condition a table over a and b on the value of interface variable b, and add the column to a's unary table.

    If a is an interface variable too, nothing is added and the selected entry is returned.

    Parameters
    ----------
    at : int32
        Position of the table in ``tables``.
    a, b : int32
        Variables, a < b.
    n, width : int32
        Number of hidden variables, and number of columns of a table.

    Returns
    -------
    entry : int64
        The selected entry; 0 if a is hidden.
    overflow : bool
        Whether an entry left the range.
    """
    y = np.int32(digits[b - n])
    if a >= n:
        return np.int64(tables[np.uint32(at + digits[a - n] * width + y)]), False
    overflow = False
    # Each entry of a's table is added to by the thread that has copied it.
    begin = np.int32(a * width)
    tid, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    i = np.int32((tid - begin % threads + threads) % threads)
    while i < width:
        total = np.int32(conditioned[np.uint32(begin + i)] + tables[np.uint32(at + i * width + y)])
        total = FORBIDDEN if total < FORBIDDEN_BELOW else total
        overflow = overflow or (total >= FORBIDDEN_BELOW and abs(total) > MAX_MAGNITUDE)
        conditioned[np.uint32(begin + i)] = total
        i = np.int32(i + threads)
    return np.int64(0), overflow
