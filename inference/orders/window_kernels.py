# mypy: ignore-errors
"""Improve an elimination order locally: order small windows of its bucket tree optimally.

The bucket tree's parent of v is the first vertex eliminated after v among its separator (the other vertices of its
bucket). Any order that puts children before parents gives the same buckets. So take a connected set S of the tree, k
vertices (a window):

* Everything that hangs below S may be eliminated before it. That leaves the separators of the subtrees that hang on S
  (cliques). These and S's own edges are the graph that S is eliminated from.
* The bucket of s ∈ S then depends only on *which* vertices of S were eliminated before it, not on their order. Dynamic
  programming over the 2^k subsets finds an optimal order: cost(T) = min over j ∈ T of cost(T − j) + cells of j's bucket
  after T − j.
* What S leaves behind, and so every bucket above, does not depend on the order inside S.

The dynamic program is Held-Karp's, as used for treewidth (Bodlaender, Fomin, Koster, Kratsch, Thilikos 2012). The
windows are the idea of subtree reconfiguration for tensor networks (Gray & Kourtis 2021). Arguments of all functions:

* ``graph`` (n, words) uint64: rows of bits; ``sizes`` (n,) float64: domain sizes; ``order`` (eliminate,) int64;
* ``separator`` (n, words) uint64, ``parent`` (n,) int64, ``cells`` (n,) float64: a bucket tree, see
  :func:`bucket_tree`;
* ``window`` (k,) int64: its vertices, of which the first ``count`` are valid; ``inside`` (n,) bool: their mask;
* ``vertices`` (64,) int64: the window's vertices, then those of its separators; bit i of a local row is
  ``vertices[i]``;
* ``rows`` (2^k, k) uint64, ``joined`` (2^k, k) float64: separator and cells of window vertex j after subset T;
* ``cost`` (2^k,) float64, ``last`` (2^k,) int64: least cells of eliminating subset T, and its last vertex;
* ``state`` (1,) uint64: a random generator's state.

``bit(v)`` is the word 1 << (v & 63), which belongs to word v >> 6 of a row. The unit of work is one access to a word.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import MAX_CELLS, ONE, bit, has, lowest, members, popcount, random_unit
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.tuning import FEW_ROUNDS, LARGE_WINDOW, MANY_ROUNDS, SMALL_WINDOW

_NOT_ELIMINATED = -2  # parent of a kept vertex; −1 is a root's


@njit(nogil=True)
def bucket_tree(graph, sizes, order):
    """Return the bucket tree of an order.

    Returns
    -------
    separator : (n, words) uint64
        The other vertices of each vertex's bucket.
    parent : (n,) int64
        The first of these in the order; −1 for a root, ``_NOT_ELIMINATED`` for a kept vertex.
    cells : (n,) float64
        Cells of each bucket's joined table, at most 1e300; 0 for a kept vertex.
    """
    n, words = graph.shape
    rank = np.full(n, n, dtype=np.int64)
    for i in range(order.size):
        rank[order[i]] = i
    separator = np.zeros((n, words), dtype=np.uint64)
    parent = np.full(n, _NOT_ELIMINATED, dtype=np.int64)
    cells = np.zeros(n)
    neighbours = np.empty(n, dtype=np.int64)
    for v in order:
        for i in range(members(graph[v], neighbours)):
            if rank[neighbours[i]] > rank[v]:
                separator[v, neighbours[i] >> 6] |= bit(neighbours[i])
    for v in order:
        joined_cells, next_vertex = sizes[v], -1
        for i in range(members(separator[v], neighbours)):
            u = neighbours[i]
            joined_cells = min(joined_cells * sizes[u], MAX_CELLS)
            if rank[u] < n and (next_vertex < 0 or rank[u] < rank[next_vertex]):
                next_vertex = u
        cells[v], parent[v] = joined_cells, next_vertex
        if next_vertex >= 0:
            for k in range(words):
                separator[next_vertex, k] |= separator[v, k]
            separator[next_vertex, next_vertex >> 6] &= ~bit(next_vertex)
    return separator, parent, cells


@njit(nogil=True)
def order_of_tree(parent, order):
    """Write the tree in postorder to ``order``: each subtree is finished before the next begins.

    ``parent`` (n,) int64 is that of a bucket tree. Children are kept as linked lists: each vertex's first child
    and next sibling.
    """
    n = parent.size
    first = np.full(n + 1, -1, dtype=np.int64)  # first child, then next sibling; roots are children of n
    following = np.full(n, -1, dtype=np.int64)
    for v in range(n - 1, -1, -1):
        if parent[v] != _NOT_ELIMINATED:
            parent_or_n = parent[v] if parent[v] >= 0 else n
            following[v] = first[parent_or_n]
            first[parent_or_n] = v
    path = np.empty(n + 1, dtype=np.int64)
    path[0] = n
    depth, n_written = 0, 0
    while depth >= 0:
        v = path[depth]
        child = first[v]
        if child >= 0:
            first[v] = following[child]
            depth += 1
            path[depth] = child
        else:
            if v < n:
                order[n_written] = v
                n_written += 1
            depth -= 1


@njit(nogil=True, allocates=False)
def totals(separator, cells, order):
    """Return Σ cells in elimination order, the cells of the largest bucket, and the induced width."""
    total, largest, width = 0.0, 0.0, 0
    for v in order:
        total += cells[v]
        largest = max(largest, cells[v])
        count = 0
        for k in range(separator.shape[1]):
            count += popcount(separator[v, k])
        width = max(width, count)
    return total, largest, width


@njit(nogil=True, allocates=False)
def _grow_window(parent, cells, start, size, noisy, state, window, inside):
    """Grow a window from ``start``, largest buckets first, to at most ``size`` vertices; return its size.

    With ``noisy``, the cells are multiplied by random factors 1 + 64·U[0, 1).
    """
    window[0] = start
    inside[start] = True
    count = 1
    while count < size:
        best_value, chosen = -1.0, -1
        for u in range(parent.size):
            if parent[u] >= 0 and not inside[u] and inside[parent[u]]:
                value = cells[u] * (1.0 + 64.0 * random_unit(state)) if noisy else cells[u]
                if value > best_value:
                    best_value, chosen = value, u
        for i in range(count):  # at most one of these vertices has its parent outside
            u = parent[window[i]]
            if u >= 0 and not inside[u]:
                value = cells[u] * (1.0 + 64.0 * random_unit(state)) if noisy else cells[u]
                if value > best_value:
                    best_value, chosen = value, u
        if chosen < 0:
            break
        window[count] = chosen
        inside[chosen] = True
        count += 1
    return count


@njit(nogil=True, allocates=False)
def _local_rows(graph, separator, parent, window, count, inside, vertices, rows):
    """Write the graph that the window is eliminated from to ``rows`` (count,) uint64, as local rows of bits.

    Returns the number of valid entries of ``vertices``, or 0 if there are more than 64.
    """
    for j in range(count):
        vertices[j] = window[j]
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
                vertices[total] = u
                total += 1
    for j in range(count):
        row = np.uint64(0)
        for i in range(total):
            if has(graph[window[j]], vertices[i]):
                row |= bit(i)
        rows[j] = row
    for c in range(parent.size):
        if parent[c] >= 0 and inside[parent[c]] and not inside[c]:
            row = np.uint64(0)
            for i in range(total):
                if has(separator[c], vertices[i]):
                    row |= bit(i)
            for j in range(count):
                if row & bit(j):
                    rows[j] |= row
    for j in range(count):
        rows[j] &= ~bit(j)
    return total


@njit(nogil=True, allocates=False)
def _best_window_order(rows, joined, cost, last, count, sizes, vertices, limit):
    """Fill the tables over subsets of the window; return the least cells of eliminating it.

    Subsets that cost ``limit`` or more are not continued.
    """
    all_vertices = (1 << count) - 1
    for subset in range(1, all_vertices + 1):
        cost[subset] = np.inf
    cost[0] = 0.0
    for subset in range(all_vertices + 1):
        if subset:
            # Extend the rows of the subset without its lowest vertex t by the elimination of t.
            t = lowest(np.uint64(subset))
            subset_without_t = subset & (subset - 1)
            separator_of_t = rows[subset_without_t, t]
            for j in range(count):
                if (subset >> j) & 1:
                    continue
                row, cells = rows[subset_without_t, j], joined[subset_without_t, j]
                if row & bit(t):
                    new = separator_of_t & ~row & ~bit(j)
                    row = (row | new) & ~bit(t)
                    cells /= sizes[vertices[t]]
                    while new:
                        cells *= sizes[vertices[lowest(new)]]
                        new &= new - ONE
                rows[subset, j], joined[subset, j] = row, cells
        if cost[subset] >= limit:
            continue
        for j in range(count):
            after = subset | (1 << j)
            if after != subset and cost[subset] + joined[subset, j] < cost[after]:
                cost[after] = cost[subset] + joined[subset, j]
                last[after] = j
    return cost[all_vertices]


@njit(nogil=True)
def _rewire(separator, parent, cells, window, count, inside, vertices, rows, joined, last):
    """Change the bucket tree in place to the window's best order, which is read back from ``last``."""
    parent_of_window = -1
    for j in range(count):
        if parent[window[j]] < 0 or not inside[parent[window[j]]]:
            parent_of_window = parent[window[j]]
    best_order = np.empty(count, dtype=np.int64)
    subset = (1 << count) - 1
    for i in range(count - 1, -1, -1):
        best_order[i] = last[subset]
        subset &= ~(1 << best_order[i])
    # Follow the best order: ``subset`` holds the vertices that are eliminated before ``best_order[i]``.
    for i in range(count):
        j = best_order[i]
        s, row = window[j], rows[subset, j]
        cells[s] = joined[subset, j]
        parent[s] = parent_of_window
        for h in range(count - 1, i, -1):
            if row & bit(best_order[h]):
                parent[s] = window[best_order[h]]
        for k in range(separator.shape[1]):
            separator[s, k] = 0
        while row:
            u = vertices[lowest(row)]
            separator[s, u >> 6] |= bit(u)
            row &= row - ONE
        subset |= 1 << j
    # Subtrees that hang on the window get the first vertex of their separator in the new order as parent.
    for c in range(parent.size):
        if parent[c] >= 0 and inside[parent[c]] and not inside[c]:
            for h in range(count - 1, -1, -1):
                if has(separator[c], window[best_order[h]]):
                    parent[c] = window[best_order[h]]


