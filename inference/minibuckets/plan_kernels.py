# mypy: ignore-errors
"""Distribute tables over mini-buckets, compiled: a few µs a mini-bucket (GpuBE journal paper, Algorithm 2)."""

import numpy as np

from dmcmc.inference.elimination.plan_kernels import choose_row, sort_by, times
from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def grown(array, needed):
    """Return the array, or a longer copy if it has fewer than ``needed`` entries."""
    if needed <= array.size:
        return array
    wider = np.full(max(needed, 2 * array.size), -1, dtype=array.dtype)
    for i in range(array.size):
        wider[i] = array[i]
    return wider


@njit(nogil=True)
def merge(union, count, scope, rank, z, out):
    """Write the union of two sets, sorted by rank, to ``out``; return its size, or −1 if that is more than ``z``."""
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

    The scope-based partitioning of Dechter and Rish (J. ACM 50(2), 2003); ``z`` limits a message's variables. A table
    that is larger by itself makes a mini-bucket by itself.

    Parameters
    ----------
    scope_start, scope, rank, order
        As in :func:`dmcmc.inference.elimination.plan_kernels.plan_buckets`.

    Returns
    -------
    tuple of int64 arrays
        scope_start, scope: of all tables, sorted by rank, the message of mini-bucket g being table ``given + g``;
        variable: of each mini-bucket; member_start, members: its tables; remaining: tables over kept variables.
    """
    given, steps = scope_start.size - 1, order.size
    start = grown(scope_start.copy(), 2 * given + 2 * steps + 16)
    scopes = grown(scope.copy(), 2 * scope.size + 16 * steps + 64)
    follower = np.full(start.size, -1, dtype=np.int64)
    head = np.full(steps + 1, -1, dtype=np.int64)  # the last one: tables over kept variables
    tail = np.full(steps + 1, -1, dtype=np.int64)
    variable = np.empty(2 * steps + 16, dtype=np.int64)
    member_start = np.zeros(2 * steps + 17, dtype=np.int64)
    members = np.empty(2 * given + steps + 16, dtype=np.int64)
    bucket = np.empty(given + steps + 1, dtype=np.int64)
    home_of = np.empty(given + steps + 1, dtype=np.int64)
    tables, groups, taken, widest = given, 0, 0, z
    for t in range(given):
        sort_by(scopes[start[t] : start[t + 1]], start[t + 1] - start[t], rank)
        widest = max(widest, start[t + 1] - start[t])
        _file(t, scopes[start[t] : start[t + 1]], rank, head, tail, follower)
    spare = np.empty(widest + 1, dtype=np.int64)
    for b in range(steps):
        count, i = 0, head[b]
        while i >= 0:
            j = count
            while j > 0 and start[bucket[j - 1] + 1] - start[bucket[j - 1]] < start[i + 1] - start[i]:
                bucket[j] = bucket[j - 1]
                j -= 1
            bucket[j] = i
            count += 1
            i = follower[i]
        unions = np.empty((max(1, count), widest + 1), dtype=np.int64)
        sizes = np.zeros(max(1, count), dtype=np.int64)
        made = 1
        for j in range(count):
            own = scopes[start[bucket[j]] + 1 : start[bucket[j] + 1]]
            for g in range(made + 1):
                limit = z if j > 0 and g < made else widest  # into a new one it goes whatever its size
                n = merge(unions[g], sizes[g], own, rank, limit, spare)
                if n >= 0:
                    for i in range(n):
                        unions[g, i] = spare[i]
                    sizes[g] = n
                    home_of[j] = g
                    made = max(made, g + 1)
                    break
        variable = grown(variable, groups + made)
        member_start = grown(member_start, groups + made + 1)
        members = grown(members, taken + count)
        start = grown(start, tables + made + 1)
        follower = grown(follower, tables + made)
        for g in range(made):
            for j in range(count):
                if home_of[j] == g:
                    members[taken] = bucket[j]
                    taken += 1
            scopes = grown(scopes, start[tables] + sizes[g])
            start[tables + 1] = start[tables] + sizes[g]
            for i in range(sizes[g]):
                scopes[start[tables] + i] = unions[g, i]
            variable[groups] = order[b]
            member_start[groups + 1] = taken
            _file(tables, unions[g, : sizes[g]], rank, head, tail, follower)
            tables += 1
            groups += 1
    remaining = np.empty(tables, dtype=np.int64)
    left, i = 0, head[steps]
    while i >= 0:
        remaining[left] = i
        left += 1
        i = follower[i]
    return (
        start[: tables + 1].copy(),
        scopes[: start[tables]].copy(),
        variable[:groups].copy(),
        member_start[: groups + 1].copy(),
        members[:taken].copy(),
        remaining[:left].copy(),
    )


@njit(nogil=True)
def _file(t, scope, rank, head, tail, follower):
    """Put a table at the end of its bucket's list."""
    steps = head.size - 1
    home = min(rank[scope[0]], steps) if scope.size else steps
    if tail[home] < 0:
        head[home] = t
    else:
        follower[tail[home]] = t
    tail[home] = t
    follower[t] = -1


@njit(nogil=True)
def measure(scope_start, scope, rank, domains, variable, input_start, inputs):
    """Return the entries of every table, and the joined cells and the row of every mini-bucket (``low``)."""
    tables, groups = scope_start.size - 1, variable.size
    size = np.ones(tables, dtype=np.int64)
    cells = np.empty(groups, dtype=np.int64)
    low = np.empty(groups, dtype=np.int64)
    for t in range(tables):
        for s in range(scope_start[t], scope_start[t + 1]):
            size[t] = times(size[t], domains[scope[s]])
    for g in range(groups):
        t = tables - groups + g
        cells[g] = times(size[t], domains[variable[g]])
        mine = inputs[input_start[g] : input_start[g + 1]]
        low[g] = choose_row(scope_start, scope, mine, t, domains[variable[g]], rank, domains)
    return size, cells, low


@njit(nogil=True)
def greedy_merges(sums, scopes, sizes, z, weight, left):
    """Merge the pair of mini-buckets with the largest gain until none fits; return each table's mini-bucket.

    Parameters
    ----------
    sums : (tables, samples, x_size) float64
        Entries at the sampled assignments; changed.
    scopes : (tables, others) bool
        Without the eliminated variable; changed.
    sizes : (others,) float64
        Domain sizes.
    weight : float
        Gain of an assignment that only the merged tables show to be forbidden.
    left : float
        Entries that a merged message may have.
    """
    count, samples, x_size = sums.shape
    home = np.arange(count)
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
                if joined <= z and entries <= left:
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
            return home
        sums[top_j] += sums[top_i]
        scopes[top_j] |= scopes[top_i]
        alive[top_i] = False
        stale[top_j] = True
        home[home == top_i] = top_j
