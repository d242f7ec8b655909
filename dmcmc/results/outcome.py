"""What an assignment and a proven bound together say: status, objective, bound and gap."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Status, gap_of

CLOSED = 1e-9  # a relative gap of this counts as none: what floats can tell


class Outcome(NamedTuple):
    """The part of a result that is about the answer; in the problem's own sense."""

    status: Status
    objective: Number | None
    bound: Number | None
    gap: float | None
    violation: int | None


def judge(
    problem: Problem,
    values: NDArray[np.int64],
    roots: Sequence[Number] | None,
    arithmetic: Arithmetic,
    constants: Sequence[Factor],
    addends: int | None = None,
) -> Outcome:
    """Evaluate an assignment and hold it against the roots' proven UTIL values.

    Parameters
    ----------
    values
        Value index of every variable.
    roots
        Encoded upper bounds of the components of the agents' graph, or None where nothing is proven.
    constants
        Factors without variables: they count once, here.
    addends
        Tables that the roots' values sum over; None for one a factor.
    """
    evaluation = problem.evaluate(values)
    if any(f.table == forbidden_value(f.table.dtype) for f in constants):
        return Outcome("infeasible", None, None, None, None)
    feasible = evaluation.violation == 0
    objective = evaluation.objective if feasible else None
    bound: Number | None = None
    if roots is not None:
        if any(arithmetic.is_lowest(root) for root in roots):
            return Outcome("infeasible", None, None, None, None)
        utility = sum(roots) + sum(f.table.item() for f in constants)
        bound = problem.to_own_sense(arithmetic.outward(utility, addends or len(problem.factors)))
    gap = gap_of(objective, bound)
    if not feasible:
        return Outcome("unsatisfied", None, bound, None, evaluation.violation)
    return Outcome("optimal" if gap is not None and gap <= CLOSED else "feasible", objective, bound, gap, 0)
