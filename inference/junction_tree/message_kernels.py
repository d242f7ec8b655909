# mypy: ignore-errors
"""Messages of a junction tree: join the tables of a clique, project what comes out, without writing the joined table.

A clique's assignments are (h, l), l its trailing variables taken together: a row. h is counted like an odometer; for
each h the tables are added up to one row, which is put to what is asked for. Sums of exponentials are taken relative to
the largest term of each entry, found by a first pass: no entry underflows, whatever the others are.

A message has the entries that agree with the evidence that it was made under, and no others: they follow each other in
its place. One whose separator has a variable of which something else is observed afterwards is always made anew.
"""

import numpy as np

from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.junction_tree.sum_product_kernels import (
    add_row,
    clear_numbers,
    entries_of,
    keep_numbers,
    linearise,
    normalise_numbers,
    sweep_products,
    take_logarithms,
    takes_products,
)
from dmcmc.inference.model.copy_kernels import copy_entries
from dmcmc.inference.runtime.compile import njit

_LOG_SUM = LOG_SUM
_WIDEST = 1 << 10  # entries of a row
_NUMBER, _GATHERED = 0, 1  # of what describe returns as runs
_SHORT = 4  # entries that are not worth a run
MAXIMISE, ADD, PROJECT = 0, 1, 2  # what a sweep does with a row: raise to it, add its exponentials, or its shares
# What is made for a clique: its message to the parent, the parent's to it, tables of variables that are nowhere else,
# tables of variables that its separator has.
UP, DOWN, SHOW, SEPARATOR = range(4)


@njit(nogil=True)
def row_axes(sizes):
    """Return how many trailing axes make a row, and how many entries it has."""
    width, axes = 1, 0
    for j in range(sizes.size - 1, -1, -1):
        if axes > 0 and width * sizes[j] > _WIDEST:
            break
        width *= sizes[j]
        axes += 1
    return axes, width


@njit(nogil=True)
def describe(program, scope, tables):
    """Describe tables inside a scope; of observed variables there is one value.

    Returns
    -------
    high : (k,) int64
        How many values the variables of h have.
    width : int
        Assignments of l.
    at : (tables,) int64
        Where the first entry of each table is.
    strides : (tables, k) int64
        Of h.
    run : (tables,) int64
        How a table varies with l: not at all (0), or how many of its entries follow each other wherever one begins.
    offsets : (tables, width) int64
        Where its entries for every l are, relative to that for l = 0.
    """
    sizes, seen = program.domains[scope], program.observed[scope]
    left = np.where(seen >= 0, 1, sizes)
    axes, width = row_axes(left)
    k, count = sizes.size - axes, tables.size
    at = program.at[tables]
    strides = np.zeros((count, k), dtype=np.int64)
    run = np.zeros(count, dtype=np.int64)
    offsets = np.zeros((count, width), dtype=np.int64)
    step_of = np.zeros(sizes.size, dtype=np.int64)
    for i in range(count):
        t = tables[i]
        packed = is_message(program, t)
        step_of[:] = 0
        step, position = 1, sizes.size - 1
        for s in range(program.scope_start[t + 1] - 1, program.scope_start[t] - 1, -1):
            while scope[position] != program.scope[s]:
                position -= 1
            step_of[position] = step
            at[i] += 0 if packed else max(seen[position], 0) * step
            step *= left[position] if packed else sizes[position]
        copy_entries(step_of[:k], strides[i])
        done, dense = 1, True
        for j in range(sizes.size - 1, k - 1, -1):  # the offsets of l's last axes, repeated for every value of the next
            if left[j] == 1:
                continue
            if step_of[j] > 0 and run[i] == _NUMBER:
                run[i] = _GATHERED
            dense &= step_of[j] == done
            for value in range(1, left[j]):
                for other in range(done):
                    offsets[i, value * done + other] = offsets[i, other] + value * step_of[j]
            done *= left[j]
            if dense and done >= min(_SHORT, width):
                run[i] = done
    return left[:k], width, at, strides, run, offsets


@njit(nogil=True, error_model="numpy")
def add_up(row, arena, count, here, run, offsets, lowest):
    """Write the sum of some tables, clamped, to a row; return whether anything is allowed in it."""
    number = row.dtype.type
    total = number(0)
    for t in range(count):
        if run[t] == _NUMBER:
            total = max(number(total + arena[here[t]]), lowest)
    if total < lowest / 2:
        return False
    row[:] = total
    for t in range(count):
        if run[t] > _GATHERED:
            for first in range(0, row.size, run[t]):
                start = here[t] + offsets[t, first]
                table, part = arena[start : start + run[t]], row[first : first + run[t]]
                for i in range(part.size):
                    part[i] = max(number(part[i] + table[i]), lowest)
        elif run[t] == _GATHERED:
            place = offsets[t]
            for i in range(row.size):
                row[i] = max(number(row[i] + arena[here[t] + place[i]]), lowest)
    return True


