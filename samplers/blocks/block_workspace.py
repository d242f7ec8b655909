"""The factor graph that the block kernels read, with penalties for forbidden entries, and their workspace.

A *block* is a set of variables that are redrawn together, given all others, by bucket elimination; a bucket joins the
tables of one variable, and its *separator* is the scope of its message. A block is *grown* from one variable over its
neighbours, or *cut* from the whole graph by fixing variables where a bucket would be too large. An *automaton* is a
factor that reads the values of its scope in turn: each transition adds a utility and leads to a next state.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.blocks.block_selection_kernels import MAX_WIDTH
from dmcmc.samplers.tuning import blocks as tuning
from dmcmc.samplers.tuning import common

Ints = NDArray[np.int64]


class BlockWorkspace(NamedTuple):
    """Arrays that block kernels write before they read.

    Attributes
    ----------
    block : (n + 1,) int64
        The variables of a block in elimination order.
    place : (n + 1,) int64
        Index of each variable in the block, −1 outside. While a block is cut: the first message of its bucket.
    seen : (n + 1,) int64
        Time marks of variables or places.
    marked : (n + 1,) bool
        While a block grows: variables in the queue. While a block is cut: fixed variables.
    queue : (n + 1,) int64
        While a block grows: queue of variables. While a block is cut: next message of the same bucket.
    priority : (n,) float64
        While a block is cut: variables of low priority are fixed first.
    near : (MAX_WIDTH + 2,) int64
        Places of a variable's neighbours in the block.
    list_a, list_b : (2 · (MAX_WIDTH + 2),) int64
        Lists of places that are merged.
    separator : (variables of a grown block, MAX_WIDTH + 2) int64
        Places of each bucket's separator, ascending.
    width, domain, cells : (variables of a grown block,) int64
        Per bucket: length of the separator, domain of the variable, cells of the joined table.
    scopes : (capacity,) int64
        Separators while a block is cut: the one of v is ``scopes[begin[v]:end[v]]``.
    begin, end : (n + 1,) int64
        Bounds of the separators in ``scopes``.
    factors : (factors,) int64
        Factors with a variable in the block.
    seen_factor : (factors,) bool
        Whether a factor is in ``factors``.
    arena : (entries,) float64
        Tables of the block's elimination.
    best : (factors,) float64
        The largest entry of each dense factor, 0 for automata. Kernels only read it.
    """

    block: Ints
    place: Ints
    seen: Ints
    marked: NDArray[np.bool_]
    queue: Ints
    priority: NDArray[np.float64]
    near: Ints
    list_a: Ints
    list_b: Ints
    separator: Ints
    width: Ints
    domain: Ints
    cells: Ints
    scopes: Ints
    begin: Ints
    end: Ints
    factors: Ints
    seen_factor: NDArray[np.bool_]
    arena: Array
    best: NDArray[np.float64]


def penalised_graph(graph: FactorGraph) -> FactorGraph:
    """Return a graph in which each violation is a finite loss, larger than any possible gain of utility.

    The loss is 2 · Σ ranges of the factors + the largest absolute entry + 1. The result's entries are float64, and its
    ``forbidden_entry`` is minus the loss.
    """
    is_forbidden = graph.data == graph.forbidden_entry
    data = graph.data.astype(np.float64)
    if graph.low.size:
        data += graph.low
    span = 0.0
    if graph.dense:
        tables, starts = slice(graph.first_step), graph.table_start[:-1]
        best = np.maximum.reduceat(np.where(is_forbidden, -np.inf, data)[tables], starts)
        worst = np.minimum.reduceat(np.where(is_forbidden, np.inf, data)[tables], starts)
        span += float((best - worst)[np.isfinite(best)].sum())
    steps = data[graph.first_step :][~is_forbidden[graph.first_step :]]
    span += float(np.abs(steps).sum())
    loss = 2.0 * span + float(np.abs(data[~is_forbidden]).max(initial=0.0)) + 1.0
    data[is_forbidden] = -loss
    return graph._replace(data=data, low=np.zeros(0), forbidden_entry=-loss)


def new_workspace(graph: FactorGraph, cut: bool, best: NDArray[np.float64] | None = None) -> BlockWorkspace:
    """Allocate the workspace for a penalised graph.

    Parameters
    ----------
    graph : FactorGraph
        From :func:`penalised_graph`.
    cut : bool
        Whether blocks are cut from the whole graph.
    best : (factors,) float64, optional
        ``BlockWorkspace.best`` of another workspace of the graph; computed if it is None.
    """
    if best is None:
        best = np.zeros(graph.factors)
        if graph.dense:
            best[: graph.dense] = np.maximum.reduceat(graph.data[: graph.first_step], graph.table_start[:-1])
    n, factors = graph.domains.size, graph.factors
    grown, width_limit = min(n, tuning.MAX_BLOCK_VARIABLES), MAX_WIDTH + 2
    per_variable = [np.zeros(n + 1, dtype=np.int64) for _ in range(6)]
    buckets = [np.zeros(grown, dtype=np.int64) for _ in range(3)]
    block, place, seen, queue, begin, end = per_variable
    width, domain, cells = buckets
    return BlockWorkspace(
        block=block,
        place=place,
        seen=seen,
        marked=np.zeros(n + 1, dtype=np.bool_),
        queue=queue,
        priority=np.zeros(n),
        near=np.zeros(width_limit, dtype=np.int64),
        list_a=np.zeros(2 * width_limit, dtype=np.int64),
        list_b=np.zeros(2 * width_limit, dtype=np.int64),
        separator=np.zeros((grown, width_limit), dtype=np.int64),
        width=width,
        domain=domain,
        cells=cells,
        scopes=np.zeros(width_limit * n if cut else 1, dtype=np.int64),
        begin=begin,
        end=end,
        factors=np.zeros(factors, dtype=np.int64),
        seen_factor=np.zeros(factors, dtype=np.bool_),
        # A table entry has 8 bytes.
        arena=np.zeros(int(MEMORY_ACCOUNT.budget_share(common.COPY_MEMORY_SHARE / (4 * 8), common.LARGE_ENTRIES))),
        best=best,
    )
