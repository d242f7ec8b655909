# mypy: ignore-errors
"""Sums of products: what sums of exponentials are where no product of numbers can underflow.

Every table has a twin of numbers, exp(entry − its largest entry), and ``low`` says how far its least possible entry is
below its largest. Where these differences of all tables that are multiplied come to less than what a float has room
for, products are exact zeros only where something is impossible, and a row takes no exponential.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit

_NUMBER, _GATHERED = 0, 1  # as in message_kernels
_REACH = 600.0  # logarithm of the least product, below the largest: floats have 708


@njit(nogil=True)
def entries_of(program, t):
    """Return how many entries of a table are in use: of messages those that agree with the evidence."""
    factors = program.factor_start[program.parent.size]
    if t < factors or t >= factors + 2 * program.parent.size:
        return program.at[t + 1] - program.at[t]
    entries = 1
    for s in range(program.scope_start[t], program.scope_start[t + 1]):
        if program.observed[program.scope[s]] < 0:
            entries *= program.domains[program.scope[s]]
    return entries


@njit(nogil=True, error_model="numpy")
def linearise(program, arena, numbers, peak, low, tables):
    """Write the twins of some tables, the largest entry of each, and how far the least that is possible is below it."""
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
            numbers[i] = np.exp(arena[i] - top) if arena[i] > -np.inf else 0.0


@njit(nogil=True, error_model="numpy")
def takes_products(low, tables):
    """Return whether no product of entries of these tables can underflow."""
    reach = 0.0
    for t in tables:
        reach += low[t]
    return reach < _REACH


@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
def total_of(row):
    """Return the sum of a row."""
    total = 0.0
    for i in range(row.size):
        total += row[i]
    return total


@njit(nogil=True, error_model="numpy", fastmath={"contract"})
def multiply(row, numbers, count, here, run, offsets):
    """Write the product of some tables to a row; return whether anything is allowed in it."""
    total, begun = 1.0, False
    for t in range(count):
        if run[t] == _NUMBER:
            total *= numbers[here[t]]
    if total == 0.0:
        return False
    for t in range(count):
        if run[t] > _GATHERED:
            for first in range(0, row.size, run[t]):
                start = here[t] + offsets[t, first]
                table, part = numbers[start : start + run[t]], row[first : first + run[t]]
                if begun:
                    for i in range(part.size):
                        part[i] *= table[i]
                else:
                    for i in range(part.size):
                        part[i] = total * table[i]
            begun = True
        elif run[t] == _GATHERED:
            place, at = offsets[t], here[t]
            if begun:
                for i in range(row.size):
                    row[i] *= numbers[at + place[i]]
            else:
                for i in range(row.size):
                    row[i] = total * numbers[at + place[i]]
            begun = True
    if not begun:
        row[:] = total
    return True


@njit(nogil=True, error_model="numpy")
def add_row(out, at, run, offsets, row):
    """Add a row to the entries that it belongs to."""
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


@njit(nogil=True, error_model="numpy")
def sweep_products(numbers, count, parts, begin, end):
    """Go through rows ``begin`` to ``end`` of a clique: add the products of the first ``count`` tables to the others.

    ``parts`` is what ``message_kernels.describe`` returns.
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
    row = np.empty(width, dtype=np.float64)
    for _ in range(begin, end):
        if multiply(row, numbers, count, here, run, offsets):
            for t in range(count, at.size):
                add_row(numbers, here[t], run[t], offsets[t], row)
        for j in range(k - 1, -1, -1):
            digit[j] += 1
            if digit[j] < high[j]:
                for t in range(at.size):
                    here[t] += strides[t, j]
                break
            for t in range(at.size):
                here[t] -= (high[j] - 1) * strides[t, j]
            digit[j] = 0


@njit(nogil=True, error_model="numpy")
def clear_numbers(program, numbers, targets):
    """Fill the twins of tables with zeros."""
    for t in targets:
        numbers[program.at[t] : program.at[t] + entries_of(program, t)] = 0.0


@njit(nogil=True, error_model="numpy")
def keep_numbers(program, twins, tables, target):
    """Let a message's sums of products of some tables be its twin."""
    numbers, peak, low, stale = twins
    begin = program.at[target]
    own = numbers[begin : begin + entries_of(program, target)]
    top, least = 0.0, np.inf
    for i in range(own.size):
        top = max(top, own[i])
        least = min(least, own[i] if own[i] > 0.0 else np.inf)
    shift = 0.0
    for t in tables:
        shift += peak[t]
    peak[target] = np.log(top) + shift if top > 0.0 else -np.inf
    low[target] = np.log(top / least) if top > 0.0 else 0.0
    if top > 0.0:
        for i in range(own.size):
            own[i] /= top
    stale[target] = True


@njit(nogil=True, error_model="numpy")
def take_logarithms(program, arena, twins, tables):
    """Write the logarithms of messages of which there is only the twin."""
    numbers, peak, _, stale = twins
    for t in tables:
        if stale[t]:
            for i in range(program.at[t], program.at[t] + entries_of(program, t)):
                arena[i] = np.log(numbers[i]) + peak[t] if numbers[i] > 0.0 else -np.inf
            stale[t] = False


@njit(nogil=True, error_model="numpy")
def normalise_numbers(program, arena, numbers, targets):
    """Let each table's entries add up to one; nan if they are all zero."""
    for t in targets:
        total = 0.0
        for i in range(program.at[t], program.at[t + 1]):
            total += numbers[i]
        for i in range(program.at[t], program.at[t + 1]):
            arena[i] = numbers[i] / total
