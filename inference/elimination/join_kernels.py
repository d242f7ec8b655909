# mypy: ignore-errors
"""Join the tables of a bucket and eliminate its variable on the CPU, without writing the joined table to memory.

The separator of a bucket that eliminates x is split into leading variables h and trailing variables l::

    out[h, l] = max over x of   Σ tables(x, h)  +  Σ tables(x, h, l)
                                one number         one row

h = (h1, ..., hk) is enumerated like an odometer: no division and no remainder per cell. Tables are added level by
level: level j holds, for every x, the sum of all tables that depend on no leading variable after hj. It is recomputed
only when one of h1..hj changes. A row therefore costs only the tables that vary with hk. The loop over l is the
innermost one and contiguous, so that the compiler vectorises it.

Shared arguments
----------------
program
    A :class:`dmcmc.inference.elimination.plan.BucketProgram`: the plan as flat arrays. Tables are numbered: first the
    inputs, then one message per bucket, so that bucket b writes table ``program.at.size − program.variable.size + b``.
arena : (entries,)
    All tables of the plan, in the dtype of the arithmetic; table t begins at ``program.at[t]``.
lowest
    The −∞ of the arithmetic; sums are clamped to it.
operation
    The ⊕ of the semiring: ``MAXIMUM``, or ``LOG_SUM`` for log Σ exp.
"""

import math

import numpy as np

from dmcmc.inference.elimination.semirings import LOG_SUM
from dmcmc.inference.runtime.compile import njit

MAX_MARGINAL = 2  # a third operation of :func:`join`: max-marginals of x instead of a message


@njit(nogil=True)
def bucket_strides(program, b):
    """Return the domain sizes of a bucket's separator and the strides of its tables.

    Returns
    -------
    sizes : (axes,) int64
        Domain sizes of the separator.
    strides : (tables, 1 + axes) int64
        Stride of x, then of each separator variable; 0 if the table does not depend on it.
    """
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
    """Describe a bucket's tables for :func:`join`.

    Returns
    -------
    high : (k,) int64
        Domain sizes of h.
    width : int
        Number of assignments of l.
    x_size : int
        Domain size of x.
    level : (tables,) int64
        1 + index of the last variable of h that each table depends on, 0 for none. Tables are sorted by it.
    is_row : (tables,) bool
        Whether the table depends on l.
    at : (tables,) int64
        Offset of the table in the arena.
    strides : (tables, 1 + k) int64
        Stride of x, then of each variable of h.
    offsets : (tables, width) uint32
        Offset of a table's entry for each l, relative to the entry for l = 0.
    dense : (tables,) bool
        Whether the entries of a row are contiguous and in order.
    """
    n_low_axes = program.row_axes[b]
    sizes, all_strides = bucket_strides(program, b)
    k, count = sizes.size - n_low_axes, all_strides.shape[0]
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
        dense[to] = n_low_axes > 0
        n_filled = 1
        # offsets over the last axes of l, repeated for every value of the next axis
        for j in range(n_low_axes - 1, -1, -1):
            stride = all_strides[source, 1 + k + j]
            is_row[to] |= stride > 0
            dense[to] &= stride == n_filled
            for value in range(1, sizes[k + j]):
                for i in range(n_filled):
                    offsets[to, value * n_filled + i] = offsets[to, i] + np.uint32(value * stride)
            n_filled *= sizes[k + j]
    return sizes[:k], width, program.domains[program.variable[b]], level, is_row, at, strides, offsets, dense


@njit(nogil=True, error_model="numpy", allocates=False)
def add_row(to, start, source, at, offsets, dense, lowest):
    """Write ``start`` + one row of a table to ``to``, clamped to ``lowest``.

    Parameters
    ----------
    to, start : (width,)
        The output, and the row to which the table is added; both may be the same array.
    source : (entries,)
        The arena that holds the table.
    at : int
        Offset of the table's entry for l = 0.
    offsets : (width,) uint32
        Offset of the entry for each l, relative to ``at``.
    dense : bool
        Whether these offsets are 0, 1, 2, ...
    """
    number = to.dtype.type
    if dense:
        table = source[at : at + to.size]
        for i in range(to.size):
            to[i] = max(number(start[i] + table[i]), lowest)
    else:
        gather_row(to, start, source, at, offsets, lowest)


