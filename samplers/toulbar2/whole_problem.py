"""A whole problem as a search engine takes it."""

from dataclasses import replace

from dmcmc.inference.model.problem import Problem
from dmcmc.samplers.toulbar2.at_most_one import without_at_most_one
from dmcmc.samplers.toulbar2.costs import Costs, costs_of


def costs_of_problem(problem: Problem, memory: int, constants: bool = True) -> Costs:
    """Return the costs of all of a problem's utilities.

    Parameters
    ----------
    memory
        Bytes that one expanded table may take.
    constants
        Whether factors without variables count; their sum is added at the end otherwise.
    """
    dense, groups = without_at_most_one(problem, memory)
    factors = [factor for factor in dense.factors if constants or factor.scope]
    costs = costs_of([factor.scope for factor in factors], [factor.table for factor in factors], dense.domains)
    return replace(costs, at_most_one=groups)
