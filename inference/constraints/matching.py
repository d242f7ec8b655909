"""Values that an assignment of different values to all variables supports (Régin, AAAI 1994)."""

from collections.abc import Sequence

import numpy as np


def supported_values(domains: Sequence[Sequence[int]]) -> list[list[bool]] | None:
    """Return for each value of each variable whether an assignment of different values uses it; None if none exists.

    Given one matching, value x is supported for a variable with matched value c if exchanging values along a path of
    variables is possible: x reaches an unmatched value, or x reaches c (Régin 1994). Reachability is computed by
    squaring the (values, values) matrix of arcs.

    >>> supported_values([[0, 1], [0, 1], [0, 1, 2]])
    [[True, True], [True, True], [False, False, True]]
    """
    index_of = {x: i for i, x in enumerate(sorted({x for domain in domains for x in domain}))}
    numbered = [[index_of[x] for x in domain] for domain in domains]
    matching = _matching(numbered, len(index_of))
    if matching is None:
        return None
    # An arc leads from the value of a variable to each value that the variable could take instead.
    arcs = np.zeros((len(index_of), len(index_of)), dtype=np.bool_)
    for current, domain in zip(matching, numbered, strict=True):
        arcs[current, domain] = True
    reach = arcs | np.eye(len(index_of), dtype=np.bool_)
    for _ in range(len(index_of).bit_length()):
        reach = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
    free = np.ones(len(index_of), dtype=np.bool_)
    free[matching] = False
    reaches_free = np.asarray(reach[:, free].any(axis=1))  # an alternating path leads from here to an unmatched value
    return [
        [bool(reaches_free[x] or reach[x, current]) for x in domain]
        for current, domain in zip(matching, numbered, strict=True)
    ]


def _matching(domains: Sequence[Sequence[int]], values: int) -> list[int] | None:
    """Match each variable with a value, all different, by augmenting paths; None if there is no such matching."""
    holder, value_of = [-1] * values, [-1] * len(domains)
    for start in range(len(domains)):
        reached_from: dict[int, int] = {}  # per value, the variable from which the search reached it
        stack, end = [start], -1
        while stack and end < 0:
            v = stack.pop()
            for x in domains[v]:
                if x not in reached_from:
                    reached_from[x] = v
                    if holder[x] < 0:
                        end = x
                        break
                    stack.append(holder[x])
        if end < 0:
            return None
        while end >= 0:
            v = reached_from[end]
            holder[end], value_of[v], end = v, end, value_of[v]
    return value_of
