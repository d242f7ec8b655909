"""One agent's local problem as flat arrays, the way chains read it.

Variables are renumbered: hidden ones first, interface ones after. For every factor and every hidden variable v in it
there is a copy of the table with v's axis last, so that "this factor's utilities for all values of v" is one
contiguous *column* of it, padded to a multiple of :data:`LANES`.

−∞ becomes a finite penalty larger than all finite utilities of the agent together: a chain can pass through forbidden
states, and its utility orders states by (violations, utility).
"""

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.agents import LocalProblem
from dmcmc.inference.problem import Factor
from dmcmc.inference.tables import Array, forbidden, magnitude

LANES = 8  # columns are padded to a multiple of this many entries

_INT32_SUM = 2**30  # scores within this fit int32 with room for one subtraction


class ChainModel(NamedTuple):
    """What init and step functions see; plain arrays, readable on CPU and GPU.

    Attributes
    ----------
    domains : (n,) int32
        Domain sizes; the first ``hidden`` variables are hidden.
    hidden : int
    lanes : int
        Length of a row of scores: the largest padded domain of a hidden variable.
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
    touch_variable : (touches,) int32
        Whose scores change.
    touch_column : (touches,) int32
        In which column.
    touch_stride : (touches,) int64
        Stride of v in it.
    touch_binary : (touches,) bool
        Whether v is the only other variable.
    factor_column : (factors,) int32, factor_variable : (factors,) int32
        One column of each factor, and its variable: how a whole state is evaluated.
    """

    domains: NDArray[np.int32]
    hidden: int
    lanes: int
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


@dataclass(frozen=True)
class _Column:
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
    factors = [f for f in local.factors if any(renumber[v] < hidden for v in f.scope)]
    penalty, dtype = _penalty(factors)
    columns = sorted(
        (
            _column(i, tuple(renumber[v] for v in f.scope), axis, _penalised(f, penalty, dtype))
            for i, f in enumerate(factors)
            for axis, v in enumerate(f.scope)
            if renumber[v] < hidden
        ),
        key=lambda c: (c.variable, c.factor),
    )
    at = np.cumsum([0, *(c.block.size for c in columns)])
    touches = sorted(
        (
            (v, c.variable, i, stride, len(c.others) == 1)
            for i, c in enumerate(columns)
            for v, stride in c.others
            if v < hidden
        ),
        key=lambda touch: (touch[0], touch[2]),
    )
    first = {c.factor: i for i, c in reversed(list(enumerate(columns)))}
    others = [pair for c in columns for pair in c.others]
    return ChainModel(
        domains=domains,
        hidden=hidden,
        lanes=padded(int(domains[:hidden].max(initial=1))),
        data=np.concatenate([c.block for c in columns]) if columns else np.zeros(1, dtype=dtype),
        column_start=_starts([c.variable for c in columns], hidden),
        column_at=at[:-1].astype(np.int64),
        other_start=np.cumsum([0, *(len(c.others) for c in columns)]).astype(np.int32),
        other_variable=np.array([v for v, _ in others], dtype=np.int32),
        other_stride=np.array([s for _, s in others], dtype=np.int64),
        touch_start=_starts([t[0] for t in touches], hidden),
        touch_variable=np.array([t[1] for t in touches], dtype=np.int32),
        touch_column=np.array([t[2] for t in touches], dtype=np.int32),
        touch_stride=np.array([t[3] for t in touches], dtype=np.int64),
        touch_binary=np.array([t[4] for t in touches], dtype=np.bool_),
        factor_column=np.array([first[i] for i in range(len(factors))], dtype=np.int32),
        factor_variable=np.array([columns[first[i]].variable for i in range(len(factors))], dtype=np.int32),
    )


def padded(size: int) -> int:
    """Return a domain size rounded up to whole lanes."""
    return -(-size // LANES) * LANES


def _penalty(factors: list[Factor]) -> tuple[int | float, np.dtype[Any]]:
    """Return what a forbidden entry costs, and the dtype that holds all scores."""
    total = sum(magnitude(f.table) for f in factors)
    penalty = 2 * total + 1
    if all(f.table.dtype.kind == "i" for f in factors):
        worst = sum(penalty if forbidden(f.table).any() else magnitude(f.table) for f in factors)
        if worst < _INT32_SUM:
            return penalty, np.dtype(np.int32)
    return float(penalty), np.dtype(np.float64)


def _penalised(factor: Factor, penalty: int | float, dtype: np.dtype[Any]) -> Array:
    hard = forbidden(factor.table)
    return np.where(hard, -penalty, np.where(hard, 0, factor.table)).astype(dtype)


def _column(factor: int, scope: tuple[int, ...], axis: int, table: Array) -> _Column:
    """Copy a table with one axis last and padded."""
    last = np.moveaxis(table, axis, -1)
    size = padded(last.shape[-1])
    block = np.zeros((*last.shape[:-1], size), dtype=table.dtype)
    block[..., : last.shape[-1]] = last
    rest = [v for i, v in enumerate(scope) if i != axis]
    strides = [size * prod(last.shape[i + 1 : -1]) for i in range(len(rest))]
    return _Column(scope[axis], factor, tuple(zip(rest, strides, strict=True)), block.reshape(-1))


def _starts(groups: list[int], count: int) -> NDArray[np.int32]:
    """Return where each of ``count`` groups starts in a list sorted by group, and the end."""
    return np.searchsorted(np.array(groups, dtype=np.int64), np.arange(count + 1)).astype(np.int32)
