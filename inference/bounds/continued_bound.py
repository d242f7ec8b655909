"""Continue the bound of an agent whose factors have changed: keep dual variables, and shift the bounds of its rows.

Dual ascent reparametrises the factors: it moves utility between tables, and their sum stays the same. If a factor f is
replaced by g, adding g − f to the reparametrised tables gives a reparametrisation of the new factors, in which all dual
variables of the other factors are kept (the same holds for the nodes of a search tree; see Kohli and Torr, "Dynamic
Graph Cuts for Efficient Inference in Markov Random Fields", PAMI 2007, for min-cuts). A row is one assignment of the
agent's interface (boundary) variables. The bound of a row rises by at most max (g − f) over the entries of the row.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import DualLayout, DualPotentials, lay_out
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW, MAX_MAGNITUDE, MINUS_INFINITY
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.model.tables import forbidden, magnitude, spread

_EXACT_FLOAT = 2**53  # sums of integers up to this magnitude are exact in float64

Differences = Mapping[tuple[int, ...], NDArray[np.float64]]


def has_same_variables(one: Subproblem, other: Subproblem) -> bool:
    """Return whether two agents' problems have the same interface, hidden variables and domains."""
    variables = [*one.interface, *one.hidden]
    return (tuple(one.interface), tuple(one.hidden)) == (tuple(other.interface), tuple(other.hidden)) and bool(
        (one.domains[variables] == other.domains[variables]).all()
    )


def factor_differences(before: Sequence[Factor], after: Sequence[Factor]) -> Differences | None:
    """Return by how much the utilities of some factors differ from those of others, for each scope.

    Parameters
    ----------
    before, after
        The factors, all dense.

    Returns
    -------
    dict of tuple of int to ndarray of float64, or None
        By scope, ascending: new utilities less the old ones, rounded to float64. An entry is −inf if it is forbidden
        now, and +inf if it was forbidden before and is not any more. Scopes without a change are left out. None if a
        factor is not dense, or numbers are too large for float64.
    """
    changed, size = _changed_factors(before, after), 0.0
    sums: list[dict[tuple[int, ...], NDArray[np.float64]]] = [{}, {}]
    for side, factors in zip(sums, changed, strict=True):
        for factor in factors:
            if type(factor) is not Factor:
                return None
            size += float(magnitude(factor.table))
            order = np.argsort(factor.scope).tolist()
            table = np.where(forbidden(factor.table), -np.inf, factor.table.astype(np.float64)).transpose(order)
            scope = tuple(sorted(factor.scope))
            side[scope] = side[scope] + table if scope in side else table
    if size > _EXACT_FLOAT:
        return None
    found = dict[tuple[int, ...], NDArray[np.float64]]()
    for scope in sums[0].keys() | sums[1].keys():
        shape = (sums[0] if scope in sums[0] else sums[1])[scope].shape
        old, new = (side.get(scope, np.zeros(shape)) for side in sums)
        with np.errstate(invalid="ignore"):  # forbidden before and now: −inf
            difference = np.where(np.isneginf(new), -np.inf, new - old)
        if (difference != 0).any():
            found[scope] = difference
    return found


def row_increases(local: Subproblem, differences: Differences) -> NDArray[np.float64]:
    """Return by how much the utility of each row can rise at most.

    Parameters
    ----------
    local
        The agent's problem.
    differences
        Differences of its factors, from :func:`factor_differences`.

    Returns
    -------
    (rows,) float64
        In C order over the interface; −inf if the row is infeasible, +inf if nothing is known.
    """
    shape = local.interface_shape
    total, infeasible = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    position = {v: axis for axis, v in enumerate(local.interface)}
    for scope, difference in differences.items():
        hidden = tuple(axis for axis, v in enumerate(scope) if v not in position)
        largest = difference.max(axis=hidden) if hidden else difference
        increase = spread(largest, [v for v in scope if v in position], local.interface)
        infeasible |= np.isneginf(increase)
        total = total + np.where(np.isneginf(increase), 0, increase)
    return np.where(infeasible, -np.inf, total).reshape(-1)


def largest_increase(before: Problem, after: Problem) -> float | None:
    """Return by how much the best utility of a problem can have risen at most; None if nothing is known.

    It is the sum over all scopes of the largest difference, rounded up.

    Parameters
    ----------
    before, after
        The problem before and after some factors have changed.
    """
    if before.variables != after.variables or not np.array_equal(before.domains, after.domains):
        return None
    differences = factor_differences(before.factors, after.factors)
    if differences is None:
        return None
    largest = [float(difference.max()) for difference in differences.values()]
    if not all(map(math.isfinite, largest)):
        return None
    total, changed = math.fsum(largest), [f for side in _changed_factors(before.factors, after.factors) for f in side]
    if all(factor.table.dtype.kind == "i" for factor in changed):
        return total
    # Each sum of a scope is rounded once per factor, by at most 2^-53 of the numbers involved.
    return total + 2.0**-52 * (len(changed) + 1) * math.fsum(float(magnitude(factor.table)) for factor in changed)


def _changed_factors(before: Sequence[Factor], after: Sequence[Factor]) -> tuple[list[Factor], list[Factor]]:
    """Return the old and the new factors, without the objects that are in both."""
    counts = Counter(map(id, before)), Counter(map(id, after))
    is_changed = {number for number in counts[0] | counts[1] if counts[0][number] != counts[1][number]}
    return [f for f in before if id(f) in is_changed], [f for f in after if id(f) in is_changed]


