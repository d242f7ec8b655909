# mypy: ignore-errors
"""Sum-product in linear scale, used where no product of table entries can underflow.

Every table has a linear-scale copy ``exp(entry − its largest entry)``. ``low`` is the difference between its largest
and its least allowed entry, as logarithms. If the differences of all multiplied tables add up to less than the exponent
range of a float, a product is zero only if the assignment is forbidden, and no exponential is computed per row. These
kernels are building blocks of :mod:`dmcmc.inference.junction_tree.message_kernels`.

Shared arguments
----------------
program
    A :class:`dmcmc.inference.junction_tree.cliques.CliqueTreeProgram`: the tree as flat arrays.
arena : (entries,) float64
    The entries of all tables, logarithms.
numbers : (entries,) float64
    The entries of all tables in linear scale, in the same layout.
peak, low : (tables,) float64
    Largest entry (logarithm) of each table, and how far its least allowed entry is below it.
stale : (tables,) bool
    Whether the logarithms of a message in ``arena`` are out of date, so that only its linear-scale copy is
    valid.
linear_tables
    The tuple (numbers, peak, low, stale).
row : (width,) float64
    One row of a clique's joined table: one entry per assignment l of the clique's trailing variables. The
    leading variables h are enumerated, see :mod:`dmcmc.inference.junction_tree.message_kernels`.
parts
    The tuple (high, width, at, strides, run, offsets) that ``message_kernels.describe_tables`` returns:
    numbers of values of the variables h; length of a row; offset, and strides of h, of each table; and how
    each table depends on l. ``run`` is 0 for not at all, 1 for entries that must be gathered, otherwise the
    length of contiguous runs; ``offsets`` (tables, width) are the entries' offsets per l.
position : (tables,) int64
    Offset of each table's entry for the current h and l = 0.
"""

import math

import numpy as np

from dmcmc.inference.runtime.compile import njit

# Codes of ``run``: the table has one number for the whole row; its entries must be gathered. See the module.
_NUMBER = 0
_GATHERED = 1
_PARTIAL_SUMS = 8  # partial sums of a row: their order does not depend on the processor
_MAX_RANGE = 600.0  # largest admissible −ln(product / largest product); a float64 allows 708


@njit(nogil=True, allocates=False)
def entries_of(program, t):
    """Return the number of used entries of a table; a message contains only entries that agree with the evidence."""
    factors = program.factor_start[program.parent.size]
    if t < factors or t >= factors + 2 * program.parent.size:
        return program.at[t + 1] - program.at[t]
    entries = 1
    for s in range(program.scope_start[t], program.scope_start[t + 1]):
        if program.observed[program.scope[s]] < 0:
            entries *= program.domains[program.scope[s]]
    return entries


@njit(nogil=True, error_model="numpy", allocates=False)
def linearise(program, arena, numbers, peak, low, tables):
    """Compute the linear-scale copy, the largest entry and the range of some tables from their logarithms.

    numbers = exp(entry − peak), peak = largest entry, low = peak − least finite entry. A table without a finite entry
    has the peak −∞ and the range 0. ``tables`` (int64) are the numbers of the tables.
    """
    for t in tables:
        begin = program.at[t]
        end = begin + entries_of(program, t)
        top, least = -np.inf, np.inf
        for i in range(begin, end):
            top = max(top, arena[i])
            if arena[i] > -np.inf:
                least = min(least, arena[i])
        peak[t] = top
        low[t] = top - least if top > -np.inf else 0.0
        for i in range(begin, end):
            numbers[i] = math.exp(arena[i] - top) if arena[i] > -np.inf else 0.0


@njit(nogil=True, error_model="numpy", allocates=False)
def products_are_safe(low, tables):
    """Return whether no product of entries of these tables can underflow: Σ ``low`` is below ``_MAX_RANGE``."""
    total_range = 0.0
    for t in tables:
        total_range += low[t]
    return total_range < _MAX_RANGE


@njit(nogil=True, error_model="numpy", allocates=False)
def total_of(row):
    """Return the sum of a row: eight partial sums, which fill vector registers, then the remaining entries."""
    a = b = c = d = e = f = g = h = 0.0
    end = row.size // _PARTIAL_SUMS * _PARTIAL_SUMS
    for i in range(0, end, _PARTIAL_SUMS):
        a += row[i]
        b += row[i + 1]
        c += row[i + 2]
        d += row[i + 3]
        e += row[i + 4]
        f += row[i + 5]
        g += row[i + 6]
        h += row[i + 7]
    total = ((a + e) + (c + g)) + ((b + f) + (d + h))
    for i in range(end, row.size):
        total += row[i]
    return total


