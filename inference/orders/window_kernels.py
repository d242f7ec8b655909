# mypy: ignore-errors
"""Improve an elimination order locally: the best order inside small windows of its bucket tree, exactly.

The bucket tree's parent of v is the first vertex eliminated after v among its separator. Any order that puts children
before parents gives the same buckets. So take a connected piece S of the tree, k vertices:

* everything that hangs below S may be eliminated before it; what it leaves behind are the separators of the subtrees
  that hang on S (cliques), and these with S's own edges are the graph that S is eliminated from;
* the bucket of s ∈ S then depends only on *which* vertices of S went before it, not on their order. Dynamic
  programming over the 2^k subsets finds the cheapest order;
* what S leaves behind, and so every bucket above, does not depend on the order inside S.

The subset program is Held-Karp's as used for treewidth (Bodlaender, Fomin, Koster, Kratsch, Thilikos 2012); the
windows are the idea of subtree reconfiguration for tensor networks (Gray & Kourtis 2021).
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import ONE, bit, has, lowest, members, popcount
from dmcmc.inference.orders.greedy_kernels import CAP, random_unit
from dmcmc.inference.runtime.compile import njit

_SMALL, _LARGE = 5, 8  # vertices of a window
_FEW, _MANY = 3, 40  # rounds
_KEPT = -2  # parent of a vertex that stays; −1 is a root's


@njit(nogil=True)
def bucket_tree(graph, sizes, order):
    """Return each vertex's separator (n, words), parent (n,) and joined cells (n,), of eliminating in this order."""
    n, words = graph.shape
    rank = np.full(n, n, dtype=np.int64)
    for i in range(order.size):
        rank[order[i]] = i
    separator = np.zeros((n, words), dtype=np.uint64)
    parent = np.full(n, _KEPT, dtype=np.int64)
    cells = np.zeros(n)
    near = np.empty(n, dtype=np.int64)
    for v in order:
        for i in range(members(graph[v], near)):
            if rank[near[i]] > rank[v]:
                separator[v, near[i] >> 6] |= bit(near[i])
    for v in order:
        joined, above = sizes[v], -1
        for i in range(members(separator[v], near)):
            u = near[i]
            joined = min(joined * sizes[u], CAP)
            if rank[u] < n and (above < 0 or rank[u] < rank[above]):
                above = u
        cells[v], parent[v] = joined, above
        if above >= 0:
            for k in range(words):
                separator[above, k] |= separator[v, k]
            separator[above, above >> 6] &= ~bit(above)
    return separator, parent, cells


@njit(nogil=True)
def order_of_tree(parent, order):
    """Write the tree in postorder to ``order``: each subtree is finished before the next begins."""
    n = parent.size
    first = np.full(n + 1, -1, dtype=np.int64)  # first child, then next sibling; roots hang on n
    following = np.full(n, -1, dtype=np.int64)
    for v in range(n - 1, -1, -1):
        if parent[v] != _KEPT:
            above = parent[v] if parent[v] >= 0 else n
            following[v] = first[above]
            first[above] = v
    path = np.empty(n + 1, dtype=np.int64)
    path[0] = n
    depth, done = 0, 0
    while depth >= 0:
        v = path[depth]
        child = first[v]
        if child >= 0:
            first[v] = following[child]
            depth += 1
            path[depth] = child
        else:
            if v < n:
                order[done] = v
                done += 1
            depth -= 1


@njit(nogil=True)
def totals(separator, cells, order):
    """Return Σ cells in elimination order, the largest, and the width."""
    total, largest, width = 0.0, 0.0, 0
    for v in order:
        total += cells[v]
        largest = max(largest, cells[v])
        count = 0
        for k in range(separator.shape[1]):
            count += popcount(separator[v, k])
        width = max(width, count)
    return total, largest, width


@njit(nogil=True)
def _grow(parent, cells, start, size, noisy, state, window, inside):
    """Grow a connected piece of the tree from ``start``, largest buckets first; return its vertices' number."""
    window[0] = start
    inside[start] = True
    count = 1
    while count < size:
        best, chosen = -1.0, -1
        for u in range(parent.size):
            if parent[u] >= 0 and not inside[u] and inside[parent[u]]:
                value = cells[u] * (1.0 + 64.0 * random_unit(state)) if noisy else cells[u]
                if value > best:
                    best, chosen = value, u
        for i in range(count):  # at most one of them has its parent outside
            u = parent[window[i]]
            if u >= 0 and not inside[u]:
                value = cells[u] * (1.0 + 64.0 * random_unit(state)) if noisy else cells[u]
                if value > best:
                    best, chosen = value, u
        if chosen < 0:
            break
        window[count] = chosen
        inside[chosen] = True
        count += 1
    return count


@njit(nogil=True)
def _local_rows(graph, separator, parent, window, count, inside, names, rows):
    """Write the graph that the window is eliminated from: ``rows[j]``, bits are places in ``names``.

    ``names`` starts with the window. Returns the names' number, or 0 if there are more than 64.
    """
    for j in range(count):
        names[j] = window[j]
    total = count
    for k in range(graph.shape[1]):
        word = np.uint64(0)
        for j in range(count):
            word |= separator[window[j], k]
        while word:
            u = k * 64 + lowest(word)
            word &= word - ONE
            if not inside[u]:
                if total == 64:
                    return 0
                names[total] = u
                total += 1
    for j in range(count):
        row = np.uint64(0)
        for i in range(total):
            if has(graph[window[j]], names[i]):
                row |= bit(i)
        rows[j] = row
    for c in range(parent.size):
        if parent[c] >= 0 and inside[parent[c]] and not inside[c]:
            row = np.uint64(0)
            for i in range(total):
                if has(separator[c], names[i]):
                    row |= bit(i)
            for j in range(count):
                if row & bit(j):
                    rows[j] |= row
    for j in range(count):
        rows[j] &= ~bit(j)
    return total


