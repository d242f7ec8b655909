# mypy: ignore-errors
"""Sums of products: what sums of exponentials are where no product of numbers can underflow.

Every table has a twin of numbers, exp(entry − its largest entry), and ``low`` says how far its least possible entry is
below its largest. Where these differences of all tables that are multiplied come to less than what a float has room
for, products are exact zeros only where something is impossible, and a row takes no exponential.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit

_NUMBER, _DENSE = 0, 1  # as in message_kernels
_REACH = 600.0  # logarithm of the least product, below the largest: floats have 708


@njit(nogil=True, error_model="numpy")
def linearise(program, arena, numbers, peak, low, tables):
    """Write the twins of some tables, the largest entry of each, and how far the least that is possible is below it."""
    for t in tables:
        begin, end = program.at[t], program.at[t + 1]
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
def multiply(row, numbers, count, here, kind, offsets):
    """Write the product of some tables to a row; return whether anything is allowed in it."""
    total, begun = 1.0, False
    for t in range(count):
        if kind[t] == _NUMBER:
            total *= numbers[here[t]]
    if total == 0.0:
        return False
    for t in range(count):
        if kind[t] == _NUMBER:
            continue
        if kind[t] == _DENSE:
            table = numbers[here[t] : here[t] + row.size]
            if begun:
                for i in range(row.size):
                    row[i] *= table[i]
            else:
                for i in range(row.size):
                    row[i] = total * table[i]
        else:
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
def add_row(out, at, kind, offsets, row):
    """Add a row to the entries that it belongs to."""
    if kind == _NUMBER:
        out[at] += total_of(row)
    elif kind == _DENSE:
        to = out[at : at + row.size]
        for i in range(row.size):
            to[i] += row[i]
    else:
        for i in range(row.size):
            out[at + offsets[i]] += row[i]


@njit(nogil=True, error_model="numpy")
def sweep_products(numbers, count, parts, begin, end):
    """Go through rows ``begin`` to ``end`` of a clique: add the products of the first ``count`` tables to the others.

    ``parts`` is what ``message_kernels.describe`` returns.
    """
    high, width, at, strides, kind, offsets = parts
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
        if multiply(row, numbers, count, here, kind, offsets):
            for t in range(count, at.size):
                add_row(numbers, here[t], kind[t], offsets[t], row)
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
        numbers[program.at[t] : program.at[t + 1]] = 0.0


@njit(nogil=True, error_model="numpy")
def back_to_logarithms(program, arena, numbers, peak, tables, target):
    """Write a message's logarithms: those of its sums of products, plus the largest entries of what was multiplied."""
    shift = 0.0
    for t in tables:
        shift += peak[t]
    for i in range(program.at[target], program.at[target + 1]):
        arena[i] = np.log(numbers[i]) + shift if numbers[i] > 0.0 else -np.inf


@njit(nogil=True, error_model="numpy")
def normalise_numbers(program, arena, numbers, targets):
    """Let each table's entries add up to one; nan if they are all zero."""
    for t in targets:
        total = 0.0
        for i in range(program.at[t], program.at[t + 1]):
            total += numbers[i]
        for i in range(program.at[t], program.at[t + 1]):
            arena[i] = numbers[i] / total
