# mypy: ignore-errors
"""Extract large connected pieces of a bucket tree as separate problems, and insert them in a new order.

A connected piece P of the bucket tree is an independent problem, as a window is (``window_kernels``). Its graph has the
edges of P and a clique per subtree that hangs below P: that subtree's separator. What P leaves behind does not depend
on the order inside P. ``reorder_subtrees`` uses the pieces. Arguments of all functions:

* ``graph`` (n, words) uint64: rows of bits of the whole graph; ``local`` (m, words) uint64: those of a piece's graph;
* ``separator`` (n, words) uint64, ``parent`` (n,) int64, ``cells`` (n,) float64: a bucket tree;
* ``first``, ``following`` (n,) int64: each vertex's first child and next sibling, −1 for none;
* ``piece`` (n,) int64: the piece's vertices, of which the first ``count`` are valid; ``inside`` (n,) bool: their mask;
* ``vertices`` (n,) int64: the vertices of the piece's graph; ``position`` (n,) int64: their positions, −1 for all
  others;
* ``state`` (1,) uint64: a random generator's state.
"""

import math

import numpy as np

from dmcmc.inference.orders.bitset_kernels import ONE, bit, lowest, random_unit
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.tuning import MIN_PIECE_SIZE


@njit(nogil=True)
def children_of(parent):
    """Return each vertex's first child and next sibling, two (n,) int64 arrays; −1 for none."""
    first = np.full(parent.size, -1, dtype=np.int64)
    following = np.full(parent.size, -1, dtype=np.int64)
    for v in range(parent.size - 1, -1, -1):
        if parent[v] >= 0:
            following[v] = first[parent[v]]
            first[parent[v]] = v
    return first, following


@njit(nogil=True, allocates=False)
def _grow_piece(parent, cells, first, following, start, size, noise, state, inside, piece, candidates, scores):
    """Grow a connected piece of the tree from ``start``, large buckets first, with noise; return its size and the work.

    ``candidates`` (n,) int64 and ``scores`` (n,) float64 are scratch arrays; at most ``size`` vertices are taken.
    """
    piece[0] = start
    inside[start] = True
    count, n_candidates, work = 1, 0, 0
    newest = start
    while True:
        if parent[newest] >= 0 and not inside[parent[newest]]:
            candidates[n_candidates] = parent[newest]
            scores[n_candidates] = math.log2(cells[parent[newest]]) + noise * random_unit(state)
            n_candidates += 1
        child = first[newest]
        while child >= 0:
            if not inside[child]:
                candidates[n_candidates] = child
                scores[n_candidates] = math.log2(cells[child]) + noise * random_unit(state)
                n_candidates += 1
            child = following[child]
        if count == size or n_candidates == 0:
            return count, work
        best = 0
        for i in range(1, n_candidates):
            if scores[i] > scores[best]:
                best = i
        work += n_candidates
        newest = candidates[best]
        n_candidates -= 1
        candidates[best], scores[best] = candidates[n_candidates], scores[n_candidates]
        inside[newest] = True
        piece[count] = newest
        count += 1


@njit(nogil=True)
def _graph_of(graph, separator, first, following, piece, count, inside, position, vertices):
    """Return the graph that a piece is eliminated from and its vertices, those of the piece first.

    ``vertices`` is a scratch array; ``position`` must be −1 everywhere, and is so again at the end.
    """
    words = graph.shape[1]
    separator_bits = np.zeros(words, dtype=np.uint64)
    for i in range(count):
        vertices[i] = piece[i]
        position[piece[i]] = i
        for k in range(words):
            separator_bits[k] |= separator[piece[i], k]
    total = count
    for k in range(words):
        word = separator_bits[k]
        while word:
            u = k * 64 + lowest(word)
            word &= word - ONE
            if not inside[u]:
                position[u] = total
                vertices[total] = u
                total += 1
    local = np.zeros((total, (total + 63) >> 6), dtype=np.uint64)
    row = np.zeros(local.shape[1], dtype=np.uint64)
    for i in range(count):
        for k in range(words):
            word = graph[piece[i], k]
            while word:
                j = position[k * 64 + lowest(word)]
                word &= word - ONE
                if j >= 0:
                    local[i, j >> 6] |= bit(j)
                    local[j, i >> 6] |= bit(i)
        child = first[piece[i]]
        while child >= 0:
            if not inside[child]:
                _add_clique(local, separator[child], position, row)
            child = following[child]
    row[:] = 0
    for j in range(count, total):
        row[j >> 6] |= bit(j)
    for j in range(count, total):
        for k in range(row.size):
            local[j, k] |= row[k]
    for i in range(total):
        local[i, i >> 6] &= ~bit(i)
        position[vertices[i]] = -1
    return local, vertices[:total].copy()


