"""A problem as flat arrays of whole numbers in which one comparison is lexicographic: violations, then utility.

For every factor and every variable v in it there is a copy of the table with v's axis last, so that the factor's
utilities for all values of v are one contiguous *column*. An entry is a 64-bit integer: the utility, less ``violation``
where it is forbidden, which is more than all utilities together can differ by. Integers that leave room for that are
exact; others, and floats, are scaled by a power of two and rounded, to about twelve digits of their sum.
"""

from math import floor, log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.types import Ints

_ROOM = 2**61  # of any sum of entries
_DIGITS = 2**42  # what the utilities of a problem of floats are scaled to together


class Layout(NamedTuple):
    """What the algorithms read.

    Attributes
    ----------
    domains : (n,) int64
    most : int
        The largest domain.
    data : (entries,) int64
        All columns.
    violation : int
        What a forbidden entry costs; more than twice the sum of all utilities.
    scale : float
        How many units of ``data`` one unit of utility is.
    mine : (n,) bool
        The variables of this rank: only their scores are kept up to date.
    column_start : (n + 1,) int64
        Columns of variable v are ``column_start[v]:column_start[v + 1]``, one a factor of v.
    column_at, column_top, column_factor : (columns,) int64
        Offset of the column for other variables all 0; the best entry of its factor, and which one it is.
    other_start : (columns + 1,) int64
    other_variable, other_stride : (others,) int64
        The other variables of a column's factor, and their strides in ``data``.
    pair_start : (n + 1,) int64
        Neighbours of v are ``neighbour[pair_start[v]:pair_start[v + 1]]``, in ascending order.
    neighbour : (pairs,) int64
    touch_start : (pairs + 1,) int64
        Columns of the neighbour that move when v changes are ``touch_start[p]:touch_start[p + 1]`` of pair p.
    touch_column, touch_stride : (touches,) int64
        Those columns, and the stride of v in them.
    """

    domains: NDArray[np.int64]
    most: int
    data: NDArray[np.int64]
    violation: int
    scale: float
    mine: NDArray[np.bool_]
    column_start: NDArray[np.int64]
    column_at: NDArray[np.int64]
    column_top: NDArray[np.int64]
    column_factor: NDArray[np.int64]
    other_start: NDArray[np.int64]
    other_variable: NDArray[np.int64]
    other_stride: NDArray[np.int64]
    pair_start: NDArray[np.int64]
    neighbour: NDArray[np.int64]
    touch_start: NDArray[np.int64]
    touch_column: NDArray[np.int64]
    touch_stride: NDArray[np.int64]


def lay_out(problem: Problem, mine: NDArray[np.bool_] | None = None) -> Layout:
    """Lay out a problem of dense tables; ``mine`` are the variables of this rank, all if None."""
    tables, violation, scale = whole_tables(problem)
    n = problem.n_variables
    of_variable: list[list[tuple[int, int]]] = [[] for _ in range(n)]  # (factor, axis)
    for f, (scope, _) in enumerate(tables):
        for axis, v in enumerate(scope):
            of_variable[v].append((f, axis))
    columns = [(v, f, axis) for v in range(n) for f, axis in of_variable[v]]
    parts, at, top = list[NDArray[np.int64]](), [0], list[int]()
    other_start, other_variable, other_stride = [0], list[int](), list[int]()
    touches: list[tuple[int, int, int, int]] = []  # who changes, whose column, which column, stride
    for column, (v, f, axis) in enumerate(columns):
        scope, table = tables[f]
        turned = np.ascontiguousarray(np.moveaxis(table, axis, -1))
        parts.append(turned.reshape(-1))
        at.append(at[-1] + turned.size)
        top.append(int(table.max()))
        for u, stride in zip((u for u in scope if u != v), turned.strides, strict=False):
            other_variable.append(u)
            other_stride.append(stride // turned.itemsize)
            touches.append((u, v, column, stride // turned.itemsize))
        other_start.append(len(other_variable))
    touches.sort()
    pairs = sorted({(u, v) for u, v, _, _ in touches})
    number = {pair: p for p, pair in enumerate(pairs)}
    of_pair = np.array([number[u, v] for u, v, _, _ in touches], dtype=np.int64)
    return Layout(
        domains=problem.domains,
        most=int(problem.domains.max(initial=1)),
        data=np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64),
        violation=violation,
        scale=scale,
        mine=np.ones(n, dtype=np.bool_) if mine is None else mine,
        column_start=_starts(np.array([v for v, _, _ in columns], dtype=np.int64), n),
        column_at=np.array(at[:-1], dtype=np.int64),
        column_top=np.array(top, dtype=np.int64),
        column_factor=np.array([f for _, f, _ in columns], dtype=np.int64),
        other_start=np.array(other_start, dtype=np.int64),
        other_variable=np.array(other_variable, dtype=np.int64),
        other_stride=np.array(other_stride, dtype=np.int64),
        pair_start=_starts(np.array([u for u, _ in pairs], dtype=np.int64), n),
        neighbour=np.array([v for _, v in pairs], dtype=np.int64),
        touch_start=_starts(of_pair, len(pairs)),
        touch_column=np.array([column for _, _, column, _ in touches], dtype=np.int64),
        touch_stride=np.array([stride for _, _, _, stride in touches], dtype=np.int64),
    )


def _starts(groups: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return where each group of ascending numbers begins, and the end."""
    return np.searchsorted(groups, np.arange(count + 1)).astype(np.int64)


def whole_tables(problem: Problem) -> tuple[list[tuple[tuple[int, ...], Ints]], int, float]:
    """Return all factors with a scope as tables of integers, what a violation costs, and what a utility of 1 is."""
    factors = [(f.scope, f.table, forbidden(f.table)) for f in problem.factors if f.scope]
    reach = sum(float(np.abs(np.where(hard, 0, table).astype(np.float64)).max(initial=0)) for _, table, hard in factors)
    room = _ROOM / (2 + 3 * sum(bool(hard.any()) for _, _, hard in factors))
    whole = all(table.dtype.kind == "i" for _, table, _ in factors)
    if whole and 3 * reach + len(factors) + 1 < room:
        scale = 1.0
    else:
        scale = 2.0 ** floor(log2(min(_DIGITS, room / 4) / reach)) if reach else 1.0
    violation = int(2 * (reach * scale + len(factors)) + 1)
    tables = []
    for scope, table, hard in factors:
        soft = np.where(hard, 0, table)
        entries = soft.astype(np.int64) if scale == 1.0 and whole else np.rint(soft * scale).astype(np.int64)
        tables.append((scope, np.where(hard, np.int64(-violation), entries)))
    return tables, violation, scale
