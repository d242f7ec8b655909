"""The kernel sets of block moves between the chains of the local search."""

from functools import partial

import numpy as np

from dmcmc.inference.minibuckets.moment_matching import compile_matching
from dmcmc.inference.orders.best_order import compile_search
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.run.compilation.kernel_sets import KernelSet, SearchVariant, constraint_search, tiny_search

_TINY_CHAIN_SECONDS = 0.001  # seconds of chains after which block moves get their turn


def block_moves(variant: SearchVariant) -> KernelSet:
    """Return the kernels of block moves between chains, which a search on global constraints does not make."""
    if variant.constrained:
        return constraint_search()
    return KernelSet(f"block moves {variant.text}", partial(_compile_block_moves, variant))


def _compile_block_moves(variant: SearchVariant) -> None:
    """Make block moves on a tiny problem."""
    from dmcmc.samplers.blocks.block_workspace import penalised_graph
    from dmcmc.samplers.blocks.mini_bucket_starts import starts_of
    from dmcmc.samplers.blocks.sweep_kernels import mobility
    from dmcmc.samplers.local_search.block_moves import BlockMoves

    compile_search()  # blocks of variables follow an order
    graph = tiny_search(variant).ascent.graph
    values, penalised = np.zeros(graph.domains.size, dtype=np.int64), penalised_graph(graph)
    block_turns = BlockMoves(graph, 0, 1)
    block_turns.add_chain_time(_TINY_CHAIN_SECONDS, gained=False)  # without a turn they would not anneal
    block_turns.run(values, timed=False, stop=NO_DEADLINE)
    mobility(penalised, values, 1.0)
    starts = starts_of(penalised, np.arange(values.size), values, np.zeros(2, np.uint64), NO_DEADLINE)
    if starts is not None:
        starts.draw(0, 1)
        compile_matching(np.dtype(np.int64))  # larger problems have large buckets
