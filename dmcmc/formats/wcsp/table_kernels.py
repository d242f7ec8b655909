# mypy: ignore-errors
"""The two passes over the numbers of a ``.wcsp`` file, compiled: find the constraints, then fill their tables."""

import numpy as np

from dmcmc.inference.runtime.compile import njit

HUGE = 1 << 60  # entries; also what every larger product becomes

# Why a pass ended.
DONE, SPECIAL, SHORT, SCOPE, TWICE, VALUE, COST = range(7)


@njit(nogil=True)
def survey(numbers, end, at, domains, index, starts, cells, seen):
    """Find plain constraints, from number ``at`` on: arity, scope, default, tuples, rows.

    Parameters
    ----------
    numbers : (numbers,) int64
    end : int
        Numbers before this one are whole; the next is a word, or the end.
    index : int
        Of the first constraint to find; all before are known.
    starts, cells : (constraints,) int64
        Written: where each constraint begins, and its number of entries (at most HUGE).
    seen : (variables,) int64
        Scratch, −1 or the last constraint whose scope has the variable.

    Returns
    -------
    index : int
        The constraint at which the pass ended.
    at : int
        The number at which that begins, or which is wrong.
    reason : int
        DONE; SPECIAL for a constraint of another kind; SHORT where numbers are missing; SCOPE and TWICE for a
        variable.
    """
    while index < starts.size:
        if at >= end:
            return index, at, SHORT
        arity = numbers[at]
        if arity < 0:
            return index, at, SPECIAL
        if arity > end - at - 3:
            return index, at, SPECIAL  # a word may follow the scope
        size = 1
        for i in range(at + 1, at + 1 + arity):
            v = numbers[i]
            if v < 0 or v >= domains.size:
                return index, i, SCOPE
            if seen[v] == index:
                return index, i, TWICE
            seen[v] = index
            size = HUGE if size > HUGE // domains[v] else size * domains[v]
        tuples = numbers[at + 2 + arity]
        if tuples < 0:
            return index, at, SPECIAL
        if tuples > (end - at - 3 - arity) // (arity + 1):
            return index, at, SHORT
        starts[index], cells[index] = at, size
        at += 3 + arity + tuples * (arity + 1)
        index += 1
    return index, at, DONE


@njit(nogil=True)
def fill(numbers, domains, starts, places, data, most, lowest, reach):
    """Fill the tables of constraints with utilities.

    Parameters
    ----------
    starts : (constraints,) int64
    places : (constraints + 1,) int64
        Where the table of each begins in ``data``; one of no entries is left out.
    most : int
        A cost above it is forbidden.
    lowest : int
        No cost is below it.
    reach : (constraints,) int64
        Written: the largest |cost| that is not forbidden.

    Returns
    -------
    constraint, number, reason : int
        DONE, or VALUE or COST with the constraint and the number that is wrong.
    """
    hard = np.iinfo(np.int64).min
    for c in range(starts.size):
        begin, size = places[c], places[c + 1] - places[c]
        if size == 0:
            continue
        at = starts[c]
        arity = numbers[at]
        cost, tuples = numbers[at + 1 + arity], numbers[at + 2 + arity]
        if cost < lowest:
            return c, at + 1 + arity, COST
        data[begin : begin + size] = hard if cost > most else -cost
        far = abs(cost) if cost <= most and tuples < size else 0
        row = at + 3 + arity
        for _ in range(tuples):
            cell = 0
            for i in range(arity):
                v, value = numbers[at + 1 + i], numbers[row + i]
                if value < 0 or value >= domains[v]:
                    return c, row + i, VALUE
                cell = cell * domains[v] + value
            cost = numbers[row + arity]
            if cost < lowest:
                return c, row + arity, COST
            data[begin + cell] = hard if cost > most else -cost
            if cost <= most and abs(cost) > far:
                far = abs(cost)
            row += arity + 1
        reach[c] = far
    return starts.size, 0, DONE
