"""Improve an elimination order by reordering large connected pieces of its bucket tree.

Windows, connected parts of eight vertices (``window_kernels``), are ordered optimally, but the defects of a greedy
order are often larger. A piece of dozens or hundreds of vertices around a large bucket is reordered by one of three
methods:

* its current order, but with a balanced vertex separator last (``vertex_separator_kernels``): nested dissection;
* a sweep from one end of the graph to the other, which always eliminates next to what is eliminated already
  (``sweep_order_kernels``);
* a greedy rule with noise (``greedy_kernels``).

Windows then improve each of these orders, and a cheaper order replaces the current one. The best of several such
searches continues. With much work it is annealed: at first some increase of the cells is accepted, less and less with
time. Before the search, almost simplicial variables with small buckets are eliminated (``safe_elimination_kernels``),
so that pieces span more of the rest.

The three methods get equal work. Work is counted in words (accesses to 64-bit words of a graph), so the same seed gives
the same order everywhere; only the deadline, checked between pieces, depends on the clock. The shares, temperatures and
limits below were chosen by measurement.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.orders.bitset_kernels import random_unit, seeded, subgraph
from dmcmc.inference.orders.greedy_kernels import first_costs, greedy
from dmcmc.inference.orders.reorder_subtrees_kernels import extract_piece, insert_piece
from dmcmc.inference.orders.sweep_order_kernels import eliminate_almost_simplicial, sweep_order
from dmcmc.inference.orders.vertex_separator_kernels import cut_orders
from dmcmc.inference.orders.window_kernels import bucket_tree, improve, order_of_tree
from dmcmc.inference.runtime.compile import KernelSet
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.tuning import (
    DEFAULT_BUDGET,
    HIGH_NOISE,
    LONG_BUDGET,
    MAX_CELL_RATIO,
    SMALL_BUDGET,
    START_SHARE,
    START_TEMPERATURE,
    STARTS,
)

_OVERFLOW_CELLS = 1e200  # above, products of cells overflow
_METHODS = 3  # sweep, separator, greedy
_UNITS_PER_BIT = 256  # integer weights in units of 1/256 bit

BitRows = NDArray[np.uint64]
Ints = NDArray[np.int64]


@dataclass
class _OrderSearch:
    """The improvement of one order.

    Attributes
    ----------
    graph : (n, words) uint64
        Rows of bits; the kept vertices, from ``order.size`` on, form a clique.
    sizes : (n,) float64
        Domain sizes.
    weight : (n,) int64
        log2 of the sizes in units of 1/256 bit.
    order : (eliminate,) int64
        The current order.
    seed : int
        Seed of the random generator.
    state : (1,) uint64
        The generator's state.
    spent : list of int
        Words used per method.
    work : float
        Words used in total.
    tree : tuple
        Bucket tree of the current order: separators, parents and joined cells.
    total : float
        Cells of the current order.
    best, cells : ndarray of int64, float
        The best order so far and its cells.
    gained : float
        Words used until the best order was found.
    """

    graph: BitRows
    sizes: NDArray[np.float64]
    weight: Ints
    order: Ints
    seed: int

    def __post_init__(self) -> None:
        self.state = seeded(self.seed)
        self.spent = [0] * _METHODS
        self.work, self.cells = 0.0, np.inf
        self._evaluate()

    def _evaluate(self) -> None:
        """Compute the bucket tree and the cells of the current order; record a new best order."""
        self.tree = bucket_tree(self.graph, self.sizes, self.order)
        self.total = float(self.tree[2].sum())
        self.work += 4 * self.graph.size
        if self.total < self.cells * (1 - 1e-9):
            self.best, self.cells, self.gained = self.order, self.total, self.work

    def run(self, work: float, stop: Deadline, temperature: float = 0.0) -> None:
        """Continue from the best order for ``work`` words, until the deadline, or until gains have stopped.

        The temperature falls quadratically from ``temperature`` to 0.
        """
        begin = self.work
        if self.total > self.cells:
            self.order = self.best
            self._evaluate()
        while self.work < begin + work and self.work < 2 * self.gained + DEFAULT_BUDGET and not stop.over:
            progress = (self.work - begin) / work
            self._step(temperature * max(0.0, 1.0 - progress) ** 2)

    def _step(self, temperature: float) -> None:
        """Reorder one piece by one method; accept an increase with mean ``temperature`` times all cells.

        The accepted increase is −temperature · cells · ln U with U uniform in (0, 1), an exponential random number.
        """
        separator, parent, cells = self.tree
        local, vertices, count, current_cells, largest, work = extract_piece(
            self.graph, self.order, separator, parent, cells, self.state
        )
        sizes, weight = self.sizes[vertices], self.weight[vertices]
        method = self.spent.index(min(self.spent))
        if method == 0:
            orders, used = sweep_order(local, weight, count, self.state)
        elif method == 1:
            orders, used = cut_orders(local, weight, count, int(_UNITS_PER_BIT * np.log2(largest)) + 1, self.state)
        else:
            orders, used = self._greedy(local, sizes, weight, count, current_cells)
        increase = -temperature * self.total * np.log(max(random_unit(self.state), 1e-12)) if temperature else 0.0
        limit = (current_cells + increase) * (1 - 1e-9)
        best: Ints | None = None
        for order in orders:
            local_separator, local_parent, joined = bucket_tree(local, sizes, order)
            used += 4 * local.size
            if joined.sum() < MAX_CELL_RATIO * limit:
                used += improve(
                    local, sizes, local_separator, local_parent, joined, False, float(SMALL_BUDGET), self.state
                )
            if joined.sum() < limit:
                limit = joined.sum()
                order_of_tree(local_parent, order)
                best = order
        self.spent[method] += used
        self.work += work + used
        if best is not None and (best[1:] < best[:-1]).any():
            self.order = insert_piece(self.order, parent, vertices[best])
            self._evaluate()

    def _greedy(
        self, local: BitRows, sizes: NDArray[np.float64], weight: Ints, count: int, current_cells: float
    ) -> tuple[Ints, int]:
        """Return noisy greedy orders of a piece and the work.

        Parameters
        ----------
        local : (m, words) uint64
            The piece's graph; vertices from ``count`` on are kept.
        sizes, weight : (m,) float64, (m,) int64
            Domain sizes, and their scaled log2.
        count
            The number of vertices of the piece.
        current_cells
            Cells of its current buckets.

        Returns
        -------
        orders : (0 or 1, count) int64
            Empty if the order has far too many cells.
        work : int
            Words used.
        """
        rule, noise = int(3 * random_unit(self.state)), HIGH_NOISE * random_unit(self.state) ** 2
        cost, work = first_costs(local, weight, count, rule)
        orders = np.empty((1, count), dtype=np.int64)
        ties, limit = np.zeros(1, dtype=np.int64), MAX_CELL_RATIO * current_cells
        cells, greedy_work = greedy(
            local.copy(), cost, sizes, weight, count, rule, noise, ties, self.state, limit, np.inf, orders[0]
        )
        return orders[: int(cells < limit)], work + greedy_work + local.size


def improve_subtrees(
    graph: BitRows,
    sizes: NDArray[np.float64],
    weight: Ints,
    order: Ints,
    budget: float,
    stop: Deadline = NO_DEADLINE,
) -> Ints:
    """Return an order with no more cells than the given one.

    Parameters
    ----------
    graph : (n, words) uint64
        Rows of bits; the kept vertices, from ``order.size`` on, form a clique.
    sizes : (n,) float64
        Domain sizes.
    weight : (n,) int64
        log2 of the sizes in units of 1/256 bit.
    order : (eliminate,) int64
        The order so far, of vertices 0..eliminate−1.
    budget : float
        Work in words, 2 to 4 ns each.
    stop : Deadline
        Deadline, checked between pieces: every few milliseconds on graphs of a thousand vertices.
    """
    cells = bucket_tree(graph, sizes, order)[2].sum()
    if not 0 < cells < _OVERFLOW_CELLS:
        return order
    count = order.size
    remaining_graph = graph.copy()
    safe = np.empty(count, dtype=np.int64)
    n_safe, _ = eliminate_almost_simplicial(remaining_graph, sizes, count, cells / (MAX_CELL_RATIO * count), safe)
    remaining = np.setdiff1d(np.arange(graph.shape[0]), safe[:n_safe])
    position = np.full(graph.shape[0], -1, dtype=np.int64)
    position[remaining] = np.arange(remaining.size)
    start = position[order]
    start = start[start >= 0]
    if start.size < 3:
        return order
    core = subgraph(remaining_graph, remaining)
    temperature = 0.0 if budget < LONG_BUDGET else START_TEMPERATURE
    best: _OrderSearch | None = None
    for seed in range(STARTS):
        search = _OrderSearch(core, sizes[remaining], weight[remaining], start, seed)
        search.run(START_SHARE * budget, stop)
        if best is None or search.cells < best.cells:
            best = search
    assert best is not None
    best.run((1 - STARTS * START_SHARE) * budget, stop, temperature)
    improved_order = np.concatenate([safe[:n_safe], remaining[best.best]])
    separator, parent, joined = bucket_tree(graph, sizes, improved_order)
    if not stop.over:
        improve(graph, sizes, separator, parent, joined, True, float(SMALL_BUDGET), best.state)
        order_of_tree(parent, improved_order)
    return improved_order if joined.sum() < cells else order


def compile_subtree_search() -> None:
    """Compile all kernels that :func:`improve_subtrees` uses, by reordering a small grid."""
    side = 5
    graph = np.zeros((side * side, 1), dtype=np.uint64)
    for v in range(side * side):
        for u in (v + 1 if (v + 1) % side else v, v + side if v + side < side * side else v):
            graph[v, 0] |= np.uint64((u != v) << u)
            graph[u, 0] |= np.uint64((u != v) << v)
    sizes, weight = np.full(side * side, 2.0), np.full(side * side, _UNITS_PER_BIT)
    improve_subtrees(graph, sizes, weight, np.arange(side * side), 1e5)


SUBTREE_ORDERS = KernelSet("orders", compile_subtree_search)
"""What improves the orders of large problems by :func:`improve_subtrees`."""
