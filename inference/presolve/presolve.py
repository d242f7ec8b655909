"""Presolve a problem: remove what at least one optimal solution does not need, and restore solutions of the result."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.automaton import AutomatonFactor
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.presolve.all_different import all_different_groups
from dmcmc.inference.presolve.arc_consistency import enforce_arc_consistency
from dmcmc.inference.presolve.dominance import remove_dominated
from dmcmc.inference.presolve.equivalent_variables import merge_equivalent_variables
from dmcmc.inference.presolve.limits import PresolveLimit
from dmcmc.inference.presolve.propagate_constraints import propagate_constraints
from dmcmc.inference.presolve.restrict_domains import restrict_domains
from dmcmc.inference.presolve.small_buckets import eliminate_small
from dmcmc.inference.presolve.working_problem import Infeasible, WorkingProblem
from dmcmc.inference.tuning import MIN_COMPRESSION, SMALL_TABLE_ENTRIES

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