@njit(nogil=True, error_model="numpy", allocates=False)
def gather_row(to, start, source, at, offsets, lowest):
    """Write ``start`` + the entries of a table at ``offsets`` to ``to``, clamped.

    It is a function without inlining because the compiler vectorises the loop only then.
    """
    table = source[at:]
    for i in range(to.size):
        to[i] = max(to.dtype.type(start[i] + table[offsets[i]]), lowest)


@njit(nogil=True, error_model="numpy")
def join(arena, out, high, width, x_size, level, is_row, at, strides, offsets, dense, lowest, operation, begin, end):
    """Join rows ``begin`` to ``end`` − 1 of a bucket; a row is an assignment of h, in C order.

    The tables are described as :func:`split_bucket` returns them. Level j holds two sums of all tables up to level j,
    for every x: one number for the tables that do not depend on l, and one row for the others. The tables of the last
    level that depend on l are added in the innermost loop instead.

    Parameters
    ----------
    arena : (entries,)
        All tables.
    out : (rows, width), or (x_size, width) for ``MAX_MARGINAL``
        The message, or the max-marginals before their maximum over l; in the dtype of the arithmetic.
    high, width, x_size, level, is_row, at, strides, offsets, dense
        The results of :func:`split_bucket`.
    operation
        ``MAXIMUM`` and ``LOG_SUM`` eliminate x: row h of ``out`` is written for each h. ``MAX_MARGINAL`` eliminates h:
        row x of ``out`` is raised to the maximum over h, and sums far below ``lowest`` / 2 all mean −∞.
    begin, end : int
        First row and end of the rows.
    """
    k, count = high.size, at.size
    number = out.dtype.type
    half = lowest / 2
    # level_start[j]:level_start[j + 1] are the tables of level j. row_sums[j, x] and scalar_sums[j, x] hold the sums of
    # all tables up to level j that depend on l, and that do not.
    level_start = np.zeros(k + 2, dtype=np.int64)
    for t in range(count):
        for j in range(level[t] + 1, k + 2):
            level_start[j] += 1
    row_sums = np.zeros((k + 1, x_size, width), dtype=out.dtype)
    scalar_sums = np.zeros((k + 1, x_size), dtype=out.dtype)
    # the level whose row_sums are valid for level j: no table of the levels between depends on l
    valid_level = np.zeros(k + 1, dtype=np.int64)
    for j in range(k + 1):
        valid_level[j] = valid_level[j - 1] if j > 0 else 0
        for t in range(level_start[j], level_start[j + 1] if j < k else level_start[j]):
            if is_row[t]:
                valid_level[j] = j
    n_last_tables, all_dense = 0, True
    last_tables = np.empty(count, dtype=np.int64)
    for t in range(level_start[k] if k > 0 else count, count):
        if is_row[t]:
            last_tables[n_last_tables] = t
            n_last_tables += 1
            all_dense &= dense[t]
    last_tables = last_tables[:n_last_tables]
    marginal = operation == MAX_MARGINAL
    if n_last_tables > (1 if marginal else 2) or not all_dense:
        n_last_tables = 3  # selects the general loop below
    h_values = np.zeros(k, dtype=np.int64)
    position = at.copy()
    remainder = begin
    for j in range(k - 1, -1, -1):
        h_values[j] = remainder % high[j]
        remainder //= high[j]
        for t in range(count):
            position[t] += h_values[j] * strides[t, 1 + j]
    row = np.empty(width, dtype=out.dtype)
    maxima = np.empty(width, dtype=out.dtype)
    zero = number(0)
    first_changed_level = 0
    for h in range(begin, end):
        for j in range(first_changed_level, k + 1):
            for x in range(x_size):
                total = scalar_sums[j - 1, x] if j > 0 else zero
                source = row_sums[valid_level[j - 1], x] if j > 0 else row_sums[0, x]
                if j == 0:
                    for i in range(width):
                        source[i] = zero
                to = row_sums[j, x]
                for t in range(level_start[j], level_start[j + 1]):
                    if not is_row[t]:
                        total = max(number(total + arena[position[t] + x * strides[t, 0]]), lowest)
                    elif j < k or k == 0:
                        add_row(to, source, arena, position[t] + x * strides[t, 0], offsets[t], dense[t], lowest)
                        source = to
                scalar_sums[j, x] = total
        best = out[0 if marginal else h]
        if not marginal:
            for i in range(width):
                best[i] = lowest
            if n_last_tables == 0:
                max_rows(best, row_sums[valid_level[k]], scalar_sums[k])
        for x in range(0 if n_last_tables == 0 and not marginal else x_size):
            scalar = scalar_sums[k, x]
            if scalar < half:
                continue  # forbidden for every l
            row_sum = row_sums[valid_level[k], x]
            if marginal:
                best = out[x]
            if n_last_tables == 0:
                for i in range(width):
                    best[i] = max(best[i], number(row_sum[i] + scalar))
            elif n_last_tables == 1:
                row_at = position[last_tables[0]] + x * strides[last_tables[0], 0]
                table_0 = arena[row_at : row_at + width]
                for i in range(width):
                    best[i] = max(best[i], number(number(row_sum[i] + scalar) + table_0[i]))
            elif n_last_tables == 2:
                row_at = position[last_tables[0]] + x * strides[last_tables[0], 0]
                table_0 = arena[row_at : row_at + width]
                row_at = position[last_tables[1]] + x * strides[last_tables[1], 0]
                table_1 = arena[row_at : row_at + width]
                for i in range(width):
                    best[i] = max(best[i], number(number(number(row_sum[i] + scalar) + table_0[i]) + table_1[i]))
            else:
                sum_row(row, row_sum, scalar, arena, x, last_tables, position, strides, offsets, dense, lowest)
                for i in range(width):
                    best[i] = max(best[i], row[i])
        if operation == LOG_SUM:  # the maximum is known: sum the exponentials relative to it
            for i in range(width):
                maxima[i] = best[i]
                best[i] = zero
            for x in range(x_size):
                row_sum = row_sums[valid_level[k], x]
                sum_row(
                    row, row_sum, scalar_sums[k, x], arena, x, last_tables, position, strides, offsets, dense, lowest
                )
                for i in range(width):
                    if maxima[i] > lowest:
                        best[i] += number(math.exp(row[i] - maxima[i]))
            for i in range(width):
                best[i] = number(maxima[i] + math.log(best[i])) if maxima[i] > lowest else lowest
        if not marginal:
            for i in range(width):
                best[i] = lowest if best[i] < half else best[i]  # normalise every sum that contains −∞
        first_changed_level = k
        for j in range(k - 1, -1, -1):
            h_values[j] += 1
            step = 1
            if h_values[j] == high[j]:
                step = 1 - high[j]
                h_values[j] = 0
            for t in range(level_start[j + 1], count):
                position[t] += step * strides[t, 1 + j]
            if step == 1:
                first_changed_level = j + 1
                break


