"""What rows are worth: hidden assignments evaluated on an agent's original factors."""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.evaluation_kernels import evaluate_all, evaluate_chains


def evaluate_rows(
    flat: FlatTables, domains: NDArray[np.int32], states: Array, shape: tuple[int, ...], arithmetic: Arithmetic
) -> Array:
    """Evaluate F_i for one hidden assignment a row.

    Parameters
    ----------
    flat, domains
        The agent's tables and domain sizes, hidden variables first
        (:func:`dmcmc.samplers.model.chain_model.flatten_local`).
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
    evaluate_all(flat, domains, states, never, zero, arithmetic.dtype.type(arithmetic.lowest), values)
    return values.reshape(shape)


def chain_utilities(
    model: ChainModel, shape: tuple[int, ...], rows: NDArray[np.int64], states: Array
) -> NDArray[np.int64]:
    """Return what a chain thinks of the states of some rows: it orders them by (violations, utility).

    Parameters
    ----------
    shape
        Domain sizes of the interface variables.
    rows : (k,) int64
        Numbers of rows in C order.
    states : (rows, |H_i|) integers
        Hidden values of every row.

    Returns
    -------
    ndarray of int64, (k,)
    """
    found = np.zeros(rows.size, dtype=np.int64)
    evaluate_chains(model, np.array(shape, dtype=np.int64), rows, states, found)
    return found
