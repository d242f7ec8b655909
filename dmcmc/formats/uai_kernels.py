# mypy: ignore-errors
"""Compiled pass over the numbers of a ``.uai`` file, for :mod:`dmcmc.formats.uai`.

After the header the file holds the number of variables, their domain sizes, the number of factors, the scopes (for each
factor its arity and its variables), and the tables (for each factor its number of entries and the entries).
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit

MAX_ENTRIES = 1 << 60  # products of domain sizes are cut to this limit, so that they cannot overflow int64

# Reasons why the pass ended: finished; the file ends too early; an arity that is not a whole number; a variable that
# does not exist; a variable that occurs twice in a scope; a number of entries that does not fit the scope.
DONE, SHORT, WHOLE, SCOPE, TWICE, SIZE = range(6)


@njit(nogil=True)
def find_factors(numbers, position, domains, scope_start, table_start, seen):
    """Find the scopes and tables of all factors.

    Parameters
    ----------
    numbers : (numbers,) float64
        The numbers of the file after its header word.
    position : int
        Index in ``numbers`` of the first factor's arity, which begins the list of scopes.
    domains : (variables,) int64
        Domain sizes.
    scope_start, table_start : (factors,) int64
        Output: index in ``numbers`` of each factor's first variable and first entry.
    seen : (variables,) int64
        Scratch space, initially −1: the last factor whose scope contains each variable.

    Returns
    -------
    factor, position, reason : int
        The factor and the index in ``numbers`` at which the pass ended, and why: DONE, SHORT, WHOLE, SCOPE, TWICE or
        SIZE.
    """
    m = scope_start.size
    sizes = np.empty(m, dtype=np.int64)
    for f in range(m):
        if position >= numbers.size:
            return f, position, SHORT
        arity = numbers[position]
        if arity < 0 or arity != np.floor(arity):
            return f, position, WHOLE
        if arity > numbers.size - position - 1:
            return f, position, SHORT
        scope_start[f] = position + 1
        size = 1
        for i in range(position + 1, position + 1 + int(arity)):
            if not 0 <= numbers[i] < domains.size or numbers[i] != np.floor(numbers[i]):
                return f, i, SCOPE
            v = int(numbers[i])
            if seen[v] == f:
                return f, i, TWICE
            seen[v] = f
            size = MAX_ENTRIES if size > MAX_ENTRIES // domains[v] else size * domains[v]
        sizes[f] = size
        position += 1 + int(arity)
    for f in range(m):
        if position >= numbers.size:
            return f, position, SHORT
        if numbers[position] != sizes[f]:
            return f, position, SIZE
        if sizes[f] > numbers.size - position - 1:
            return f, numbers.size, SHORT
        table_start[f] = position + 1
        position += 1 + sizes[f]
    return m, position, DONE
