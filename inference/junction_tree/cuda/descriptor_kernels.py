# mypy: ignore-errors
"""The words of :mod:`.words`: runs on the host."""

import numpy as np

from dmcmc.inference.elimination.cuda.descriptor_kernels import merge_axes
from dmcmc.inference.junction_tree.cuda import descriptors as w
from dmcmc.inference.junction_tree.message_kernels import DOWN, UP, job, nothing_to_make
from dmcmc.inference.runtime.compile import njit

WIDTHS = (2, 3, 4, 6, 10, 24)  # tables that a kernel joins
WIDE, ALONE, MATRIX = range(3)  # kinds of kernels
MATRIX_TABLES = 10  # that a matrix product takes
_FEW, _LONG, _MOST_PARTS = 1 << 15, 64, 512
_WIDE, _ALONE, _MATRIX, _MATRIX_TABLES = WIDE, ALONE, MATRIX, MATRIX_TABLES
_UP, _DOWN = UP, DOWN


@njit(nogil=True)
def transposed(program, position):
    """Return which messages are kept with their axes in the opposite order, (tables,).

    What a receiver eliminates should come first in a table, so that neighbouring threads find neighbouring entries. It
    goes on in the direction of the message: to later variables if what the sender has eliminated is earlier.
    ``position`` is that in the elimination order.
    """
    cliques = program.parent.size
    factors = program.factor_start[cliques]
    turned = np.zeros(program.at.size - 1, dtype=np.bool_)
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
            gone, m = 0.0, 0
            for s in range(program.clique_start[sender], program.clique_start[sender + 1]):
                if not inside[program.clique_scope[s]]:
                    gone += position[program.clique_scope[s]]
                    m += 1
            turned[up + k * cliques] = n > 0 and m > 0 and gone / m > mean / n
    return turned


@njit(nogil=True)
def width_of(tables):
    """Return the smallest kernel for so many tables; the number of kernels if there is none."""
    k = 0
    while k < len(WIDTHS) and WIDTHS[k] < tables:
        k += 1
    return k


@njit(nogil=True)
def levels_of(program, what, cliques):
    """Return which messages need nothing of each other: those of one level, (cliques,)."""
    level = np.full(program.parent.size, -1, dtype=np.int64)
    out = np.zeros(cliques.size, dtype=np.int64)
    for i in range(cliques.size):
        c, most = cliques[i], -1
        if what == _UP:
            for k in range(program.child_start[c], program.child_start[c + 1]):
                most = max(most, level[program.child[k]])
        elif what == _DOWN and program.parent[c] >= 0:
            most = level[program.parent[c]]
        level[c] = out[i] = most + 1
    return out


@njit(nogil=True)
def records(program, turned, scope, tables, count, target):
    """Return sizes and strides of what is made, and of what is eliminated, for a message.

    Returns
    -------
    sizes, strides : (axes,), (count + 1, axes) int64
        The axes of ``target``, the last of ``tables`` that strides are for.
    gone, gone_strides
        Those that are eliminated.
    at : (count + 1,) int64
    """
    n = scope.size
    place = np.full(program.domains.size, -1, dtype=np.int64)
    for i in range(n):
        place[scope[i]] = i
    step_of = np.zeros((count + 1, n), dtype=np.int64)
    at = np.zeros(count + 1, dtype=np.int64)
    for i in range(count + 1):
        t = tables[i] if i < count else target
        at[i] = program.at[t]
        step, first, last = 1, program.scope_start[t], program.scope_start[t + 1]
        for s in range(last - first):
            v = program.scope[first + s] if turned[t] else program.scope[last - 1 - s]
            step_of[i, place[v]] = step
            at[i] += max(program.observed[v], 0) * step
            step *= program.domains[v]
    kept = np.zeros(n, dtype=np.int64)
    for i in range(n):
        if program.observed[scope[i]] < 0 and program.domains[scope[i]] > 1:
            kept[i] = 1 if step_of[count, i] > 0 else 2
    ours, theirs = np.flatnonzero(kept == 1), np.flatnonzero(kept == 2)
    sizes, strides = merge_axes(program.domains[scope[ours]], step_of[:, ours].copy())
    gone, gone_strides = merge_axes(program.domains[scope[theirs]], step_of[:, theirs].copy())
    return sizes, strides, gone, gone_strides, at


