"""Turn an agent's tables into score columns by compiled passes, without a Python object per factor or column."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.model.column_kernels import ColumnLinks, write_columns


class TableStatistics(NamedTuple):
    """Ranges of an agent's tables, from which the scale of chain units is chosen.

    Attributes
    ----------
    low, top : (factors,) int64 or float64
        Smallest and largest finite entry of each table; 0 if it has none.
    span : (factors,) float64
        Their difference; 0 for factors without hidden variables.
    variable_range : (hidden,) float64
        Sum of ``span`` over the factors of each variable.
    variable_forbidding : (hidden,) int64
        Number of each variable's factors with forbidden entries.
    """

    low: Array
    top: Array
    span: NDArray[np.float64]
    variable_range: NDArray[np.float64]
    variable_forbidding: NDArray[np.int64]


def table_statistics(flat: FlatTables, hidden: int) -> TableStatistics:
    """Return the ranges of all tables."""
    low, top, has_forbidden = _finite_extremes(flat)
    if flat.data.dtype.kind == "i":  # int64 may not hold the difference, uint64 does
        span = (top.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
    else:
        with np.errstate(over="ignore"):  # the caller reports a range beyond float64
            span = top - low
    is_hidden = flat.scope < hidden
    factor = np.repeat(np.arange(span.size), np.diff(flat.scope_start))[is_hidden]
    variable = flat.scope[is_hidden]
    variable_range = np.bincount(variable, span[factor], hidden).astype(np.float64)
    variable_forbidding = np.bincount(variable[has_forbidden[factor]], minlength=hidden).astype(np.int64)
    span[np.bincount(factor, minlength=span.size) == 0] = 0.0
    return TableStatistics(low, top, span, variable_range, variable_forbidding)


def _finite_extremes(flat: FlatTables) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return the smallest and largest finite entry of every table, and whether it has a forbidden entry.

    The extremes of a table of forbidden entries only are 0.
    """
    if flat.at.size == 1:
        return np.zeros(0, flat.data.dtype), np.zeros(0, flat.data.dtype), np.zeros(0, dtype=np.bool_)
    forbidden, starts = _forbidden(flat), flat.at[:-1]
    low, top = np.minimum.reduceat(flat.data, starts), np.maximum.reduceat(flat.data, starts)
    has_forbidden = low == forbidden
    if has_forbidden.any():
        largest = np.inf if flat.data.dtype.kind == "f" else np.iinfo(flat.data.dtype).max
        low = np.minimum.reduceat(np.where(flat.data == forbidden, largest, flat.data).astype(low.dtype), starts)
        low[top == forbidden] = top[top == forbidden] = 0
    return low, top, has_forbidden


def _forbidden(flat: FlatTables) -> Any:
    """Return the tables' value of a forbidden entry in their dtype."""
    return flat.data.dtype.type(forbidden_value(flat.data.dtype))


def fill_columns(
    flat: FlatTables,
    domains: NDArray[np.int32],
    width: NDArray[np.int32],
    links: ColumnLinks,
    quantisation: tuple[Array, NDArray[np.float64], float, int],
    out: Array,
) -> float:
    """Write the columns; return Σ over columns of the variance of the factor's finite entries, in squared chain units.

    Parameters
    ----------
    flat : FlatTables
        The tables.
    domains, width : (n,) and (hidden,) int32
        Domain sizes, and padded sizes of the hidden variables.
    links : ColumnLinks
        Offsets of the columns.
    quantisation : (base, span, scale, violation)
        An entry becomes (entry − base of its factor) · scale, rounded; a forbidden entry becomes −2^violation.
    out : (entries,) uint16 or int32
        The columns; zero before.
    """
    variance: float = write_columns(flat, domains, width, links, quantisation, _forbidden(flat), out)
    return variance
