"""Tables of a noisy-max: each cause alone determines a value of the child, and the child is the largest of them.

The first value of every variable stands for its absence. The row in which no parent is present is the *leak*; a row in
which one parent is present is the distribution of that parent's effect. With parent values u, leak L and effects E_i

    P(X ≤ x | u) = P(L ≤ x) · Π P(E_i ≤ x | u_i)     over the parents i that are present.

These are the parameters of Díez, "Parameter adjustment in Bayes networks. The generalized noisy OR-gate" (1993), as
GeNIe and Microsoft's MSBN have them.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.errors import ProblemError

_MAX_ENTRIES = 1 << 22  # entries of a table; 32 MiB


def noisy_max(
    shape: Sequence[int], width: int, given: Mapping[tuple[int, ...], Sequence[float]]
) -> NDArray[np.float64]:
    """Return the complete table of a noisy-max over (parents, child).

    Parameters
    ----------
    shape
        Domain sizes of the parents.
    width
        Domain size of the child.
    given
        The leak and the effects: the row for each assignment of the parents (value indices) in which at most one parent
        is present.

    Raises
    ------
    ProblemError
        If such a row is missing, a row has several causes, or the table is too large.
    """
    if math.prod(shape) * width > _MAX_ENTRIES:
        raise ProblemError(f"a noisy-max of {math.prod(shape)} rows; at most {_MAX_ENTRIES // width} are read")
    absent = (0,) * len(shape)
    needed = {absent} | {
        (*absent[:i], value, *absent[i + 1 :]) for i, size in enumerate(shape) for value in range(1, size)
    }
    for key in given:
        if key not in needed:
            raise ProblemError(
                f"a noisy-max with the row of values {list(key)}, which has several causes; give all rows, or those"
                " with at most one cause"
            )
    for key in sorted(needed):
        if key not in given:
            raise ProblemError(f"a noisy-max needs the row of values {list(key)}")
    cumulative = np.broadcast_to(np.cumsum(given[absent]), (*shape, width)).copy()
    for i, size in enumerate(shape):
        effects = np.ones((size, width))
        for value in range(1, size):
            effects[value] = np.cumsum(given[(*absent[:i], value, *absent[i + 1 :])])
        cumulative *= effects.reshape(*(size if j == i else 1 for j in range(len(shape))), width)
    table = np.diff(cumulative, axis=-1, prepend=0.0)
    return np.maximum(table, 0.0)  # a difference of rounded sums may be slightly negative
