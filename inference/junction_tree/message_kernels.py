# mypy: ignore-errors
"""Messages of a junction tree on the CPU: join the tables of a clique and project, without writing the joined table.

The messages are those of Shenoy and Shafer. An assignment of a clique is (h, l), where l are its trailing variables;
the entries of all l for one h form a row. h is enumerated like an odometer. For each h, the tables are added to one
row, which is projected to the target tables. Sums of exponentials are computed relative to the largest term of each
entry, which a first pass finds; hence no entry underflows.

A message stores only the entries that agree with the evidence under which it was made, contiguously at its offset. If
later another value of a variable of its separator is observed, the message is always recomputed.

Shared arguments
----------------
program
    A :class:`dmcmc.inference.junction_tree.cliques.CliqueTreeProgram`: the tree as flat arrays. Tables
    are numbered: factors, upward messages, downward messages, tables of single variables.
arena : (entries,)
    The entries of all tables, in the dtype of the arithmetic; table t begins at ``program.at[t]``.
lowest
    The −∞ of the arithmetic; sums are clamped to it.
linear_tables
    Linear-scale copies, see :mod:`dmcmc.inference.junction_tree.sum_product_kernels`.
table_kind : int
    The result for a clique: ``UP``, ``DOWN``, ``MARGINAL`` or ``SEPARATOR_MARGINAL``.
tables, targets : int64
    Numbers of tables.
row : (width,)
    The entries of the joined table for the current h.
"""

import math

import numpy as np

from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.junction_tree.sum_product_kernels import (
    add_row,
    clear_numbers,
    entries_of,
    go_to_next_row,
    go_to_row,
    linearise,
    normalise_numbers,
    products_are_safe,
    store_message,
    sweep_products,
    to_logarithms,
)
from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.tuning import MAX_ROW_ENTRIES, MIN_RUN

_LOG_SUM = LOG_SUM
# Codes of ``run``: the table does not depend on l; its entries must be gathered. Larger values are lengths of runs.
_NUMBER = 0
_GATHERED = 1
# Modes of a sweep: project the row's maxima, add exponentials relative to a table, or add them relative to one number.
MAXIMISE = 0
ADD = 1
PROJECT = 2
# Kinds of tables that are computed for a clique: its message to the parent; the parent's message to it; tables of the
# variables that are assigned to the clique; tables of the variables that are assigned to the separator above it.
UP, DOWN, MARGINAL, SEPARATOR_MARGINAL = range(4)


@njit(nogil=True, allocates=False)
def row_axes(sizes):
    """Return how many trailing axes form a row, and the number of its entries.

    ``sizes`` (axes,) int64 are the numbers of values. At least one axis is taken, however large it is.
    """
    width, axes = 1, 0
    for j in range(sizes.size - 1, -1, -1):
        if axes > 0 and width * sizes[j] > MAX_ROW_ENTRIES:
            break
        width *= sizes[j]
        axes += 1
    return axes, width


@njit(nogil=True)
def describe_tables(program, scope, tables):
    """Describe tables whose scopes are subsets of ``scope``; an observed variable has a single value.

    Returns
    -------
    high : (k,) int64
        Numbers of values of the variables of h.
    width : int
        Number of assignments of l.
    at : (tables,) int64
        Offset of the first entry of each table.
    strides : (tables, k) int64
        Strides of the variables of h.
    run : (tables,) int64
        How a table depends on l: 0 not at all; 1 gathered; otherwise the length of its contiguous runs.
    offsets : (tables, width) int64
        Offset of the entry for each l, relative to that for l = 0.
    """
    sizes, observed = program.domains[scope], program.observed[scope]
    n_values = np.where(observed >= 0, 1, sizes)
    axes, width = row_axes(n_values)
    k, count = sizes.size - axes, tables.size
    at = program.at[tables]
    strides = np.zeros((count, k), dtype=np.int64)
    run = np.zeros(count, dtype=np.int64)
    offsets = np.zeros((count, width), dtype=np.int64)
    stride_of = np.zeros(sizes.size, dtype=np.int64)
    for i in range(count):
        t = tables[i]
        is_packed = is_message(program, t)
        stride_of[:] = 0
        stride, position = 1, sizes.size - 1
        for s in range(program.scope_start[t + 1] - 1, program.scope_start[t] - 1, -1):
            while scope[position] != program.scope[s]:
                position -= 1
            stride_of[position] = stride
            at[i] += 0 if is_packed else max(observed[position], 0) * stride
            stride *= n_values[position] if is_packed else sizes[position]
        copy_entries(stride_of[:k], strides[i])
        n_assignments, is_contiguous = 1, True
        # offsets over the last axes of l, repeated for every value of the next axis
        for j in range(sizes.size - 1, k - 1, -1):
            if n_values[j] == 1:
                continue
            if stride_of[j] > 0 and run[i] == _NUMBER:
                run[i] = _GATHERED
            is_contiguous &= stride_of[j] == n_assignments
            for value in range(1, n_values[j]):
                for assignment in range(n_assignments):
                    offsets[i, value * n_assignments + assignment] = offsets[i, assignment] + value * stride_of[j]
            n_assignments *= n_values[j]
            if is_contiguous and n_assignments >= min(MIN_RUN, width):
                run[i] = n_assignments
    return n_values[:k], width, at, strides, run, offsets


