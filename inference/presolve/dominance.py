"""Values and entries that another one dominates, values without support, and all-different.

Dead-end elimination: remove a value if another value of the variable is at least as good in every context.

Generalised arc consistency: remove values without support in a table, or in a matching of an all-different group.

Forbid table entries that are dominated by the incumbent: each alone loses more than the incumbent loses in total.

The *loss* of an entry is how far it is below the largest entry of its table.

Constraints written as large costs become hard constraints, so that they do not set the temperatures of the chains.

Find all-different groups of variables, and the values that some matching supports (Régin 1994).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.all_different import supported_values
from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden, forbidden_value
from dmcmc.inference.presolve.working_problem import Infeasible, WorkingProblem
from dmcmc.inference.runtime.types import Array
from dmcmc.inference.tuning import (
    MAX_CONSISTENCY_PASSES,
    MAX_EXAMINED_ENTRIES,
    MAX_GROUP_STATES,
    MAX_GROUP_VALUES,
    MAX_RIVALS,
    MIN_LOSS_RATIO,
)


def remove_dominated(working: WorkingProblem) -> int:
    """Remove dominated values of all variables that share tables only within their agent; return the number of values.

    Value x is dominated by y if Σ_f min over the other variables of f(y, ·) − f(x, ·) ≥ 0 (Goldstein's criterion). A
    dominated value is removed at once, so two equal values never both disappear.
    """
    candidates, working.dominance_pending, removed = sorted(working.dominance_pending), set(), 0
    for v in candidates:
        if working.limit.over:
            break
        if working.private[v] and working.touching[v] and len(working.remaining[v]) > 1:
            removed += remove_dominated_values(working, v)
    return removed


def remove_dominated_values(working: WorkingProblem, v: int) -> int:
    """Remove the values of a variable that its rivals dominate; return their number.

    The rivals are the ``MAX_RIVALS`` values with the largest mean utility; every other value is compared with
    each of them.
    """
    removed, tables, order = 0, list[Array](), np.zeros(0, dtype=np.intp)
    for rank in range(MAX_RIVALS):
        if len(working.remaining[v]) <= max(1, rank):
            break
        if order.size != len(working.remaining[v]):
            size = len(working.remaining[v])
            tables = [working.tables[s].swapaxes(s.index(v), 0).reshape(size, -1) for s in working.touching[v]]
            working.limit.charge(len(tables), sum(table.size for table in tables))
            order = np.argsort(-sum((_mean_utilities(table) for table in tables), np.zeros(1)), kind="stable")
        rival = int(order[rank])
        keep = ~_dominated(tables, rival)
        keep[rival] = True
        removed += working.keep(v, keep)
    return removed


def _mean_utilities(table: Array) -> NDArray[np.float64]:
    """Return the mean utility of each value in a table, with a large penalty for each forbidden entry."""
    hard = forbidden(table)
    finite = np.where(hard, 0, table).astype(np.float64)
    penalty = max(1.0, float(np.abs(finite).max(initial=0.0)))
    return np.asarray((finite - 2 * penalty * hard).mean(axis=1))


class _Advantages(NamedTuple):
    """The advantages of a rival over each value of a variable in one table.

    Attributes
    ----------
    least : (values,)
        Least difference of utilities over the contexts in which both are allowed, in the table's dtype; 0 if there is
        no such context.
    impossible : (values,) bool
        Whether the value is forbidden in every context.
    incomparable : (values,) bool
        Whether the rival, but not the value, is forbidden in some context.
    """

    least: Array
    impossible: NDArray[np.bool_]
    incomparable: NDArray[np.bool_]


def _dominated(tables: Sequence[Array], rival: int) -> NDArray[np.bool_]:
    """Return a mask of the values that the rival dominates; it includes the rival itself.

    Sums of integers are exact and cannot overflow, because the working problem limits the sum of all magnitudes. The
    sign of one difference of floats is exact; a sum of differences counts only if it exceeds the rounding error.
    """
    advantages = [_advantages(table, rival) for table in tables]
    never_worse = np.logical_and.reduce([advantage.least >= 0 for advantage in advantages])
    total, slack = sum((advantage.least for advantage in advantages), np.zeros(1, dtype=tables[0].dtype)), 0.0
    if tables[0].dtype.kind == "f":
        largest = sum(float(np.abs(np.where(forbidden(table), 0, table)).max(initial=0.0)) for table in tables)
        slack = 4 * (len(tables) + 1) * np.finfo(np.float64).eps * largest
    impossible = np.logical_or.reduce([advantage.impossible for advantage in advantages])
    incomparable = np.logical_or.reduce([advantage.incomparable for advantage in advantages])
    return np.asarray(~incomparable & (impossible | never_worse | (total >= slack)))


def _advantages(table: Array, rival: int) -> _Advantages:
    """Return the advantages of the rival over each value in a table (values, contexts)."""
    hard = forbidden(table)
    both_allowed = ~(hard | hard[rival])
    finite = np.where(hard, 0, table)
    never = np.inf if table.dtype.kind == "f" else np.iinfo(table.dtype).max
    differences = np.where(both_allowed, finite[rival] - finite, never).min(axis=1)
    least = np.where(both_allowed.any(axis=1), differences, 0)
    only_rival = ~hard & hard[rival]
    return _Advantages(least, np.asarray(hard.all(axis=1)), np.asarray(only_rival.any(axis=1)))


def enforce_arc_consistency(working: WorkingProblem, groups: Sequence[tuple[int, ...]] = ()) -> int:
    """Remove values without support until all have some; return the number of removed values.

    A table is read again after a variable of it has lost a value. Automata that were expanded to chains of tables
    (:mod:`dmcmc.inference.model.densify`) become fully consistent this way: their hypergraph has no cycles.

    Parameters
    ----------
    working
        The problem; changed in place.
    groups
        Groups of variables that must all take different values (as value indices of the problem).

    Raises
    ------
    Infeasible
        If a variable has lost all its values, or a group has too few: a proof of infeasibility.
    """
    remaining_cells = MAX_CONSISTENCY_PASSES * sum(working.tables[scope].size for scope in working.consistency_pending)
    removed = 0
    value_counts = [-1] * len(groups)  # remaining values of each group's variables at its last revision
    while remaining_cells > 0 and not working.limit.over:
        if working.consistency_pending:
            scope = next(iter(working.consistency_pending))
            remaining_cells -= working.tables[scope].size
            removed += _revise(working, scope)
            continue
        changed = [i for i, group in enumerate(groups) if _remaining_values(working, group) != value_counts[i]]
        if not changed:
            break
        for i in changed:
            removed += _revise_group(working, groups[i])
            value_counts[i] = _remaining_values(working, groups[i])
    return removed


def _revise(working: WorkingProblem, scope: tuple[int, ...]) -> int:
    """Remove the values that one table does not support; return their number."""
    table, removed = working.tables[scope], 0
    working.limit.charge(1, table.size)
    allowed = ~forbidden(table)
    if not allowed.all():
        for axis, v in enumerate(scope):
            keeps = np.asarray(allowed.any(axis=tuple(i for i in range(len(scope)) if i != axis)))
            if not keeps.all():
                removed += working.keep(v, keeps)
                allowed = np.compress(keeps, allowed, axis=axis)
    del working.consistency_pending[scope]  # what remains of the table supports all remaining values
    return removed


def _remaining_values(working: WorkingProblem, group: tuple[int, ...]) -> int:
    """Return the number of remaining values of a group's variables."""
    return sum(len(working.remaining[v]) for v in group)


def _revise_group(working: WorkingProblem, group: tuple[int, ...]) -> int:
    """Remove the values of a group that no assignment of different values uses; return their number."""
    working.limit.charge(len(group), _remaining_values(working, group))
    keeps = supported_values([working.remaining[v].tolist() for v in group])
    if keeps is None:
        raise Infeasible
    return sum(working.keep(v, np.array(keep)) for v, keep in zip(group, keeps, strict=True) if not all(keep))


_ROUNDING = 1e-9  # exceeds all rounding errors; relative to the sum of the absolute utilities


def slack_of(problem: Problem, values: NDArray[np.int64]) -> float:
    """Return the loss of an assignment against the sum of the tables' maxima; ∞ if the assignment gives no bound.

    No better assignment has an entry that is below the maximum of its table by more than this loss. The result includes
    a margin for rounding.

    Parameters
    ----------
    problem : Problem
        A problem of dense tables.
    values : (n,) int64
        The assignment; if it has a violation, or the problem is large, the result is ∞.
    """
    if sum(f.table.size for f in problem.factors) > MAX_EXAMINED_ENTRIES or problem.appraise(values)[0].violation:
        return np.inf
    flat = problem.flat
    if not flat.tables:
        return 0.0
    largest = np.maximum.reduceat(flat.data, flat.at[:-1]).astype(np.float64)
    entries = flat.selected_entries(values, flat.strides(problem.domains)).astype(np.float64)
    # Cumulative sums add one number after the other; a pairwise sum would round differently.
    loss, total = np.cumsum(largest - entries)[-1], np.cumsum(np.abs(largest) + np.abs(entries))[-1]
    return float(loss + _ROUNDING * total)


def forbid_dominated(problem: Problem, slack: float) -> Problem:
    """Return a problem whose dense tables forbid entries that lose more than ``slack``.

    The problem itself is returned if the entries to forbid are not much worse than those that remain.
    """
    if not np.isfinite(slack):
        return problem
    dense = [number for number, factor in enumerate(problem.factors) if type(factor) is Factor and factor.scope]
    tables = [problem.factors[number].table for number in dense]
    if not tables:
        return problem
    flat = problem.flat if len(dense) == len(problem.factors) else flatten([()] * len(tables), tables)
    starts, allowed = flat.at[:-1], ~forbidden(flat.data)
    largest = np.repeat(np.maximum.reduceat(flat.data, starts).astype(np.float64), np.diff(flat.at))
    loss = largest - np.where(allowed, flat.data, 0).astype(np.float64)
    dominated = allowed & (loss > slack)
    largest_kept_loss = float(loss[allowed & ~dominated].max(initial=0.0))
    smallest_forbidden_loss = float(loss[dominated].min(initial=np.inf))
    if not MIN_LOSS_RATIO * largest_kept_loss < smallest_forbidden_loss < np.inf:
        return problem
    factors = list(problem.factors)
    for index in np.flatnonzero(np.logical_or.reduceat(dominated, starts)).tolist():
        factor, at = factors[dense[index]], flat.at[index : index + 2]
        table = np.where(
            dominated[at[0] : at[1]].reshape(factor.shape), forbidden_value(factor.table.dtype), factor.table
        ).astype(factor.table.dtype)
        table.flags.writeable = False
        factors[dense[index]] = Factor(factor.scope, table, factor.name)
    return replace(problem, factors=tuple(factors))


_MIN_GROUP_SIZE = 3  # variables; arc consistency of the tables suffices for smaller groups


def all_different_groups(problem: Problem) -> list[tuple[int, ...]]:
    """Return groups of variables of which no two may have the same value index.

    A group is recognised as a set of automata, one per value, each of which allows its value at most once. It is also
    recognised as a clique of tables over two variables.
    """
    groups = dict.fromkeys((*_groups_from_automata(problem.factors), *_groups_from_pairs(problem.factors)))
    return [group for group in groups if problem.domains[list(group)].max() <= MAX_GROUP_VALUES]


def _groups_from_automata(factors: Sequence[Factor]) -> list[tuple[int, ...]]:
    """Return the scopes on which automata together allow each value at most once."""
    limited_values: dict[tuple[int, ...], set[int]] = {}
    sizes: dict[tuple[int, ...], int] = {}
    for factor in factors:
        if isinstance(factor, AutomatonFactor) and max(factor.states) <= MAX_GROUP_STATES:
            limited_values.setdefault(factor.scope, set()).update(_values_allowed_once(factor))
            sizes[factor.scope] = max(factor.shape)
    return [
        scope
        for scope, values in limited_values.items()
        if len(scope) >= _MIN_GROUP_SIZE and len(values) == sizes[scope]
    ]


def _values_allowed_once(factor: AutomatonFactor) -> list[int]:
    """Return the values that an automaton allows at most once along its scope."""
    candidates = {int(x) for layer in factor.layers for x in np.nonzero(forbidden(layer.utility))[1]}
    return [value for value in sorted(candidates) if _allows_at_most_once(factor, value)]


def _allows_at_most_once(factor: AutomatonFactor, value: int) -> bool:
    """Return whether no state reached after one occurrence of a value allows it again."""
    states_without, states_with = {0}, set[int]()  # states reached without the value, and with it
    for following, utility in factor.layers:
        allowed = ~forbidden(utility)
        is_other_value = np.arange(following.shape[1]) != value
        if value < following.shape[1] and allowed[sorted(states_with), value].any():
            return False
        next_states_with = {int(s) for state in states_with for s in following[state, allowed[state] & is_other_value]}
        next_states_with |= {
            int(s) for state in states_without for s in following[state, allowed[state] & ~is_other_value]
        }
        states_without = {int(s) for state in states_without for s in following[state, allowed[state] & is_other_value]}
        states_with = next_states_with
    return True


def _groups_from_pairs(factors: Sequence[Factor]) -> list[tuple[int, ...]]:
    """Return cliques of variables with a table over each two that forbids equal values; cliques grow greedily."""
    neighbours: dict[int, set[int]] = {}
    for factor in factors:
        if type(factor) is Factor and len(factor.scope) == 2 and forbidden(np.diagonal(factor.table)).all():
            a, b = factor.scope
            neighbours.setdefault(a, set()).add(b)
            neighbours.setdefault(b, set()).add(a)
    groups, covered = [], set[tuple[int, int]]()
    for a in sorted(neighbours):
        for b in sorted(neighbours[a]):
            if b < a or (a, b) in covered:
                continue
            group, common_neighbours = [a, b], neighbours[a] & neighbours[b]
            while common_neighbours:
                group.append(min(common_neighbours))
                common_neighbours &= neighbours[group[-1]]
            group.sort()
            covered.update((u, v) for i, u in enumerate(group) for v in group[i + 1 :])
            if len(group) >= _MIN_GROUP_SIZE:
                groups.append(tuple(group))
    return groups
