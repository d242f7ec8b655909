# mypy: ignore-errors
"""Partition buckets into mini-buckets in compiled code (GpuBE journal paper, Algorithm 2).

A bucket holds all tables with the variable that it eliminates; a mini-bucket is a group of them that is eliminated
separately. z is the largest number of variables of a mini-bucket's message, a table over the other variables of the
group. The rank of a variable is its position in the elimination order; kept variables, which are not eliminated, have
the largest ranks. ``minibuckets.plan`` calls :func:`first_fit` and :func:`measure_plan`, ``content_partition`` calls
:func:`greedy_merges`.
"""

import numpy as np

from dmcmc.inference.elimination.plan_kernels import choose_row, sort_by, times
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def enlarged(array, needed):
    """Return the array, or an enlarged copy filled with −1 if it has fewer than ``needed`` entries."""
    if needed <= array.size:
        return array
    wider = np.full(max(needed, 2 * array.size), -1, dtype=array.dtype)
    for i in range(array.size):
        wider[i] = array[i]
    return wider


@njit(nogil=True, allocates=False)
def union_up_to(union, count, scope, rank, z, out):
    """Write the union of two variable sets, sorted by rank, to ``out``; return its size, or −1 if it exceeds ``z``.

    Parameters
    ----------
    union : int64
        The first set: its first ``count`` entries, sorted by rank.
    scope : int64
        The second set, sorted by rank.
    rank : (variables,) int64
        Position of each variable in the elimination order.
    out : int64
        Output, with space for ``z`` variables.
    """
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
    # initial capacities of the output; the arrays are enlarged when they are full
    start = enlarged(scope_start.copy(), 2 * given + 2 * steps + 16)
    scopes = enlarged(scope.copy(), 2 * scope.size + 16 * steps + 64)
    next_table = np.full(start.size, -1, dtype=np.int64)
    head = np.full(steps + 1, -1, dtype=np.int64)  # linked lists, see _append_to_bucket
    tail = np.full(steps + 1, -1, dtype=np.int64)
    variable = np.empty(2 * steps + 16, dtype=np.int64)
    member_start = np.zeros(2 * steps + 17, dtype=np.int64)
    members = np.empty(2 * given + steps + 16, dtype=np.int64)
    # tables of the current bucket by decreasing scope size, and the mini-bucket of each of them
    bucket_tables = np.empty(given + steps + 1, dtype=np.int64)
    group_of = np.empty(given + steps + 1, dtype=np.int64)
    tables, groups, n_members, widest = given, 0, 0, z
    for t in range(given):
        sort_by(scopes[start[t] : start[t + 1]], start[t + 1] - start[t], rank)
        widest = max(widest, start[t + 1] - start[t])
        _append_to_bucket(t, scopes[start[t] : start[t + 1]], rank, head, tail, next_table)
    merged = np.empty(widest + 1, dtype=np.int64)
    for b in range(steps):
        count, i = 0, head[b]
        while i >= 0:
            j = count
            while j > 0 and start[bucket_tables[j - 1] + 1] - start[bucket_tables[j - 1]] < start[i + 1] - start[i]:
                bucket_tables[j] = bucket_tables[j - 1]
                j -= 1
            bucket_tables[j] = i
            count += 1
            i = next_table[i]
        # unions[g, :union_sizes[g]] are the variables of the message of mini-bucket g
        unions = np.empty((max(1, count), widest + 1), dtype=np.int64)
        union_sizes = np.zeros(max(1, count), dtype=np.int64)
        n_groups = 1
        for j in range(count):
            separator = scopes[start[bucket_tables[j]] + 1 : start[bucket_tables[j] + 1]]
            for g in range(n_groups + 1):
                limit = z if j > 0 and g < n_groups else widest  # a new mini-bucket accepts a table of any size
                n = union_up_to(unions[g], union_sizes[g], separator, rank, limit, merged)
                if n >= 0:
                    for i in range(n):
                        unions[g, i] = merged[i]
                    union_sizes[g] = n
                    group_of[j] = g
                    n_groups = max(n_groups, g + 1)
                    break
        variable = enlarged(variable, groups + n_groups)
        member_start = enlarged(member_start, groups + n_groups + 1)
        members = enlarged(members, n_members + count)
        start = enlarged(start, tables + n_groups + 1)
        next_table = enlarged(next_table, tables + n_groups)
        for g in range(n_groups):
            for j in range(count):
                if group_of[j] == g:
                    members[n_members] = bucket_tables[j]
                    n_members += 1
            scopes = enlarged(scopes, start[tables] + union_sizes[g])
            start[tables + 1] = start[tables] + union_sizes[g]
            for i in range(union_sizes[g]):
                scopes[start[tables] + i] = unions[g, i]
            variable[groups] = order[b]
            member_start[groups + 1] = n_members
            _append_to_bucket(tables, unions[g, : union_sizes[g]], rank, head, tail, next_table)
            tables += 1
            groups += 1
    remaining = np.empty(tables, dtype=np.int64)
    n_remaining, i = 0, head[steps]
    while i >= 0:
        remaining[n_remaining] = i
        n_remaining += 1
        i = next_table[i]
    return (
        start[: tables + 1].copy(),
        scopes[: start[tables]].copy(),
        variable[:groups].copy(),
        member_start[: groups + 1].copy(),
        members[:n_members].copy(),
        remaining[:n_remaining].copy(),
    )


