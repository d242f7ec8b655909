"""Split the objective and the bound of a weighted problem into those of its levels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Exact
from dmcmc.inference.model.problem import Problem


class LevelValue(NamedTuple):
    """The objective and the bound of a level, in the problem's own sense.

    Attributes
    ----------
    name : str
        Name of the level.
    objective : int or None
        The objective of the assignment; None if it breaks a hard constraint of the level, or there is none.
    bound : int or None
        Proven: no assignment that is optimal in all earlier levels is better. None if nothing is proven.
    violation : int
        Number of hard constraints of the level that the assignment breaks.
    """

    name: str
    objective: int | None
    bound: int | None
    violation: int


def level_values(problem: Problem, values: NDArray[np.int64] | None, bound: Exact | float | None) -> list[LevelValue]:
    """Return the objective and the bound of each level of a problem.

    An upper bound U on the weighted sum bounds the first level by ⌊(U − l) / w⌋, where w is its weight and l the least
    sum of all later levels. A later level is bounded once the objectives of all earlier ones are proven optimal: by
    what is then left of U.

    Parameters
    ----------
    problem : Problem
        The problem.
    values : (n,) int64 or None
        Value index of each variable; None without an assignment.
    bound : number or None
        Proven bound on the objective of the problem, in its own sense.
    """
    sign = 1 if problem.sense == "max" else -1
    sums, broken = [0] * len(problem.levels), [0] * len(problem.levels)
    for factor, level in zip(problem.factors, problem.level_of, strict=True):
        if values is None:
            break
        entry = factor.entry(values[list(factor.scope)].tolist())
        if entry is None:
            broken[level] += 1
        else:
            sums[level] += int(entry)
    found: list[LevelValue] = []
    if any(not level.weight for level in problem.levels):
        bound = None  # nothing follows from the sum of levels without weights
    left = None if bound is None else int(np.floor(sign * bound)) if isinstance(bound, float) else sign * int(bound)
    for (name, weight, low), total, violation in zip(problem.levels, sums, broken, strict=True):
        objective = None if values is None or violation else total // (weight or 1)
        proven = None if left is None else (left - low) // weight
        found.append(
            LevelValue(
                name,
                None if objective is None else sign * objective,
                None if proven is None else sign * proven,
                violation,
            )
        )
        if left is not None:
            left = left - total if objective is not None and objective == proven else None
    return found
