"""The graph that the block kernels read, and their workspace.

A *block* is a set of variables that are redrawn together, given all others, by bucket elimination; a bucket joins the
tables of one variable, and its *separator* is the scope of its message. A block is *grown* from one variable over its
neighbours, or *cut* from the whole graph by fixing variables where a bucket would be too large. An *automaton* is a
factor that reads the values of its scope in turn: each transition adds a utility and leads to a next state.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.blocks.block_selection_kernels import MAX_WIDTH

MAX_ARENA_ENTRIES = 1 << 22  # maximum of entries of all tables in a block's elimination
_ARENA_MEMORY_SHARE = 1 / 64  # share of the memory budget for them
_MAX_GROWN_VARIABLES = 1 << 14  # maximum of variables of a grown block
_SCOPE_CAPACITY = 64  # capacity for separators in entries, per variable of the graph; an average of more fails the cut

Ints = NDArray[np.int64]


class PenalisedGraph(NamedTuple):
    """Factors in which each violation is a finite loss; dense tables first, automata after them.

    Attributes
    ----------
    domains : (n,) int64
        Domain size of each variable.
    dense : int
        Number of dense factors; factors ``dense`` and above are automata.
    scope_start : (factors + 1,) int64
        The variables of factor f are ``scope[scope_start[f]:scope_start[f + 1]]``.
    scope : (scope entries,) int64
        Variables of all factors, one scope after the other.
    stride : (scope entries,) int64
        Stride of the variable in its dense table, in entries. For an automaton: offset of the variable's layer in
        ``following``.
    at : (dense,) int64
        Offset of each dense table in ``data``.
    data : (entries,) float64
        Dense tables, then the utilities of the automata's transitions.
    following : (transitions,) int32
        Next state of each transition.
    first_step : int
        Offset of the first transition's utility in ``data``.
    violation_utility : float
        The utility of a forbidden entry: a finite loss larger than any gain of the other entries together.
    start : (n + 1,) int64
        The factors of variable v are ``factor[start[v]:start[v + 1]]``.
    factor : (scope entries,) int64
        Factors of all variables, one variable after the other.
    best : (factors,) float64
        The largest entry of each dense factor, 0 for automata.
    free : int
        Number of variables that may move: variables from this one on are fixed.
    """

    domains: Ints
    dense: int
    scope_start: Ints
    scope: Ints
    stride: Ints
    at: Ints
    data: NDArray[np.float64]
    following: NDArray[np.int32]
    first_step: int
    violation_utility: float
    start: Ints
    factor: Ints
    best: NDArray[np.float64]
    free: int

    def scopes(self) -> list[tuple[int, ...]]:
        """Return the scopes as tuples."""
        cuts, flat = self.scope_start.tolist(), self.scope.tolist()
        return [tuple(flat[a:b]) for a, b in pairwise(cuts)]


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


def new_workspace(graph: PenalisedGraph, cut: bool) -> BlockWorkspace:
    """Allocate the workspace for a graph; ``cut`` says whether blocks are cut from the whole graph."""
    n, factors = graph.domains.size, graph.scope_start.size - 1
    grown, width_limit = min(n, _MAX_GROWN_VARIABLES), MAX_WIDTH + 2
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
        scopes=np.zeros(_SCOPE_CAPACITY * n if cut else 1, dtype=np.int64),
        begin=begin,
        end=end,
        factors=np.zeros(factors, dtype=np.int64),
        seen_factor=np.zeros(factors, dtype=np.bool_),
        # A table entry has 8 bytes.
        arena=np.zeros(int(MEMORY_ACCOUNT.budget_share(_ARENA_MEMORY_SHARE / 8, MAX_ARENA_ENTRIES))),
    )
