"""Convert a whole problem to costs for a search engine."""

from collections.abc import Callable

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.samplers.toulbar2.compact_problem import CompactProblem, compact_problem
from dmcmc.samplers.toulbar2.costs import MAX_TOTAL_COST, CostProblem, Utilities, costs_of_utilities


def costs_of_problem(problem: Problem, memory: int, constants: bool = True, dense_only: bool = False) -> CostProblem:
    """Return the costs of all utilities of a problem.

    Parameters
    ----------
    problem : Problem
        The problem.
    memory : int
        Maximum of bytes per expanded table.
    constants : bool
        Whether to include factors without variables; otherwise the caller adds their sum to the results.
    dense_only : bool
        Whether the engine takes no other factors than dense tables and constraints of type "at most one", as our branch
        and bound does.
    """
    return costs_of_compact(compact_problem(problem, memory, dense_only), constants)


def costs_of_compact(
    compact: CompactProblem,
    constants: bool = True,
    check: Callable[[], None] = lambda: None,
    max_total: int = MAX_TOTAL_COST,
) -> CostProblem:
    """Return the costs of a problem in compact form.

    Parameters
    ----------
    compact : CompactProblem
        The problem.
    constants : bool
        As for :func:`costs_of_problem`.
    check : callable
        Called often; it may raise an error to end the conversion.
    max_total : int
        Maximum of the sum of all costs.
    """
    factors = [factor for factor in compact.problem.factors if constants or factor.scope]
    return costs_of_utilities(
        [_utilities(factor) for factor in factors],
        compact.problem.domains,
        compact.linear,
        check,
        compact.native,
        max_total,
    )


def _utilities(factor: Factor) -> Utilities:
    """Return the utilities of a dense or sparse factor."""
    if isinstance(factor, SparseFactor):
        return Utilities(factor.scope, factor.utilities, factor.tuples)
    return Utilities(factor.scope, factor.table)
