# mypy: ignore-errors
"""Build an elimination plan, compiled: a few microseconds a bucket.

Sizes saturate at :data:`HUGE` instead of wrapping, so a plan that no machine can hold still reads as that.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit

HUGE = 1 << 60  # entries; also what every larger product or sum becomes

# What a joined cell costs, in nanoseconds of one core; only the proportions matter.
_PER_CELL, _PER_ROW, _DENSE, _GATHERED = 0.06, 80.0, 0.12, 0.5
_WIDEST = 1 << 12  # cells of a row
_BASE = 1 << 16  # entries of what is added up for a row, for all values of the variable: should stay in the cache


@njit(nogil=True)
def times(a, b):
    """Return a·b, at most HUGE."""
    return HUGE if a > HUGE // max(b, 1) else a * b


@njit(nogil=True)
def sort_by(values, count, key):
    """Sort the first ``count`` values by their key, in place."""
    for i in range(1, count):
        v = values[i]
        j = i - 1
        while j >= 0 and key[values[j]] > key[v]:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = v


@njit(nogil=True)
def plan_buckets(scope_start, scope, rank, order, domains):
    """Distribute tables over buckets and derive every message.

    Parameters
    ----------
    scope_start, scope
        Scopes of the inputs, as in :class:`dmcmc.inference.model.flat_tables.FlatTables`.
    rank : (variables,) int64
        Position in the elimination order; kept variables come after all eliminated ones.
    order : (buckets,) int64
        The eliminated variables.
    domains : (variables,) int64

    Returns
    -------
    tuple of arrays
        scope_start, scope (of all tables, sorted by rank), size, input_start, inputs, remaining, cells, low:
        the fields of :class:`dmcmc.inference.elimination.plan.Program`.
    """
    given, buckets = scope_start.size - 1, order.size
    tables = given + buckets
    start = np.zeros(tables + 1, dtype=np.int64)
    for t in range(given + 1):
        start[t] = scope_start[t]
    scopes = np.empty(2 * scope.size + 16 * buckets + 64, dtype=np.int64)
    for s in range(scope.size):
        scopes[s] = scope[s]
    size = np.ones(tables, dtype=np.int64)
    head = np.full(buckets, -1, dtype=np.int64)
    tail = np.full(buckets, -1, dtype=np.int64)
    follower = np.full(tables, -1, dtype=np.int64)
    inputs = np.empty(tables, dtype=np.int64)
    input_start = np.zeros(buckets + 1, dtype=np.int64)
    remaining = np.empty(tables, dtype=np.int64)
    cells = np.zeros(buckets, dtype=np.int64)
    low = np.zeros(buckets, dtype=np.int64)
    seen = np.full(domains.size, -1, dtype=np.int64)
    left, taken = 0, 0
    for t in range(tables):
        if t >= given:  # the message of bucket t - given
            b = t - given
            begin = start[t]
            end = begin
            i = head[b]
            while i >= 0:
                inputs[taken] = i
                taken += 1
                if end + start[i + 1] - start[i] > scopes.size:
                    wider = np.empty(2 * scopes.size + domains.size, dtype=np.int64)
                    for s in range(end):
                        wider[s] = scopes[s]
                    scopes = wider
                for s in range(start[i], start[i + 1]):
                    u = scopes[s]
                    if rank[u] != b and seen[u] != b:
                        seen[u] = b
                        scopes[end] = u
                        end += 1
                i = follower[i]
            input_start[b + 1] = taken
            start[t + 1] = end
        begin, end = start[t], start[t + 1]
        sort_by(scopes[begin:end], end - begin, rank)
        for s in range(begin, end):
            size[t] = times(size[t], domains[scopes[s]])
        if t >= given:
            b = t - given
            cells[b] = times(size[t], domains[order[b]])
            mine = inputs[input_start[b] : taken]
            low[b] = choose_row(start, scopes, mine, t, domains[order[b]], rank, domains)
        home = rank[scopes[begin]] if end > begin else buckets
        if home >= buckets:
            remaining[left] = t
            left += 1
        elif tail[home] < 0:
            head[home] = t
            tail[home] = t
        else:
            follower[tail[home]] = t
            tail[home] = t
    return start, scopes[: start[tables]].copy(), size, input_start, inputs[:taken], remaining[:left], cells, low


@njit(nogil=True)
def choose_row(start, scopes, inputs, output, x_size, rank, domains):
    """Choose how many trailing separator variables make a row, by an estimate of what a cell costs.

    Tables that vary with the last leading variable are added for every row: cheap if they vary with all of the row's
    variables, dear if they must be gathered. Other tables that vary with the row are shared by neighbouring rows.
    """
    first, last = start[output], start[output + 1]
    best, best_cost = 0, np.inf
    width = 1
    for low in range(last - first + 1):
        if low > 0:
            width = times(width, domains[scopes[last - low]])
        if low > 1 and (times(width, x_size) > _BASE or width > _WIDEST):
            break
        edge = rank[scopes[last - low]] if low > 0 else HUGE  # from this rank on, variables are the row's
        turning = rank[scopes[last - low - 1]] if low < last - first else -1  # the variable that turns at every row
        often = 1.0 / domains[scopes[last - low - 1]] if turning >= 0 else 0.0
        cost = _PER_CELL + _PER_ROW / width
        for t in inputs:
            inside, turns, leads = 0, False, False
            for s in range(start[t] + 1, start[t + 1]):
                r = rank[scopes[s]]
                if r >= edge:
                    inside += 1
                else:
                    leads = True
                    turns |= r == turning
            if inside > 0 and leads:
                cost += (_DENSE if inside == low else _GATHERED) * (1.0 if turns else often)
        if cost < best_cost:
            best, best_cost = low, cost
    return best