@njit(nogil=True, error_model="numpy", allocates=False)
def max_rows(best, row_sums, scalar_sums):
    """Raise ``best`` to the maximum over x of ``row_sums[x]`` + ``scalar_sums[x]``.

    Four values of x are handled per pass over ``best`` (width,). ``row_sums`` is (x_size, width), ``scalar_sums`` is
    (x_size,).
    """
    number = best.dtype.type
    x = 0
    while x + 4 <= scalar_sums.size:
        a, b, c, d = row_sums[x], row_sums[x + 1], row_sums[x + 2], row_sums[x + 3]
        na, nb, nc, nd = scalar_sums[x], scalar_sums[x + 1], scalar_sums[x + 2], scalar_sums[x + 3]
        for i in range(best.size):
            ab = max(number(a[i] + na), number(b[i] + nb))
            cd = max(number(c[i] + nc), number(d[i] + nd))
            best[i] = max(best[i], max(ab, cd))
        x += 4
    while x < scalar_sums.size:
        a, na = row_sums[x], scalar_sums[x]
        for i in range(best.size):
            best[i] = max(best[i], number(a[i] + na))
        x += 1


@njit(nogil=True, error_model="numpy", allocates=False)
def sum_row(row, row_sum, scalar, arena, x, tables, position, strides, offsets, dense, lowest):
    """Write ``row_sum`` + ``scalar`` + the rows of the given tables at x to ``row``, clamped to ``lowest``.

    ``position`` (tables,) holds the offset of each table's entry for x = 0, the current h and l = 0. ``strides``,
    ``offsets`` and ``dense`` are those of :func:`split_bucket`.
    """
    for i in range(row.size):
        row[i] = max(row.dtype.type(row_sum[i] + scalar), lowest)
    for t in tables:
        add_row(row, row, arena, position[t] + x * strides[t, 0], offsets[t], dense[t], lowest)


