"""Presolve: domains and variables that can go, without losing the optimum.

Presolve a problem: remove what at least one optimal solution does not need, and restore solutions of the result.

Merge equivalent variables: a variable that determines another one, and is determined by it, replaces it.

Several agents that have to agree (PEAV: each participant has a variable for a meeting's time) share one decision by
hard equalities. A search that changes one variable at a time cannot move any of them; it can move the merged variable.

Restrict a problem to some values of its variables; the representation of each factor is kept.

Propagate hard global constraints: remove values that no assignment within the remaining domains uses.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden, normalise
from dmcmc.inference.presolve.dominance import all_different_groups, enforce_arc_consistency, remove_dominated
from dmcmc.inference.presolve.small_buckets import eliminate_small
from dmcmc.inference.presolve.working_problem import EliminatedVariable, Infeasible, PresolveLimit, WorkingProblem
from dmcmc.inference.tuning import MIN_COMPRESSION, SMALL_TABLE_ENTRIES


def merge_equivalent_variables(working: WorkingProblem) -> int:
    """Replace each variable by one that it is equivalent to, whoever owns them; return the number of removed variables.

    Two variables are equivalent if a table over just these two allows each value of one with exactly one value of the
    other.
    """
    count = 0
    for scope in [scope for scope in working.tables if len(scope) == 2]:
        if scope not in working.tables or working.limit.over:  # an earlier merge may have removed the table
            continue
        allowed = ~forbidden(working.tables[scope])
        if (allowed.sum(axis=0) == 1).all() and (allowed.sum(axis=1) == 1).all():
            _merge(working, *scope, allowed.argmax(axis=1))
            count += 1
    return count


def _merge(working: WorkingProblem, kept: int, copy: int, image: NDArray[np.int64]) -> None:
    """Replace the variable ``copy`` by ``kept``.

    ``image`` (values of ``kept``,) int64 holds the copy's value for each value of the kept variable.
    """
    remaining = working.remaining
    working.eliminated.append(EliminatedVariable(copy, (kept,), (remaining[kept],), remaining[copy][image]))
    working.private[kept] &= working.private[copy]
    for scope in list(working.touching[copy]):
        table, axis = working.take(scope), scope.index(copy)
        table = table.take(image, axis=axis)
        if kept in scope:
            table = np.diagonal(table, axis1=scope.index(kept), axis2=axis)  # the common axis comes last
            new_scope = (*(v for v in scope if v not in (kept, copy)), kept)
        else:
            new_scope = tuple(kept if v == copy else v for v in scope)
        order = np.argsort(new_scope, kind="stable").tolist()
        working.add(tuple(new_scope[i] for i in order), np.ascontiguousarray(table.transpose(order)))


Values = Sequence[NDArray[np.int64]]


def restrict_domains(problem: Problem, remaining: Values) -> Problem:
    """Return a problem over the remaining values of each variable (ascending); the representation of factors is kept.

    Variables without labels whose values have gaps are labelled with their old indices.
    """
    labels = [
        None if names is None else tuple(names[x] for x in remaining[v]) for v, names in enumerate(problem.labels)
    ]
    all_labels = [
        tuple(remaining[v].tolist()) if names is None and _has_gaps(remaining[v]) else names
        for v, names in enumerate(labels)
    ]
    return Problem(
        variables=problem.variables,
        domains=np.array([len(values) for values in remaining], dtype=np.int64),
        agents=problem.agents,
        owner=problem.owner,
        factors=tuple(restrict_factor(factor, [remaining[v] for v in factor.scope]) for factor in problem.factors),
        labels=tuple(all_labels),
        sense=problem.sense,
        name=problem.name,
    )


def _has_gaps(values: NDArray[np.int64]) -> bool:
    """Return whether ascending values are not 0, 1, 2, ..."""
    return bool(values[-1] != len(values) - 1)


def restrict_factor(factor: Factor, remaining: Values) -> Factor:
    """Return a factor of the same kind over some values of its variables, in the given order."""
    if all(np.array_equal(values, np.arange(size)) for values, size in zip(remaining, factor.shape, strict=True)):
        return factor
    if isinstance(factor, AutomatonFactor | GlobalConstraint):
        return factor.restricted(remaining)
    if isinstance(factor, SparseFactor):
        return _restrict_sparse(factor, remaining)
    return Factor(factor.scope, normalise(factor.table[np.ix_(*remaining)]), factor.name)


def _restrict_sparse(factor: SparseFactor, remaining: Values) -> SparseFactor:
    """Return a sparse factor over the remaining values of its variables."""
    positions, retained = np.zeros_like(factor.tuples), np.ones(len(factor.tuples), dtype=np.bool_)
    for axis, values in enumerate(remaining):
        position = np.full(factor.shape[axis], -1, dtype=np.int64)
        position[values] = np.arange(len(values))
        positions[:, axis] = position[factor.tuples[:, axis]]
        retained &= positions[:, axis] >= 0
    kept = np.flatnonzero(retained)
    kept = kept[np.lexsort(positions[kept].T[::-1])]
    utilities = np.append(factor.utilities[:-1][kept], factor.utilities[-1:])
    utilities.flags.writeable = False
    shape = tuple(len(values) for values in remaining)
    return SparseFactor(factor.scope, shape, np.ascontiguousarray(positions[kept]), utilities, factor.name)


Masks = Sequence[NDArray[np.bool_]]


def propagate_constraints(problem: Problem, limit: PresolveLimit) -> Masks | None:
    """Propagate the hard global constraints of a problem until nothing changes or the limit is reached.

    Parameters
    ----------
    problem : Problem
        The problem.
    limit : PresolveLimit
        Limit on the work.

    Returns
    -------
    sequence of ndarray of bool, shape (values,), or None
        For each variable, its remaining values; None if the problem is proven infeasible.
    """
    masks = [np.ones(size, dtype=np.bool_) for size in problem.domains.tolist()]
    hard = [f for f in problem.factors if isinstance(f, GlobalConstraint) and f.cost is None]
    of_variable: dict[int, list[int]] = {}
    for number, constraint in enumerate(hard):
        for v in constraint.scope:
            of_variable.setdefault(v, []).append(number)
    queue, waiting = deque(range(len(hard))), [True] * len(hard)
    while queue and not limit.over:
        number = queue.popleft()
        waiting[number], constraint = False, hard[number]
        limit.charge(1, sum(constraint.shape))
        kept = constraint.propagate([masks[v] for v in constraint.scope])
        if kept is None:
            return None
        for v, mask in zip(constraint.scope, kept, strict=True):
            if np.count_nonzero(mask) == np.count_nonzero(masks[v]):
                continue
            masks[v] = mask
            for other in of_variable[v]:
                if not waiting[other]:
                    waiting[other] = True
                    queue.append(other)
    return masks


Groups = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class RemovalCounts:
    """The number of values, variables, factors and cells that presolve removed.

    Attributes
    ----------
    inconsistent, dominated : int
        Values without support, and values dominated by another one.
    fixed, merged, eliminated, free : int
        Variables with one remaining value, equivalent to another one, maximised out, and in no table.
    factors : int
        Reduction of the number of factors.
    cells : int
        Reduction of the number of table entries.
    seconds : float
        Duration of presolve.
    """

    inconsistent: int = 0
    dominated: int = 0
    fixed: int = 0
    merged: int = 0
    eliminated: int = 0
    free: int = 0
    factors: int = 0
    cells: int = 0
    seconds: float = 0.0

    def __bool__(self) -> bool:
        """Return whether anything was removed."""
        return any(getattr(self, f.name) > 0 for f in fields(self) if f.name != "seconds")


@dataclass(frozen=True)
class PresolvedProblem:
    """A smaller problem with the same optimum.

    Attributes
    ----------
    problem : Problem
        The presolved problem, with the same agents. Its constant includes the utility of fixed and eliminated
        variables.
    infeasible : bool
        Whether it is proven that every assignment is forbidden; then ``problem`` is the original one.
    removed : RemovalCounts
        Counts of the removed values, variables and factors.
    roundings : int
        The number of float additions, from which the rounding error of the constant and the tables is estimated: one
        per factor, merged variable and eliminated variable; 0 if only values were removed.
    """

    problem: Problem
    infeasible: bool
    removed: RemovalCounts
    roundings: int
    _restore: Callable[[NDArray[np.int64]], NDArray[np.int64]]

    def restore(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return an assignment of the original problem with at least the utility of one of the presolved problem."""
        return self._restore(values)

    def then(self, further: "PresolvedProblem") -> "PresolvedProblem":
        """Return the composition of this presolve and a further one of its result."""
        total_removed = {
            f.name: getattr(self.removed, f.name) + getattr(further.removed, f.name) for f in fields(RemovalCounts)
        }
        return PresolvedProblem(
            further.problem,
            further.infeasible,
            RemovalCounts(**total_removed),
            self.roundings + further.roundings,
            lambda values: self.restore(further.restore(values)),
        )


