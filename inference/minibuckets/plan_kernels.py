# mypy: ignore-errors
"""Partition buckets into mini-buckets in compiled code (GpuBE journal paper, Algorithm 2)."""

import numpy as np

from dmcmc.inference.elimination.plan_kernels import choose_row, sort_by, times
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def grown(array, needed):
    """Return the array, or an enlarged copy filled with −1 if it has fewer than ``needed`` entries."""
    if needed <= array.size:
        return array
    wider = np.full(max(needed, 2 * array.size), -1, dtype=array.dtype)
    for i in range(array.size):
        wider[i] = array[i]
    return wider


@njit(nogil=True)
def merge(union, count, scope, rank, z, out):
    """Write the union of two variable sets, sorted by rank, to ``out``; return its size, or −1 if it exceeds ``z``."""
    i, j, n = 0, 0, 0
    while i < count or j < scope.size:
        if n == z:
            return -1
        if j == scope.size or (i < count and rank[union[i]] < rank[scope[j]]):
            out[n] = union[i]
            i += 1
        else:
            if i < count and union[i] == scope[j]:
                i += 1
            out[n] = scope[j]
            j += 1
        n += 1
    return n


@njit(nogil=True)
def first_fit(scope_start, scope, rank, order, z):
    """Partition every bucket: tables by decreasing scope size, each into the first mini-bucket that it fits.

    This is the scope-based partitioning of Dechter and Rish (J. ACM 50(2), 2003); ``z`` limits the variables of a
    message. A single table that exceeds it forms a separate mini-bucket.

    Parameters
    ----------
    scope_start, scope, rank, order : int64
        As in :func:`dmcmc.inference.elimination.plan_kernels.plan_buckets`.
    z : int
        Largest number of variables of a message.

    Returns
    -------
    tuple of int64 arrays
        ``scope_start, scope`` of all tables, sorted by rank, where the message of mini-bucket g is table ``given + g``;
        ``variable`` of each mini-bucket; ``member_start, members``: its tables; ``remaining``: tables over kept
        variables.
    """
    given, steps = scope_start.size - 1, order.size
    start = grown(scope_start.copy(), 2 * given + 2 * steps + 16)
    scopes = grown(scope.copy(), 2 * scope.size + 16 * steps + 64)
    next_table = np.full(start.size, -1, dtype=np.int64)
    head = np.full(steps + 1, -1, dtype=np.int64)  # the last entry is for the tables over kept variables
    tail = np.full(steps + 1, -1, dtype=np.int64)
    variable = np.empty(2 * steps + 16, dtype=np.int64)
    member_start = np.zeros(2 * steps + 17, dtype=np.int64)
    members = np.empty(2 * given + steps + 16, dtype=np.int64)
    bucket = np.empty(given + steps + 1, dtype=np.int64)
    group_of = np.empty(given + steps + 1, dtype=np.int64)
    tables, groups, assigned, widest = given, 0, 0, z
    for t in range(given):
        sort_by(scopes[start[t] : start[t + 1]], start[t + 1] - start[t], rank)
        widest = max(widest, start[t + 1] - start[t])
        _append_to_bucket(t, scopes[start[t] : start[t + 1]], rank, head, tail, next_table)
    union = np.empty(widest + 1, dtype=np.int64)
    for b in range(steps):
        count, i = 0, head[b]
        while i >= 0:
            j = count
            while j > 0 and start[bucket[j - 1] + 1] - start[bucket[j - 1]] < start[i + 1] - start[i]:
                bucket[j] = bucket[j - 1]
                j -= 1
            bucket[j] = i
            count += 1
            i = next_table[i]
        unions = np.empty((max(1, count), widest + 1), dtype=np.int64)
        sizes = np.zeros(max(1, count), dtype=np.int64)
        n_groups = 1
        for j in range(count):
            separator = scopes[start[bucket[j]] + 1 : start[bucket[j] + 1]]
            for g in range(n_groups + 1):
                limit = z if j > 0 and g < n_groups else widest  # a new mini-bucket accepts a table of any size
                n = merge(unions[g], sizes[g], separator, rank, limit, union)
                if n >= 0:
                    for i in range(n):
                        unions[g, i] = union[i]
                    sizes[g] = n
                    group_of[j] = g
                    n_groups = max(n_groups, g + 1)
                    break
        variable = grown(variable, groups + n_groups)
        member_start = grown(member_start, groups + n_groups + 1)
        members = grown(members, assigned + count)
        start = grown(start, tables + n_groups + 1)
        next_table = grown(next_table, tables + n_groups)
        for g in range(n_groups):
            for j in range(count):
                if group_of[j] == g:
                    members[assigned] = bucket[j]
                    assigned += 1
            scopes = grown(scopes, start[tables] + sizes[g])
            start[tables + 1] = start[tables] + sizes[g]
            for i in range(sizes[g]):
                scopes[start[tables] + i] = unions[g, i]
            variable[groups] = order[b]
            member_start[groups + 1] = assigned
            _append_to_bucket(tables, unions[g, : sizes[g]], rank, head, tail, next_table)
            tables += 1
            groups += 1
    remaining = np.empty(tables, dtype=np.int64)
    left_over, i = 0, head[steps]
    while i >= 0:
        remaining[left_over] = i
        left_over += 1
        i = next_table[i]
    return (
        start[: tables + 1].copy(),
        scopes[: start[tables]].copy(),
        variable[:groups].copy(),
        member_start[: groups + 1].copy(),
        members[:assigned].copy(),
        remaining[:left_over].copy(),
    )


