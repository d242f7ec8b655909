# mypy: ignore-errors
"""The words of :mod:`.words`: runs on the host."""

import numpy as np

from dmcmc.inference.elimination.plan_kernels import plan_buckets
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.blocks.block_gibbs_kernels import touching
from dmcmc.samplers.blocks.cuda import descriptors as w


@njit(nogil=True)
def encode_move(graph, room, size):
    """Return the words of the move of the block ``room.block[:size]``, the arena's entries and the joined cells."""
    factors, start, scope = touching(graph, room, size)
    given = factors.size
    domains = np.empty(size, dtype=np.int64)
    for i in range(size):
        domains[i] = graph.domains[room.block[i]]
    order = np.arange(size)
    begin, scopes, sizes, input_start, inputs, _, cells, _ = plan_buckets(start, scope, order, order, domains)
    words = w.RECORDS + given + size
    for t in range(given):
        words += w.FACTOR + 3 * (graph.scope_start[factors[t] + 1] - graph.scope_start[factors[t]])
    for b in range(size):
        axes = begin[given + b + 1] - begin[given + b]
        words += w.BUCKET + 2 * axes + (2 + axes) * (input_start[b + 1] - input_start[b])
    code = np.zeros(words, dtype=np.int64)
    code[w.SIZE], code[w.GIVEN] = size, given
    at = np.empty(given + size, dtype=np.int64)
    arena = 0
    for t in range(given + size):
        at[t] = arena
        arena += sizes[t]
    r = w.RECORDS + given + size
    for t in range(given):
        code[w.RECORDS + t] = r
        r = encode_factor(graph, room, factors[t], scopes[begin[t] : begin[t + 1]], domains, at[t], sizes[t], code, r)
    for b in range(size):
        code[w.RECORDS + given + b] = r
        code[r + w.VARIABLE], code[r + w.DOMAIN] = room.block[b], domains[b]
        code[r + w.JOINED], code[r + w.CELLS], code[r + w.MESSAGE] = arena, cells[b], at[given + b]
        arena += cells[b]
        mine = scopes[begin[given + b] : begin[given + b + 1]]
        code[r + w.INPUTS], code[r + w.AXES] = input_start[b + 1] - input_start[b], mine.size
        r += w.BUCKET
        for j in range(mine.size):
            code[r], code[r + 1] = room.block[mine[j]], domains[mine[j]]
            r += 2
        for i in range(input_start[b], input_start[b + 1]):
            t, step = inputs[i], 1
            code[r] = at[t]
            for s in range(begin[t + 1] - 1, begin[t], -1):
                for j in range(mine.size):
                    if mine[j] == scopes[s]:
                        code[r + 2 + j] = step
                step *= domains[scopes[s]]
            code[r + 1] = step
            r += 2 + mine.size
    return code, arena, cells.sum()


@njit(nogil=True)
def encode_factor(graph, room, f, scope, domains, at, entries, code, r):
    """Write a factor's record at a place; ``scope`` are places in the block, as its axes are; return what follows."""
    code[r + w.DATA], code[r + w.TO], code[r + w.ENTRIES] = graph.at[f], at, entries
    code[r + w.INSIDE] = scope.size
    first, last = graph.scope_start[f], graph.scope_start[f + 1]
    pair = r + w.FACTOR
    for s in range(first, last):
        if room.place[graph.scope[s]] < 0:
            code[r + w.OUTSIDE] += 1
            code[pair], code[pair + 1] = graph.scope[s], graph.stride[s]
            pair += 2
    for j in range(scope.size):
        code[pair], code[pair + 1] = room.block[scope[j]], domains[scope[j]]
        for s in range(first, last):
            if room.place[graph.scope[s]] == scope[j]:
                code[pair + 2] = graph.stride[s]
        pair += 3
    return pair