@njit(nogil=True)
def _add_clique(local, scope, position, row):
    """Connect all vertices of ``scope`` (words,) uint64 with each other; ``row`` is a scratch array."""
    row[:] = 0
    for k in range(scope.size):
        word = scope[k]
        while word:
            j = position[k * 64 + lowest(word)]
            word &= word - ONE
            row[j >> 6] |= bit(j)
    for k in range(scope.size):
        word = scope[k]
        while word:
            j = position[k * 64 + lowest(word)]
            word &= word - ONE
            for h in range(row.size):
                local[j, h] |= row[h]


@njit(nogil=True)
def extract_piece(graph, order, separator, parent, cells, state):
    """Choose a piece of the tree around a large bucket, and return it as a problem.

    The piece begins at a random vertex whose bucket has at least a quarter of the mean number of cells. With U uniform
    in [0, 1) and e eliminated vertices it has at most 12 · (e / 12)^U + 4 vertices, so that sizes are uniform on a
    logarithmic scale. The noise that is added to log2 of the cells while it grows is at most 4 U² log2(cells of the
    first bucket).

    Returns
    -------
    local : (m, words) uint64
        Its graph: the piece in its current order, then its separator as a clique.
    vertices : (m,) int64
        Their numbers in the whole graph.
    count : int
        The number of vertices of the piece.
    before, largest : float
        Cells of all its buckets, and of the largest.
    work : int
        Words used.
    """
    n, eliminate = graph.shape[0], order.size
    first, following = children_of(parent)
    total = cells.sum()
    start, score = order[0], -1.0
    for v in order:
        if cells[v] * 4 * eliminate >= total:
            draw = random_unit(state)
            if draw > score:
                score, start = draw, v
    max_size = min(
        eliminate, int(MIN_PIECE_SIZE * (max(eliminate, MIN_PIECE_SIZE) / MIN_PIECE_SIZE) ** random_unit(state)) + 4
    )
    draw = random_unit(state)
    noise = 4.0 * (draw * draw) * math.log2(cells[start])
    inside = np.zeros(n, dtype=np.bool_)
    piece, scratch, scores = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n)
    count, work = _grow_piece(
        parent, cells, first, following, start, max_size, noise, state, inside, piece, scratch, scores
    )
    n_sorted = 0
    before, largest = 0.0, 0.0
    for v in order:
        if inside[v]:
            piece[n_sorted] = v
            n_sorted += 1
            before += cells[v]
            largest = max(largest, cells[v])
    position = np.full(n, -1, dtype=np.int64)
    local, vertices = _graph_of(graph, separator, first, following, piece, count, inside, position, scratch)
    return local, vertices, count, before, largest, work + 6 * n + 2 * local.size + count * graph.shape[1]


@njit(nogil=True)
def insert_piece(order, parent, piece):
    """Return an order with a piece's vertices in the given order, after everything that hangs below the piece.

    ``piece`` (count,) int64 holds the vertices in their new order; all other vertices keep their relative order.
    """
    inside = np.zeros(parent.size, dtype=np.bool_)
    inside[piece] = True
    below = inside.copy()
    for i in range(order.size - 1, -1, -1):
        v = order[i]
        if parent[v] >= 0 and below[parent[v]]:
            below[v] = True
    new_order = np.empty(order.size, dtype=np.int64)
    count = 0
    for v in order:
        if below[v] and not inside[v]:
            new_order[count] = v
            count += 1
    for v in piece:
        new_order[count] = v
        count += 1
    for v in order:
        if not below[v]:
            new_order[count] = v
            count += 1
    return new_order