@njit(nogil=True)
def run_buckets(program, arena, first, last, lowest, operation):
    """Run buckets ``first`` to ``last`` − 1 one after the other."""
    for b in range(first, last):
        output = program.at.size - program.variable.size + b
        size = program.cells[b] // program.domains[program.variable[b]]
        parts = split_bucket(program, b)
        width = parts[1]
        at = program.at[output]
        out = arena[at : at + size].reshape(size // width, width)
        join(arena, out, *parts, lowest, operation, 0, size // width)


@njit(nogil=True, error_model="numpy")
def count_buckets(program, arena, modulus, halt):
    """Eliminate all buckets of a plan on counts modulo ``modulus``.

    Every message entry becomes the sum over the eliminated variable of the product of the bucket's tables.

    Parameters
    ----------
    program : BucketProgram
        The elimination program of the plan (``EliminationPlan.program``).
    arena : ndarray of uint64, shape (entries,)
        The input tables, with entries below ``modulus``, at the offsets ``program.at``; receives the messages.
    modulus : uint64
        A number below 2^32, or 0 for arithmetic modulo 2^64, which wraps.
    halt : ndarray of uint8, shape (1,)
        The kernel returns early when ``halt[0]`` becomes 1.
    """
    zero, one = np.uint64(0), np.uint64(1)
    buckets = program.variable.size
    for b in range(buckets):
        output = program.at.size - buckets + b
        x_size = program.domains[program.variable[b]]
        sizes, strides = bucket_strides(program, b)
        arity, count = sizes.size, strides.shape[0]
        positions = np.empty(count, dtype=np.int64)
        for i in range(count):
            positions[i] = program.at[program.inputs[program.input_start[b] + i]]
        digit = np.zeros(arity, dtype=np.int64)
        for cell in range(program.at[output], program.at[output] + program.cells[b] // x_size):
            if halt[0] != 0:
                return
            total = zero
            for x in range(x_size):
                product = one
                for i in range(count):
                    entry = arena[positions[i] + x * strides[i, 0]]
                    if entry == zero:
                        product = zero
                        break
                    if entry != one:
                        product *= entry
                        if modulus != zero:
                            product %= modulus
                total += product
            arena[cell] = total if modulus == zero else total % modulus
            for j in range(arity - 1, -1, -1):
                digit[j] += 1
                wraps = digit[j] == sizes[j]
                change = 1 - sizes[j] if wraps else 1
                for i in range(count):
                    positions[i] += change * strides[i, 1 + j]
                if not wraps:
                    break
                digit[j] = 0
