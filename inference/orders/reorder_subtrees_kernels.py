# mypy: ignore-errors
"""Large pieces of a bucket tree: taken out, given other orders, rated, put back. :mod:`.pieces` says what for.

A connected piece P of the bucket tree is a problem of its own, as a window is (:mod:`.window_kernels`): it is
eliminated from the graph of its own edges and of cliques, the separators of the subtrees that hang below it, and what
it leaves behind does not depend on the order inside.
"""

import numpy as np

from dmcmc.inference.orders.bitset_kernels import ONE, bit, lowest
from dmcmc.inference.orders.greedy_kernels import random_unit
from dmcmc.inference.runtime.compile import njit

_SMALLEST = 12  # vertices of a piece, about


@njit(nogil=True)
def children_of(parent):
    """Return each vertex's first child (−1: none) and next sibling."""
    first = np.full(parent.size, -1, dtype=np.int64)
    following = np.full(parent.size, -1, dtype=np.int64)
    for v in range(parent.size - 1, -1, -1):
        if parent[v] >= 0:
            following[v] = first[parent[v]]
            first[parent[v]] = v
    return first, following


@njit(nogil=True)
def _grow(parent, cells, first, following, begin, size, noise, state, inside, piece, edge, value):
    """Grow a connected piece of the tree from ``begin``, large buckets first, with noise; return its size, the work."""
    piece[0] = begin
    inside[begin] = True
    count, waiting, work = 1, 0, 0
    last = begin
    while True:
        if parent[last] >= 0 and not inside[parent[last]]:
            edge[waiting] = parent[last]
            value[waiting] = np.log2(cells[parent[last]]) + noise * random_unit(state)
            waiting += 1
        child = first[last]
        while child >= 0:
            if not inside[child]:
                edge[waiting] = child
                value[waiting] = np.log2(cells[child]) + noise * random_unit(state)
                waiting += 1
            child = following[child]
        if count == size or waiting == 0:
            return count, work
        best = 0
        for i in range(1, waiting):
            if value[i] > value[best]:
                best = i
        work += waiting
        last = edge[best]
        waiting -= 1
        edge[best], value[best] = edge[waiting], value[waiting]
        inside[last] = True
        piece[count] = last
        count += 1


@njit(nogil=True)
def _graph_of(graph, separator, first, following, piece, count, inside, place, names):
    """Return the graph that a piece is eliminated from; ``names`` receives its vertices, the piece's first."""
    words = graph.shape[1]
    around = np.zeros(words, dtype=np.uint64)
    for i in range(count):
        names[i] = piece[i]
        place[piece[i]] = i
        for k in range(words):
            around[k] |= separator[piece[i], k]
    total = count
    for k in range(words):
        word = around[k]
        while word:
            u = k * 64 + lowest(word)
            word &= word - ONE
            if not inside[u]:
                place[u] = total
                names[total] = u
                total += 1
    local = np.zeros((total, (total + 63) >> 6), dtype=np.uint64)
    row = np.zeros(local.shape[1], dtype=np.uint64)
    for i in range(count):
        for k in range(words):
            word = graph[piece[i], k]
            while word:
                j = place[k * 64 + lowest(word)]
                word &= word - ONE
                if j >= 0:
                    local[i, j >> 6] |= bit(j)
                    local[j, i >> 6] |= bit(i)
        child = first[piece[i]]
        while child >= 0:
            if not inside[child]:
                _clique(local, separator[child], place, row)
            child = following[child]
    row[:] = 0
    for j in range(count, total):
        row[j >> 6] |= bit(j)
    for j in range(count, total):
        for k in range(row.size):
            local[j, k] |= row[k]
    for i in range(total):
        local[i, i >> 6] &= ~bit(i)
        place[names[i]] = -1
    return local, names[:total].copy()


@njit(nogil=True)
def _clique(local, scope, place, row):
    """Connect the vertices of a scope with each other, by their places."""
    row[:] = 0
    for k in range(scope.size):
        word = scope[k]
        while word:
            j = place[k * 64 + lowest(word)]
            word &= word - ONE
            row[j >> 6] |= bit(j)
    for k in range(scope.size):
        word = scope[k]
        while word:
            j = place[k * 64 + lowest(word)]
            word &= word - ONE
            for h in range(row.size):
                local[j, h] |= row[h]


@njit(nogil=True)
def take_piece(graph, order, separator, parent, cells, state):
    """Choose a piece of the tree around a large bucket, and return the problem that it is.

    Returns
    -------
    local : (m, words) uint64
        Its graph: the piece in the order that it has, then the vertices that it leaves a table over, as a clique.
    names : (m,) int64
        Their numbers in the whole graph.
    count : int
        Vertices of the piece.
    before, widest : float
        Cells of its buckets, and of the largest.
    work : int
    """
    n, eliminate = graph.shape[0], order.size
    first, following = children_of(parent)
    total = cells.sum()
    begin, score = order[0], -1.0
    for v in order:
        if cells[v] * 4 * eliminate >= total:
            draw = random_unit(state)
            if draw > score:
                score, begin = draw, v
    size = min(eliminate, int(_SMALLEST * (max(eliminate, _SMALLEST) / _SMALLEST) ** random_unit(state)) + 4)
    noise = 4.0 * random_unit(state) ** 2 * np.log2(cells[begin])
    inside = np.zeros(n, dtype=np.bool_)
    piece, edge, value = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.empty(n)
    count, work = _grow(parent, cells, first, following, begin, size, noise, state, inside, piece, edge, value)
    done = 0
    before, widest = 0.0, 0.0
    for v in order:
        if inside[v]:
            piece[done] = v
            done += 1
            before += cells[v]
            widest = max(widest, cells[v])
    place = np.full(n, -1, dtype=np.int64)
    local, names = _graph_of(graph, separator, first, following, piece, count, inside, place, edge)
    return local, names, count, before, widest, work + 6 * n + 2 * local.size + count * graph.shape[1]


@njit(nogil=True)
def put_back(order, parent, piece):
    """Return an order with a piece's vertices in the order given: what hangs below the piece, it, everything else."""
    inside = np.zeros(parent.size, dtype=np.bool_)
    inside[piece] = True
    below = inside.copy()
    for i in range(order.size - 1, -1, -1):
        v = order[i]
        if parent[v] >= 0 and below[parent[v]]:
            below[v] = True
    spliced = np.empty(order.size, dtype=np.int64)
    done = 0
    for v in order:
        if below[v] and not inside[v]:
            spliced[done] = v
            done += 1
    for v in piece:
        spliced[done] = v
        done += 1
    for v in order:
        if not below[v]:
            spliced[done] = v
            done += 1
    return spliced
