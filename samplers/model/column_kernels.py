# mypy: ignore-errors
"""Compiled passes that lay out an agent's tables as score columns.

Shared arguments: ``scope_start`` (factors + 1,) and ``scope`` give the variables of each factor, hidden variables being
those below ``hidden``; ``domains`` (n,) are domain sizes and ``width`` (hidden,) padded domain sizes, both int32. A
*column* of factor f and hidden variable v has f's utilities for all values of v, given the values of its other
variables; it is ``width[v]`` entries long. Columns that depend on the value of v are *touched* by v. *Chain units* are
the integer units of columns.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.compile import njit


class ColumnLinks(NamedTuple):
    """Offsets of columns and the columns that each variable's value selects.

    The other arrays are the fields of the same name of :class:`dmcmc.samplers.model.chain_model.ChainModel`.

    Attributes
    ----------
    entries : int
        Number of entries of all columns.
    scope_column : (scope entries,) int32
        The column of each variable of each factor, in the order of ``scope``; −1 for interface variables.
    """

    entries: int
    scope_column: NDArray[np.int32]
    column_start: NDArray[np.int32]
    column_at: NDArray[np.int32]
    other_start: NDArray[np.int32]
    other_variable: NDArray[np.int32]
    other_stride: NDArray[np.int32]
    touch_start: NDArray[np.int32]
    touch_variable: NDArray[np.int32]
    touch_column: NDArray[np.int32]
    touch_stride: NDArray[np.int32]
    touch_binary: NDArray[np.bool_]
    factor_column: NDArray[np.int32]
    factor_variable: NDArray[np.int32]


@njit()
def link_columns(scope_start, scope, start, factor, position, domains, width):
    """List the columns by (variable, factor), and those that each variable's value selects.

    Here one column is counted per hidden variable of each factor: the factor's table with this variable as last axis.
    The first five arguments are fields of ``FactorGraph``: column c belongs to ``factor[c]`` and the variable at
    ``position[c]`` of the scopes. The results have the dtype of ``width``.

    Returns
    -------
    ColumnLinks
        Offsets of columns, the other variables of each column, and the columns that a variable touches.
    """
    factors, hidden = scope_start.size - 1, width.size
    columns = start[hidden]
    column_start = start[: hidden + 1].astype(width.dtype)
    scope_column = np.full(scope.size, -1, dtype=width.dtype)
    for c in range(columns):
        scope_column[position[c]] = c
    column_at = np.zeros(columns, dtype=width.dtype)
    other_start = np.zeros(columns + 1, dtype=width.dtype)
    touch_start = np.zeros(hidden + 1, dtype=width.dtype)
    entries = 0
    for c in range(columns):
        column_at[c] = entries
        f = factor[c]
        size = np.int64(width[scope[position[c]]])
        for s in range(scope_start[f], scope_start[f + 1]):
            if s != position[c]:
                size *= domains[scope[s]]
                other_start[c + 1] += 1
                if scope[s] < hidden:
                    touch_start[scope[s] + 1] += 1
        other_start[c + 1] += other_start[c]
        entries += size
    for v in range(hidden):
        touch_start[v + 1] += touch_start[v]
    others, touches = other_start[columns], touch_start[hidden]
    other_variable, other_stride = np.zeros(others, dtype=width.dtype), np.zeros(others, dtype=width.dtype)
    touch_variable, touch_column = np.zeros(touches, dtype=width.dtype), np.zeros(touches, dtype=width.dtype)
    touch_stride, touch_binary = np.zeros(touches, dtype=width.dtype), np.zeros(touches, dtype=np.bool_)
    next_free = touch_start[:hidden].copy()
    for c in range(columns):
        f = factor[c]
        variable = scope[position[c]]
        stride = np.int64(width[variable])
        o = other_start[c + 1]
        for s in range(scope_start[f + 1] - 1, scope_start[f] - 1, -1):
            v = scope[s]
            if s == position[c]:
                continue
            o -= 1
            other_variable[o], other_stride[o] = v, stride
            if v < hidden:
                t = next_free[v]
                next_free[v] += 1
                touch_variable[t], touch_column[t], touch_stride[t] = variable, c, stride
                touch_binary[t] = other_start[c + 1] - other_start[c] == 1
            stride *= domains[v]
    factor_column, factor_variable = np.zeros(factors, dtype=width.dtype), np.zeros(factors, dtype=width.dtype)
    used_factors = 0
    for f in range(factors):
        lowest = -1
        for s in range(scope_start[f], scope_start[f + 1]):
            c = scope_column[s]
            if c >= 0 and (lowest < 0 or c < lowest):
                lowest = c
        if lowest >= 0:
            factor_column[used_factors], factor_variable[used_factors] = lowest, scope[position[lowest]]
            used_factors += 1
    return ColumnLinks(
        entries,
        scope_column,
        column_start,
        column_at,
        other_start,
        other_variable,
        other_stride,
        touch_start,
        touch_variable,
        touch_column,
        touch_stride,
        touch_binary,
        factor_column[:used_factors],
        factor_variable[:used_factors],
    )


@njit()
def write_columns(flat, domains, width, links, quantisation, forbidden, out):
    """Write the columns of all factors; return Σ over columns of the variance of the factor's finite entries.

    Parameters
    ----------
    flat : FlatTables
        The tables.
    links : ColumnLinks
        Offsets of the columns.
    quantisation : (base, span, scale, violation)
        Smallest or largest entry of each table, (tables,), which becomes 0; range of each table, (tables,); chain units
        per unit of utility, a power of two; and the exponent k of a forbidden entry −2^k (0 if there is none).
    forbidden : scalar of the dtype of the tables
        The value of a forbidden entry.
    out : (entries,) uint16 or int32
        The columns; zero before.
    """
    base, span, scale, violation = quantisation
    scope_start, scope, at, hidden = flat.scope_start, flat.scope, flat.at, width.size
    largest = 1
    for f in range(at.size - 1):
        largest = max(largest, at[f + 1] - at[f])
    integers = np.zeros(largest, dtype=np.int32)
    total = 0.0
    for f in range(at.size - 1):
        hidden_variables = 0
        for s in range(scope_start[f], scope_start[f + 1]):
            hidden_variables += scope[s] < hidden
        if hidden_variables == 0:
            continue
        table = flat.data[at[f] : at[f + 1]]
        total += hidden_variables * _quantise(
            table, forbidden, base[f], span[f], scale, violation, integers[: table.size]
        )
        after = 1
        for s in range(scope_start[f + 1] - 1, scope_start[f] - 1, -1):
            v = scope[s]
            size = domains[v]
            if v < hidden:
                offset = links.column_at[links.scope_column[s]]
                _transpose(integers, table.size // (size * after), size, after, out, offset, width[v])
            after *= size
    return total


@njit(allocates=False)
def _quantise(table, forbidden, base, span, scale, violation, integers):
    """Write a table's entries in chain units to ``integers`` and return the variance of the finite entries.

    The variance is that of the 16 leading bits, so that its sums are integers and the same in any order.

    Parameters
    ----------
    table : (size,) int64 or float64
        The entries.
    base, span : scalar
        The entry that becomes 0, and the range of finite entries.
    scale : float
        Chain units per unit of utility.
    violation : int
        Exponent k of a forbidden entry −2^k; 0 if there is none.
    integers : (size,) int32
        The result.
    """
    if scale == 1.0:
        for i in range(table.size):
            integers[i] = np.int32(table[i] - base)
    else:
        for i in range(table.size):
            if table[i] != forbidden:
                integers[i] = np.int32(np.rint((np.float64(table[i]) - np.float64(base)) * scale))
    shift = 0
    while span * scale >= 2.0 ** (16 + shift):
        shift += 1
    count = table.size
    total = square_sum = 0
    if violation > 0:
        for i in range(table.size):
            if table[i] == forbidden:
                integers[i] = 0
                count -= 1
    for i in range(table.size):
        x = np.int64(integers[i]) >> shift
        total, square_sum = total + x, square_sum + x * x
    if violation > 0 and count < table.size:
        for i in range(table.size):
            if table[i] == forbidden:
                integers[i] = -(1 << violation)
    if count == 0:
        return 0.0
    mean = total / count
    return max(0.0, square_sum / count - mean * mean) * 4.0**shift


@njit(allocates=False)
def _transpose(integers, before, size, after, columns, offset, width):
    """Copy a table of shape (before, size, after) with its middle axis last, into columns of length ``width``."""
    for p in range(before):
        for r in range(after):
            column = columns[offset : offset + size]
            source = integers[p * size * after + r :]
            for i in range(size):
                column[i] = source[i * after]
            offset += width
