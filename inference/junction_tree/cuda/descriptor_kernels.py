# mypy: ignore-errors
"""CUDA kernels that describe the work of messages.

Write the descriptors of a junction tree's messages for the GPU; runs on the host.

The layout is that of :mod:`dmcmc.inference.junction_tree.cuda.descriptor_kernels` (imported as ``w``); the descriptors
are read by the kernels in ``message_kernels`` and ``matrix_kernels`` of this folder. ``program`` is a
:class:`dmcmc.inference.junction_tree.cliques.CliqueTreeProgram`: the tree as flat arrays, with numbered tables.

Layout of the int64 descriptors of a junction tree's messages for the GPU.

One launch computes several messages. Its launch table holds the number n of its messages (at MESSAGES), the first block
of each and the number of blocks (n + 1 values from FIRST_BLOCK on), and the positions of their descriptors (n values).

A message's descriptor is a header of HEADER values, the sizes of the target's axes, the sizes of the eliminated axes
except the innermost, and a record for each joined table; the last record is the target's.
"""

import numpy as np

from dmcmc.inference.elimination.cuda.descriptor_kernels import merge_axes
from dmcmc.inference.junction_tree.message_kernels import DOWN, UP, inputs_and_targets, nothing_to_make
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.tuning import ENOUGH_BLOCKS, MAX_BLOCK_ENTRIES, MIN_ELIMINATED

MESSAGES, FIRST_BLOCK = range(2)
# The header. TABLE: number of the target; ENTRIES, AXES: its numbers of entries and axes; ELIMINATED: number of
# assignments of the eliminated variables; INNER, OUTER_AXES: size of the innermost eliminated axis, number of the other
# eliminated axes; TABLES: number of joined tables; PARTS, PART_AT: number of parts into which the eliminated
# assignments are divided, and position of their results in the workspace.
TABLE, ENTRIES, AXES, ELIMINATED, INNER, OUTER_AXES, TABLES, PARTS, PART_AT = range(9)
# For matrix products. HIGH, HIGH_AXES: entries and axes of the rows, whose axes come first; HIGH_TABLES, LOW_TABLES:
# number of tables that depend on rows and eliminated variables, and on columns and eliminated variables. The tables are
# in this order; those without eliminated variables are last.
HIGH, HIGH_AXES, HIGH_TABLES, LOW_TABLES = range(9, 13)
HEADER = 13  # length of the header
# A record. NUMBER: number of the table; AT: offset of its first entry; STEP: its stride of the innermost eliminated
# axis; STRIDES: its strides of the target's axes, then of the other eliminated axes.
NUMBER, AT, STEP, STRIDES = range(4)


TABLE_COUNTS = (2, 3, 4, 6, 10, 24)  # numbers of joined tables for which kernels are compiled
PER_THREAD, PER_BLOCK, MATRIX = range(3)  # kinds of kernels: one thread per entry, one block per entry, matrix product
MATRIX_TABLES = 10  # largest number of tables of a matrix product: their offsets lie in shared memory
_PER_THREAD = PER_THREAD
_PER_BLOCK = PER_BLOCK
_MATRIX = MATRIX
_MATRIX_TABLES = MATRIX_TABLES
_UP = UP
_DOWN = DOWN


@njit(nogil=True)
def transposed(program, position):
    """Return the messages that are stored with their axes in reverse order, (tables,) bool.

    The variables that the receiver eliminates should come first in a table, so that neighbouring threads read
    neighbouring entries. The receiver eliminates in the direction of the message: later variables if the sender
    eliminated earlier ones. ``position`` (variables,) int64 is the position in the elimination order.
    """
    cliques = program.parent.size
    factors = program.factor_start[cliques]
    reverse = np.zeros(program.at.size - 1, dtype=np.bool_)
    inside = np.zeros(program.domains.size, dtype=np.bool_)
    for c in range(cliques):
        if program.parent[c] < 0:
            continue
        up = factors + c
        inside[:] = False
        mean, n = 0.0, 0
        for s in range(program.scope_start[up], program.scope_start[up + 1]):
            inside[program.scope[s]] = True
            mean += position[program.scope[s]]
            n += 1
        for k in range(2):
            sender = c if k == 0 else program.parent[c]
            eliminated, m = 0.0, 0
            for s in range(program.clique_start[sender], program.clique_start[sender + 1]):
                if not inside[program.clique_scope[s]]:
                    eliminated += position[program.clique_scope[s]]
                    m += 1
            reverse[up + k * cliques] = n > 0 and m > 0 and eliminated / m > mean / n
    return reverse


