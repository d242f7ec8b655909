"""Search in neighbourhoods of blocks, and its workspace.

Large-neighbourhood search by elimination: block moves from an assignment to better ones.

A *block move* redraws a set of variables, given all others, by bucket elimination; its work is counted in *cells*, the
entries of the tables that the buckets join. Blocks are *grown* from one variable, or *cut* from the whole graph along
an elimination order. An *arm* of the bandit that selects moves is a type of move with a limit of cells per bucket.

The factor graph that the block kernels read, with penalties for forbidden entries, and their workspace.

A *block* is a set of variables that are redrawn together, given all others, by bucket elimination; a bucket joins the
tables of one variable, and its *separator* is the scope of its message. A block is *grown* from one variable over its
neighbours, or *cut* from the whole graph by fixing variables where a bucket would be too large. An *automaton* is a
factor that reads the values of its scope in turn: each transition adds a utility and leads to a next state.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor_graph import FactorGraph
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.blocks.block_gibbs_kernels import typical_spread, utility_of_assignment
from dmcmc.samplers.blocks.block_selection_kernels import MAX_WIDTH
from dmcmc.samplers.blocks.neighbourhood_search_kernels import SWEEP, improve
from dmcmc.samplers.contract import tuning

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
        arena=np.zeros(int(MEMORY_ACCOUNT.budget_share(tuning.COPY_MEMORY_SHARE / (4 * 8), tuning.LARGE_ENTRIES))),
        best=best,
    )


_GROWN_TYPES = (0, 1)  # types of moves, as the kernels number them
_CUT_TYPES = (2, 3)  # likewise
_ARM_COLUMNS = 6  # columns per arm, see the kernel ``improve``


class BlockSearch:
    """Block moves by one worker.

    Parameters
    ----------
    graph : FactorGraph
        The graph.
    key : (2,) uint64
        Key of the random numbers.
    chain : int
        Number of the worker.

    Attributes
    ----------
    moves : int
        Number of moves made.
    arms : (arms, 6) float64
        Per arm: type of move, limit of cells, discounted number of successes, discounted work, uses, sum of block
        sizes.
    """

    def __init__(self, graph: FactorGraph, key: NDArray[np.uint64], chain: int = 0) -> None:
        self.graph, self.key, self.chain, self.moves = graph, key, chain, 0
        self.order = self.rank = np.arange(graph.domains.size)
        self.workspace = new_workspace(graph, False)
        self.arms = np.concatenate([_arms((SWEEP,))[:1], _arms(_GROWN_TYPES)])
        self._current, self._temperatures, self._cycles, self._cells = np.zeros(0, dtype=np.int64), list[float](), 0, 0

    @property
    def cuts(self) -> bool:
        """Whether blocks are also cut from the whole graph."""
        return len(self.arms) > 1 + len(_GROWN_TYPES) * len(tuning.BUCKET_CELLS)

    def cut(self, order: NDArray[np.int64]) -> None:
        """Also cut blocks from the whole graph, along an elimination order, (n,) int64."""
        self.order, self.rank = order, np.argsort(order)
        self.workspace = new_workspace(self.graph, True, self.workspace.best)
        self.arms = np.concatenate([self.arms, _arms(_CUT_TYPES)])

    def improve(self, z: NDArray[np.int64], work: int, halt: NDArray[np.uint8], temperature: float = 0.0) -> float:
        """Make block moves in place until about ``work`` cells are joined or ``halt[0]`` is nonzero.

        Parameters
        ----------
        z : (n,) int64
            The assignment.
        work : int
            Cells to join.
        halt : (1,) uint8
            Nonzero when the search should return.
        temperature : float
            At 0 the assignment never gets worse; else each block is drawn given the rest by exp(utility / temperature).

        Returns
        -------
        float
            Gain of utility, each violation counted as a finite loss.
        """
        if self.graph.free == 0:
            return 0.0
        gained, next_move = improve(
            self.graph, z, self.workspace, self.order, self.rank, self.arms, temperature, self.key, self.chain,
            self.moves + 1, work, halt,
        )  # fmt: skip
        self.moves = next_move - 1
        return float(gained)

    def anneal(self, best: NDArray[np.int64], work: int, halt: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Anneal block moves from the best assignment, cycle after cycle.

        An interrupted cycle continues in the next call.

        Parameters
        ----------
        best : (n,) int64
            The best known assignment.
        work : int
            Cells to join.
        halt : (1,) uint8
            Nonzero when the search should return.

        Returns
        -------
        (n,) int64
            The best assignment after any step at temperature 0, or the one given if none is better.
        """
        while work > 0 and not halt[0] and self.graph.free:
            if not self._temperatures:
                self._current = best.copy()
                spread = float(typical_spread(self.graph, best)) or 1.0
                self._cells, self._temperatures = cooling(self._cycles, spread)
                self._cycles += 1
            step, temperature = min(work, self._cells * self.graph.free), self._temperatures.pop(0)
            self.improve(self._current, step, halt, temperature)
            work -= step
            if temperature == 0 and self.utility_of(self._current) > self.utility_of(best):
                best = self._current.copy()
        return best

    def restart_cycle(self) -> None:
        """Begin a new cycle in the next call, at the assignment given then."""
        self._temperatures = []

    def utility_of(self, z: NDArray[np.int64]) -> float:
        """Return the utility of an assignment, each violation counted as a finite loss."""
        return float(utility_of_assignment(self.graph, z))


def cooling(cycle: int, spread: float) -> tuple[int, list[float]]:
    """Return the cells of a step, per variable, and the temperatures of a cycle's steps.

    A cycle cools geometrically from a first temperature f · ``spread`` to 1/30 of it, then stays at 0. The factors f
    take turns from cycle to cycle; the cells double each time all have been used.
    """
    number = len(tuning.FIRST_TEMPERATURES)
    hot, doubled = tuning.FIRST_TEMPERATURES[cycle % number] * spread, min(tuning.MAX_DOUBLINGS, cycle // number)
    return tuning.STEP_CELLS << doubled, [
        *np.geomspace(hot, hot * tuning.COOLING_RATIO, tuning.ANNEALED_STEPS).tolist(),
        *[0.0] * tuning.COLD_STEPS,
    ]


def order_for_cuts(graph: FactorGraph, stop: Deadline) -> NDArray[np.int64] | None:
    """Return an elimination order of the free variables; None if there are too many."""
    if graph.free > tuning.MAX_BLOCK_VARIABLES:
        return None
    free, n = graph.free, graph.domains.size
    order = best_order(graph.scopes(), graph.domains, range(free), range(free, n), tuning.ORDER_WORK, stop, 0)
    return np.array(order.variables, dtype=np.int64)


def _arms(types: tuple[int, ...]) -> NDArray[np.float64]:
    """Return unused arms: each type of move with each limit."""
    return np.array(
        [[move_type, limit, *[0.0] * (_ARM_COLUMNS - 2)] for move_type in types for limit in tuning.BUCKET_CELLS]
    )
