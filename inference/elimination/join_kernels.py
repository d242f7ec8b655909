# mypy: ignore-errors
"""Join the tables of a bucket and eliminate its variable, on the CPU, without writing the joined table.

The picture, for a bucket that eliminates x with separator (h, l), l the trailing variables taken together::

    out[h, l] = max over x of   Σ tables(x, h)  +  Σ tables(x, h, l)
                                one number         one row

h = (h1, ..., hk) is counted like an odometer: no division and no remainder per cell. Tables are added up level by
level: level j has the sum, for every x, of all tables that vary with h1..hj at most, and is computed anew only when one
of those turns. So a row costs the tables that vary with hk, the rest is amortised. The loop over l is innermost and
contiguous: the compiler vectorises it.
"""

import numpy as np

from dmcmc.inference.elimination.semirings import LOG_SUM, MAXIMUM
from dmcmc.inference.runtime.compile import njit

# The kernels below compare with these; numba freezes globals.
_MAXIMUM, _LOG_SUM = MAXIMUM, LOG_SUM
MARGINAL = 2  # an operation of :func:`join` beside those two


@njit(nogil=True)
def bucket_strides(program, b):
    """Return the domain sizes of a bucket's separator, and its tables' strides of x and of those (0: not in it)."""
    output = program.at.size - program.variable.size + b
    first, last = program.scope_start[output], program.scope_start[output + 1]
    separator = program.scope[first:last]
    sizes = np.empty(last - first, dtype=np.int64)
    for j in range(last - first):
        sizes[j] = program.domains[separator[j]]
    count = program.input_start[b + 1] - program.input_start[b]
    strides = np.zeros((count, 1 + last - first), dtype=np.int64)
    for i in range(count):
        t = program.inputs[program.input_start[b] + i]
        step, position = 1, last - first - 1
        for s in range(program.scope_start[t + 1] - 1, program.scope_start[t], -1):
            while separator[position] != program.scope[s]:
                position -= 1
            strides[i, 1 + position] = step
            step *= sizes[position]
        strides[i, 0] = step
    return sizes, strides


@njit(nogil=True)
def split_bucket(program, b):
    """Describe a bucket's tables to :func:`join`.

    Returns
    -------
    high : (k,) int64
        Domain sizes of h.
    width : int
        Assignments of l.
    x_size : int
    level : (tables,) int64
        1 + the deepest variable of h that each table varies with, 0 for none. Tables are sorted by it.
    is_row : (tables,) bool
        Whether it varies with l.
    at : (tables,) int64
        Offset in the arena.
    strides : (tables, 1 + k) int64
        Of x, then of h.
    offsets : (tables, width) uint32
        Where a table's entries for every l are, relative to those for l = 0.
    dense : (tables,) bool
        Whether they are next to each other, in order.
    """
    w = program.low[b]
    sizes, all_strides = bucket_strides(program, b)
    k, count = sizes.size - w, all_strides.shape[0]
    depth = np.zeros(count, dtype=np.int64)
    for i in range(count):
        for j in range(k):
            if all_strides[i, 1 + j] > 0:
                depth[i] = j + 1
    level = np.empty(count, dtype=np.int64)
    is_row = np.zeros(count, dtype=np.bool_)
    at = np.empty(count, dtype=np.int64)
    strides = np.empty((count, 1 + k), dtype=np.int64)
    width = 1
    for j in range(k, sizes.size):
        width *= sizes[j]
    offsets = np.zeros((count, width), dtype=np.uint32)
    dense = np.zeros(count, dtype=np.bool_)
    order = np.empty(count, dtype=np.int64)
    to = 0
    for j in range(k + 1):
        for i in range(count):
            if depth[i] == j:
                order[to] = i
                to += 1
    for to in range(count):
        source = order[to]
        level[to] = depth[source]
        at[to] = program.at[program.inputs[program.input_start[b] + source]]
        for j in range(1 + k):
            strides[to, j] = all_strides[source, j]
        dense[to] = w > 0
        done = 1
        for j in range(w - 1, -1, -1):  # the offsets of l's last axes, repeated for every value of the next
            stride = all_strides[source, 1 + k + j]
            is_row[to] |= stride > 0
            dense[to] &= stride == done
            for value in range(1, sizes[k + j]):
                for i in range(done):
                    offsets[to, value * done + i] = offsets[to, i] + np.uint32(value * stride)
            done *= sizes[k + j]
    return sizes[:k], width, program.domains[program.variable[b]], level, is_row, at, strides, offsets, dense


