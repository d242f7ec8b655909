# mypy: ignore-errors
"""The passes that lay out an agent's tables as columns."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.compile import njit


class Links(NamedTuple):
    """Where columns lie and how they hang together; see :class:`dmcmc.samplers.model.chain_model.ChainModel`.

    Attributes
    ----------
    entries : int
        Of all columns.
    own_column : (scope variables,) int32
        The column of each variable of each factor, in the order of the scopes; −1 for interface variables.
    """

    entries: int
    own_column: NDArray[np.int32]
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
def extremes(at, data, never):
    """Return least and largest finite entry of every table, and which tables have −∞."""
    factors = at.size - 1
    low, top = np.zeros(factors, dtype=data.dtype), np.zeros(factors, dtype=data.dtype)
    hard = np.zeros(factors, dtype=np.bool_)
    for f in range(factors):
        table = data[at[f] : at[f + 1]]
        least = highest = table[0]
        for i in range(table.size):
            least, highest = min(least, table[i]), max(highest, table[i])
        hard[f] = least == never
        if hard[f]:
            least = highest
            for i in range(table.size):
                least = min(least, table[i] if table[i] != never else highest)
        if highest != never:
            low[f], top[f] = least, highest
    return low, top, hard


@njit()
def per_variable(scope_start, scope, span, hard, hidden):
    """Sum up spans, and tables with −∞, over each hidden variable's factors; take others' spans away."""
    variable_range, variable_hard = np.zeros(hidden), np.zeros(hidden, dtype=np.int64)
    for f in range(span.size):
        counts = False
        for s in range(scope_start[f], scope_start[f + 1]):
            if scope[s] < hidden:
                counts = True
                variable_range[scope[s]] += span[f]
                variable_hard[scope[s]] += hard[f]
        if not counts:
            span[f] = 0.0
    return variable_range, variable_hard


@njit()
def link_columns(scope_start, scope, domains, width, hidden):
    """Number the columns by (variable, factor) and note who moves which."""
    factors = scope_start.size - 1
    column_start = np.zeros(hidden + 1, dtype=np.int32)
    for s in range(scope.size):
        if scope[s] < hidden:
            column_start[scope[s] + 1] += 1
    for v in range(hidden):
        column_start[v + 1] += column_start[v]
    columns = column_start[hidden]
    own_column = np.full(scope.size, -1, dtype=np.int32)
    at_scope = np.zeros(columns, dtype=np.int64)  # where a column's variable stands in ``scope``
    at_factor = np.zeros(columns, dtype=np.int64)
    following = column_start[:hidden].copy()
    counted = 0
    for f in range(factors):
        counts = False
        for s in range(scope_start[f], scope_start[f + 1]):
            v = scope[s]
            if v < hidden:
                c = following[v]
                following[v] += 1
                own_column[s], at_scope[c], at_factor[c] = c, s, f
                counts = True
        counted += counts
    column_at = np.zeros(columns, dtype=np.int32)
    other_start = np.zeros(columns + 1, dtype=np.int32)
    touch_start = np.zeros(hidden + 1, dtype=np.int32)
    entries = 0
    for c in range(columns):
        column_at[c] = entries
        f = at_factor[c]
        size = np.int64(width[scope[at_scope[c]]])
        for s in range(scope_start[f], scope_start[f + 1]):
            if s != at_scope[c]:
                size *= domains[scope[s]]
                other_start[c + 1] += 1
                if scope[s] < hidden:
                    touch_start[scope[s] + 1] += 1
        other_start[c + 1] += other_start[c]
        entries += size
    for v in range(hidden):
        touch_start[v + 1] += touch_start[v]
    others, touches = other_start[columns], touch_start[hidden]
    other_variable, other_stride = np.zeros(others, dtype=np.int32), np.zeros(others, dtype=np.int32)
    touch_variable, touch_column = np.zeros(touches, dtype=np.int32), np.zeros(touches, dtype=np.int32)
    touch_stride, touch_binary = np.zeros(touches, dtype=np.int32), np.zeros(touches, dtype=np.bool_)
    following = touch_start[:hidden].copy()
    for c in range(columns):
        f = at_factor[c]
        own = scope[at_scope[c]]
        stride = np.int64(width[own])
        o = other_start[c + 1]
        for s in range(scope_start[f + 1] - 1, scope_start[f] - 1, -1):
            v = scope[s]
            if s == at_scope[c]:
                continue
            o -= 1
            other_variable[o], other_stride[o] = v, stride
            if v < hidden:
                t = following[v]
                following[v] += 1
                touch_variable[t], touch_column[t], touch_stride[t] = own, c, stride
                touch_binary[t] = other_start[c + 1] - other_start[c] == 1
            stride *= domains[v]
    factor_column, factor_variable = np.zeros(counted, dtype=np.int32), np.zeros(counted, dtype=np.int32)
    i = 0
    for f in range(factors):
        lowest = -1
        for s in range(scope_start[f], scope_start[f + 1]):
            c = own_column[s]
            if c >= 0 and (lowest < 0 or c < lowest):
                lowest = c
        if lowest >= 0:
            factor_column[i], factor_variable[i] = lowest, scope[at_scope[lowest]]
            i += 1
    return Links(
        entries,
        own_column,
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
        factor_column,
        factor_variable,
    )


@njit()
def fill(flat, domains, width, links, quantum, never, out):
    base, span, scale, violation = quantum
    scope_start, scope, at, hidden = flat.scope_start, flat.scope, flat.at, width.size
    largest = 1
    for f in range(at.size - 1):
        largest = max(largest, at[f + 1] - at[f])
    whole = np.zeros(largest, dtype=np.int32)
    total = 0.0
    for f in range(at.size - 1):
        count = 0
        for s in range(scope_start[f], scope_start[f + 1]):
            count += scope[s] < hidden
        if count == 0:
            continue
        table = flat.data[at[f] : at[f + 1]]
        total += count * _quantise(table, never, base[f], span[f], scale, violation, whole[: table.size])
        after = 1
        for s in range(scope_start[f + 1] - 1, scope_start[f] - 1, -1):
            v = scope[s]
            own = domains[v]
            if v < hidden:
                place = links.column_at[links.own_column[s]]
                _transpose(whole, table.size // (own * after), own, after, out, place, width[v])
            after *= own
    return total


@njit()
def _quantise(table, never, base, span, scale, violation, whole):
    """Write a table's whole numbers into ``whole`` and return the variance of the finite ones.

    The variance is of 16 leading bits of them, so that its sums are whole numbers: the same in any order.
    """
    if scale == 1.0:
        for i in range(table.size):
            whole[i] = np.int32(table[i] - base)
    else:
        for i in range(table.size):
            if table[i] != never:
                whole[i] = np.int32(np.rint((np.float64(table[i]) - np.float64(base)) * scale))
    shift = 0
    while span * scale >= 2.0 ** (16 + shift):
        shift += 1
    count = table.size
    finite = squares = 0
    if violation > 0:
        for i in range(table.size):
            if table[i] == never:
                whole[i] = 0
                count -= 1
    for i in range(table.size):
        x = np.int64(whole[i]) >> shift
        finite, squares = finite + x, squares + x * x
    if violation > 0 and count < table.size:
        for i in range(table.size):
            if table[i] == never:
                whole[i] = -(1 << violation)
    if count == 0:
        return 0.0
    mean = finite / count
    return max(0.0, squares / count - mean * mean) * 4.0**shift


@njit()
def _transpose(whole, before, own, after, out, place, width):
    """Copy a (before, own, after) table with its middle axis last, rows padded to ``width``."""
    for p in range(before):
        for r in range(after):
            column = out[place : place + own]
            source = whole[p * own * after + r :]
            for i in range(own):
                column[i] = source[i * after]
            place += width