@njit(nogil=True)
def matrix_of(sizes, strides, gone_strides, count, least):
    """Say how a message is a matrix product: no table joins its rows and columns while it is summed.

    Returns
    -------
    axes : int64
        Those of rows, then those of columns, each as they lie in memory; the innermost is of the columns. Empty where
        rows or columns would be fewer than ``least``.
    high_axes : int
    tables : int64
        Those of rows, of columns, and those that do not vary with what is eliminated.
    high, low : int
        So many of the first, so many of the second.
    """
    none, n = np.zeros(0, dtype=np.int64), sizes.size
    if n < 2 or count > _MATRIX_TABLES:
        return none, 0, none, 0, 0
    group, gone = np.arange(n), np.zeros(count, dtype=np.bool_)
    for t in range(count):
        for j in range(gone_strides.shape[1]):
            gone[t] |= gone_strides[t, j] > 0
        first = -1
        for j in range(n if gone[t] else 0):
            if strides[t, j] > 0 and first >= 0:
                other = group[j]
                for i in range(n):
                    if group[i] == other:
                        group[i] = group[first]
            elif strides[t, j] > 0:
                first = j
    inside = np.argsort(-strides[count], kind="mergesort")
    column, rows = group == group[inside[n - 1]], 1
    entries = np.ones(n, dtype=np.int64)
    for j in range(n):
        entries[group[j]] *= sizes[j]
    columns = entries[group[inside[n - 1]]]
    for j in np.argsort(-entries, kind="mergesort"):  # the largest first, each to where there is less
        if group[j] == j and j != group[inside[n - 1]]:
            if columns < rows:
                column |= group == j
                columns *= entries[j]
            else:
                rows *= entries[j]
    if rows < least or columns < least:
        return none, 0, none, 0, 0
    axes, high_axes = np.empty(n, dtype=np.int64), 0
    for turn in range(2):
        for j in inside:
            if column[j] == (turn == 1):
                axes[high_axes] = j
                high_axes += 1
    high_axes = n - column.sum()
    kind = np.full(count, 2)
    for t in range(count):
        if gone[t]:
            kind[t] = 0
            for j in range(n):
                if strides[t, j] > 0 and column[j]:
                    kind[t] = 1
    return axes, high_axes, np.argsort(kind, kind="mergesort"), (kind == 0).sum(), (kind == 1).sum()