@njit(nogil=True, error_model="numpy", fastmath={"contract"})
def multiply(row, numbers, count, position, run, offsets):
    """Write the product of the first ``count`` tables to a row; return False if every entry is surely forbidden.

    The row is not written then. The other arguments are explained in the module.
    """
    total, has_row = 1.0, False
    for t in range(count):
        if run[t] == _NUMBER:
            total *= numbers[position[t]]
    if total == 0.0:
        return False
    for t in range(count):
        if run[t] > _GATHERED:
            for first in range(0, row.size, run[t]):
                start = position[t] + offsets[t, first]
                table, part = numbers[start : start + run[t]], row[first : first + run[t]]
                if has_row:
                    for i in range(part.size):
                        part[i] *= table[i]
                else:
                    for i in range(part.size):
                        part[i] = total * table[i]
            has_row = True
        elif run[t] == _GATHERED:
            table_offsets, at = offsets[t], position[t]
            if has_row:
                for i in range(row.size):
                    row[i] *= numbers[at + table_offsets[i]]
            else:
                for i in range(row.size):
                    row[i] = total * numbers[at + table_offsets[i]]
            has_row = True
    if not has_row:
        row[:] = total
    return True


@njit(nogil=True, error_model="numpy", allocates=False)
def add_row(out, at, run, offsets, row):
    """Add a row to the entries of a target table that it projects to.

    ``at`` is the target's offset in ``out``; ``run`` and ``offsets`` (width,) say how the target depends on l.
    """
    if run == _NUMBER:
        out[at] += total_of(row)
    elif run > _GATHERED:
        for first in range(0, row.size, run):
            start = at + offsets[first]
            to, part = out[start : start + run], row[first : first + run]
            for i in range(part.size):
                to[i] += part[i]
    else:
        for i in range(row.size):
            out[at + offsets[i]] += row[i]


@njit(nogil=True, allocates=False)
def go_to_row(row, high, strides, position, digit):
    """Add the offsets of a row's entries to the positions, and write its values of the variables h to ``digit``."""
    for j in range(high.size - 1, -1, -1):
        digit[j] = row % high[j]
        row //= high[j]
        for t in range(position.size):
            position[t] += digit[j] * strides[t, j]


@njit(nogil=True, allocates=False)
def go_to_next_row(high, strides, position, digit):
    """Move the positions and the values of the variables h from one row to the next one."""
    for j in range(high.size - 1, -1, -1):
        digit[j] += 1
        if digit[j] < high[j]:
            for t in range(position.size):
                position[t] += strides[t, j]
            break
        for t in range(position.size):
            position[t] -= (high[j] - 1) * strides[t, j]
        digit[j] = 0


@njit(nogil=True, error_model="numpy")
def sweep_products(numbers, count, parts, begin, end):
    """Process rows ``begin`` to ``end`` − 1 of a clique: add products of the first ``count`` tables to the others.

    ``parts`` is what ``message_kernels.describe_tables`` returns.
    """
    high, width, at, strides, run, offsets = parts
    position, digit = at.copy(), np.zeros(high.size, dtype=np.int64)
    go_to_row(begin, high, strides, position, digit)
    row = np.empty(width, dtype=np.float64)
    for _ in range(begin, end):
        if multiply(row, numbers, count, position, run, offsets):
            for t in range(count, at.size):
                add_row(numbers, position[t], run[t], offsets[t], row)
        go_to_next_row(high, strides, position, digit)


@njit(nogil=True, error_model="numpy")
def clear_numbers(program, numbers, targets):
    """Set the linear-scale copies of tables to zero."""
    for t in targets:
        numbers[program.at[t] : program.at[t] + entries_of(program, t)] = 0.0


@njit(nogil=True, error_model="numpy", allocates=False)
def store_message(program, linear_tables, tables, target):
    """Normalise the linear-scale sums of a message in place and record its peak and range; its logarithms become stale.

    ``tables`` are the multiplied tables, whose peaks are added.
    """
    numbers, peak, low, stale = linear_tables
    begin = program.at[target]
    message = numbers[begin : begin + entries_of(program, target)]
    top, least = 0.0, np.inf
    for i in range(message.size):
        top = max(top, message[i])
        least = min(least, message[i] if message[i] > 0.0 else np.inf)
    shift = 0.0
    for t in tables:
        shift += peak[t]
    peak[target] = math.log(top) + shift if top > 0.0 else -np.inf
    low[target] = math.log(top / least) if top > 0.0 else 0.0
    if top > 0.0:
        for i in range(message.size):
            message[i] /= top
    stale[target] = True


@njit(nogil=True, error_model="numpy", allocates=False)
def to_logarithms(program, arena, linear_tables, tables):
    """Compute the logarithms of messages that exist only in linear scale."""
    numbers, peak, _, stale = linear_tables
    for t in tables:
        if stale[t]:
            for i in range(program.at[t], program.at[t] + entries_of(program, t)):
                arena[i] = math.log(numbers[i]) + peak[t] if numbers[i] > 0.0 else -np.inf
            stale[t] = False


@njit(nogil=True, error_model="numpy", allocates=False)
def normalise_numbers(program, arena, numbers, targets):
    """Write the probabilities ``numbers`` / Σ ``numbers`` of each table to ``arena``; NaN if all entries are zero.

    ``targets`` (int64) are the numbers of the tables.
    """
    for t in targets:
        total = 0.0
        for i in range(program.at[t], program.at[t + 1]):
            total += numbers[i]
        for i in range(program.at[t], program.at[t + 1]):
            arena[i] = numbers[i] / total
