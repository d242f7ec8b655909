"""A hard constraint: an assignment differs from a given one in a number of variables."""

from collections.abc import Sequence

import numpy as np

from dmcmc.inference.model.automaton import AutomatonFactor, SumBounds, unroll
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Ints


def distance_constraint(
    problem: Problem, values: Ints, distance: int, over: Sequence[int], name: str
) -> AutomatonFactor:
    """Return the hard constraint that at least ``distance`` variables have another value than in an assignment.

    The automaton counts the changed variables up to ``distance``.

    Parameters
    ----------
    problem : Problem
        The problem.
    values : (variables,) int64
        The assignment.
    distance : int
        The least Hamming distance, at least 1.
    over : sequence of int
        The variables that count; at least one.
    name : str
        Name of the factor.
    """
    scope = sorted(over, key=lambda v: (int(problem.owner[v]), v))  # few states between the agents
    shape = [int(problem.domains[v]) for v in scope]

    def step(position: int, changed: int, value: int) -> tuple[int, int | None]:
        """Return the number of changed variables after this one; forbid values after which too few are left."""
        changed = min(distance, changed + (value != values[scope[position]]))
        return changed, 0 if changed + len(scope) - position - 1 >= distance else None

    automaton = unroll(scope, shape, 0, step, name=name)
    weights = tuple((np.arange(size) != values[v]).astype(np.int64) for v, size in zip(scope, shape, strict=True))
    return AutomatonFactor(scope, automaton.layers, name, SumBounds(weights, distance, None))
