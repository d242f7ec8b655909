# mypy: ignore-errors
"""Tables rounded to an assignment: values one after the other, the surest first, each given those that are fixed."""

import numpy as np

from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def contribute(begin, end, scope, stride, at, data, domains, values, digit, out, places):
    """Write the largest entry of a table for every value of each of its free variables, given those that are fixed.

    Parameters
    ----------
    begin, end : int
        Of the table's scope.
    values : (n,)
        −1 where a variable is free.
    digit : (arity,)
        Room.
    out, places : (values of all scopes,), (scope variables,)
        The entries of variable i of the scope go to ``out`` from ``places[i]`` on.
    """
    base = at
    for i in range(begin, end):
        v = scope[i]
        digit[i - begin] = 0
        if values[v] >= 0:
            base += values[v] * stride[i]
        else:
            for x in range(domains[v]):
                out[places[i] + x] = -np.inf
    while True:
        where = base
        for i in range(begin, end):
            where += digit[i - begin] * stride[i]
        entry = data[where]
        for i in range(begin, end):
            if values[scope[i]] < 0:
                place = places[i] + digit[i - begin]
                out[place] = max(out[place], entry)
        i = end - 1
        while i >= begin:
            if values[scope[i]] < 0:
                digit[i - begin] += 1
                if digit[i - begin] < domains[scope[i]]:
                    break
                digit[i - begin] = 0
            i -= 1
        if i < begin:
            return


@njit(nogil=True)
def round_tables(domains, scope_start, scope, stride, at, data, start, slot, noise):
    """Return an assignment: the variable whose best value leads by most takes it, until all have one.

    Parameters
    ----------
    start, slot : (n + 1,), (scope variables,)
        Variable v stands at the places ``slot[start[v]:start[v + 1]]`` of ``scope``.
    noise : (n, widest)
        Added to the scores.
    """
    n, tables = domains.size, at.size
    values, table_of = np.full(n, -1, dtype=np.int64), np.empty(scope.size, dtype=np.int64)
    places = np.empty(scope.size, dtype=np.int64)
    total, widest = 0, 1
    for t in range(tables):
        widest = max(widest, scope_start[t + 1] - scope_start[t])
        for i in range(scope_start[t], scope_start[t + 1]):
            table_of[i], places[i] = t, total
            total += domains[scope[i]]
    out, digit, scores = np.zeros(total), np.zeros(widest, dtype=np.int64), noise.copy()
    for t in range(tables):
        contribute(scope_start[t], scope_start[t + 1], scope, stride, at[t], data, domains, values, digit, out, places)
    for i in range(scope.size):
        for x in range(domains[scope[i]]):
            scores[scope[i], x] += out[places[i] + x]
    for _ in range(n):
        chosen, lead, best = -1, -1.0, 0
        for v in range(n):
            if values[v] >= 0:
                continue
            first, second, at_best = -np.inf, -np.inf, 0
            for x in range(domains[v]):
                if scores[v, x] > first:
                    first, second, at_best = scores[v, x], first, x
                elif scores[v, x] > second:
                    second = scores[v, x]
            ahead = first - second if second > -np.inf else np.inf
            if chosen < 0 or ahead > lead:
                chosen, lead, best = v, ahead, at_best
        values[chosen] = best
        for j in range(start[chosen], start[chosen + 1]):
            t = table_of[slot[j]]
            begin, end = scope_start[t], scope_start[t + 1]
            for i in range(begin, end):
                if values[scope[i]] < 0:
                    for x in range(domains[scope[i]]):
                        scores[scope[i], x] -= out[places[i] + x]
            contribute(begin, end, scope, stride, at[t], data, domains, values, digit, out, places)
            for i in range(begin, end):
                if values[scope[i]] < 0:
                    for x in range(domains[scope[i]]):
                        scores[scope[i], x] += out[places[i] + x]
    return values