def presolve(
    problem: Problem, memory: int, limit: PresolveLimit | None = None, dense: Problem | None = None, merge: bool = False
) -> PresolvedProblem:
    """Presolve a problem.

    Each round removes values without support (generalised arc consistency, all-different by matching), then variables
    with one remaining value, dominated values, and variables whose elimination leaves no more cells than before. The
    time is linear in the size of the tables. When the limit is reached, the result so far is returned.

    An assignment of the presolved problem has the same utility as the restored assignment in the original problem, up
    to rounding, and an optimal one is restored to an optimal one. Not all optimal assignments remain.

    In a problem of several agents, variables that share factors with other agents lose values only by arc
    consistency, which neighbours can exchange. All other steps are limited to variables that only their own agent's
    factors contain.

    Parameters
    ----------
    problem
        Any problem. If one of its factors is far smaller than its table, or a linear constraint, only values are
        removed: each factor keeps its representation, over fewer values. A search engine gains more from it.
    memory
        Upper bound on the bytes of one expanded table.
    limit
        Limit on the work; None for no limit.
    dense
        The problem as dense tables (:func:`dmcmc.inference.model.densify.densify`), if it exists already.
    merge
        Whether to merge equivalent variables, whoever owns them: an agent's tables over a merged variable become
        tables over another agent's variable. Only for problems of dense tables.
    """
    limit = limit or PresolveLimit()
    if not problem.tabular:
        propagated = _propagated(problem, limit)
        if propagated.infeasible:
            return propagated
        if propagated.removed:
            return propagated.then(presolve(propagated.problem, memory, limit, merge=merge))
    groups = all_different_groups(problem)
    dense = dense or densify(problem, memory, relax=True).problem
    keeps_factors = _keeps_factors(problem, dense)
    if not keeps_factors:
        return _presolve_dense(dense, groups, limit, merge)
    start = time.perf_counter()
    try:
        working = WorkingProblem.of(dense, limit)
        removed_values = 0 if working is None else enforce_arc_consistency(working, groups)
    except Infeasible:
        return _proven_infeasible(problem, RemovalCounts(seconds=time.perf_counter() - start))
    if working is None or not removed_values:
        return _unchanged(problem)
    n_original = problem.n_variables
    restricted = _restricted(problem, working.remaining[:n_original], start)
    restricted_problem = restricted.problem
    dense = densify(restricted_problem, memory, relax=True).problem
    if _keeps_factors(restricted_problem, dense):
        return restricted
    # No all-different groups: removed values shift the indices, so equal indices are no longer equal values.
    return restricted.then(_presolve_dense(dense, (), limit))


