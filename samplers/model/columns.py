"""How an agent's tables become columns: compiled, no Python object per factor or column."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.model.column_kernels import Links, extremes, fill, per_variable


class Survey(NamedTuple):
    """What the scales are chosen by.

    Attributes
    ----------
    low, top : (factors,) numbers
        Least and largest finite entry; 0 where there is none.
    span : (factors,) float64
        Their difference; 0 for factors without hidden variables.
    variable_range : (hidden,) float64
        Σ span over a variable's factors.
    variable_hard : (hidden,) int64
        How many of its factors forbid something.
    """

    low: Array
    top: Array
    span: NDArray[np.float64]
    variable_range: NDArray[np.float64]
    variable_hard: NDArray[np.int64]


def survey_tables(flat: FlatTables, hidden: int) -> Survey:
    """Look at every table once."""
    low, top, hard = extremes(flat.at, flat.data, _never(flat))
    if flat.data.dtype.kind == "i":  # int64 may not hold the difference, uint64 does
        span = (top.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
    else:
        with np.errstate(over="ignore"):  # what is beyond all floats is refused by name
            span = top - low
    variable_range, variable_hard = per_variable(flat.scope_start, flat.scope, span, hard, hidden)
    return Survey(low, top, span, variable_range, variable_hard)


def _never(flat: FlatTables) -> Any:
    """Return the tables' −∞ in their dtype."""
    return flat.data.dtype.type(forbidden_value(flat.data.dtype))


def fill_columns(
    flat: FlatTables,
    domains: NDArray[np.int32],
    width: NDArray[np.int32],
    links: Links,
    quantum: tuple[Array, NDArray[np.float64], float, int],
    out: Array,
) -> float:
    """Write the columns; return Σ over columns of the variance of the factor's finite entries, in chain units.

    Parameters
    ----------
    quantum : (base, span, scale, violation)
        An entry becomes (entry − base of its factor) · scale, rounded; a forbidden one −2^violation.
    out : (entries,) uint16 or int32
        Zeros.
    """
    variance: float = fill(flat, domains, width, links, quantum, _never(flat), out)
    return variance