@njit(nogil=True, allocates=False)
def kernel_for(tables):
    """Return the index of the smallest kernel for this number of tables; the number of kernels if there is none."""
    k = 0
    while k < len(TABLE_COUNTS) and TABLE_COUNTS[k] < tables:
        k += 1
    return k


@njit(nogil=True)
def levels_of(program, table_kind, cliques):
    """Return the level of each clique's message, (cliques,) int64; messages of one level are independent."""
    level = np.full(program.parent.size, -1, dtype=np.int64)
    out = np.zeros(cliques.size, dtype=np.int64)
    for i in range(cliques.size):
        c, highest = cliques[i], -1
        if table_kind == _UP:
            for k in range(program.child_start[c], program.child_start[c + 1]):
                highest = max(highest, level[program.child[k]])
        elif table_kind == _DOWN and program.parent[c] >= 0:
            highest = level[program.parent[c]]
        level[c] = out[i] = highest + 1
    return out


@njit(nogil=True)
def records(program, reverse, scope, tables, count, target):
    """Return sizes and strides of the target's and of the eliminated axes of a message.

    Observed variables and variables with one value have no axis; adjacent axes are merged where all strides
    allow it.

    Returns
    -------
    sizes, strides : (axes,), (count + 1, axes) int64
        The axes of ``target``; strides of the ``count`` inputs, then of the target.
    eliminated_sizes, eliminated_strides : (axes,), (count + 1, axes) int64
        The eliminated axes, likewise.
    at : (count + 1,) int64
        Offsets of the inputs and of the target.
    """
    n = scope.size
    axis_of = np.full(program.domains.size, -1, dtype=np.int64)
    for i in range(n):
        axis_of[scope[i]] = i
    stride_of = np.zeros((count + 1, n), dtype=np.int64)
    at = np.zeros(count + 1, dtype=np.int64)
    for i in range(count + 1):
        t = tables[i] if i < count else target
        at[i] = program.at[t]
        stride, first, last = 1, program.scope_start[t], program.scope_start[t + 1]
        for s in range(last - first):
            v = program.scope[first + s] if reverse[t] else program.scope[last - 1 - s]
            stride_of[i, axis_of[v]] = stride
            at[i] += max(program.observed[v], 0) * stride
            stride *= program.domains[v]
    axis_kind = np.zeros(n, dtype=np.int64)
    for i in range(n):
        if program.observed[scope[i]] < 0 and program.domains[scope[i]] > 1:
            axis_kind[i] = 1 if stride_of[count, i] > 0 else 2
    target_axes, eliminated_axes = np.flatnonzero(axis_kind == 1), np.flatnonzero(axis_kind == 2)
    sizes, strides = merge_axes(program.domains[scope[target_axes]], stride_of[:, target_axes].copy())
    eliminated_sizes, eliminated_strides = merge_axes(
        program.domains[scope[eliminated_axes]], stride_of[:, eliminated_axes].copy()
    )
    return sizes, strides, eliminated_sizes, eliminated_strides, at


