"""Improve an elimination order in large pieces of its bucket tree, each ordered anew in one of several ways.

Windows of eight vertices (:mod:`.window_kernels`) are ordered optimally, but what is wrong with a greedy order is
often larger than that. A piece of dozens or hundreds of vertices around a large bucket is tried

* in the order that it has, but a balanced cut of it last (:mod:`.cut_kernels`): nested dissection;
* in a sweep from one end to the other (:mod:`.sweep_kernels`);
* greedily, with noise (:mod:`.greedy_kernels`);

each then improved by windows. What is cheaper is kept. The best of some such searches is then annealed, where there is
much work to do so: what has a few more cells is kept, too, at first, and less and less of it. First, variables with
small buckets that no order does better with are eliminated (:mod:`.reduction_kernels`): pieces then span more of what
is left.

The three kinds get the same work. All of it is counted, so the same seed makes the same order everywhere; only a
:class:`Stop` ends it by the clock, between pieces.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.orders.bitset_kernels import subgraph
from dmcmc.inference.orders.greedy_kernels import first_costs, greedy, random_unit, seeded
from dmcmc.inference.orders.reorder_subtrees_kernels import put_back, take_piece
from dmcmc.inference.orders.safe_elimination_kernels import reduce
from dmcmc.inference.orders.sweep_order_kernels import sweep_order
from dmcmc.inference.orders.vertex_separator_kernels import cut_orders
from dmcmc.inference.orders.window_kernels import bucket_tree, improve, order_of_tree
from dmcmc.inference.runtime.deadline import NO_STOP, Stop

# Searches that are begun, and the part of the work for each of them; the best goes on. More where there is much work.
_STARTS, _MORE_STARTS = (4, 0.08), (8, 0.04)
_AMPLE = 5e8  # words
_HEAT, _COLD = 0.01, 0.15  # of all cells, that a change may add, about, at first; the last part, in which none may
_LAST = 0.05  # of the work, for windows in the end
_PATIENCE = 1e7  # words without a gain, and as many as before the last gain
_HOPELESS = 1e200  # products of cells overflow
_REDUCED = 64.0  # all reduced buckets together have at most so small a part of the cells
_WINDOWS = 1e6  # words for windows of one order
_HOPEFUL = 64.0  # windows are tried on an order with at most so many times the cells
_KINDS = 3
_UNITS = 256  # to a bit, in weights

Graph = NDArray[np.uint64]
Ints = NDArray[np.int64]


@dataclass
class _Search:
    """An order that is being improved; ``work`` is counted, ``gained`` is what it was when ``best`` was found."""

    graph: Graph
    sizes: NDArray[np.float64]
    weight: Ints
    order: Ints
    seed: int

    def __post_init__(self) -> None:
        self.state = seeded(self.seed)
        self.spent = [0] * _KINDS
        self.work, self.cells = 0.0, np.inf
        self._look()

    def _look(self) -> None:
        self.tree = bucket_tree(self.graph, self.sizes, self.order)
        self.total = float(self.tree[2].sum())
        self.work += 4 * self.graph.size
        if self.total < self.cells * (1 - 1e-9):
            self.best, self.cells, self.gained = self.order, self.total, self.work

    def run(self, work: float, stop: Stop, heat: float = 0.0) -> None:
        """Go on from the best for so much work, until it is time to end, or until nothing has been gained for long."""
        begin = self.work
        if self.total > self.cells:
            self.order = self.best
            self._look()
        while self.work < begin + work and self.work < 2 * self.gained + _PATIENCE and not stop.over:
            part = (self.work - begin) / work
            self._step(heat * (1.0 - part) ** 2 if part < 1.0 - _COLD else 0.0)

    def _step(self, heat: float) -> None:
        """Try one piece in one way; it may add ``heat`` of all cells, more or less."""
        separator, parent, cells = self.tree
        local, names, count, before, widest, work = take_piece(
            self.graph, self.order, separator, parent, cells, self.state
        )
        sizes, weight = self.sizes[names], self.weight[names]
        kind = self.spent.index(min(self.spent))
        if kind == 0:
            orders, made = sweep_order(local, weight, count, self.state)
        elif kind == 1:
            orders, made = cut_orders(local, weight, count, int(_UNITS * np.log2(widest)) + 1, self.state)
        else:
            orders, made = self._greedy(local, sizes, weight, count, before)
        more = -heat * self.total * np.log(max(random_unit(self.state), 1e-12)) if heat else 0.0
        limit = (before + more) * (1 - 1e-9)
        best: Ints | None = None
        for order in orders:
            around, tree, joined = bucket_tree(local, sizes, order)
            made += 4 * local.size
            if joined.sum() < _HOPEFUL * limit:
                made += improve(local, sizes, around, tree, joined, False, _WINDOWS, self.state)
            if joined.sum() < limit:
                limit = joined.sum()
                order_of_tree(tree, order)
                best = order
        self.spent[kind] += made
        self.work += work + made
        if best is not None and (best[1:] < best[:-1]).any():
            self.order = put_back(self.order, parent, names[best])
            self._look()

    def _greedy(
        self, local: Graph, sizes: NDArray[np.float64], weight: Ints, count: int, before: float
    ) -> tuple[Ints, int]:
        """Return a noisy greedy order of a piece, (1, count); none if its cells are far too many; and the work."""
        rule, noise = int(3 * random_unit(self.state)), 2.0 * random_unit(self.state) ** 2
        cost, work = first_costs(local, weight, count, rule)
        orders = np.empty((1, count), dtype=np.int64)
        ties, limit = np.zeros(1, dtype=np.int64), _HOPEFUL * before
        cells, more = greedy(
            local.copy(), cost, sizes, weight, count, rule, noise, ties, self.state, limit, np.inf, orders[0]
        )
        return orders[: int(cells < limit)], work + more + local.size


def improve_pieces(
    graph: Graph,
    sizes: NDArray[np.float64],
    weight: Ints,
    order: Ints,
    budget: float,
    stop: Stop = NO_STOP,
) -> Ints:
    """Return an order with no more cells than the given one.

    Parameters
    ----------
    graph : (n, words) uint64
        With the kept vertices, from ``order.size`` on, as a clique.
    sizes : (n,) float64
        Domain sizes.
    weight : (n,) int64
        log2 of the sizes in units of 1/256 bit.
    order : (eliminate,) int64
        The order so far, of vertices 0..eliminate−1.
    budget : float
        Work in words touched, 2 to 4 ns each.
    stop : Stop
        Looked at between pieces, some milliseconds at most on graphs of a thousand vertices.
    """
    cells = bucket_tree(graph, sizes, order)[2].sum()
    if not 0 < cells < _HOPELESS:
        return order
    count = order.size
    rest = graph.copy()
    reduced = np.empty(count, dtype=np.int64)
    gone, _ = reduce(rest, sizes, count, cells / (_REDUCED * count), reduced)
    left = np.setdiff1d(np.arange(graph.shape[0]), reduced[:gone])
    place = np.full(graph.shape[0], -1, dtype=np.int64)
    place[left] = np.arange(left.size)
    start = place[order]
    start = start[start >= 0]
    if start.size < 3:
        return order
    core = subgraph(rest, left)
    (starts, first), heat = (_STARTS, 0.0) if budget < _AMPLE else (_MORE_STARTS, _HEAT)
    best: _Search | None = None
    for seed in range(starts):
        search = _Search(core, sizes[left], weight[left], start, seed)
        search.run(first * budget, stop)
        if best is None or search.cells < best.cells:
            best = search
    assert best is not None
    best.run((1 - starts * first) * budget, stop, heat)
    found = np.concatenate([reduced[:gone], left[best.best]])
    separator, parent, joined = bucket_tree(graph, sizes, found)
    if not stop.over:
        improve(graph, sizes, separator, parent, joined, True, min(_LAST * budget, _PATIENCE), best.state)
        order_of_tree(parent, found)
    return found if joined.sum() < cells else order


def compile_pieces() -> None:
    """Compile all that :func:`improve_pieces` uses."""
    side = 5
    graph = np.zeros((side * side, 1), dtype=np.uint64)
    for v in range(side * side):
        for u in (v + 1 if (v + 1) % side else v, v + side if v + side < side * side else v):
            graph[v, 0] |= np.uint64((u != v) << u)
            graph[u, 0] |= np.uint64((u != v) << v)
    sizes, weight = np.full(side * side, 2.0), np.full(side * side, _UNITS)
    improve_pieces(graph, sizes, weight, np.arange(side * side), 1e5)