@njit(nogil=True, error_model="numpy", inline="always")
def add_row(to, start, source, at, offsets, dense, lowest):
    """Write ``start`` + a row of a table to ``to``, clamped."""
    number = to.dtype.type
    if dense:
        table = source[at : at + to.size]
        for i in range(to.size):
            to[i] = max(number(start[i] + table[i]), lowest)
    else:
        gather_row(to, start, source, at, offsets, lowest)


@njit(nogil=True, error_model="numpy")
def gather_row(to, start, source, at, offsets, lowest):
    """Write ``start`` + the entries of a table at ``offsets`` to ``to``, clamped. Only on its own it vectorises."""
    table = source[at:]
    for i in range(to.size):
        to[i] = max(to.dtype.type(start[i] + table[offsets[i]]), lowest)


@njit(nogil=True, error_model="numpy")
def join(arena, out, high, width, x_size, level, is_row, at, strides, offsets, dense, lowest, operation, begin, end):
    """Join rows ``begin`` to ``end`` of a bucket: the assignments of h in C order.

    The tables are as :func:`split_bucket` returns them; sums are clamped to ``lowest``, the −∞ of the arithmetic.

    Parameters
    ----------
    out : (rows, width), or (x_size, width) for MARGINAL
    operation
        MAXIMUM and LOG_SUM go over x: a row of ``out`` is filled for each h. MARGINAL goes over h: a row of ``out`` for
        each x is raised to the maximum, and sums far below ``lowest`` / 2 all mean −∞.
    """
    k, count = high.size, at.size
    number = out.dtype.type
    half = lowest / 2
    # first[j]:first[j + 1] are the tables of level j; rows[j] and numbers[j] hold the sum of all up to level j.
    first = np.zeros(k + 2, dtype=np.int64)
    for t in range(count):
        for j in range(level[t] + 1, k + 2):
            first[j] += 1
    rows = np.zeros((k + 1, x_size, width), dtype=out.dtype)
    numbers = np.zeros((k + 1, x_size), dtype=out.dtype)
    below = np.zeros(k + 1, dtype=np.int64)  # the level whose rows count for level j
    for j in range(k + 1):
        below[j] = below[j - 1] if j > 0 else 0
        for t in range(first[j], first[j + 1] if j < k else first[j]):
            if is_row[t]:
                below[j] = j
    nv, simple = 0, True
    last_rows = np.empty(count, dtype=np.int64)
    for t in range(first[k] if k > 0 else count, count):
        if is_row[t]:
            last_rows[nv] = t
            nv += 1
            simple &= dense[t]
    last_rows = last_rows[:nv]
    marginal = operation == MARGINAL
    if nv > (1 if marginal else 2) or not simple:
        nv = 3
    digit = np.zeros(k, dtype=np.int64)
    here = at.copy()
    rest = begin
    for j in range(k - 1, -1, -1):
        digit[j] = rest % high[j]
        rest //= high[j]
        for t in range(count):
            here[t] += digit[j] * strides[t, 1 + j]
    row = np.empty(width, dtype=out.dtype)
    top = np.empty(width, dtype=out.dtype)
    zero = number(0)
    changed = 0
    for h in range(begin, end):
        for j in range(changed, k + 1):
            for x in range(x_size):
                total = numbers[j - 1, x] if j > 0 else zero
                source = rows[below[j - 1], x] if j > 0 else rows[0, x]
                if j == 0:
                    for i in range(width):
                        source[i] = zero
                to = rows[j, x]
                for t in range(first[j], first[j + 1]):
                    if not is_row[t]:
                        total = max(number(total + arena[here[t] + x * strides[t, 0]]), lowest)
                    elif j < k or k == 0:
                        add_row(to, source, arena, here[t] + x * strides[t, 0], offsets[t], dense[t], lowest)
                        source = to
                numbers[j, x] = total
        best = out[0 if marginal else h]
        if not marginal:
            for i in range(width):
                best[i] = lowest
            if nv == 0:
                max_rows(best, rows[below[k]], numbers[k])
        for x in range(0 if nv == 0 and not marginal else x_size):
            shared = numbers[k, x]
            if shared < half:
                continue  # forbidden for every l
            base = rows[below[k], x]
            if marginal:
                best = out[x]
            if nv == 0:
                for i in range(width):
                    best[i] = max(best[i], number(base[i] + shared))
            elif nv == 1:
                place = here[last_rows[0]] + x * strides[last_rows[0], 0]
                left = arena[place : place + width]
                for i in range(width):
                    best[i] = max(best[i], number(number(base[i] + shared) + left[i]))
            elif nv == 2:
                place = here[last_rows[0]] + x * strides[last_rows[0], 0]
                left = arena[place : place + width]
                place = here[last_rows[1]] + x * strides[last_rows[1], 0]
                right = arena[place : place + width]
                for i in range(width):
                    best[i] = max(best[i], number(number(number(base[i] + shared) + left[i]) + right[i]))
            else:
                sum_row(row, base, shared, arena, x, last_rows, here, strides, offsets, dense, lowest)
                for i in range(width):
                    best[i] = max(best[i], row[i])
        if operation == _LOG_SUM:  # the maximum is known: add up what is relative to it
            for i in range(width):
                top[i] = best[i]
                best[i] = zero
            for x in range(x_size):
                base = rows[below[k], x]
                sum_row(row, base, numbers[k, x], arena, x, last_rows, here, strides, offsets, dense, lowest)
                for i in range(width):
                    if top[i] > lowest:
                        best[i] += number(np.exp(row[i] - top[i]))
            for i in range(width):
                best[i] = number(top[i] + np.log(best[i])) if top[i] > lowest else lowest
        if not marginal:
            for i in range(width):
                best[i] = lowest if best[i] < half else best[i]  # one −∞, whatever was added to it
        changed = k
        for j in range(k - 1, -1, -1):
            digit[j] += 1
            step = 1
            if digit[j] == high[j]:
                step = 1 - high[j]
                digit[j] = 0
            for t in range(first[j + 1], count):
                here[t] += step * strides[t, 1 + j]
            if step == 1:
                changed = j + 1
                break