def _propagated(problem: Problem, limit: PresolveLimit) -> PresolvedProblem:
    """Return a problem with fewer values by propagation of its global constraints."""
    start = time.perf_counter()
    masks = propagate_constraints(problem, limit)
    if masks is None:
        return _proven_infeasible(problem, RemovalCounts(seconds=time.perf_counter() - start))
    if all(mask.all() for mask in masks):
        return _unchanged(problem)
    return _restricted(problem, [np.flatnonzero(mask) for mask in masks], start)


def _restricted(problem: Problem, remaining: Sequence[NDArray[np.int64]], start: float) -> PresolvedProblem:
    """Return the result of removing values only, given those that remain and the time at which the work began."""
    restricted = restrict_domains(problem, remaining)
    removed = RemovalCounts(
        inconsistent=_count_values(problem) - _count_values(restricted),
        cells=_count_cells(problem) - _count_cells(restricted),
        seconds=time.perf_counter() - start,
    )
    return PresolvedProblem(restricted, False, removed, 0, lambda values: _original_values(remaining, values))


def _presolve_dense(problem: Problem, groups: Groups, limit: PresolveLimit, merge: bool = False) -> PresolvedProblem:
    """Presolve a problem of dense tables."""
    start = time.perf_counter()
    counts = dict.fromkeys(("inconsistent", "dominated", "fixed", "merged", "eliminated"), 0)
    try:
        working = WorkingProblem.of(problem, limit)
        if working is None:
            return _unchanged(problem)
        while True:  # each round but the last one removes something
            before = sum(counts.values())
            counts["inconsistent"] += enforce_arc_consistency(working, groups)
            counts["fixed"] += _remove_fixed(working)
            counts["merged"] += merge_equivalent_variables(working) if merge else 0
            counts["dominated"] += remove_dominated(working)
            counts["fixed"] += _remove_fixed(working)
            counts["eliminated"] += eliminate_small(working)
            if sum(counts.values()) == before or limit.over:
                break
    except Infeasible:
        return _proven_infeasible(problem, RemovalCounts(**counts, seconds=time.perf_counter() - start))
    return _result_of(problem, working, counts, start)