@njit(nogil=True)
def describe_messages(program, turned, what, cliques, one, one_at, tile):
    """Describe what is made for some cliques.

    Parameters
    ----------
    turned
        From :func:`transposed`.
    one, one_at
        A table of one entry that changes nothing, and where it is.
    tile
        Threads of a block; rows and columns of its part of a matrix product; the fewest that are worth one.

    Returns
    -------
    words : int64
    launches : (launches, 4) int64
        The kernel's place in WIDTHS, its kind, place of the launch's table, blocks. Those of one level follow each
        other.
    parts : int
        Entries of scratch for parts.
    targets : int64
        What is made.
    """
    threads, side, least = tile
    level = levels_of(program, what, cliques)
    at, jobs, parts, made = 0, 0, 0, 0
    words, where, keys = np.zeros(1 << 12, dtype=np.int64), np.zeros(16, dtype=np.int64), np.zeros(16, dtype=np.int64)
    blocks, targets = np.zeros(16, dtype=np.int64), np.zeros(16, dtype=np.int64)
    for i in range(cliques.size):
        if nothing_to_make(program, cliques[i], what):
            continue
        tables, count, scope = job(program, cliques[i], what)
        for target in tables[count:]:
            sizes, strides, gone, gone_strides, starts = records(program, turned, scope, tables, count, target)
            entries, eliminated = 1, 1
            for size in sizes:
                entries *= size
            for size in gone:
                eliminated *= size
            kind, width = _ALONE if entries < _FEW and eliminated >= _LONG else _WIDE, width_of(count)
            rows, use = count if width == len(WIDTHS) else WIDTHS[width], np.arange(count)
            high_axes, high_tables, low_tables = 0, 0, 0
            if kind == _WIDE:
                axes, high_axes, ours, high_tables, low_tables = matrix_of(sizes, strides, gone_strides, count, least)
                if axes.size:
                    kind, width, rows, use = _MATRIX, 0, count, ours
                    sizes, strides = sizes[axes], strides[:, axes]
            outer = max(0, gone.size - 1)
            record = w.STRIDES + sizes.size + outer
            need = w.HEADER + sizes.size + outer + (rows + 1) * record
            if at + need > words.size:
                words = np.concatenate((words, np.zeros(words.size + need, dtype=np.int64)))
            if jobs == where.size:
                more = np.zeros(jobs, dtype=np.int64)
                where, keys = np.concatenate((where, more)), np.concatenate((keys, more))
                blocks, targets = np.concatenate((blocks, more)), np.concatenate((targets, more))
            words[at + w.TABLE], words[at + w.ENTRIES], words[at + w.AXES] = target, entries, sizes.size
            words[at + w.ELIMINATED], words[at + w.INNER] = eliminated, gone[gone.size - 1] if gone.size else 1
            words[at + w.OUTER_AXES], words[at + w.TABLES] = outer, count
            cut, blocks_of = 1, (entries + threads - 1) // threads
            if kind == _ALONE:
                cut = max(1, min(_MOST_PARTS // entries, eliminated // (16 * threads)))
                blocks_of = entries * cut
            elif kind == _MATRIX:
                high = 1
                for size in sizes[:high_axes]:
                    high *= size
                words[at + w.HIGH], words[at + w.HIGH_AXES] = high, high_axes
                words[at + w.HIGH_TABLES], words[at + w.LOW_TABLES] = high_tables, low_tables
                blocks_of = -(-high // side) * -(-(entries // high) // side)
            words[at + w.PARTS], words[at + w.PART_AT] = cut, parts
            parts += cut * entries
            here = at + w.HEADER
            words[here : here + sizes.size] = sizes
            words[here + sizes.size : here + sizes.size + outer] = gone[:outer]
            here += sizes.size + outer
            for r in range(rows + 1):
                k = use[r] if r < count else count
                if count <= r < rows:  # changes nothing
                    words[here + w.NUMBER], words[here + w.AT] = one, one_at
                else:
                    words[here + w.NUMBER] = tables[k] if r < rows else target
                    words[here + w.AT] = starts[k]
                    words[here + w.STEP] = gone_strides[k, outer] if gone.size else 0
                    words[here + w.STRIDES : here + w.STRIDES + sizes.size] = strides[k]
                    words[here + w.STRIDES + sizes.size : here + record] = gone_strides[k, :outer]
                here += record
            where[jobs], targets[jobs] = at, target
            keys[jobs] = (level[i] * 3 + kind) * 8 + width
            blocks[jobs] = blocks_of
            at, jobs = here, jobs + 1
    order = np.argsort(keys[:jobs], kind="mergesort")
    launches = np.zeros((jobs, 4), dtype=np.int64)
    tables_of = np.zeros(at + 4 * jobs + 2, dtype=np.int64)
    tables_of[:at] = words[:at]
    i = 0
    while i < jobs:
        end = i
        while end < jobs and keys[order[end]] == keys[order[i]]:
            end += 1
        n, first = end - i, 0
        tables_of[at + w.JOBS] = n
        for j in range(n):
            tables_of[at + w.FIRST_BLOCK + j] = first
            tables_of[at + w.FIRST_BLOCK + n + 1 + j] = where[order[i + j]]
            first += blocks[order[i + j]]
        tables_of[at + w.FIRST_BLOCK + n] = first
        key = keys[order[i]]
        launches[made, 0], launches[made, 1], launches[made, 2], launches[made, 3] = key % 8, key // 8 % 3, at, first
        at, made, i = at + 2 + 2 * n, made + 1, end
    return tables_of[:at], launches[:made], parts, targets[:jobs]
