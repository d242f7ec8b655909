# mypy: ignore-errors
"""Tables rounded to assignments: values one after the other, the surest first, each given those that are fixed.

Whole numbers only, so no order of additions matters: the CPU and the GPU run the same functions and find the same.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.runtime.types import Ints

LOWEST = -(1 << 62)  # below all sums
SURE = 1 << 62  # the lead of an only value


class Shared(NamedTuple):
    """Tables of whole numbers; all arrays int64.

    Attributes
    ----------
    domains : (n,)
        Free variables first, then those that a row gives.
    scope_start : (tables + 1,), scope, stride : (scope variables,), at : (tables,), data : (entries,)
        Table t is over ``scope[scope_start[t]:scope_start[t + 1]]``, in C order from ``data[at[t]]`` on.
    start, slot : (n + 1,), (scope variables,)
        Variable v stands at the places ``slot[start[v]:start[v + 1]]`` of ``scope``.
    table_of, places : (scope variables,)
        The table of a place, and where what it says of the variable's values lies in ``Room.says``.
    """

    domains: Ints
    scope_start: Ints
    scope: Ints
    stride: Ints
    at: Ints
    data: NDArray[np.int64]
    start: Ints
    slot: Ints
    table_of: Ints
    places: Ints


class Room(NamedTuple):
    """Where a row is rounded; all int64.

    Attributes
    ----------
    values : (n,)
        −1 where a variable is free.
    scores : (n, widest)
        What all tables say of each value.
    says : (values of all scopes,)
        What each table says.
    leads, bests : (n,)
        By how much each variable's best value leads, and which it is.
    digit : (largest scope,)
    """

    values: NDArray[np.int64]
    scores: NDArray[np.int64]
    says: NDArray[np.int64]
    leads: NDArray[np.int64]
    bests: NDArray[np.int64]
    digit: NDArray[np.int64]


@njit(nogil=True)
def contribute(tables, t, room):
    """Take a table's largest entry for each value of each of its free variables, and add it to the scores."""
    begin, end = tables.scope_start[t], tables.scope_start[t + 1]
    where = tables.at[t]
    last = begin - 1
    for i in range(begin, end):
        v = tables.scope[i]
        room.digit[i - begin] = 0
        if room.values[v] >= 0:
            where += room.values[v] * tables.stride[i]
            continue
        last = i
        for x in range(tables.domains[v]):
            room.says[tables.places[i] + x] = LOWEST
    while last >= begin:
        entry = tables.data[where]
        for i in range(begin, last + 1):
            if room.values[tables.scope[i]] < 0:
                place = tables.places[i] + room.digit[i - begin]
                room.says[place] = max(room.says[place], entry)
        i = last
        while i >= begin:
            v = tables.scope[i]
            if room.values[v] < 0:
                room.digit[i - begin] += 1
                where += tables.stride[i]
                if room.digit[i - begin] < tables.domains[v]:
                    break
                where -= room.digit[i - begin] * tables.stride[i]
                room.digit[i - begin] = 0
            i -= 1
        if i < begin:
            break
    for i in range(begin, last + 1):
        v = tables.scope[i]
        if room.values[v] < 0:
            for x in range(tables.domains[v]):
                room.scores[v, x] += room.says[tables.places[i] + x]


@njit(nogil=True)
def look(tables, v, room):
    """Note by how much a variable's best value leads, and which it is; ties go to the lowest."""
    first, second, best = np.int64(LOWEST), np.int64(LOWEST), np.int64(0)
    for x in range(tables.domains[v]):
        score = room.scores[v, x]
        if x == 0 or score > first:
            first, second, best = score, first, np.int64(x)
        elif score > second:
            second = score
    room.leads[v] = first - second if tables.domains[v] > 1 else np.int64(SURE)
    room.bests[v] = best


@njit(nogil=True)
def fix(tables, v, value, room):
    """Give a variable its value; what its tables say of others changes."""
    room.values[v] = value
    for j in range(tables.start[v], tables.start[v + 1]):
        t = tables.table_of[tables.slot[j]]
        for i in range(tables.scope_start[t], tables.scope_start[t + 1]):
            u = tables.scope[i]
            if room.values[u] < 0:
                for x in range(tables.domains[u]):
                    room.scores[u, x] -= room.says[tables.places[i] + x]
        contribute(tables, t, room)
    for j in range(tables.start[v], tables.start[v + 1]):
        t = tables.table_of[tables.slot[j]]
        for i in range(tables.scope_start[t], tables.scope_start[t + 1]):
            if room.values[tables.scope[i]] < 0:
                look(tables, tables.scope[i], room)


@njit(nogil=True)
def round_row(tables, free, row, noise, room):
    """Round the tables given a row: the variable whose best value leads by most takes it, until all have one.

    Parameters
    ----------
    free : int
        Variables from this one on are the row's, which counts their values in C order.
    noise : (several, n, widest) int64
        Added to the scores; rows take turns.
    """
    n = tables.domains.size
    turn = row % noise.shape[0]
    for v in range(n - 1, -1, -1):
        room.values[v] = -1
        if v >= free:
            room.values[v] = row % tables.domains[v]
            row //= tables.domains[v]
        for x in range(tables.domains[v]):
            room.scores[v, x] = noise[turn, v, x]
    for t in range(tables.at.size):
        contribute(tables, t, room)
    for v in range(free):
        look(tables, v, room)
    for _ in range(free):
        chosen = -1
        for v in range(free):
            if room.values[v] < 0 and (chosen < 0 or room.leads[v] > room.leads[chosen]):
                chosen = v
        fix(tables, chosen, room.bests[chosen], room)


@njit(nogil=True)
def round_rows(tables, free, rows, noise, room, found, halt):
    """Round some rows, one after the other; those that are not reached before it is time to halt stay as they are.

    Parameters
    ----------
    found : (rows, free) int64
    """
    for i in range(rows.size):
        if halt[0] != 0:
            return
        round_row(tables, free, rows[i], noise, room)
        for v in range(free):
            found[i, v] = room.values[v]
