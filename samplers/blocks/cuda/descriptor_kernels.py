# mypy: ignore-errors
"""Encode block moves as descriptors for the GPU kernel, see ``descriptors``; runs on the CPU."""

import numpy as np

from dmcmc.inference.elimination.plan_kernels import plan_buckets
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.blocks.block_gibbs_kernels import touching
from dmcmc.samplers.blocks.cuda import descriptors as field


@njit(nogil=True)
def encode_move(graph, workspace, size):
    """Encode the move of the block ``workspace.block[:size]``.

    Parameters
    ----------
    graph : PenalisedGraph
        See ``dmcmc.samplers.blocks.block_workspace``.
    workspace : BlockWorkspace
        Holds the block.
    size : int
        Number of variables of the block.

    Returns
    -------
    descriptor : (words,) int64
    entries : int
        Entries that the move needs in the arena.
    cells : int
        Cells of all joined tables.
    """
    factors, start, scope = touching(graph, workspace, size)
    given = factors.size
    domains = np.empty(size, dtype=np.int64)
    for i in range(size):
        domains[i] = graph.domains[workspace.block[i]]
    order = np.arange(size)
    begin, scopes, sizes, input_start, inputs, _, cells, _ = plan_buckets(start, scope, order, order, domains)
    words = field.RECORDS + given + size
    for t in range(given):
        words += field.FACTOR + 3 * (graph.scope_start[factors[t] + 1] - graph.scope_start[factors[t]])
    for b in range(size):
        axes = begin[given + b + 1] - begin[given + b]
        words += field.BUCKET + 2 * axes + (2 + axes) * (input_start[b + 1] - input_start[b])
    descriptor = np.zeros(words, dtype=np.int64)
    descriptor[field.SIZE], descriptor[field.GIVEN] = size, given
    at = np.empty(given + size, dtype=np.int64)
    arena = 0
    for t in range(given + size):
        at[t] = arena
        arena += sizes[t]
    r = field.RECORDS + given + size
    for t in range(given):
        descriptor[field.RECORDS + t] = r
        r = encode_factor(
            graph, workspace, factors[t], scopes[begin[t] : begin[t + 1]], domains, at[t], sizes[t], descriptor, r
        )
    for b in range(size):
        descriptor[field.RECORDS + given + b] = r
        descriptor[r + field.VARIABLE], descriptor[r + field.DOMAIN] = workspace.block[b], domains[b]
        descriptor[r + field.JOINED], descriptor[r + field.CELLS], descriptor[r + field.MESSAGE] = (
            arena,
            cells[b],
            at[given + b],
        )
        arena += cells[b]
        separator = scopes[begin[given + b] : begin[given + b + 1]]
        descriptor[r + field.INPUTS], descriptor[r + field.AXES] = input_start[b + 1] - input_start[b], separator.size
        r += field.BUCKET
        for j in range(separator.size):
            descriptor[r], descriptor[r + 1] = workspace.block[separator[j]], domains[separator[j]]
            r += 2
        for i in range(input_start[b], input_start[b + 1]):
            t, step = inputs[i], 1
            descriptor[r] = at[t]
            for s in range(begin[t + 1] - 1, begin[t], -1):
                for j in range(separator.size):
                    if separator[j] == scopes[s]:
                        descriptor[r + 2 + j] = step
                step *= domains[scopes[s]]
            descriptor[r + 1] = step
            r += 2 + separator.size
    return descriptor, arena, cells.sum()


@njit(nogil=True)
def encode_factor(graph, workspace, f, scope, domains, at, entries, descriptor, r):
    """Write the record of factor f at word r; return the offset of the next word.

    ``scope`` holds places in the block, the axes of the table in the arena; ``at`` and ``entries`` say where it lies.
    """
    descriptor[r + field.DATA], descriptor[r + field.TO], descriptor[r + field.ENTRIES] = graph.at[f], at, entries
    descriptor[r + field.INSIDE] = scope.size
    first, last = graph.scope_start[f], graph.scope_start[f + 1]
    pair = r + field.FACTOR
    for s in range(first, last):
        if workspace.place[graph.scope[s]] < 0:
            descriptor[r + field.OUTSIDE] += 1
            descriptor[pair], descriptor[pair + 1] = graph.scope[s], graph.stride[s]
            pair += 2
    for j in range(scope.size):
        descriptor[pair], descriptor[pair + 1] = workspace.block[scope[j]], domains[scope[j]]
        for s in range(first, last):
            if workspace.place[graph.scope[s]] == scope[j]:
                descriptor[pair + 2] = graph.stride[s]
        pair += 3
    return pair