def _keeps_factors(problem: Problem, dense: Problem) -> bool:
    """Return whether the factors keep their representation; the tables then only show which values remain."""
    hidden = dense.n_variables > problem.n_variables
    return hidden or problem.has_large_chains or any(map(_is_worth_keeping, problem.factors))


def _is_worth_keeping(factor: Factor) -> bool:
    """Return whether a factor should keep its representation: a linear or global constraint, or a small automaton."""
    if type(factor) is Factor:
        return False
    if not factor.is_tabular:
        return factor.decomposition is None or prod(factor.shape) > SMALL_TABLE_ENTRIES
    if isinstance(factor, AutomatonFactor) and factor.sum_bounds is not None:
        return True
    entries = prod(factor.shape)
    return entries > SMALL_TABLE_ENTRIES and entries > MIN_COMPRESSION * sum(array.size for array in factor.arrays())


def _unchanged(problem: Problem) -> PresolvedProblem:
    """Return the problem itself as the result."""
    return PresolvedProblem(problem, False, RemovalCounts(), 0, lambda values: values)


def _proven_infeasible(problem: Problem, removed: RemovalCounts) -> PresolvedProblem:
    """Return the result for a problem that is proven infeasible."""
    return PresolvedProblem(problem, True, removed, 0, lambda values: values)


def _original_values(remaining_values: Sequence[NDArray[np.int64]], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return indices into remaining values as indices into the original domains."""
    pairs = zip(remaining_values, values.tolist(), strict=True)
    return np.array([remaining[value] for remaining, value in pairs], dtype=np.int64)


def _count_values(problem: Problem) -> int:
    """Return the total number of values of all variables."""
    return int(problem.domains.sum())


def _count_cells(problem: Problem) -> int:
    """Return the number of entries of all arrays that hold a problem's utilities."""
    return sum(array.size for factor in problem.factors for array in factor.arrays())


def _remove_fixed(working: WorkingProblem) -> int:
    """Remove variables with one remaining value; return their number."""
    single = [v for v in working.open() if len(working.remaining[v]) == 1]
    for v in single:
        working.fix(v)
    return len(single)


def _result_of(problem: Problem, working: WorkingProblem, counts: Mapping[str, int], start: float) -> PresolvedProblem:
    """Return the result for a working problem."""
    variables = working.open()
    new_index = {v: i for i, v in enumerate(variables)}
    factors = tuple(
        Factor(tuple(new_index[v] for v in scope), normalise(table))
        for scope, table in working.tables.items()
        if scope or table.item() != 0
    )
    labels = [
        None if (old_labels := problem.labels[v]) is None else tuple(old_labels[x] for x in working.remaining[v])
        for v in variables
    ]
    presolved = Problem(
        variables=tuple(problem.variables[v] for v in variables),
        domains=np.array([len(working.remaining[v]) for v in variables], dtype=np.int64),
        agents=problem.agents,
        owner=problem.owner[variables],
        factors=factors,
        labels=tuple(labels),
        sense=problem.sense,
        name=problem.name,
    )
    removed = RemovalCounts(
        **counts,
        free=problem.n_variables - len(variables) - sum(counts[kind] for kind in ("fixed", "merged", "eliminated")),
        factors=len(problem.factors) - len(factors),
        cells=sum(f.table.size for f in problem.factors) - sum(f.table.size for f in factors),
        seconds=time.perf_counter() - start,
    )

    def restore(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return working.restore({v: int(values[i]) for v, i in new_index.items()})

    return PresolvedProblem(
        presolved, False, removed, len(problem.factors) + counts["merged"] + counts["eliminated"], restore
    )
