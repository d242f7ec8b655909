"""Costs of a global cost function for every assignment."""

from itertools import product

from dmcmc import Problem
from dmcmc.formats.global_functions.builder import CostScale
from dmcmc.formats.global_functions.factors import build

TOP = 1000


def costs_of(keyword, shape, **arguments):
    """Return the cost of every assignment; None if it is forbidden."""
    factors = build(keyword, range(len(shape)), shape, arguments, CostScale(TOP))
    n = len(shape)
    problem = Problem(tuple(map(str, range(n))), list(shape), ("a",), [0] * n, tuple(factors), sense="min")
    found = {values: problem.evaluate(values) for values in product(*map(range, shape))}
    return {values: None if e.violation else e.objective for values, e in found.items()}