@njit(nogil=True, error_model="numpy")
def sum_tables(row, arena, count, position, run, offsets, lowest):
    """Write the sum of the first ``count`` tables, clamped, to a row; return False if every entry is surely forbidden.

    The row is not written then. ``position`` (tables,) int64 holds the tables' offsets; ``run`` and ``offsets`` are as
    :func:`describe_tables` returns them.
    """
    number = row.dtype.type
    total = number(0)
    for t in range(count):
        if run[t] == _NUMBER:
            total = max(number(total + arena[position[t]]), lowest)
    if total < lowest / 2:
        return False
    row[:] = total
    for t in range(count):
        if run[t] > _GATHERED:
            for first in range(0, row.size, run[t]):
                start = position[t] + offsets[t, first]
                table, part = arena[start : start + run[t]], row[first : first + run[t]]
                for i in range(part.size):
                    part[i] = max(number(part[i] + table[i]), lowest)
        elif run[t] == _GATHERED:
            table_offsets = offsets[t]
            for i in range(row.size):
                row[i] = max(number(row[i] + arena[position[t] + table_offsets[i]]), lowest)
    return True


@njit(nogil=True, error_model="numpy", allocates=False)
def maximise_into(out, at, run, offsets, row):
    """Raise the entries of a target table to the maximum of the row entries that project to them.

    ``at`` is the target's offset in ``out``; ``run`` and ``offsets`` describe it.
    """
    if run == _NUMBER:
        for i in range(row.size):
            out[at] = max(out[at], row[i])
    elif run > _GATHERED:
        for first in range(0, row.size, run):
            start = at + offsets[first]
            to, part = out[start : start + run], row[first : first + run]
            for i in range(part.size):
                to[i] = max(to[i], part[i])
    else:
        for i in range(row.size):
            out[at + offsets[i]] = max(out[at + offsets[i]], row[i])


@njit(nogil=True, error_model="numpy", allocates=False)
def add_relative(out, top, at, run, offsets, row, lowest):
    """Add exp(row − top) to the entries of a target table; ``top`` has the same layout, −∞ where nothing is allowed.

    ``at`` is the target's offset in ``out`` and ``top``; ``run`` and ``offsets`` describe it.
    """
    if run == _NUMBER:
        total = 0.0
        for i in range(row.size):
            total += math.exp(row[i] - top[at])
        out[at] += total
    else:
        for i in range(row.size):
            if row[i] > lowest:
                out[at + offsets[i]] += math.exp(row[i] - top[at + offsets[i]])


