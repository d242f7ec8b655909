# mypy: ignore-errors
"""Compiled passes that evaluate hidden assignments, on an agent's original factors or on its score columns."""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.state_kernels import evaluate, set_interface


@njit(nogil=True)
def evaluate_all(flat, domains, states, forbidden, zero, lowest, values):
    """Set ``values[row]`` to the sum of the factors' entries at the row's interface values and hidden values.

    Parameters
    ----------
    flat : FlatTables
        The agent's tables.
    domains : (n,) int32
        Domain sizes, hidden variables first.
    states : (rows, hidden) integers
        Hidden values of each row.
    forbidden : scalar of the dtype of the tables
        The value of a forbidden entry.
    zero, lowest : scalars of the dtype of ``values``
        The sum of no factors, and the result of a row with a forbidden entry.
    values : (rows,) int64 or float64
        The result.
    """
    rows, hidden = states.shape
    z = np.zeros(domains.size, dtype=np.int64)
    for row in range(rows):
        quotient = row
        for v in range(domains.size - 1, hidden - 1, -1):
            z[v] = quotient % domains[v]
            quotient //= domains[v]
        for v in range(hidden):
            z[v] = states[row, v]
        total = zero
        for f in range(flat.at.size - 1):
            cell = 0
            for s in range(flat.scope_start[f], flat.scope_start[f + 1]):
                cell = cell * domains[flat.scope[s]] + z[flat.scope[s]]
            entry = flat.data[flat.at[f] + cell]
            if entry == forbidden:
                total = zero
                values[row] = lowest
                break
            total += entry
        else:
            values[row] = total


@njit(nogil=True)
def evaluate_chains(model, shape, rows, states, values):
    """Set ``values[i]`` to the utility in chain units of row ``rows[i]`` with hidden values ``states[rows[i]]``.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    shape : (|B|,) int64
        Domain sizes of the interface variables.
    rows : (k,) int64
        Numbers of rows in C order.
    states : (rows, hidden) integers
        Hidden values of every row.
    values : (k,) int64
        The result.
    """
    z = np.zeros(model.domains.size, dtype=np.int32)
    for i in range(rows.size):
        set_interface(model, shape, rows[i], z)
        for v in range(model.hidden):
            z[v] = states[rows[i], v]
        values[i] = evaluate(model, z)
