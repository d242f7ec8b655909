"""About what an elimination takes, from above: one plain rule, in Python, so that nothing has to be compiled for it."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.orders.best_order import best_order

AT_A_GLANCE = 128  # variables: some milliseconds
_WORDS = 100_000  # of a short search
_BITS = 1 << 13  # variables whose graph is 8 MB as rows of bits; that grows with the square, and so does all work on it


def cells_at_most(scopes: Sequence[Sequence[int]], domains: NDArray[np.int64], eliminate: Sequence[int]) -> float:
    """Return the joined cells of an order that takes the smallest bucket first; inf where there are many variables.

    An order from :func:`.best_order` joins no more.

    Parameters
    ----------
    scopes
        Over the variables to eliminate and others, which stay.
    domains
        Domain sizes by variable.

    Examples
    --------
    >>> cells_at_most([(0, 1), (1, 2)], np.array([2, 3, 5]), [0, 1])
    21.0
    """
    return inf if len(eliminate) > AT_A_GLANCE else _cells(scopes, domains, eliminate, inf)


def takes(
    scopes: Sequence[Sequence[int]],
    domains: NDArray[np.int64],
    eliminate: Sequence[int],
    keep: Sequence[int],
    cells: float,
) -> bool:
    """Return whether an order joins so many cells or more, by a short search; of very many variables by the plain rule.

    Examples
    --------
    >>> takes([(0, 1), (1, 2)], np.array([2, 3, 5]), [0, 1], [2], cells=22)
    False
    """
    if len(eliminate) + len(keep) > _BITS:
        return _cells(scopes, domains, eliminate, cells) >= cells
    return best_order(scopes, domains, eliminate, keep, budget=_WORDS, stake=0).cells >= cells


def _cells(
    scopes: Sequence[Sequence[int]], domains: NDArray[np.int64], eliminate: Sequence[int], enough: float
) -> float:
    """Return the joined cells of the order; when they are enough, those so far."""
    near: dict[int, set[int]] = {v: {v} for v in eliminate}
    for scope in scopes:
        for v in scope:
            if v in near:
                near[v].update(scope)
    size = {v: float(domains[v]) for around in near.values() for v in around}
    cells = {v: prod(size[u] for u in around) for v, around in near.items()}
    smallest = [(joined, v) for v, joined in cells.items()]  # and what has been true before
    heapify(smallest)
    total = 0.0
    while near and total < enough:
        joined, v = heappop(smallest)
        if v not in near or cells[v] != joined:
            continue
        around = near.pop(v)
        total += joined
        around.remove(v)
        for u in around & near.keys():
            near[u] |= around
            near[u].discard(v)
            cells[u] = prod(size[w] for w in near[u])
            heappush(smallest, (cells[u], u))
    return total