@njit(nogil=True, error_model="numpy")
def sweep(arena, out, top, count, parts, lowest, mode, peak, begin, end):
    """Process rows ``begin`` to ``end`` − 1 of a clique; return the largest entry, or ``lowest``.

    Parameters
    ----------
    out : (entries,)
        The target tables, in the layout of the arena; may be the arena.
    top : (entries,)
        Largest terms, for ``ADD``, in the layout of the arena.
    count : int
        The first ``count`` tables of ``parts`` are added, the others are targets.
    parts : tuple
        From :func:`describe_tables`.
    mode : int
        ``MAXIMISE`` takes maxima of the sums; ``ADD`` adds exponentials relative to ``top``, ``PROJECT``
        relative to ``peak``.
    peak
        The largest entry of the clique, for ``PROJECT``.
    """
    high, width, at, strides, run, offsets = parts
    position, digit = at.copy(), np.zeros(high.size, dtype=np.int64)
    go_to_row(begin, high, strides, position, digit)
    row = np.empty(width, dtype=arena.dtype)
    exponentials = np.empty(width if mode == PROJECT else 0, dtype=np.float64)
    largest = lowest
    for _ in range(begin, end):
        if sum_tables(row, arena, count, position, run, offsets, lowest):
            if mode == MAXIMISE:
                for i in range(width):
                    largest = max(largest, row[i])
                for t in range(count, at.size):
                    maximise_into(out, position[t], run[t], offsets[t], row)
            elif mode == ADD:
                for t in range(count, at.size):
                    if run[t] != _NUMBER or top[position[t]] > lowest:
                        add_relative(out, top, position[t], run[t], offsets[t], row, lowest)
            else:
                for i in range(width):
                    exponentials[i] = math.exp(row[i] - peak)
                for t in range(count, at.size):
                    add_row(out, position[t], run[t], offsets[t], exponentials)
        go_to_next_row(high, strides, position, digit)
    return largest


@njit(nogil=True)
def inputs_and_targets(program, clique, table_kind):
    """Return the tables that are joined and written to compute a kind of table for a clique.

    Returns
    -------
    tables : (k,) int64
        Inputs: the sender's factors and the messages it received, except that of the receiver; or both messages
        of a separator. Then the targets.
    count : int
        Number of inputs.
    scope : int64
        Variables of the sender or of the separator, which contain the scopes of all these tables.
    """
    cliques = program.parent.size
    factors = program.factor_start[cliques]
    up, down = factors + clique, factors + cliques + clique
    if table_kind == SEPARATOR_MARGINAL:
        marginals = program.separator_marginals[
            program.separator_marginals_start[clique] : program.separator_marginals_start[clique + 1]
        ]
        tables = np.empty(2 + marginals.size, dtype=np.int64)
        tables[0], tables[1] = up, down
        for i in range(marginals.size):
            tables[2 + i] = factors + 2 * cliques + marginals[i]
        return tables, 2, scope_of(program, up)
    sender = program.parent[clique] if table_kind == DOWN else clique
    first, last = program.factor_start[sender], program.factor_start[sender + 1]
    begin, end = program.child_start[sender], program.child_start[sender + 1]
    marginals = program.marginals[program.marginals_start[clique] : program.marginals_start[clique + 1]]
    tables = np.empty(last - first + end - begin + 2 + marginals.size, dtype=np.int64)
    count = 0
    for t in range(first, last):
        tables[count] = t
        count += 1
    for c in range(begin, end):
        if table_kind != DOWN or program.child[c] != clique:
            tables[count] = factors + program.child[c]
            count += 1
    if program.parent[sender] >= 0 and table_kind != UP:
        tables[count] = factors + cliques + sender
        count += 1
    scope = program.clique_scope[program.clique_start[sender] : program.clique_start[sender + 1]]
    if table_kind == MARGINAL:
        for i in range(marginals.size):
            tables[count + i] = factors + 2 * cliques + marginals[i]
        return tables[: count + marginals.size], count, scope
    tables[count] = up if table_kind == UP else down
    return tables[: count + 1], count, scope


@njit(nogil=True)
def scope_of(program, t):
    """Return the variables of a table."""
    return program.scope[program.scope_start[t] : program.scope_start[t + 1]]


@njit(nogil=True, allocates=False)
def is_message(program, t):
    """Return whether a table is a message."""
    factors = program.factor_start[program.parent.size]
    return factors <= t < factors + 2 * program.parent.size


@njit(nogil=True, allocates=False)
def nothing_to_make(program, clique, table_kind):
    """Return whether a clique has no table of this kind: no assigned variables, or no parent."""
    if table_kind == MARGINAL:
        return program.marginals_start[clique] == program.marginals_start[clique + 1]
    if table_kind == SEPARATOR_MARGINAL:
        return program.separator_marginals_start[clique] == program.separator_marginals_start[clique + 1]
    return table_kind == DOWN and program.parent[clique] < 0


