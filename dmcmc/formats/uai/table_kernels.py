# mypy: ignore-errors
"""The pass over the numbers of a ``.uai`` file, compiled."""

import numpy as np

from dmcmc.inference.runtime.compile import njit

HUGE = 1 << 60  # entries; also what every larger product becomes

# Why the pass ended.
DONE, SHORT, WHOLE, SCOPE, TWICE, SIZE = range(6)


@njit(nogil=True)
def survey(numbers, at, domains, scope_start, table_start, seen):
    """Find the scopes and tables of all factors, from number ``at`` on.

    Parameters
    ----------
    numbers : (numbers,) float64
    domains : (variables,) int64
    scope_start, table_start : (factors,) int64
        Written: where the variables and where the entries of each factor begin.
    seen : (variables,) int64
        Scratch, −1.

    Returns
    -------
    factor, at, reason : int
        The factor and the number at which the pass ended, and why: DONE; SHORT for too few numbers; WHOLE for one that
        is no number of variables or entries; SCOPE and TWICE for a variable; SIZE for a wrong number of entries.
    """
    m = scope_start.size
    sizes = np.empty(m, dtype=np.int64)
    for f in range(m):
        if at >= numbers.size:
            return f, at, SHORT
        arity = numbers[at]
        if arity < 0 or arity != np.floor(arity):
            return f, at, WHOLE
        if arity > numbers.size - at - 1:
            return f, at, SHORT
        scope_start[f] = at + 1
        size = 1
        for i in range(at + 1, at + 1 + int(arity)):
            if not 0 <= numbers[i] < domains.size or numbers[i] != np.floor(numbers[i]):
                return f, i, SCOPE
            v = int(numbers[i])
            if seen[v] == f:
                return f, i, TWICE
            seen[v] = f
            size = HUGE if size > HUGE // domains[v] else size * domains[v]
        sizes[f] = size
        at += 1 + int(arity)
    for f in range(m):
        if at >= numbers.size:
            return f, at, SHORT
        if numbers[at] != sizes[f]:
            return f, at, SIZE
        if sizes[f] > numbers.size - at - 1:
            return f, numbers.size, SHORT
        table_start[f] = at + 1
        at += 1 + sizes[f]
    return m, at, DONE
