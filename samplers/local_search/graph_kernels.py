# mypy: ignore-errors
"""Moves of one variable, decided exactly: by violations, then by utility."""

import numpy as np

from dmcmc.inference.runtime.compile import njit

TIE = 2.0**-96  # of two sums: what they may differ by in rounding alone


@njit(nogil=True)
def link_variables(scope_start, scope, domains, dense):
    """Return each variable's factors and where it stands in their scopes, and strides in dense tables."""
    n = domains.size
    start = np.zeros(n + 1, dtype=np.int64)
    for s in range(scope.size):
        start[scope[s] + 1] += 1
    for v in range(n):
        start[v + 1] += start[v]
    following = start[:n].copy()
    factor, slot = np.zeros(scope.size, dtype=np.int64), np.zeros(scope.size, dtype=np.int64)
    stride = np.zeros(scope.size, dtype=np.int64)
    for f in range(scope_start.size - 1):
        step = 1
        for s in range(scope_start[f + 1] - 1, scope_start[f] - 1, -1):
            v = scope[s]
            factor[following[v]], slot[following[v]] = f, s
            following[v] += 1
            if f < dense:
                stride[s] = step
                step *= domains[v]
    return start, factor, slot, stride


@njit(inline="always")
def two_sum(high, low, more, rest):
    """Add a number of two parts to another; what the sum of the high parts loses goes to the low one."""
    total = high + more
    part = total - high
    return total, low + ((high - (total - part)) + (more - part)) + rest


@njit(inline="always")
def add(sums, d, high, low):
    """Add a number of two parts to the sum of value d: (violations, high, low)."""
    sums[1, d], sums[2, d] = two_sum(sums[1, d], sums[2, d], high, low)


@njit(_nrt=False)
def score_values(graph, z, v, sums):
    """Sum up the factors of v for each of its values, all other variables as they are: violations, high, low part."""
    size = graph.domains[v]
    for d in range(size):
        sums[0, d] = sums[1, d] = sums[2, d] = 0.0
    split = graph.rest.size > 0
    for i in range(graph.start[v], graph.start[v + 1]):
        f, own = graph.factor[i], graph.slot[i]
        if f >= graph.dense:
            score_automaton(graph, z, f, own, sums)
            continue
        at = graph.at[f]
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            if s != own:
                at += z[graph.scope[s]] * graph.stride[s]
        step = graph.stride[own]
        for d in range(size):
            entry = graph.data[at]
            if entry == graph.never:
                sums[0, d] += 1.0
            else:
                add(sums, d, np.float64(entry), graph.rest[at] if split else 0.0)
            at += step


@njit(_nrt=False)
def score_automaton(graph, z, f, own, sums):
    """Add what an automaton pays for each value of one of its variables."""
    split = graph.rest.size > 0
    before, paid, lost = 0, 0.0, 0.0
    for s in range(graph.scope_start[f], own):
        step = graph.stride[s] + before * graph.domains[graph.scope[s]] + z[graph.scope[s]]
        entry = graph.data[graph.first_step + step]
        if entry == graph.never:
            for d in range(graph.domains[graph.scope[own]]):
                sums[0, d] += 1.0
            return
        paid, lost = two_sum(paid, lost, np.float64(entry), graph.rest[graph.first_step + step] if split else 0.0)
        before = graph.following[step]
    for d in range(graph.domains[graph.scope[own]]):
        high, low = paid, lost
        state, hard = before, False
        for s in range(own, graph.scope_start[f + 1]):
            w = graph.scope[s]
            step = graph.stride[s] + state * graph.domains[w] + (d if s == own else z[w])
            entry = graph.data[graph.first_step + step]
            if entry == graph.never:
                hard = True
                break
            high, low = two_sum(high, low, np.float64(entry), graph.rest[graph.first_step + step] if split else 0.0)
            state = graph.following[step]
        if hard:
            sums[0, d] += 1.0
        else:
            add(sums, d, high, low)


@njit(nogil=True)
def weigh(graph, z, out):
    """Sum up all factors of an assignment: violations, and the two parts of the utility."""
    split = graph.rest.size > 0
    hard, high, low = 0.0, 0.0, 0.0
    for f in range(graph.scope_start.size - 1):
        if f < graph.dense:
            at = graph.at[f]
            for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
                at += z[graph.scope[s]] * graph.stride[s]
            entry, rest = graph.data[at], graph.rest[at] if split else 0.0
            if entry == graph.never:
                hard += 1.0
            else:
                high, low = two_sum(high, low, np.float64(entry), rest)
            continue
        state, paid, lost, broken = 0, 0.0, 0.0, False
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            step = graph.stride[s] + state * graph.domains[graph.scope[s]] + z[graph.scope[s]]
            entry = graph.data[graph.first_step + step]
            if entry == graph.never:
                broken = True
                break
            rest = graph.rest[graph.first_step + step] if split else 0.0
            paid, lost = two_sum(paid, lost, np.float64(entry), rest)
            state = graph.following[step]
        if broken:
            hard += 1.0
        else:
            high, low = two_sum(high, low, paid, lost)
    out[0, 0], out[1, 0], out[2, 0] = hard, high, low


@njit(nogil=True)
def outdoes(graph, one, other, sums):
    """Return whether an assignment is better than another: fewer violations, or as many and more utility."""
    weigh(graph, other, sums)
    hard, high, low = sums[0, 0], sums[1, 0], sums[2, 0]
    weigh(graph, one, sums)
    if sums[0, 0] != hard:
        return sums[0, 0] < hard
    return (sums[1, 0] - high) + (sums[2, 0] - low) > TIE * (abs(high) + abs(sums[1, 0]))