@njit(nogil=True)
def matrix_of(sizes, strides, eliminated_strides, count, min_side):
    """Split a message into rows and columns of a matrix product, such that no summed table depends on both.

    Axes of the target that occur together in a summed table form a group; a group lies in the rows or in the
    columns as a whole. ``sizes``, ``strides`` and ``eliminated_strides`` come from :func:`records`, for
    ``count`` input tables.

    Returns
    -------
    axes : int64
        The axes of rows, then those of columns, each in memory order; the innermost one belongs to the columns.
        Empty if there would be fewer rows or columns than ``min_side``.
    high_axes : int
        Number of row axes.
    tables : int64
        The tables that depend on rows and eliminated variables, those that depend on columns and eliminated
        variables, and those without eliminated variables.
    high, low : int
        Number of tables of the first and of the second kind.
    """
    no_axes, n = np.zeros(0, dtype=np.int64), sizes.size
    if n < 2 or count > _MATRIX_TABLES:
        return no_axes, 0, no_axes, 0, 0
    # Axes that occur together in a summed table belong to one group, which is numbered by one of its axes.
    group, has_eliminated = np.arange(n), np.zeros(count, dtype=np.bool_)
    for t in range(count):
        for j in range(eliminated_strides.shape[1]):
            has_eliminated[t] |= eliminated_strides[t, j] > 0
        first_axis = -1
        for j in range(n if has_eliminated[t] else 0):
            if strides[t, j] > 0 and first_axis >= 0:
                merged_group = group[j]
                for i in range(n):
                    if group[i] == merged_group:
                        group[i] = group[first_axis]
            elif strides[t, j] > 0:
                first_axis = j
    # The group of the innermost axis forms the columns; the other groups are divided so that the sides are balanced.
    memory_order = np.argsort(-strides[count], kind="mergesort")
    in_columns, rows = group == group[memory_order[n - 1]], 1
    entries = np.ones(n, dtype=np.int64)
    for j in range(n):
        entries[group[j]] *= sizes[j]
    columns = entries[group[memory_order[n - 1]]]
    for j in np.argsort(-entries, kind="mergesort"):  # the largest group first, each to the smaller side
        if group[j] == j and j != group[memory_order[n - 1]]:
            if columns < rows:
                in_columns |= group == j
                columns *= entries[j]
            else:
                rows *= entries[j]
    if rows < min_side or columns < min_side:
        return no_axes, 0, no_axes, 0, 0
    # The axes of rows first, then those of columns.
    axes, high_axes = np.empty(n, dtype=np.int64), 0
    for pass_number in range(2):
        for j in memory_order:
            if in_columns[j] == (pass_number == 1):
                axes[high_axes] = j
                high_axes += 1
    high_axes = n - in_columns.sum()
    table_kind = np.full(count, 2)
    for t in range(count):
        if has_eliminated[t]:
            table_kind[t] = 0
            for j in range(n):
                if strides[t, j] > 0 and in_columns[j]:
                    table_kind[t] = 1
    return axes, high_axes, np.argsort(table_kind, kind="mergesort"), (table_kind == 0).sum(), (table_kind == 1).sum()