@njit(nogil=True, error_model="numpy", inline="always")
def max_rows(best, rows, numbers):
    """Raise ``best`` to the maximum over x of ``rows[x]`` + ``numbers[x]``; four at a time, to touch ``best`` less."""
    number = best.dtype.type
    x = 0
    while x + 4 <= numbers.size:
        a, b, c, d = rows[x], rows[x + 1], rows[x + 2], rows[x + 3]
        na, nb, nc, nd = numbers[x], numbers[x + 1], numbers[x + 2], numbers[x + 3]
        for i in range(best.size):
            ab = max(number(a[i] + na), number(b[i] + nb))
            cd = max(number(c[i] + nc), number(d[i] + nd))
            best[i] = max(best[i], max(ab, cd))
        x += 4
    while x < numbers.size:
        a, na = rows[x], numbers[x]
        for i in range(best.size):
            best[i] = max(best[i], number(a[i] + na))
        x += 1


@njit(nogil=True, error_model="numpy", inline="always")
def sum_row(row, base, shared, arena, x, tables, here, strides, offsets, dense, lowest):
    """Write ``base`` + ``shared`` + the rows of some tables to ``row``, clamped."""
    for i in range(row.size):
        row[i] = max(row.dtype.type(base[i] + shared), lowest)
    for t in tables:
        add_row(row, row, arena, here[t] + x * strides[t, 0], offsets[t], dense[t], lowest)


@njit(nogil=True)
def run_buckets(program, arena, first, last, lowest, operation):
    """Run buckets ``first`` to ``last`` one after the other."""
    for b in range(first, last):
        output = program.at.size - program.variable.size + b
        size = program.cells[b] // program.domains[program.variable[b]]
        parts = split_bucket(program, b)
        width = parts[1]
        at = program.at[output]
        out = arena[at : at + size].reshape(size // width, width)
        join(arena, out, *parts, lowest, operation, 0, size // width)
