"""Evaluate hidden assignments of rows, on an agent's original factors or on its score columns."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.state_kernels import evaluate_all, evaluate_chains


def evaluate_rows(
    flat: FlatTables, domains: NDArray[np.int32], states: Array, shape: tuple[int, ...], arithmetic: Arithmetic
) -> Array:
    """Evaluate an agent's utility F_i for one hidden assignment per row.

    Parameters
    ----------
    flat : FlatTables
        The agent's tables, hidden variables first (``Subproblem.graph.flat``).
    domains : (n,) int32
        Domain sizes, hidden variables first.
    states : (rows, hidden) integers
        Hidden values of every interface assignment, rows in C order.
    shape : tuple of int
        Domain sizes of the interface variables.
    arithmetic : Arithmetic
        Encoding of the result.

    Returns
    -------
    ndarray of ``shape``
        Encoded utilities; −∞ where a hard constraint is violated.
    """
    forbidden = flat.data.dtype.type(forbidden_value(flat.data.dtype))
    values = np.zeros(len(states), dtype=arithmetic.dtype)
    zero = 0 if arithmetic.exact else 0.0
    evaluate_all(flat, domains, states, forbidden, zero, arithmetic.dtype.type(arithmetic.lowest), values)
    return values.reshape(shape)


def chain_utilities(
    model: ChainModel, shape: tuple[int, ...], rows: NDArray[np.int64], states: Array
) -> NDArray[np.int64]:
    """Return the utilities of some rows' states in chain units, which order states by (violations, utility).

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    shape : tuple of int
        Domain sizes of the interface variables.
    rows : (k,) int64
        Numbers of rows in C order.
    states : (rows, hidden) integers
        Hidden values of every row.

    Returns
    -------
    (k,) int64
        The utilities.
    """
    utilities = np.zeros(rows.size, dtype=np.int64)
    evaluate_chains(model, np.array(shape, dtype=np.int64), rows, states, utilities)
    return utilities


def stored_witness(local: LocalProblem, states: NDArray[Any]) -> Callable[[Mapping[int, int]], dict[int, int]]:
    """Return the witness of an agent's table: it maps the values of the interface to hidden values that are stored.

    Parameters
    ----------
    local : LocalProblem
        The agent.
    states : (rows, hidden) integers
        Hidden values of every row.
    """
    return partial(_values_of_row, local, states)


def _values_of_row(local: LocalProblem, states: NDArray[Any], values: Mapping[int, int]) -> dict[int, int]:
    """Return the hidden values stored for the row with these values of the interface."""
    shape = local.interface_shape
    row = int(np.ravel_multi_index([values[v] for v in local.interface], shape)) if shape else 0
    return dict(zip(local.hidden, states[row].tolist(), strict=True))