@njit(nogil=True, allocates=False)
def _append_to_bucket(t, scope, rank, head, tail, next_table):
    """Append a table to the linked list of its bucket, which is that of the first variable of its scope.

    The list of bucket b begins at ``head[b]`` and ends at ``tail[b]``; ``next_table[t]`` is the table after t, −1 for
    none. The last list holds the tables over kept variables.
    """
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

    The joined cells are the entries of the join of a mini-bucket's tables. The row axes are the trailing variables of
    its message that form one row, the unit of vectorised work. All three arrays are int64; entries and cells saturate
    at ``plan_kernels.HUGE`` of ``inference.elimination``. The parameters are the fields of
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

    The gain of a pair is how much the merged mini-bucket lowers the sum of the two maxima over x, added up over the
    samples. Only the gains of pairs with the mini-bucket that changed last are computed again.

    Parameters
    ----------
    sums : (tables, samples, x_size) float64
        Entries at the sampled assignments; −∞ is forbidden. Row i is replaced by the sum of mini-bucket i.
    scopes : (tables, separator) bool
        Which separator variables each table has; modified as ``sums``.
    sizes : (separator,) float64
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
    is_group = np.ones(count, dtype=np.bool_)
    gains = np.full((count, count), -1.0)
    stale = np.ones(count, dtype=np.bool_)
    while True:
        for i in range(count):
            for j in range(i):
                if not (is_group[i] and is_group[j]) or not (stale[i] or stale[j]):
                    continue
                n_variables, entries = 0, 1.0
                for u in range(sizes.size):
                    if scopes[i, u] or scopes[j, u]:
                        n_variables += 1
                        entries *= sizes[u]
                gains[i, j] = -1.0
                if n_variables <= z and entries <= max_entries:
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
        # gains are −1 for pairs that do not fit, and about 0 or more otherwise: −0.5 separates them
        best_pair_i, best_pair_j = -1, -1
        for i in range(count):
            for j in range(i):
                if (
                    is_group[i]
                    and is_group[j]
                    and gains[i, j] > (gains[best_pair_i, best_pair_j] if best_pair_i >= 0 else -0.5)
                ):
                    best_pair_i, best_pair_j = i, j
        if best_pair_i < 0:
            return group_of
        sums[best_pair_j] += sums[best_pair_i]
        scopes[best_pair_j] |= scopes[best_pair_i]
        is_group[best_pair_i] = False
        stale[best_pair_j] = True
        group_of[group_of == best_pair_i] = best_pair_j
