# mypy: ignore-errors
"""Variables in colours: those of one colour share no factor, so threads may move them at once."""

import numpy as np

from dmcmc.inference.runtime.compile import njit


@njit(nogil=True)
def colour_variables(start, factor, scope_start, scope, order):
    """Return a colour for each variable: in the order given, the first that no neighbour has."""
    n = start.size - 1
    colour, taken = np.full(n, -1, dtype=np.int32), np.full(n + 1, -1, dtype=np.int32)
    for v in order:
        for i in range(start[v], start[v + 1]):
            for s in range(scope_start[factor[i]], scope_start[factor[i] + 1]):
                if colour[scope[s]] >= 0:
                    taken[colour[scope[s]]] = v
        free = 0
        while taken[free] == v:
            free += 1
        colour[v] = free
    return colour
