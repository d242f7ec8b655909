"""One agent's local problem as flat arrays, the way chains read it.

Variables are renumbered: hidden ones first, interface ones after. For every factor and every hidden variable v in it
there is a copy of the table with v's axis last, so that "this factor's utilities for all values of v" is one
contiguous *column* of it.

−∞ becomes a finite penalty larger than all finite utilities of the agent together: a chain can pass through forbidden
states, and its utility orders states by (violations, utility).
"""

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.agents import LocalProblem
from dmcmc.inference.tables import Array, forbidden_value

_INT32_SUM = 2**30  # scores within this fit int32, with room for a difference of two


class ChainModel(NamedTuple):
    """What init and step functions see; plain arrays, readable on CPU and GPU.

    Attributes
    ----------
    domains : (n,) int32
        Domain sizes; the first ``hidden`` variables are hidden.
    hidden : int
    lanes : int
        Length of a row of scores: the largest domain of a hidden variable.
    spread : float
        The root mean square over hidden variables of Σ_f var(f), forbidden entries left out: how much the scores of
        one variable typically differ.
    data : (entries,) int32 or float64
        All columns.
    column_start : (hidden + 1,) int32
        Columns of variable v are ``column_start[v]:column_start[v + 1]``, one a factor of v.
    column_at : (columns,) int64
        Offset in ``data`` of the column for other variables all 0.
    other_start : (columns + 1,) int32
        The other variables of a column's factor are ``other_start[c]:other_start[c + 1]``.
    other_variable, other_stride : (others,) int32, int64
        Those variables and their strides in ``data``.
    touch_start : (hidden + 1,) int32
        Columns that move when v changes are ``touch_start[v]:touch_start[v + 1]``.
    touch_variable, touch_column : (touches,) int32
        Whose scores change, and in which column.
    touch_stride : (touches,) int64
        Stride of v in it.
    touch_binary : (touches,) bool
        Whether v is the only other variable.
    factor_column, factor_variable : (factors,) int32
        One column of each factor, and its variable: how a whole state is evaluated.
    """

    domains: NDArray[np.int32]
    hidden: int
    lanes: int
    spread: float
    data: Array
    column_start: NDArray[np.int32]
    column_at: NDArray[np.int64]
    other_start: NDArray[np.int32]
    other_variable: NDArray[np.int32]
    other_stride: NDArray[np.int64]
    touch_start: NDArray[np.int32]
    touch_variable: NDArray[np.int32]
    touch_column: NDArray[np.int32]
    touch_stride: NDArray[np.int64]
    touch_binary: NDArray[np.bool_]
    factor_column: NDArray[np.int32]
    factor_variable: NDArray[np.int32]


class _Column(NamedTuple):
    variable: int
    factor: int
    others: tuple[tuple[int, int], ...]  # (variable, stride in entries)
    block: Array  # flat


def build_model(local: LocalProblem) -> ChainModel:
    """Flatten a local problem. Only factors with a hidden variable count: the others are constant in a row."""
    order = (*local.hidden, *local.interface)
    renumber = {v: i for i, v in enumerate(order)}
    domains = local.domains[list(order)].astype(np.int32) if order else np.zeros(0, dtype=np.int32)
    hidden = len(local.hidden)
    scopes, tables = [], []
    for factor in local.factors:
        scope = tuple(renumber[v] for v in factor.scope)
        if any(v < hidden for v in scope):
            scopes.append(scope)
            tables.append(factor.table)
    tables, variances = _penalised(tables)
    columns = [
        _column(i, scope, axis, tables[i])
        for i, scope in enumerate(scopes)
        for axis, v in enumerate(scope)
        if v < hidden
    ]
    columns.sort(key=lambda c: (c.variable, c.factor))
    touches = sorted(
        (v, i, c.variable, stride, len(c.others) == 1)
        for i, c in enumerate(columns)
        for v, stride in c.others
        if v < hidden
    )
    first = {c.factor: i for i, c in reversed(list(enumerate(columns)))}
    others = [pair for c in columns for pair in c.others]
    variance = sum(variances[c.factor] for c in columns)
    return ChainModel(
        domains=domains,
        hidden=hidden,
        lanes=int(domains[:hidden].max(initial=1)),
        spread=float(np.sqrt(variance / max(1, hidden))) or 1.0,
        data=np.concatenate([c.block for c in columns]) if columns else np.zeros(1, dtype=np.int32),
        column_start=_starts([c.variable for c in columns], hidden),
        column_at=np.cumsum([0, *(c.block.size for c in columns)])[:-1],
        other_start=np.cumsum([0, *(len(c.others) for c in columns)]).astype(np.int32),
        other_variable=np.array([v for v, _ in others], dtype=np.int32),
        other_stride=np.array([s for _, s in others], dtype=np.int64),
        touch_start=_starts([t[0] for t in touches], hidden),
        touch_variable=np.array([t[2] for t in touches], dtype=np.int32),
        touch_column=np.array([t[1] for t in touches], dtype=np.int32),
        touch_stride=np.array([t[3] for t in touches], dtype=np.int64),
        touch_binary=np.array([t[4] for t in touches], dtype=np.bool_),
        factor_column=np.array([first[i] for i in range(len(scopes))], dtype=np.int32),
        factor_variable=np.array([columns[first[i]].variable for i in range(len(scopes))], dtype=np.int32),
    )


def _penalised(tables: list[Array]) -> tuple[list[Array], list[float]]:
    """Return the tables in the dtype of the scores, −∞ replaced, and the variance of each one's finite entries."""
    masks: list[NDArray[np.bool_] | None] = []
    worst: list[int | float] = []
    variances: list[float] = []
    for table in tables:
        low = forbidden_value(table.dtype)
        hard = table == low if table.min() == low else None
        finite = table if hard is None else table[~hard]
        masks.append(hard)
        worst.append(max(abs(finite.min().item()), abs(finite.max().item())) if finite.size else 0)
        as_float = finite.astype(np.float64).ravel()
        mean = float(as_float.mean()) if finite.size else 0.0
        variances.append(max(0.0, float(as_float @ as_float) / finite.size - mean * mean) if finite.size else 0.0)
    penalty = 2 * sum(worst) + 1
    most = sum(w if mask is None else penalty for w, mask in zip(worst, masks, strict=True))
    whole = most < _INT32_SUM and all(t.dtype.kind == "i" for t in tables)
    dtype: np.dtype[Any] = np.dtype(np.int32 if whole else np.float64)
    changed = [
        table.astype(dtype, copy=False)
        if mask is None
        else np.where(mask, 0, table).astype(dtype) - mask * dtype.type(penalty)
        for table, mask in zip(tables, masks, strict=True)
    ]
    return changed, variances


def _column(factor: int, scope: tuple[int, ...], axis: int, table: Array) -> _Column:
    """Copy a table with one axis last."""
    axes = [i for i in range(len(scope)) if i != axis]
    shape = [table.shape[i] for i in (*axes, axis)]
    others = tuple((scope[i], prod(shape[position + 1 :])) for position, i in enumerate(axes))
    return _Column(scope[axis], factor, others, table.transpose(*axes, axis).reshape(-1))


def _starts(groups: list[int], count: int) -> NDArray[np.int32]:
    """Return where each of ``count`` groups starts in a list sorted by group, and the end."""
    return np.searchsorted(np.array(groups, dtype=np.int64), np.arange(count + 1)).astype(np.int32)