@njit(nogil=True, error_model="numpy")
def raise_to(out, at, run, offsets, row):
    """Raise entries to the largest of a row that belongs to them."""
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


@njit(nogil=True, error_model="numpy")
def add_relative(out, top, at, run, offsets, row, lowest):
    """Add exp(row − top) to ``out``; ``top`` has the same places, −∞ where nothing is allowed."""
    if run == _NUMBER:
        total = 0.0
        for i in range(row.size):
            total += np.exp(row[i] - top[at])
        out[at] += total
    else:
        for i in range(row.size):
            if row[i] > lowest:
                out[at + offsets[i]] += np.exp(row[i] - top[at + offsets[i]])


@njit(nogil=True, error_model="numpy")
def sweep(arena, out, top, count, parts, lowest, what, peak, begin, end):
    """Go through rows ``begin`` to ``end`` of a clique; return the largest entry, or ``lowest``.

    Parameters
    ----------
    out : (entries,)
        Like the arena; may be the same.
    top : (entries,)
        Largest terms, for ADD.
    count : int
        The first so many tables of ``parts`` are added up, the others are filled.
    parts : tuple
        As :func:`describe` returns it.
    what : int
        MAXIMISE raises the others to the sums; ADD adds exponentials relative to ``top``, PROJECT to ``peak``.
    """
    high, width, at, strides, run, offsets = parts
    k = high.size
    here, digit = at.copy(), np.zeros(k, dtype=np.int64)
    rest = begin
    for j in range(k - 1, -1, -1):
        digit[j] = rest % high[j]
        rest //= high[j]
        for t in range(at.size):
            here[t] += digit[j] * strides[t, j]
    row = np.empty(width, dtype=arena.dtype)
    shares = np.empty(width if what == PROJECT else 0, dtype=np.float64)
    largest = lowest
    for _ in range(begin, end):
        if add_up(row, arena, count, here, run, offsets, lowest):
            if what == MAXIMISE:
                for i in range(width):
                    largest = max(largest, row[i])
                for t in range(count, at.size):
                    raise_to(out, here[t], run[t], offsets[t], row)
            elif what == ADD:
                for t in range(count, at.size):
                    if run[t] != _NUMBER or top[here[t]] > lowest:
                        add_relative(out, top, here[t], run[t], offsets[t], row, lowest)
            else:
                for i in range(width):
                    shares[i] = np.exp(row[i] - peak)
                for t in range(count, at.size):
                    add_row(out, here[t], run[t], offsets[t], shares)
        for j in range(k - 1, -1, -1):
            digit[j] += 1
            if digit[j] < high[j]:
                for t in range(at.size):
                    here[t] += strides[t, j]
                break
            for t in range(at.size):
                here[t] -= (high[j] - 1) * strides[t, j]
            digit[j] = 0
    return largest


@njit(nogil=True)
def job(program, clique, what):
    """Return what it takes to make something for a clique.

    Returns
    -------
    tables : (k,) int64
        What is added up: the sender's factors and what came in, but from the receiver; both messages of a separator.
        Then what is filled.
    count : int
        How many are added up.
    scope : int64
        What their variables are part of: the sender's, or the separator's.
    """
    cliques = program.parent.size
    factors = program.factor_start[cliques]
    up, down = factors + clique, factors + cliques + clique
    if what == SEPARATOR:
        shown = program.above[program.above_start[clique] : program.above_start[clique + 1]]
        tables = np.empty(2 + shown.size, dtype=np.int64)
        tables[0], tables[1] = up, down
        for i in range(shown.size):
            tables[2 + i] = factors + 2 * cliques + shown[i]
        return tables, 2, scope_of(program, up)
    sender = program.parent[clique] if what == DOWN else clique
    first, last = program.factor_start[sender], program.factor_start[sender + 1]
    begin, end = program.child_start[sender], program.child_start[sender + 1]
    shown = program.shown[program.shown_start[clique] : program.shown_start[clique + 1]]
    tables = np.empty(last - first + end - begin + 2 + shown.size, dtype=np.int64)
    count = 0
    for t in range(first, last):
        tables[count] = t
        count += 1
    for c in range(begin, end):
        if what != DOWN or program.child[c] != clique:
            tables[count] = factors + program.child[c]
            count += 1
    if program.parent[sender] >= 0 and what != UP:
        tables[count] = factors + cliques + sender
        count += 1
    scope = program.clique_scope[program.clique_start[sender] : program.clique_start[sender + 1]]
    if what == SHOW:
        for i in range(shown.size):
            tables[count + i] = factors + 2 * cliques + shown[i]
        return tables[: count + shown.size], count, scope
    tables[count] = up if what == UP else down
    return tables[: count + 1], count, scope


