"""Presolve the problem before a run (remove values, variables and entries), if that is worthwhile."""

from dataclasses import asdict, replace

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.orders.estimate_cost import (
    MAX_BITSET_VARIABLES,
    MAX_INTERPRETED_VARIABLES,
    cells_upper_bound,
    joins_at_least,
)
from dmcmc.inference.presolve.equal_variables import merge_equal_variables
from dmcmc.inference.presolve.estimate_gain import estimate_presolve_gain
from dmcmc.inference.presolve.limits import PresolveLimit
from dmcmc.inference.presolve.presolve import PresolvedProblem, presolve
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.results.result import PresolveReport

_MIN_CELLS = 1e7  # table cells; a smaller elimination is faster than presolve
_TIME_SHARE = 0.1  # largest share of the time budget for presolve
_MEMORY_SHARE = 0.25  # largest share of the memory budget for presolve
_BYTES_PER_ENTRY = 24  # bytes per table entry: original, widened and final copy
# smallest reduction promised by a sample of hidden variables (several agents, no hard constraints)
_MIN_PROMISE = 0.2
_MIN_REMOVED_SHARE = 0.05  # smallest share of variables, values or entries whose removal justifies a new problem


def merged_if_applicable(problem: Problem, config: Settings) -> PresolvedProblem | None:
    """Return the problem with equal variables merged (``presolve: merge``); None if this changes nothing."""
    return merge_equal_variables(problem) if _is_applicable(config) else None


def _is_applicable(config: Settings) -> bool:
    """Return whether the chosen methods work on a presolved problem."""
    local, combine = config.local, config.combine
    return local.method in ("auto", "exact") and combine.method != "mini-bucket" and local.guarantee is None


def presolve_if_worthwhile(
    original: Problem, dense: Problem, config: Settings, stop: Deadline = NO_DEADLINE
) -> PresolvedProblem | None:
    """Return the presolved problem, the same on all ranks; None if presolve is off or hardly changes it.

    An algorithm that was chosen by name works on the problem as given. For several agents without hard constraints, the
    problem is presolved only if a sample of the variables promises a reduction.

    Parameters
    ----------
    original
        The problem as given.
    dense
        The problem as dense tables.
    config
        Settings of the run.
    stop
        Deadline in addition to presolve's share of the time budget; on several ranks there must be none.
    """
    if (
        config.presolve == "none"
        or not _is_applicable(config)
        or not _may_be_worthwhile(dense, timed=config.budget.time is not None)
    ):
        return None
    limit = (
        PresolveLimit(stop=stop)
        if config.budget.time is None
        else PresolveLimit(_TIME_SHARE * config.budget.time, stop)
    )
    reduction = presolve(original, config.budget.bytes, limit, dense, config.presolve == "merge")
    if reduction.infeasible:
        return replace(reduction, problem=_infeasible_problem(original))
    return reduction if _is_substantial(original, reduction) else None


def _may_be_worthwhile(dense: Problem, timed: bool) -> bool:
    """Return whether there is much to eliminate, and enough memory for presolve.

    With a time budget, very large problems are presolved without an estimate, which would take seconds; the share of
    the time budget limits presolve.
    """
    is_small = dense.n_variables <= MAX_INTERPRETED_VARIABLES  # needs no compiled kernels
    if _BYTES_PER_ENTRY * dense.flat.data.size > MEMORY_ACCOUNT.budget_share(_MEMORY_SHARE, 1 << 62):
        return False
    if is_small and dense.shape_facts.get_or_compute("cells", lambda: _estimate_cells(dense)) < _MIN_CELLS:
        return False
    if (
        dense.n_agents > 1
        and not dense.facts.get_or_compute("hard", lambda: _has_hard_constraints(dense))
        and estimate_presolve_gain(dense) < _MIN_PROMISE
    ):
        return False
    if is_small or (timed and dense.n_variables > MAX_BITSET_VARIABLES):
        return True
    return dense.shape_facts.get_or_compute("joins many cells", lambda: _joins_many_cells(dense))


def _joins_many_cells(dense: Problem) -> bool:
    """Return whether an elimination of all variables joins enough cells for presolve to be faster."""
    scopes, everything = [factor.scope for factor in dense.factors], range(dense.n_variables)
    return joins_at_least(scopes, dense.domains, everything, (), _MIN_CELLS)


def _estimate_cells(dense: Problem) -> float:
    """Return an upper bound on the number of cells of an elimination, from a cheap order."""
    return cells_upper_bound([factor.scope for factor in dense.factors], dense.domains, range(dense.n_variables))


def _has_hard_constraints(dense: Problem) -> bool:
    """Return whether a table has forbidden entries."""
    data = dense.flat.data
    return bool(data.size) and bool(data.min() == forbidden_value(data.dtype))


def _is_substantial(original: Problem, reduction: PresolvedProblem) -> bool:
    """Return whether enough has been removed."""
    small, removed = reduction.problem, reduction.removed
    cells = sum(array.size for factor in original.factors for array in factor.arrays())
    return (
        small.n_variables <= (1 - _MIN_REMOVED_SHARE) * original.n_variables
        or removed.inconsistent + removed.dominated >= _MIN_REMOVED_SHARE * original.domains.sum()
        or removed.cells >= _MIN_REMOVED_SHARE * cells
    )


def _infeasible_problem(problem: Problem) -> Problem:
    """Return an infeasible problem without variables: its only factor is a forbidden constant."""
    empty = np.zeros(0, dtype=np.int64)
    forbidden_constant = (Factor.of((), -np.inf),)
    return Problem((), empty, problem.agents, empty, forbidden_constant, sense=problem.sense, name=problem.name)


def presolve_report(reduction: PresolvedProblem | None) -> PresolveReport | None:
    """Return the presolve section of a result."""
    return None if reduction is None else PresolveReport(**asdict(reduction.removed))