@njit(nogil=True, error_model="numpy")
def fill_lowest(program, arena, targets, lowest):
    """Fill tables with −∞."""
    for t in targets:
        arena[program.at[t] : program.at[t] + entries_of(program, t)] = lowest


@njit(nogil=True, error_model="numpy", allocates=False)
def normalise_lowest(program, arena, targets, lowest):
    """Replace sums that contain −∞ by −∞ itself."""
    for t in targets:
        for i in range(program.at[t], program.at[t] + entries_of(program, t)):
            if arena[i] < lowest / 2:
                arena[i] = lowest


@njit(nogil=True, error_model="numpy", allocates=False)
def set_logarithms(out, top, total, lowest):
    """Write the logarithms of sums that are relative to their largest terms ``top``."""
    for i in range(out.size):
        out[i] = top[i] + math.log(total[i]) if top[i] > lowest else lowest


@njit(nogil=True, error_model="numpy", allocates=False)
def normalise(program, arena, targets):
    """Normalise the entries of each table to sum one; NaN if all are zero."""
    for t in targets:
        out = arena[program.at[t] : program.at[t + 1]]
        total = 0.0
        for i in range(out.size):  # out.sum() adds in another order if it is interpreted
            total += out[i]
        for i in range(out.size):
            out[i] = out[i] / total


@njit(nogil=True, error_model="numpy")
def make_messages(program, arena, linear_tables, table_kind, cliques, lowest, operation):
    """Compute tables of one kind for some cliques, in this order: upwards children first, downwards parents first.

    A message is the product of the sender's factors and all messages it received except the receiver's,
    projected to the separator (Shenoy-Shafer). A root's upward message is its total. Marginals are
    probabilities, or max-marginals. ``operation`` is a code of :mod:`dmcmc.inference.elimination.semirings`:
    max-plus or log-sum.
    """
    numbers, peak, low, stale = linear_tables
    for clique in cliques:
        if nothing_to_make(program, clique, table_kind):
            continue
        tables, count, scope = inputs_and_targets(program, clique, table_kind)
        targets = tables[count:]
        parts = describe_tables(program, scope, tables)
        rows = 1
        for size in parts[0]:
            rows *= size
        if operation == _LOG_SUM and products_are_safe(low, tables[:count]):
            clear_numbers(program, numbers, targets)
            sweep_products(numbers, count, parts, 0, rows)
            finish_products(program, arena, linear_tables, table_kind, tables[:count], targets)
            continue
        if operation == _LOG_SUM:
            to_logarithms(program, arena, linear_tables, tables[:count])
        fill_lowest(program, arena, targets, lowest)
        largest = sweep(arena, arena, arena, count, parts, lowest, MAXIMISE, lowest, 0, rows)
        if operation != _LOG_SUM:
            normalise_lowest(program, arena, targets, lowest)
        elif table_kind >= MARGINAL:
            for t in targets:
                arena[program.at[t] : program.at[t + 1]] = 0
            if largest > lowest:
                sweep(arena, arena, arena, count, parts, lowest, PROJECT, largest, 0, rows)
            normalise(program, arena, targets)
        else:
            first = program.at[targets[0]]
            out = arena[first : first + entries_of(program, targets[0])]
            top, total = out.copy(), np.zeros(out.size, dtype=arena.dtype)
            # parts[2] holds the tables' offsets; that of the target becomes relative to ``total`` and ``top``
            parts[2][count] -= first
            sweep(arena, total, top, count, parts, lowest, ADD, lowest, 0, rows)
            set_logarithms(out, top, total, lowest)
            linearise(program, arena, numbers, peak, low, targets)
            stale[targets[0]] = False


@njit(nogil=True, error_model="numpy", allocates=False)
def finish_products(program, arena, linear_tables, table_kind, tables, targets):
    """Store linear-scale sums: probabilities, or a message, with its logarithm if it is a root's total."""
    if table_kind >= MARGINAL:
        normalise_numbers(program, arena, linear_tables[0], targets)
    else:
        store_message(program, linear_tables, tables, targets[0])
        if program.at[targets[0] + 1] == program.at[targets[0]] + 1:
            to_logarithms(program, arena, linear_tables, targets)
