"""Elimination orders: greedy rules with random ties, and a portfolio scored by the cells that it makes.

The order matters more than any kernel. Each rule picks the next variable by a cost of its current neighbourhood;
domain sizes count in all of them through logarithmic weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

RULES = ("min-fill", "min-weight", "weighted-min-fill", "min-degree")
_REPEATS = 12  # random tie-breaks a rule; fixed, so that the order never depends on the machine's speed


@dataclass(frozen=True)
class Order:
    """An elimination order and what it costs.

    Attributes
    ----------
    variables : tuple of int
        The eliminated variables, first to last.
    cells : float
        Σ over buckets of the joined table's cells.
    largest : float
        Cells of the largest joined table.
    width : int
        Induced width: the most variables a bucket has beside its own.
    """

    variables: tuple[int, ...]
    cells: float
    largest: float
    width: int


@njit(cache=True, nogil=True)
def _cost(adjacent, weight, v, rule):
    """Return what eliminating v costs under a rule, in its neighbourhood now (smaller is better)."""
    n = adjacent.shape[0]
    neighbours = np.empty(n, dtype=np.int64)
    count = 0
    for u in range(n):
        if adjacent[v, u]:
            neighbours[count] = u
            count += 1
    if rule == 3:
        return float(count)
    cost = 0.0
    if rule == 1:
        cost = weight[v]
        for i in range(count):
            cost += weight[neighbours[i]]
        return cost
    for i in range(count):
        a = neighbours[i]
        for j in range(i + 1, count):
            b = neighbours[j]
            if not adjacent[a, b]:
                cost += 1.0 if rule == 0 else weight[a] * weight[b]
    return cost


@njit(cache=True, nogil=True)
def _greedy(adjacent, weight, eliminate, rule, ties):
    """Eliminate greedily; return the order, Σ and max of the log2 cells turned into cells, and the width.

    adjacent (n, n) bool is consumed. ties (n,) breaks equal costs, smaller first.
    """
    n = adjacent.shape[0]
    todo = eliminate.copy()
    cost = np.zeros(n)
    for v in range(n):
        if todo[v]:
            cost[v] = _cost(adjacent, weight, v, rule)
    order = np.empty(int(eliminate.sum()), dtype=np.int64)
    stale = np.zeros(n, dtype=np.bool_)
    total, largest, width = 0.0, 0.0, 0
    for step in range(order.size):
        best = -1
        for v in range(n):
            if todo[v] and (best < 0 or cost[v] < cost[best] or (cost[v] == cost[best] and ties[v] < ties[best])):
                best = v
        order[step] = best
        todo[best] = False
        neighbours = np.flatnonzero(adjacent[best])
        bits = weight[best]
        for u in neighbours:
            bits += weight[u]
        cells = 2.0**bits
        total += cells
        largest = max(largest, cells)
        width = max(width, neighbours.size)
        stale[:] = False
        for u in neighbours:
            adjacent[u, best] = False
            adjacent[best, u] = False
            stale[u] = True
        for i in range(neighbours.size):
            a = neighbours[i]
            for j in range(i + 1, neighbours.size):
                b = neighbours[j]
                if not adjacent[a, b]:
                    adjacent[a, b] = True
                    adjacent[b, a] = True
                    if rule != 1 and rule != 3:  # a new edge changes the fill of the common neighbours
                        for c in range(n):
                            if adjacent[a, c] and adjacent[b, c]:
                                stale[c] = True
        for v in range(n):
            if todo[v] and stale[v]:
                cost[v] = _cost(adjacent, weight, v, rule)
    return order, total, largest, width


def primal_graph(scopes: Iterable[Sequence[int]], position: Mapping[int, int]) -> NDArray[np.bool_]:
    """Return the (n, n) adjacency of variables that share a scope; ``position`` numbers them 0..n-1."""
    adjacent = np.zeros((len(position), len(position)), dtype=np.bool_)
    for scope in scopes:
        inside = [position[v] for v in scope]
        for a in inside:
            adjacent[a, inside] = True
    np.fill_diagonal(adjacent, False)
    return adjacent


def greedy_order(
    adjacent: NDArray[np.bool_],
    weight: NDArray[np.float64],
    eliminate: NDArray[np.bool_],
    rule: str,
    tie_seed: int | None = None,
) -> Order:
    """Return one greedy order over 0..n-1.

    Parameters
    ----------
    adjacent : (n, n) bool
        The graph; not changed.
    weight : (n,) float
        log2 of the domain sizes.
    eliminate : (n,) bool
        Which vertices are eliminated; the others stay and count in every table that they end up in.
    rule
        One of :data:`RULES`.
    tie_seed
        Breaks ties at random; None breaks them by index.
    """
    n = adjacent.shape[0]
    ties = np.arange(n) if tie_seed is None else np.random.Generator(np.random.Philox(tie_seed)).permutation(n)
    order, total, largest, width = _greedy(adjacent.copy(), weight, eliminate, RULES.index(rule), ties)
    return Order(tuple(order.tolist()), total, largest, int(width))


def best_order(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64],
    eliminate: Sequence[int],
    keep: Sequence[int] = (),
    repeats: int = _REPEATS,
) -> Order:
    """Return the cheapest order of a portfolio: every rule, ties by index and at random.

    Scored by the cells of all joined tables, then by the largest. Deterministic.

    Parameters
    ----------
    scopes
        Scopes over variables of ``eliminate`` and ``keep``.
    domains
        Domain sizes by variable.
    eliminate, keep
        The variables to eliminate and those that stay.
    repeats
        Random tie-breaks for each rule.
    """
    variables = [*eliminate, *keep]
    position = {v: i for i, v in enumerate(variables)}
    adjacent = primal_graph(scopes, position)
    weight = np.log2(domains[variables].astype(np.float64)) if variables else np.zeros(0)
    chosen = np.arange(len(variables)) < len(eliminate)
    # Beyond a few hundred vertices a repeat costs more than it saves here.
    repeats = min(repeats, max(0, 4000 // max(1, len(variables))))
    candidates = [
        greedy_order(adjacent, weight, chosen, rule, seed) for rule in RULES for seed in (None, *range(repeats))
    ]
    best = min(candidates, key=lambda order: (order.cells, order.largest))
    return Order(tuple(variables[i] for i in best.variables), best.cells, best.largest, best.width)