@njit(nogil=True)
def describe_messages(program, reverse, table_kind, cliques, neutral, neutral_at, tile):
    """Describe the messages or marginals that are computed for some cliques.

    Parameters
    ----------
    program, reverse
        The tree, and the result of :func:`transposed`.
    table_kind : int
        UP, DOWN, MARGINAL or SEPARATOR_MARGINAL, see :mod:`dmcmc.inference.junction_tree.message_kernels`.
    cliques : int64
        The cliques.
    neutral, neutral_at : int
        Number and offset of a table of one neutral entry; it fills up the tables of a message to a number in
        ``TABLE_COUNTS``.
    tile : tuple of int
        Threads per block; rows and columns per block of a matrix product; the fewest rows or columns for a
        product.

    Returns
    -------
    descriptor : int64
        The descriptors and launch tables.
    launches : (launches, 4) int64
        Index of the kernel in ``TABLE_COUNTS``, its kind, position of the launch's table, number of blocks.
        Launches of one level are consecutive.
    parts : int
        Entries of workspace for parts.
    targets : int64
        The tables that are written.
    """
    threads, tile_side, min_side = tile
    level = levels_of(program, table_kind, cliques)
    at, n_messages, parts, n_launches = 0, 0, 0, 0
    descriptor, positions, launch_keys = (
        np.zeros(1 << 12, dtype=np.int64),
        np.zeros(16, dtype=np.int64),
        np.zeros(16, dtype=np.int64),
    )
    blocks, targets = np.zeros(16, dtype=np.int64), np.zeros(16, dtype=np.int64)
    for i in range(cliques.size):
        if nothing_to_make(program, cliques[i], table_kind):
            continue
        tables, count, scope = inputs_and_targets(program, cliques[i], table_kind)
        for target in tables[count:]:
            sizes, strides, eliminated_sizes, eliminated_strides, starts = records(
                program, reverse, scope, tables, count, target
            )
            entries, eliminated = 1, 1
            for size in sizes:
                entries *= size
            for size in eliminated_sizes:
                eliminated *= size
            # Choose the kernel: by its kind, and by the number of tables for which it is compiled.
            kind, kernel = (
                _PER_BLOCK if entries < MAX_BLOCK_ENTRIES and eliminated >= MIN_ELIMINATED else _PER_THREAD,
                kernel_for(count),
            )
            n_records, table_order = count if kernel == len(TABLE_COUNTS) else TABLE_COUNTS[kernel], np.arange(count)
            high_axes, high_tables, low_tables = 0, 0, 0
            if kind == _PER_THREAD:
                axes, high_axes, table_index, high_tables, low_tables = matrix_of(
                    sizes, strides, eliminated_strides, count, min_side
                )
                if axes.size:
                    kind, kernel, n_records, table_order = _MATRIX, 0, count, table_index
                    sizes, strides = sizes[axes], strides[:, axes]
            outer = max(0, eliminated_sizes.size - 1)
            record_length = STRIDES + sizes.size + outer
            length = HEADER + sizes.size + outer + (n_records + 1) * record_length
            # Enlarge the output arrays if they are full.
            if at + length > descriptor.size:
                descriptor = np.concatenate((descriptor, np.zeros(descriptor.size + length, dtype=np.int64)))
            if n_messages == positions.size:
                zeros = np.zeros(n_messages, dtype=np.int64)
                positions, launch_keys = np.concatenate((positions, zeros)), np.concatenate((launch_keys, zeros))
                blocks, targets = np.concatenate((blocks, zeros)), np.concatenate((targets, zeros))
            # Write the header, then the axes, then one record per table.
            descriptor[at + TABLE], descriptor[at + ENTRIES], descriptor[at + AXES] = target, entries, sizes.size
            descriptor[at + ELIMINATED], descriptor[at + INNER] = (
                eliminated,
                eliminated_sizes[eliminated_sizes.size - 1] if eliminated_sizes.size else 1,
            )
            descriptor[at + OUTER_AXES], descriptor[at + TABLES] = outer, count
            n_parts, n_blocks = 1, (entries + threads - 1) // threads
            if kind == _PER_BLOCK:
                # at least 16 eliminated assignments per thread of a part
                n_parts = max(1, min(ENOUGH_BLOCKS // entries, eliminated // (16 * threads)))
                n_blocks = entries * n_parts
            elif kind == _MATRIX:
                high = 1
                for size in sizes[:high_axes]:
                    high *= size
                descriptor[at + HIGH], descriptor[at + HIGH_AXES] = high, high_axes
                descriptor[at + HIGH_TABLES], descriptor[at + LOW_TABLES] = high_tables, low_tables
                n_blocks = -(-high // tile_side) * -(-(entries // high) // tile_side)
            descriptor[at + PARTS], descriptor[at + PART_AT] = n_parts, parts
            parts += n_parts * entries
            record_at = at + HEADER
            descriptor[record_at : record_at + sizes.size] = sizes
            descriptor[record_at + sizes.size : record_at + sizes.size + outer] = eliminated_sizes[:outer]
            record_at += sizes.size + outer
            for r in range(n_records + 1):
                k = table_order[r] if r < count else count
                if count <= r < n_records:  # the neutral table
                    descriptor[record_at + NUMBER], descriptor[record_at + AT] = neutral, neutral_at
                else:
                    descriptor[record_at + NUMBER] = tables[k] if r < n_records else target
                    descriptor[record_at + AT] = starts[k]
                    descriptor[record_at + STEP] = eliminated_strides[k, outer] if eliminated_sizes.size else 0
                    descriptor[record_at + STRIDES : record_at + STRIDES + sizes.size] = strides[k]
                    descriptor[record_at + STRIDES + sizes.size : record_at + record_length] = eliminated_strides[
                        k, :outer
                    ]
                record_at += record_length
            positions[n_messages], targets[n_messages] = at, target
            # one integer: the level, the kind of kernel (3 kinds), and its index in TABLE_COUNTS (below 8)
            launch_keys[n_messages] = (level[i] * 3 + kind) * 8 + kernel
            blocks[n_messages] = n_blocks
            at, n_messages = record_at, n_messages + 1
    # One launch per level and kernel: messages with equal launch keys.
    order = np.argsort(launch_keys[:n_messages], kind="mergesort")
    launches = np.zeros((n_messages, 4), dtype=np.int64)
    output = np.zeros(at + 4 * n_messages + 2, dtype=np.int64)
    output[:at] = descriptor[:at]
    i = 0
    while i < n_messages:
        end = i
        while end < n_messages and launch_keys[order[end]] == launch_keys[order[i]]:
            end += 1
        n, first_block = end - i, 0
        output[at + MESSAGES] = n
        for j in range(n):
            output[at + FIRST_BLOCK + j] = first_block
            output[at + FIRST_BLOCK + n + 1 + j] = positions[order[i + j]]
            first_block += blocks[order[i + j]]
        output[at + FIRST_BLOCK + n] = first_block
        launch_key = launch_keys[order[i]]
        launches[n_launches, 0], launches[n_launches, 1], launches[n_launches, 2], launches[n_launches, 3] = (
            launch_key % 8,
            launch_key // 8 % 3,
            at,
            first_block,
        )
        at, n_launches, i = at + 2 + 2 * n, n_launches + 1, end
    return output[:at], launches[:n_launches], parts, targets[:n_messages]
