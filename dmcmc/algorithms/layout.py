"""Factor tables as flat integer arrays in which one comparison is lexicographic: violations, then utility.

The local algorithms (``dmcmc.algorithms.local_kernels``) read these arrays. For every factor and every variable v in
its scope there is a copy of the table with the axis of v last. The utilities of the factor for all values of v are then
one contiguous *column*.

An entry is a 64-bit integer: the scaled utility, or ``-violation`` if the entry is forbidden. ``violation`` exceeds the
largest possible difference of total utility, so the assignment with fewer violations always has the larger sum. Integer
tables are exact if their sums fit. Other integers, and floats, are scaled by a power of two and rounded to about twelve
digits of their sum.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import scaling_exponent
from dmcmc.inference.model.factor_graph import factors_of_variables
from dmcmc.inference.model.flat_tables import flatten_scopes
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.compile import writable
from dmcmc.inference.runtime.types import Ints
from dmcmc.samplers.model.column_kernels import link_columns

_MAX_ABS_SUM = 2**61  # largest absolute value of any sum of entries; leaves headroom in int64
_MAX_EXPONENT = 1023  # exponent of the largest power of two that is a float64
_MAX_SCALED_TOTAL = 2**42  # largest total of the scaled absolute utilities with float tables: about twelve digits


class ColumnLayout(NamedTuple):
    """Factor tables, columns and neighbours of a problem as flat arrays, which the kernels read.

    A column is the vector of utilities of one factor for all values of one of its variables v, with the other variables
    fixed. Each (variable, factor) pair has one column number; ``n`` is the number of variables.

    Attributes
    ----------
    domains : (n,) int64
        Domain sizes.
    max_domain : int
        Size of the largest domain.
    data : (entries,) int64
        All tables, one transposed copy per column number.
    violation : int
        Cost of a forbidden entry; more than twice the sum of the absolute utilities of all factors.
    scale : float
        Units of ``data`` per unit of utility.
    mine : (n,) bool
        True for the variables of this rank. Only their scores are kept up to date.
    column_start : (n + 1,) int64
        The columns of variable v are ``column_start[v]:column_start[v + 1]``, one per factor of v.
    column_at : (columns,) int64
        Offset in ``data`` of the column for the first value of each other variable.
    column_top : (columns,) int64
        Largest entry of the column's factor.
    column_factor : (columns,) int64
        Index of the column's factor.
    other_start : (columns + 1,) int64
        The other variables of column c are the entries ``other_start[c]:other_start[c + 1]`` of the next two arrays.
    other_variable, other_stride : (others,) int64
        Each other variable, and its stride in ``data``.
    pair_start : (n + 1,) int64
        The neighbours of v are ``neighbour[pair_start[v]:pair_start[v + 1]]``, in ascending order.
    neighbour : (pairs,) int64
        Second variable of each ordered pair of neighbours.
    touch_start : (pairs + 1,) int64
        For pair p = (v, w), entries ``touch_start[p]:touch_start[p + 1]`` of the next two arrays are the columns of w
        whose offset depends on v.
    touch_column, touch_stride : (touches,) int64
        Each of those columns, and the stride of v in it.
    """

    domains: NDArray[np.int64]
    max_domain: int
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

    @property
    def least_violation(self) -> int:
        """A lower bound on how much worse a forbidden entry is than the best entry of its factor."""
        tops = self.column_top[self.column_top > -self.violation]
        return int(self.violation + min(0, tops.min(initial=0)))


def build_layout(problem: Problem, mine: NDArray[np.bool_] | None = None) -> ColumnLayout:
    """Build the flat arrays of a problem with dense tables.

    Parameters
    ----------
    problem : Problem
        Problem whose factors are dense tables.
    mine : (n,) bool, optional
        True for the variables of this rank; all variables by default.
    """
    tables, violation, scale = integer_tables(problem)
    n, domains = problem.n_variables, writable(problem.domains)
    scope_start, scope = flatten_scopes([scope for scope, _ in tables])
    start, factor, position = factors_of_variables(scope_start, scope, n)
    links = link_columns(scope_start, scope, start, factor, position, domains, domains)
    axis = position - scope_start[factor]
    copies = [np.moveaxis(tables[f][1], a, -1).reshape(-1) for f, a in zip(factor.tolist(), axis.tolist(), strict=True)]
    largest_entry = np.array([table.max() for _, table in tables], dtype=np.int64)
    # An ordered pair of neighbours (v, w) for each first touch of w by v; touches are sorted by v, then by w.
    changed = np.repeat(np.arange(n), np.diff(links.touch_start))
    is_first = (np.diff(changed, prepend=-1) != 0) | (np.diff(links.touch_variable, prepend=-1) != 0)
    first_touch = np.flatnonzero(is_first)
    return ColumnLayout(
        domains=problem.domains,
        max_domain=int(problem.domains.max(initial=1)),
        data=np.concatenate([*copies, np.zeros(0, dtype=np.int64)]),
        violation=violation,
        scale=scale,
        mine=np.ones(n, dtype=np.bool_) if mine is None else mine,
        column_start=start,
        column_at=links.column_at,
        column_top=largest_entry[factor],
        column_factor=factor,
        other_start=links.other_start,
        other_variable=links.other_variable,
        other_stride=links.other_stride,
        pair_start=np.searchsorted(changed[first_touch], np.arange(n + 1)),
        neighbour=links.touch_variable[first_touch],
        touch_start=np.append(first_touch, changed.size),
        touch_column=links.touch_column,
        touch_stride=links.touch_stride,
    )


def integer_tables(problem: Problem) -> tuple[list[tuple[tuple[int, ...], Ints]], int, float]:
    """Return all factors with a scope as integer tables, which the flat arrays are made from.

    Let M be the sum over factors of the largest absolute utility, and F the number of factors. Integer tables keep
    their utilities (scale 1) if all sums fit. Others are multiplied by the scale, the largest power of two for which M
    * scale stays within the limits, and rounded. The violation is 2 * (M * scale + F) + 1: it exceeds the difference of
    any two sums of utilities, each of which rounding changes by less than F.

    Returns
    -------
    tables : list of (tuple of int, ndarray of int64)
        Scope and integer table of each factor, in the order of the problem.
    violation : int
        Cost of a forbidden entry, in the units of the tables.
    scale : float
        Units of the tables per unit of utility.
    """
    factors = [(f.scope, f.table, forbidden(f.table)) for f in problem.factors if f.scope]
    total_magnitude = sum(
        float(np.abs(np.where(is_forbidden, 0, table).astype(np.float64)).max(initial=0))
        for _, table, is_forbidden in factors
    )
    # A sum may have one violation per factor with forbidden entries; each costs a little more than 2 * (scaled sum).
    max_scaled_sum = _MAX_ABS_SUM / (2 + 3 * sum(bool(is_forbidden.any()) for _, _, is_forbidden in factors))
    all_integer = all(table.dtype.kind == "i" for _, table, _ in factors)
    if all_integer and 3 * total_magnitude + len(factors) + 1 < max_scaled_sum:
        scale = 1.0
    else:
        exponent = scaling_exponent(min(_MAX_SCALED_TOTAL, max_scaled_sum / 4), total_magnitude)
        scale = 2.0 ** min(exponent, _MAX_EXPONENT)
    violation = int(2 * (total_magnitude * scale + len(factors)) + 1)
    tables = []
    for scope, table, is_forbidden in factors:
        soft = np.where(is_forbidden, 0, table)
        entries = soft.astype(np.int64) if scale == 1.0 and all_integer else np.rint(soft * scale).astype(np.int64)
        tables.append((scope, np.where(is_forbidden, np.int64(-violation), entries)))
    return tables, violation, scale