def continue_bound(state: DualState, earlier: DualState) -> bool:
    """Tighten a new bound by what an earlier bound of the agent has proven, before its factors changed.

    Parameters
    ----------
    state
        The bound of the agent as it stands, just started.
    earlier
        Its bound before the change.

    Returns
    -------
    bool
        Whether the earlier bound was of use; False if other things than utilities have changed.
    """
    if not has_same_variables(earlier.local, state.local):
        return False
    differences = factor_differences(earlier.local.factors, state.local.factors)
    if differences is None:
        return False
    potentials = continued_potentials(state, earlier)
    if potentials is not None:
        state.take_potentials(earlier, potentials)
    if state.enumerated and earlier.enumerated:
        shifted = _shifted_bounds(earlier, state, row_increases(state.local, differences))
        state.bounds = np.minimum(state.bounds, shifted)
    return True


def continued_potentials(state: DualState, earlier: DualState) -> DualPotentials | None:
    """Return the potentials of an earlier bound with the differences of the factors added; None if that is impossible.

    It is impossible if scales or scopes differ, if a forbidden entry has become allowed (what messages moved to it is
    not known), or if the numbers leave their range.
    """
    before, after = lay_out(earlier.local, False), lay_out(state.local, False)
    scales = before.scale, after.scale
    if (scales[0].shift, scales[0].integral) != (scales[1].shift, scales[1].integral):
        return None
    known, graphs = _pair_numbers(earlier.layout), (earlier.layout.whole, state.layout.whole)
    if state.layout_fixed and not all(map(np.array_equal, *((graph.pairs, graph.triangles) for graph in graphs))):
        return None
    if _pair_numbers(after).keys() - known.keys() or not _same_large_scopes(before, after):
        return None
    old_pairs, new_pairs = _spread_pairs(before, known, earlier), _spread_pairs(after, known, earlier)
    now, old, new = earlier.potentials, before.potentials, after.potentials
    changed = [
        _with_difference(*tables)
        for tables in (
            (now.unary, old.unary, new.unary),
            (now.pair, old_pairs, new_pairs),
            (now.higher_order, old.higher_order, new.higher_order),
        )
    ]
    if any(table is None for table in changed):
        return None
    unary, pair, higher_order = changed
    assert unary is not None and pair is not None and higher_order is not None
    return DualPotentials(unary, pair, now.triangle.copy(), higher_order)


def _pair_numbers(layout: DualLayout) -> dict[tuple[int, int], int]:
    """Return the number of each pair of variables."""
    return {(a, b): number for number, (a, b) in enumerate(layout.whole.pairs.tolist())}


def _same_large_scopes(one: DualLayout, other: DualLayout) -> bool:
    """Return whether the higher-order factors of two layouts have the same scopes in the same order."""
    parts = ((one.whole.scope_start, other.whole.scope_start), (one.whole.scope_variables, other.whole.scope_variables))
    return all(np.array_equal(mine, theirs) for mine, theirs in parts)


def _spread_pairs(layout: DualLayout, known: Mapping[tuple[int, int], int], state: DualState) -> NDArray[np.int32]:
    """Return the pairwise tables of a layout in the order of a bound's pairs; zero where the layout has no pair."""
    domains, width = state.layout.whole.domains, state.width
    is_value = np.arange(width) < domains[:, None]
    a, b = state.layout.whole.pairs[:, 0], state.layout.whole.pairs[:, 1]
    result = np.where(is_value[a][:, :, None] & is_value[b][:, None, :], np.int32(0), np.int32(FORBIDDEN))
    numbers = [known[pair] for pair in _pair_numbers(layout)]
    result[numbers] = layout.potentials.pair
    return result


def _with_difference(now: NDArray[Any], old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any] | None:
    """Return present entries plus new entries less old ones; None if one is newly allowed or out of range."""
    was_forbidden, is_forbidden = old < FORBIDDEN_BELOW, new < FORBIDDEN_BELOW
    if (was_forbidden & ~is_forbidden).any():
        return None
    result = np.where(is_forbidden | (now < FORBIDDEN_BELOW), np.int32(FORBIDDEN), now + (new - old))
    if (np.abs(result[result != FORBIDDEN]) > MAX_MAGNITUDE).any():
        return None
    return result.astype(np.int32)


def _shifted_bounds(earlier: DualState, state: DualState, increases: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bounds of an earlier ascent plus the rows' increases, in the scale of the present one, rounded up."""
    scale, shift = state.layout.scale, state.layout.scale.shift - earlier.layout.scale.shift
    known = (earlier.bounds > MINUS_INFINITY) & ~np.isneginf(increases)
    bounds = np.where(known, earlier.bounds + earlier.layout.scale.threshold_error, 0)
    bounds = bounds << shift if shift >= 0 else -(-bounds >> -shift)
    rise = np.ceil(np.ldexp(np.where(np.isfinite(increases), increases, 0), scale.shift)).astype(np.int64)
    if not scale.integral:
        rise += increases != 0  # the differences are rounded by much less than one unit
    return np.where(np.isposinf(increases), -MINUS_INFINITY, np.where(known, bounds + rise, MINUS_INFINITY))