@njit(inline="always")
def better(sums, a, b):
    """Return whether value a is better than b, by more than rounding."""
    if sums[0, a] != sums[0, b]:
        return sums[0, a] < sums[0, b]
    gain = (sums[1, a] - sums[1, b]) + (sums[2, a] - sums[2, b])
    return gain > TIE * (abs(sums[1, a]) + abs(sums[1, b]))


@njit(_nrt=False)
def best_of(sums, size, old):
    """Return the best value: ``old`` if none is better, else the first of the best."""
    new = 0
    for d in range(1, size):
        if better(sums, d, new):
            new = d
    return new if better(sums, new, old) else old


@njit(nogil=True)
def ascend(graph, z, doubtful, state, sums, work):
    """Give variables their best values until no single move is better, or so many entries were read.

    Parameters
    ----------
    doubtful : (n,) bool
        Variables that may have a better value; others are known to have none.
    state : (2,) int64
        Next variable, and how many before it were not doubtful; to go on with.
    work : int

    Returns
    -------
    bool
        Whether no doubtful variable is left.
    """
    n = z.size
    v, clean = state
    while clean < n and work > 0:
        clean += 1
        if doubtful[v]:
            score_values(graph, z, v, sums)
            work -= (graph.start[v + 1] - graph.start[v] + 1) * graph.domains[v]
            new = best_of(sums, graph.domains[v], z[v])
            if new != z[v]:
                z[v] = new
                clean = 0
                for i in range(graph.start[v], graph.start[v + 1]):
                    f = graph.factor[i]
                    for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
                        doubtful[graph.scope[s]] = True
            doubtful[v] = False
        v = v + 1 if v + 1 < n else 0
    state[0], state[1] = v, clean
    return clean >= n


@njit(nogil=True)
def project(graph, first, last, at, out):
    """Average dense factors over all variables but one, for each of their variables and its values.

    Parameters
    ----------
    first, last : int
        Factors ``first`` to ``last`` - 1.
    at : (scope variables,) int64
        Where the averages of a variable of a factor begin in ``out``.
    out : (2, averages) float64
        The share of forbidden entries, and the mean of the others.
    """
    for f in range(first, last):
        size = 1
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            size *= graph.domains[graph.scope[s]]
        table = graph.data[graph.at[f] : graph.at[f] + size]
        for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
            domain, step = graph.domains[graph.scope[s]], graph.stride[s]
            hard, mean = out[0, at[s] : at[s] + domain], out[1, at[s] : at[s] + domain]
            hard[:] = 0.0
            mean[:] = 0.0
            if step == 1:
                for begin in range(0, size, domain):
                    add_row(table[begin : begin + domain], graph.never, hard, mean)
            else:
                for begin in range(0, size, domain * step):
                    for d in range(domain):
                        row = table[begin + d * step : begin + (d + 1) * step]
                        forbidden, total = sum_row(row, graph.never)
                        hard[d] += forbidden
                        mean[d] += total
            others = size // domain
            for d in range(domain):
                mean[d] /= max(1.0, others - hard[d])
                hard[d] /= others


@njit(inline="always")
def add_row(row, never, hard, total):
    """Add each entry to its sum; count those that are forbidden."""
    for d in range(row.size):
        forbidden = row[d] == never
        hard[d] += 1.0 if forbidden else 0.0
        total[d] += 0.0 if forbidden else np.float64(row[d])


@njit(fastmath={"reassoc", "nsz"})
def sum_row(row, never):
    """Return how many entries of a row are forbidden, and the sum of the others; in any order, it is only a guide."""
    hard, total = 0.0, 0.0
    for d in range(row.size):
        forbidden = row[d] == never
        hard += 1.0 if forbidden else 0.0
        total += 0.0 if forbidden else np.float64(row[d])
    return hard, total


@njit(nogil=True)
def choose_greedily(graph, order, first, z, placed, means_at, means, sums, work):
    """Give variables in turn the value best for their factors: exactly where all others are set, on average elsewhere.

    Returns
    -------
    int
        How far in ``order`` this came before so many entries were read.
    """
    i = first
    while i < order.size and work > 0:
        v = order[i]
        size = graph.domains[v]
        work -= (graph.start[v + 1] - graph.start[v] + 1) * size
        for d in range(size):
            sums[0, d] = sums[1, d] = sums[2, d] = 0.0
        for j in range(graph.start[v], graph.start[v + 1]):
            f, own = graph.factor[j], graph.slot[j]
            if f >= graph.dense:
                continue
            at, known = graph.at[f], True
            for s in range(graph.scope_start[f], graph.scope_start[f + 1]):
                if s != own:
                    known = known and placed[graph.scope[s]]
                    at += z[graph.scope[s]] * graph.stride[s]
            for d in range(size):
                if not known:
                    sums[0, d] += means[0, means_at[own] + d]
                    sums[1, d] += means[1, means_at[own] + d]
                elif graph.data[at + d * graph.stride[own]] == graph.never:
                    sums[0, d] += 1.0
                else:
                    sums[1, d] += np.float64(graph.data[at + d * graph.stride[own]])
        z[v] = best_of(sums, size, 0)
        placed[v] = True
        i += 1
    return i
