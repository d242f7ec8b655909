"""Convert a whole problem to costs for a search engine."""

from dataclasses import replace

from dmcmc.inference.model.problem import Problem
from dmcmc.samplers.toulbar2.at_most_one import without_at_most_one
from dmcmc.samplers.toulbar2.costs import CostProblem, costs_of


def costs_of_problem(problem: Problem, memory: int, constants: bool = True) -> CostProblem:
    """Return the costs of all utilities of a problem.

    Parameters
    ----------
    problem : Problem
        The problem.
    memory : int
        Maximum of bytes per expanded table.
    constants : bool
        Whether to include factors without variables; otherwise the caller adds their sum to the results.
    """
    dense, groups = without_at_most_one(problem, memory)
    factors = [factor for factor in dense.factors if constants or factor.scope]
    costs = costs_of([factor.scope for factor in factors], [factor.table for factor in factors], dense.domains)
    return replace(costs, at_most_one=groups)