@njit(nogil=True)
def _append_to_bucket(t, scope, rank, head, tail, next_table):
    """Append a table to the list of its bucket."""
    steps = head.size - 1
    bucket = min(rank[scope[0]], steps) if scope.size else steps
    if tail[bucket] < 0:
        head[bucket] = t
    else:
        next_table[tail[bucket]] = t
    tail[bucket] = t
    next_table[t] = -1


@njit(nogil=True)
def measure_plan(scope_start, scope, rank, domains, variable, input_start, inputs):
    """Return the entries of every table, and the joined cells and the number of row axes of every mini-bucket.

    All three arrays are int64; the parameters are the fields of
    :class:`dmcmc.inference.elimination.plan.BucketProgram`, and ``rank`` (variables,) int64.
    """
    tables, groups = scope_start.size - 1, variable.size
    size = np.ones(tables, dtype=np.int64)
    cells = np.empty(groups, dtype=np.int64)
    row_axes = np.empty(groups, dtype=np.int64)
    for t in range(tables):
        for s in range(scope_start[t], scope_start[t + 1]):
            size[t] = times(size[t], domains[scope[s]])
    for g in range(groups):
        t = tables - groups + g
        cells[g] = times(size[t], domains[variable[g]])
        bucket_inputs = inputs[input_start[g] : input_start[g + 1]]
        row_axes[g] = choose_row(scope_start, scope, bucket_inputs, t, domains[variable[g]], rank, domains)
    return size, cells, row_axes


@njit(nogil=True)
def greedy_merges(sums, scopes, sizes, z, weight, max_entries):
    """Merge the pair of mini-buckets with the largest gain until no pair fits; return each table's mini-bucket.

    Parameters
    ----------
    sums : (tables, samples, x_size) float64
        Entries at the sampled assignments; modified.
    scopes : (tables, others) bool
        Scopes without the eliminated variable; modified.
    sizes : (others,) float64
        Domain sizes.
    z : int
        Largest number of variables of a message.
    weight : float
        Gain of an assignment that only the merged tables show to be forbidden.
    max_entries : float
        Largest number of entries of a merged message.

    Returns
    -------
    (tables,) int64
        The index of each table's mini-bucket.
    """
    count, samples, x_size = sums.shape
    group_of = np.arange(count)
    alive = np.ones(count, dtype=np.bool_)
    gains = np.full((count, count), -1.0)
    stale = np.ones(count, dtype=np.bool_)
    while True:
        for i in range(count):
            for j in range(i):
                if not (alive[i] and alive[j]) or not (stale[i] or stale[j]):
                    continue
                joined, entries = 0, 1.0
                for u in range(sizes.size):
                    if scopes[i, u] or scopes[j, u]:
                        joined += 1
                        entries *= sizes[u]
                gains[i, j] = -1.0
                if joined <= z and entries <= max_entries:
                    gains[i, j] = 0.0
                    for s in range(samples):
                        best_i, best_j, best = -np.inf, -np.inf, -np.inf
                        for x in range(x_size):
                            best_i = max(best_i, sums[i, s, x])
                            best_j = max(best_j, sums[j, s, x])
                            best = max(best, sums[i, s, x] + sums[j, s, x])
                        if best > -np.inf:
                            gains[i, j] += best_i + best_j - best
                        elif best_i > -np.inf and best_j > -np.inf:
                            gains[i, j] += weight
        stale[:] = False
        top_i, top_j = -1, -1
        for i in range(count):
            for j in range(i):
                if alive[i] and alive[j] and gains[i, j] > (gains[top_i, top_j] if top_i >= 0 else -0.5):
                    top_i, top_j = i, j
        if top_i < 0:
            return group_of
        sums[top_j] += sums[top_i]
        scopes[top_j] |= scopes[top_i]
        alive[top_i] = False
        stale[top_j] = True
        group_of[group_of == top_i] = top_j