@njit(nogil=True)
def scope_of(program, t):
    """Return a table's variables."""
    return program.scope[program.scope_start[t] : program.scope_start[t + 1]]


@njit(nogil=True)
def is_message(program, t):
    """Return whether a table is a message."""
    factors = program.factor_start[program.parent.size]
    return factors <= t < factors + 2 * program.parent.size


@njit(nogil=True)
def nothing_to_make(program, clique, what):
    """Return whether there is nothing of a kind for a clique."""
    if what == SHOW:
        return program.shown_start[clique] == program.shown_start[clique + 1]
    if what == SEPARATOR:
        return program.above_start[clique] == program.above_start[clique + 1]
    return what == DOWN and program.parent[clique] < 0


@njit(nogil=True, error_model="numpy")
def empty(program, arena, targets, lowest):
    """Fill tables with −∞."""
    for t in targets:
        arena[program.at[t] : program.at[t] + entries_of(program, t)] = lowest


@njit(nogil=True, error_model="numpy")
def clear(program, arena, targets, lowest):
    """Let there be one −∞, whatever was added to it."""
    for t in targets:
        for i in range(program.at[t], program.at[t] + entries_of(program, t)):
            if arena[i] < lowest / 2:
                arena[i] = lowest


@njit(nogil=True, error_model="numpy")
def set_logarithms(out, top, total, lowest):
    """Write the logarithms of sums relative to their largest terms."""
    for i in range(out.size):
        out[i] = top[i] + np.log(total[i]) if top[i] > lowest else lowest


@njit(nogil=True, error_model="numpy")
def normalise(program, arena, targets):
    """Let the entries of each table add up to one; nan if they are all zero."""
    for t in targets:
        out = arena[program.at[t] : program.at[t + 1]]
        total = out.sum()
        for i in range(out.size):
            out[i] = out[i] / total


@njit(nogil=True, error_model="numpy")
def make(program, arena, twins, what, cliques, lowest, operation):
    """Make something for some cliques: children come first on the way up, parents on the way down.

    A message is all that its sender has but from the receiver, projected to the separator; a root's message up is the
    total. Shown are probabilities, or the best with each value. ``twins`` are those of :mod:`.product_kernels`.
    """
    numbers, peak, low, stale = twins
    for clique in cliques:
        if nothing_to_make(program, clique, what):
            continue
        tables, count, scope = job(program, clique, what)
        targets = tables[count:]
        parts = describe(program, scope, tables)
        rows = 1
        for size in parts[0]:
            rows *= size
        if operation == _LOG_SUM and takes_products(low, tables[:count]):
            clear_numbers(program, numbers, targets)
            sweep_products(numbers, count, parts, 0, rows)
            finish_products(program, arena, twins, what, tables[:count], targets)
            continue
        if operation == _LOG_SUM:
            take_logarithms(program, arena, twins, tables[:count])
        empty(program, arena, targets, lowest)
        largest = sweep(arena, arena, arena, count, parts, lowest, MAXIMISE, lowest, 0, rows)
        if operation != _LOG_SUM:
            clear(program, arena, targets, lowest)
        elif what >= SHOW:
            for t in targets:
                arena[program.at[t] : program.at[t + 1]] = 0
            if largest > lowest:
                sweep(arena, arena, arena, count, parts, lowest, PROJECT, largest, 0, rows)
            normalise(program, arena, targets)
        else:
            first = program.at[targets[0]]
            out = arena[first : first + entries_of(program, targets[0])]
            top, total = out.copy(), np.zeros(out.size, dtype=arena.dtype)
            parts[2][count] -= first
            sweep(arena, total, top, count, parts, lowest, ADD, lowest, 0, rows)
            set_logarithms(out, top, total, lowest)
            linearise(program, arena, numbers, peak, low, targets)
            stale[targets[0]] = False


@njit(nogil=True, error_model="numpy")
def finish_products(program, arena, twins, what, tables, targets):
    """Write what sums of products are: probabilities, or a message's twin; of a root's the logarithm, too."""
    if what >= SHOW:
        normalise_numbers(program, arena, twins[0], targets)
    else:
        keep_numbers(program, twins, tables, targets[0])
        if program.at[targets[0] + 1] == program.at[targets[0]] + 1:
            take_logarithms(program, arena, twins, targets)
