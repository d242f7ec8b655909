# mypy: ignore-errors
"""Build an elimination plan in compiled code.

Sizes saturate at ``HUGE`` instead of overflowing, so that a plan too large for any machine is recognised as such.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.tuning import GATHERED_COST, MAX_ROW_CELLS, MAX_ROW_SUMS, ROW_COST

HUGE = 1 << 60  # entries; the saturation value of every larger product or sum


@njit(nogil=True, allocates=False)
def times(a, b):
    """Return a·b, saturated at ``HUGE``."""
    return HUGE if a > HUGE // max(b, 1) else a * b


@njit(nogil=True, allocates=False)
def sort_by(values, count, key):
    """Sort the first ``count`` values in place by their key (insertion sort)."""
    for i in range(1, count):
        v = values[i]
        j = i - 1
        while j >= 0 and key[values[j]] > key[v]:
            values[j + 1] = values[j]
            j -= 1
        values[j + 1] = v


@njit(nogil=True)
def plan_buckets(scope_start, scope, rank, order, domains):
    """Assign every table to a bucket and derive the scope and size of each bucket's message.

    Parameters
    ----------
    scope_start, scope : int64
        Scopes of the inputs, as in :class:`dmcmc.inference.model.flat_tables.FlatTables`.
    rank : (variables,) int64
        Position in the elimination order; kept variables come after all eliminated ones.
    order : (buckets,) int64
        The eliminated variables.
    domains : (variables,) int64
        Domain sizes.

    Returns
    -------
    tuple of arrays
        ``scope_start, scope`` (of all tables, sorted by rank), ``size, input_start, inputs, remaining, cells,
        row_axes``: the fields of :class:`dmcmc.inference.elimination.plan.BucketProgram`, and the sizes and the
        remaining tables of the plan.
    """
    given, buckets = scope_start.size - 1, order.size
    tables = given + buckets
    start = np.zeros(tables + 1, dtype=np.int64)
    for t in range(given + 1):
        start[t] = scope_start[t]
    # initial capacity; enlarged when it is full
    scopes = np.empty(2 * scope.size + 16 * buckets + 64, dtype=np.int64)
    for s in range(scope.size):
        scopes[s] = scope[s]
    size = np.ones(tables, dtype=np.int64)
    # The tables of each bucket form a linked list: first table, last table, and the table after each table; −1 is none.
    head = np.full(buckets, -1, dtype=np.int64)
    tail = np.full(buckets, -1, dtype=np.int64)
    next_table = np.full(tables, -1, dtype=np.int64)
    inputs = np.empty(tables, dtype=np.int64)
    input_start = np.zeros(buckets + 1, dtype=np.int64)
    remaining = np.empty(tables, dtype=np.int64)
    cells = np.zeros(buckets, dtype=np.int64)
    row_axes = np.zeros(buckets, dtype=np.int64)
    # the last bucket whose message was found to contain each variable
    last_bucket_with = np.full(domains.size, -1, dtype=np.int64)
    n_remaining, n_assigned = 0, 0
    for t in range(tables):
        if t >= given:  # the message of bucket t - given
            b = t - given
            begin = start[t]
            end = begin
            i = head[b]
            while i >= 0:
                inputs[n_assigned] = i
                n_assigned += 1
                if end + start[i + 1] - start[i] > scopes.size:
                    enlarged = np.empty(2 * scopes.size + domains.size, dtype=np.int64)
                    for s in range(end):
                        enlarged[s] = scopes[s]
                    scopes = enlarged
                for s in range(start[i], start[i + 1]):
                    u = scopes[s]
                    if rank[u] != b and last_bucket_with[u] != b:
                        last_bucket_with[u] = b
                        scopes[end] = u
                        end += 1
                i = next_table[i]
            input_start[b + 1] = n_assigned
            start[t + 1] = end
        begin, end = start[t], start[t + 1]
        sort_by(scopes[begin:end], end - begin, rank)
        for s in range(begin, end):
            size[t] = times(size[t], domains[scopes[s]])
        if t >= given:
            b = t - given
            cells[b] = times(size[t], domains[order[b]])
            bucket_inputs = inputs[input_start[b] : n_assigned]
            row_axes[b] = choose_row(start, scopes, bucket_inputs, t, domains[order[b]], rank, domains)
        bucket_rank = rank[scopes[begin]] if end > begin else buckets
        if bucket_rank >= buckets:
            remaining[n_remaining] = t
            n_remaining += 1
        elif tail[bucket_rank] < 0:
            head[bucket_rank] = t
            tail[bucket_rank] = t
        else:
            next_table[tail[bucket_rank]] = t
            tail[bucket_rank] = t
    return (
        start,
        scopes[: start[tables]].copy(),
        size,
        input_start,
        inputs[:n_assigned],
        remaining[:n_remaining],
        cells,
        row_axes,
    )


@njit(nogil=True, allocates=False)
def choose_row(start, scopes, inputs, output, x_size, rank, domains):
    """Return how many trailing separator variables should form a row, by an estimated cost per cell.

    A row is the innermost, vectorised loop of the join. A table that varies with the last leading variable is added for
    every row. This is cheap if it varies with all variables of the row, and expensive if its entries must be gathered.
    The sum of the other tables is shared by neighbouring rows. The cost per cell, in nanoseconds, is::

        ROW_COST / width + Σ (1 or GATHERED_COST) · f

    The sum is over the tables that depend on variables of the row and on leading variables. f is 1 for a table that
    varies with the last leading variable, otherwise 1 / (its domain size).

    Parameters
    ----------
    start, scopes : int64
        Scopes of all tables, sorted by rank: ``scopes[start[t]:start[t + 1]]``.
    inputs : int64
        The tables of the bucket; the eliminated variable is the first of their scopes.
    output : int
        The message's table; its scope is the separator.
    x_size : int
        Domain size of the eliminated variable.
    rank, domains : (variables,) int64
        Position of each variable in the elimination order, and domain sizes.
    """
    first, last = start[output], start[output + 1]
    best_axes, best_cost = 0, np.inf
    width = 1
    for row_axes in range(last - first + 1):
        if row_axes > 0:
            width = times(width, domains[scopes[last - row_axes]])
        if row_axes > 1 and (times(width, x_size) > MAX_ROW_SUMS or width > MAX_ROW_CELLS):
            break
        # variables of this rank and above belong to the row
        first_row_rank = rank[scopes[last - row_axes]] if row_axes > 0 else HUGE
        # the leading variable that changes with every row
        last_leading = rank[scopes[last - row_axes - 1]] if row_axes < last - first else -1
        row_share = 1.0 / domains[scopes[last - row_axes - 1]] if last_leading >= 0 else 0.0
        cost = ROW_COST / width
        for t in inputs:
            shared_axes, per_row, has_leading = 0, False, False
            for s in range(start[t] + 1, start[t + 1]):
                r = rank[scopes[s]]
                if r >= first_row_rank:
                    shared_axes += 1
                else:
                    has_leading = True
                    per_row |= r == last_leading
            if shared_axes > 0 and has_leading:
                cost += (1.0 if shared_axes == row_axes else GATHERED_COST) * (1.0 if per_row else row_share)
        if cost < best_cost:
            best_axes, best_cost = row_axes, cost
    return best_axes
