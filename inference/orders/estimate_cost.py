"""Estimate the cost of an elimination; for few variables, a greedy rule in Python needs no compiled kernels."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.orders import tuning
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.orders.tuning import MAX_INTERPRETED_VARIABLES, SHORT_BUDGET

# Variables of an 8 MB graph as rows of bits; its size and the work on it grow with the square.


def cells_upper_bound(scopes: Sequence[Sequence[int]], domains: NDArray[np.int64], eliminate: Sequence[int]) -> float:
    """Return the joined cells of the order that eliminates the smallest bucket first; inf for too many variables.

    An order from :func:`dmcmc.inference.orders.best_order.best_order` joins no more cells.

    Parameters
    ----------
    scopes
        Scopes over the variables to eliminate and others, which remain.
    domains
        Domain sizes by variable.
    eliminate
        The variables to eliminate.

    Examples
    --------
    >>> cells_upper_bound([(0, 1), (1, 2)], np.array([2, 3, 5]), [0, 1])
    21.0
    """
    return inf if len(eliminate) > MAX_INTERPRETED_VARIABLES else _min_weight_cells(scopes, domains, eliminate, inf)


def joins_at_least(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64],
    eliminate: Sequence[int],
    keep: Sequence[int],
    cells: float,
) -> bool:
    """Return whether elimination joins ``cells`` cells or more.

    A short search for an order decides; for very many variables it is the greedy rule.

    Parameters
    ----------
    scopes, domains, eliminate
        As in ``cells_upper_bound``.
    keep
        The variables that remain.
    cells
        The threshold.

    Examples
    --------
    >>> joins_at_least([(0, 1), (1, 2)], np.array([2, 3, 5]), [0, 1], [2], cells=22)
    False
    """
    if len(eliminate) + len(keep) > tuning.MAX_BITSET_VARIABLES:
        return _min_weight_cells(scopes, domains, eliminate, cells) >= cells
    return best_order(scopes, domains, eliminate, keep, budget=SHORT_BUDGET, expected_cells=0).cells >= cells


def _min_weight_cells(
    scopes: Sequence[Sequence[int]], domains: NDArray[np.int64], eliminate: Sequence[int], threshold: float
) -> float:
    """Return the joined cells of the min-weight order; the cells so far as soon as they reach the threshold."""
    neighbours: dict[int, set[int]] = {v: {v} for v in eliminate}
    for scope in scopes:
        for v in scope:
            if v in neighbours:
                neighbours[v].update(scope)
    size = {v: float(domains[v]) for neighbourhood in neighbours.values() for v in neighbourhood}
    cells = {v: prod(size[u] for u in neighbourhood) for v, neighbourhood in neighbours.items()}
    queue = [(joined, v) for v, joined in cells.items()]  # entries may be outdated
    heapify(queue)
    total = 0.0
    while neighbours and total < threshold:
        joined, v = heappop(queue)
        if v not in neighbours or cells[v] != joined:
            continue
        neighbourhood = neighbours.pop(v)
        total += joined
        neighbourhood.remove(v)
        for u in neighbourhood & neighbours.keys():
            neighbours[u] |= neighbourhood
            neighbours[u].discard(v)
            cells[u] = prod(size[w] for w in neighbours[u])
            heappush(queue, (cells[u], u))
    return total
