# mypy: ignore-errors
"""Greedy colouring of the variables: variables of one colour share no factor, so a GPU can draw them simultaneously."""

import numpy as np

from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def colour_variables(start, factor, scope_start, scope, order):
    """Return a colour for each variable, in the given order: the smallest colour that no neighbour has.

    Parameters
    ----------
    start, factor, scope_start, scope : int64 arrays
        As in ``FactorGraph``.
    order : (n,) int64
        Variables in the order in which they get their colours.

    Returns
    -------
    (n,) int32
        The colours, from 0.
    """
    n = start.size - 1
    colour, last_taken_by = np.full(n, -1, dtype=np.int32), np.full(n + 1, -1, dtype=np.int32)
    for v in order:
        for i in range(start[v], start[v + 1]):
            for s in range(scope_start[factor[i]], scope_start[factor[i] + 1]):
                if colour[scope[s]] >= 0:
                    last_taken_by[colour[scope[s]]] = v
        free = 0
        while last_taken_by[free] == v:
            free += 1
        colour[v] = free
    return colour