@njit(nogil=True)
def improve(graph, sizes, separator, parent, cells, thorough, work_limit, state):
    """Reorder windows around the largest buckets until two rounds in a row gain nothing; return the work in words.

    Only buckets with at least a quarter of the mean number of cells begin a window. Gains below a relative 1e-9 count
    as rounding errors.

    Parameters
    ----------
    graph : (n, words) uint64
        Rows of bits.
    sizes : (n,) float64
        Domain sizes.
    separator, parent, cells
        A bucket tree from :func:`bucket_tree`; changed in place.
    thorough : bool
        Whether to use large windows and many rounds, or small ones and few. The first round grows windows by cells
        alone, later ones at random.
    work_limit : float
        Stop when the work exceeds this number of words.
    state : (1,) uint64
        A random generator's state.
    """
    n = parent.size
    size = LARGE_WINDOW if thorough else SMALL_WINDOW
    window = np.empty(size, dtype=np.int64)
    inside = np.zeros(n, dtype=np.bool_)
    vertices = np.empty(64, dtype=np.int64)
    rows = np.empty((1 << size, size), dtype=np.uint64)
    joined = np.empty((1 << size, size))
    cost = np.empty(1 << size)
    last = np.empty(1 << size, dtype=np.int64)
    work, idle_rounds = 0, 0
    for r in range(MANY_ROUNDS if thorough else FEW_ROUNDS):
        total = cells.sum()
        gained = 0.0
        for start in np.argsort(-cells, kind="mergesort"):
            if cells[start] * 4 * n < total or work >= work_limit:
                break
            count = _grow_window(parent, cells, start, size, r > 0, state, window, inside)
            work += n * (count + 1)
            n_vertices = 0
            if count > 1:
                n_vertices = _local_rows(graph, separator, parent, window, count, inside, vertices, rows[0])
            if n_vertices:
                before = 0.0
                for j in range(count):
                    joined[0, j] = sizes[window[j]]
                    row = rows[0, j]
                    while row:
                        joined[0, j] *= sizes[vertices[lowest(row)]]
                        row &= row - ONE
                    before += cells[window[j]]
                limit = before * (1 - 1e-9)
                after = _best_window_order(rows, joined, cost, last, count, sizes, vertices, limit)
                work += n_vertices * count + (count << (count + 1))
                if after < limit:
                    _rewire(separator, parent, cells, window, count, inside, vertices, rows, joined, last)
                    gained += before - after
            for j in range(count):
                inside[window[j]] = False
        idle_rounds = 0 if gained > 1e-9 * total else idle_rounds + 1
        if idle_rounds == 2 or work >= work_limit:
            break
    return work
