# mypy: ignore-errors
"""Encode block moves as descriptors for the GPU kernel; this runs on the CPU.

A descriptor is an array of int64 words: offsets of records, then a record per factor and per bucket. ``field.NAME`` is
the offset of a word within the descriptor or a record; ``descriptors`` explains the names. A move redraws the variables
of a block, given all others, by bucket elimination: each bucket joins its input tables (*cells* are the entries of the
joined table) and sends a message. The *arena* is the workspace of tables on the GPU: conditioned factors, messages,
then joined tables.
"""

import numpy as np

from dmcmc.inference.elimination.plan_kernels import plan_buckets
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.blocks.block_gibbs_kernels import factors_touching_block
from dmcmc.samplers.blocks.cuda import block_gibbs_kernels as field


@njit(nogil=True)
def encode_move(graph, workspace, size):
    """Encode the move of the block ``workspace.block[:size]``.

    Parameters
    ----------
    graph : FactorGraph
        A forbidden entry has a finite utility (``dmcmc.samplers.blocks.neighbourhood_search.penalised_graph``).
    workspace : BlockWorkspace
        Holds the block.
    size : int
        Number of variables of the block.

    Returns
    -------
    descriptor : (words,) int64
        The move.
    entries : int
        Entries that the move needs in the arena.
    cells : int
        Cells of all joined tables.
    """
    factors, start, scope = factors_touching_block(graph, workspace, size)
    factor_count = factors.size
    domains = np.empty(size, dtype=np.int64)
    for i in range(size):
        domains[i] = graph.domains[workspace.block[i]]
    order = np.arange(size)
    begin, scopes, sizes, input_start, inputs, _, cells, _ = plan_buckets(start, scope, order, order, domains)
    words = field.RECORDS + factor_count + size
    for t in range(factor_count):
        words += field.FACTOR + 3 * (graph.scope_start[factors[t] + 1] - graph.scope_start[factors[t]])
    for b in range(size):
        axes = begin[factor_count + b + 1] - begin[factor_count + b]
        words += field.BUCKET + 2 * axes + (2 + axes) * (input_start[b + 1] - input_start[b])
    descriptor = np.zeros(words, dtype=np.int64)
    descriptor[field.SIZE], descriptor[field.GIVEN] = size, factor_count
    table_at = np.empty(factor_count + size, dtype=np.int64)
    arena_size = 0
    for t in range(factor_count + size):
        table_at[t] = arena_size
        arena_size += sizes[t]
    r = field.RECORDS + factor_count + size
    for t in range(factor_count):
        descriptor[field.RECORDS + t] = r
        r = encode_factor(
            graph, workspace, factors[t], scopes[begin[t] : begin[t + 1]], domains, table_at[t], sizes[t], descriptor, r
        )
    for b in range(size):
        descriptor[field.RECORDS + factor_count + b] = r
        descriptor[r + field.VARIABLE], descriptor[r + field.DOMAIN] = workspace.block[b], domains[b]
        descriptor[r + field.JOINED], descriptor[r + field.CELLS], descriptor[r + field.MESSAGE] = (
            arena_size,
            cells[b],
            table_at[factor_count + b],
        )
        arena_size += cells[b]
        separator = scopes[begin[factor_count + b] : begin[factor_count + b + 1]]
        descriptor[r + field.INPUTS], descriptor[r + field.AXES] = input_start[b + 1] - input_start[b], separator.size
        r += field.BUCKET
        for j in range(separator.size):
            descriptor[r], descriptor[r + 1] = workspace.block[separator[j]], domains[separator[j]]
            r += 2
        for i in range(input_start[b], input_start[b + 1]):
            t, step = inputs[i], 1
            descriptor[r] = table_at[t]
            for s in range(begin[t + 1] - 1, begin[t], -1):
                for j in range(separator.size):
                    if separator[j] == scopes[s]:
                        descriptor[r + 2 + j] = step
                step *= domains[scopes[s]]
            descriptor[r + 1] = step
            r += 2 + separator.size
    return descriptor, arena_size, cells.sum()


@njit(nogil=True, allocates=False)
def encode_factor(graph, workspace, f, scope, domains, at, entries, descriptor, r):
    """Write the record of factor f at word r; return the offset of the next word.

    Parameters
    ----------
    scope : (k,) int64
        Places in the block (indices of its variables): the axes of the conditioned table in the arena.
    domains : (block size,) int64
        Domain sizes of the block's variables.
    at, entries : int
        Offset of the conditioned table in the arena, and its number of entries.
    descriptor : (words,) int64
        Written from word r on.
    """
    descriptor[r + field.DATA], descriptor[r + field.TO], descriptor[r + field.ENTRIES] = (
        graph.table_start[f],
        at,
        entries,
    )
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
