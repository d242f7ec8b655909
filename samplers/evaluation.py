"""What rows are worth: hidden assignments evaluated on an agent's original factors."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dmcmc.inference.arithmetic import Arithmetic
from dmcmc.inference.flat import FlatTables
from dmcmc.inference.tables import Array, forbidden_value


def evaluate_rows(
    flat: FlatTables, domains: NDArray[np.int32], states: Array, shape: tuple[int, ...], arithmetic: Arithmetic
) -> Array:
    """Evaluate F_i for one hidden assignment a row.

    Parameters
    ----------
    flat, domains
        The agent's tables and domain sizes, hidden variables first (:func:`dmcmc.samplers.model.flatten_local`).
    states : (rows, |H_i|) integers
        Hidden values of every interface assignment, rows in C order.
    shape
        Domain sizes of the interface variables.

    Returns
    -------
    ndarray of ``shape``
        Encoded utilities; −∞ where a hard constraint is violated.
    """
    never = flat.data.dtype.type(forbidden_value(flat.data.dtype))
    values = np.zeros(len(states), dtype=arithmetic.dtype)
    zero = 0 if arithmetic.exact else 0.0
    _evaluate(flat, domains, states, never, zero, arithmetic.dtype.type(arithmetic.lowest), values)
    return values.reshape(shape)


@njit(cache=True, nogil=True)
def _evaluate(flat, domains, states, never, zero, lowest, values):
    rows, hidden = states.shape
    z = np.zeros(domains.size, dtype=np.int64)
    for row in range(rows):
        rest = row
        for v in range(domains.size - 1, hidden - 1, -1):
            z[v] = rest % domains[v]
            rest //= domains[v]
        for v in range(hidden):
            z[v] = states[row, v]
        total = zero
        for f in range(flat.at.size - 1):
            cell = 0
            for s in range(flat.scope_start[f], flat.scope_start[f + 1]):
                cell = cell * domains[flat.scope[s]] + z[flat.scope[s]]
            entry = flat.data[flat.at[f] + cell]
            if entry == never:
                total = zero
                values[row] = lowest
                break
            total += entry
        else:
            values[row] = total
