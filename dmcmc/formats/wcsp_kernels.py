# mypy: ignore-errors
"""Compiled passes over the numbers of a ``.wcsp`` file, for :mod:`dmcmc.formats.wcsp`.

``find_constraints`` finds the plain constraints and checks their scopes, then ``fill_tables`` fills their dense tables.
A plain constraint is a sequence of numbers: arity, variables of the scope, default cost, number of tuples, and for each
tuple its values and its cost.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit

MAX_ENTRIES = 1 << 60  # products of domain sizes are cut to this limit, so that they cannot overflow int64

# Reasons why a pass ended: finished; a constraint that is not plain; the file ends too early; a variable that does not
# exist; a variable that occurs twice in a scope; a value outside its domain; a cost below the lower limit.
DONE, SPECIAL, SHORT, SCOPE, TWICE, VALUE, COST = range(7)


@njit(nogil=True, allocates=False)
def find_constraints(numbers, end, position, domains, index, starts, entries, seen):
    """Find plain constraints, starting at number ``position``.

    Parameters
    ----------
    numbers : (numbers,) int64
        The words of the file after its header, as numbers.
    end : int
        Index of the next word that is not a number; the number of words if all others are numbers.
    position : int
        Index in ``numbers`` of the first number of constraint ``index``.
    domains : (variables,) int64
        Domain sizes.
    index : int
        Number of the first constraint to find; earlier calls found those before it.
    starts, entries : (constraints,) int64
        Output: index in ``numbers`` of each constraint's first number, and the number of entries of its dense table (at
        most ``MAX_ENTRIES``).
    seen : (variables,) int64
        Scratch space: −1, or the last constraint whose scope contains the variable.

    Returns
    -------
    index : int
        The constraint at which the pass ended.
    position : int
        Index in ``numbers`` of the constraint's first number, or of the number that is wrong.
    reason : int
        DONE, SPECIAL, SHORT, SCOPE or TWICE. After SPECIAL and SHORT the caller reads this constraint itself.
    """
    while index < starts.size:
        if position >= end:
            return index, position, SHORT
        arity = numbers[position]
        if arity < 0:
            return index, position, SPECIAL
        if arity > end - position - 3:
            return index, position, SPECIAL  # a word that is not a number may follow the scope
        size = 1
        for i in range(position + 1, position + 1 + arity):
            v = numbers[i]
            if v < 0 or v >= domains.size:
                return index, i, SCOPE
            if seen[v] == index:
                return index, i, TWICE
            seen[v] = index
            size = MAX_ENTRIES if size > MAX_ENTRIES // domains[v] else size * domains[v]
        tuples = numbers[position + 2 + arity]
        if tuples < 0:
            return index, position, SPECIAL
        if tuples > (end - position - 3 - arity) // (arity + 1):
            return index, position, SHORT
        starts[index], entries[index] = position, size
        position += 3 + arity + tuples * (arity + 1)
        index += 1
    return index, position, DONE


@njit(nogil=True)
def fill_tables(numbers, domains, starts, table_begin, data, max_cost, min_cost, max_abs_cost):
    """Fill the dense tables of constraints with utilities (negated costs).

    Parameters
    ----------
    numbers : (numbers,) int64
        The words of the file after its header, as numbers.
    domains : (variables,) int64
        Domain sizes.
    starts : (constraints,) int64
        Index in ``numbers`` of each constraint's first number.
    table_begin : (constraints + 1,) int64
        Begin of each constraint's table in ``data``; constraints with an empty range are skipped.
    data : (entries,) int64
        Output: the tables, concatenated; in each, the last variable of the scope is the fastest. The smallest int64 is
        forbidden.
    max_cost : int
        Costs above it are forbidden.
    min_cost : int
        Lower limit for valid costs.
    max_abs_cost : (constraints,) int64
        Output: the largest absolute value of each constraint's allowed costs.

    Returns
    -------
    constraint, number, reason : int
        Reason DONE; or VALUE or COST with the constraint and the index in ``numbers`` of the number that is wrong.
    """
    forbidden_utility = np.iinfo(np.int64).min
    for c in range(starts.size):
        begin, size = table_begin[c], table_begin[c + 1] - table_begin[c]
        if size == 0:
            continue
        position = starts[c]
        arity = numbers[position]
        cost, tuples = numbers[position + 1 + arity], numbers[position + 2 + arity]
        if cost < min_cost:
            return c, position + 1 + arity, COST
        data[begin : begin + size] = forbidden_utility if cost > max_cost else -cost
        largest = abs(cost) if cost <= max_cost and tuples < size else 0
        row = position + 3 + arity
        for _ in range(tuples):
            cell = 0
            for i in range(arity):
                v, value = numbers[position + 1 + i], numbers[row + i]
                if value < 0 or value >= domains[v]:
                    return c, row + i, VALUE
                cell = cell * domains[v] + value
            cost = numbers[row + arity]
            if cost < min_cost:
                return c, row + arity, COST
            data[begin + cell] = forbidden_utility if cost > max_cost else -cost
            if cost <= max_cost and abs(cost) > largest:
                largest = abs(cost)
            row += arity + 1
        max_abs_cost[c] = largest
    return starts.size, 0, DONE
