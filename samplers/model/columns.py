"""Turn an agent's tables into score columns by compiled passes, without a Python object per factor or column."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.flat_tables import FlatTables, TableRanges
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


class HiddenPositions(NamedTuple):
    """The hidden variables in the scopes of an agent's factors, one position after another.

    Attributes
    ----------
    factor, variable : (positions,) int64
        The factor of each position, and its hidden variable.
    constant : (factors,) bool
        Whether a factor has no hidden variable.
    """

    factor: NDArray[np.int64]
    variable: NDArray[np.int64]
    constant: NDArray[np.bool_]


def hidden_positions(flat: FlatTables, hidden: int) -> HiddenPositions:
    """Return the hidden variables in all scopes; they are the first ``hidden`` variables."""
    is_hidden = flat.scope < hidden
    factor = np.repeat(np.arange(flat.tables), flat.scope_start[1:] - flat.scope_start[:-1])[is_hidden]
    return HiddenPositions(factor, flat.scope[is_hidden], np.bincount(factor, minlength=flat.tables) == 0)


def table_statistics(ranges: TableRanges, positions: HiddenPositions, hidden: int) -> TableStatistics:
    """Return the ranges of all tables, and their sums over the factors of each hidden variable."""
    low, top, _ = ranges
    if low.dtype.kind == "i":  # int64 may not hold the difference, uint64 does
        span = (top.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
    else:
        with np.errstate(over="ignore"):  # the caller reports a range beyond float64
            span = top - low
    factor, variable, constant = positions
    variable_range = np.bincount(variable, span[factor], hidden).astype(np.float64)
    forbidding = np.bincount(variable[ranges.forbidden[factor] > 0], minlength=hidden).astype(np.int64)
    span[constant] = 0.0
    return TableStatistics(low, top, span, variable_range, forbidding)


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