@njit(nogil=True)
def _best_inside(rows, joined, cost, last, count, sizes, names, limit):
    """Fill the tables over subsets of the window; return the cheapest order's cells.

    ``rows[T, j]`` and ``joined[T, j]`` are the separator and cells of j after T; ``cost[T]`` is the least cost of
    eliminating T, ``last[T]`` the vertex that ends it. Subsets that cost ``limit`` are not continued.
    """
    everything = (1 << count) - 1
    for done in range(1, everything + 1):
        cost[done] = np.inf
    cost[0] = 0.0
    for done in range(everything + 1):
        if done:
            t = lowest(np.uint64(done))
            before = done & (done - 1)
            gone = rows[before, t]
            for j in range(count):
                if (done >> j) & 1:
                    continue
                row, cells = rows[before, j], joined[before, j]
                if row & bit(t):
                    new = gone & ~row & ~bit(j)
                    row = (row | new) & ~bit(t)
                    cells /= sizes[names[t]]
                    while new:
                        cells *= sizes[names[lowest(new)]]
                        new &= new - ONE
                rows[done, j], joined[done, j] = row, cells
        if cost[done] >= limit:
            continue
        for j in range(count):
            after = done | (1 << j)
            if after != done and cost[done] + joined[done, j] < cost[after]:
                cost[after] = cost[done] + joined[done, j]
                last[after] = j
    return cost[everything]


@njit(nogil=True)
def _rewire(separator, parent, cells, window, count, inside, names, rows, joined, last):
    """Put the window's best order into the bucket tree."""
    top = -1
    for j in range(count):
        if parent[window[j]] < 0 or not inside[parent[window[j]]]:
            top = parent[window[j]]
    best = np.empty(count, dtype=np.int64)
    done = (1 << count) - 1
    for i in range(count - 1, -1, -1):
        best[i] = last[done]
        done &= ~(1 << best[i])
    for i in range(count):
        j = best[i]
        s, row = window[j], rows[done, j]
        cells[s] = joined[done, j]
        parent[s] = top
        for h in range(count - 1, i, -1):
            if row & bit(best[h]):
                parent[s] = window[best[h]]
        for k in range(separator.shape[1]):
            separator[s, k] = 0
        while row:
            u = names[lowest(row)]
            separator[s, u >> 6] |= bit(u)
            row &= row - ONE
        done |= 1 << j
    for c in range(parent.size):
        if parent[c] >= 0 and inside[parent[c]] and not inside[c]:
            for h in range(count - 1, -1, -1):
                if has(separator[c], window[best[h]]):
                    parent[c] = window[best[h]]


@njit(nogil=True)
def improve(graph, sizes, separator, parent, cells, thorough, work_limit, state):
    """Reorder windows around the largest buckets until a round gains nothing; return the work.

    Parameters
    ----------
    graph : (n, words) uint64
    sizes : (n,) float64
    separator, parent, cells
        A bucket tree from :func:`bucket_tree`; changed in place.
    thorough : bool
        Large windows and many rounds; else small ones and few. The first round grows windows by cells alone, later
        ones at random.
    work_limit : float
        Stop when the work exceeds this.
    state
        A random generator's.
    """
    n = parent.size
    size = _LARGE if thorough else _SMALL
    window = np.empty(size, dtype=np.int64)
    inside = np.zeros(n, dtype=np.bool_)
    names = np.empty(64, dtype=np.int64)
    rows = np.empty((1 << size, size), dtype=np.uint64)
    joined = np.empty((1 << size, size))
    cost = np.empty(1 << size)
    last = np.empty(1 << size, dtype=np.int64)
    work, idle = 0, 0
    for r in range(_MANY if thorough else _FEW):
        total = cells.sum()
        gained = 0.0
        for start in np.argsort(-cells, kind="mergesort"):
            if cells[start] * 4 * n < total or work >= work_limit:
                break
            count = _grow(parent, cells, start, size, r > 0, state, window, inside)
            work += n * (count + 1)
            named = 0
            if count > 1:
                named = _local_rows(graph, separator, parent, window, count, inside, names, rows[0])
            if named:
                before = 0.0
                for j in range(count):
                    joined[0, j] = sizes[window[j]]
                    row = rows[0, j]
                    while row:
                        joined[0, j] *= sizes[names[lowest(row)]]
                        row &= row - ONE
                    before += cells[window[j]]
                limit = before * (1 - 1e-9)
                after = _best_inside(rows, joined, cost, last, count, sizes, names, limit)
                work += named * count + (count << (count + 1))
                if after < limit:
                    _rewire(separator, parent, cells, window, count, inside, names, rows, joined, last)
                    gained += before - after
            for j in range(count):
                inside[window[j]] = False
        idle = 0 if gained > 1e-9 * total else idle + 1
        if idle == 2 or work >= work_limit:
            break
    return work
