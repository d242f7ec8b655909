"""What an assignment and a proven bound together say: status, objective, bound and gap."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.exact_sum import exact_sum, not_below
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Status, gap_of


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
    margin: float = 0.0,
) -> Outcome:
    """Evaluate an assignment and hold it against the roots' proven UTIL values.

    ``optimal`` is a proof, see :meth:`.Arithmetic.same`: integers are equal, floats no further apart than the rounding
    error of this problem's sums, whatever constants are added and whatever the reported gap is relative to.

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
    margin
        What moment matching of floats adds to the roots' values for its own rounding.
    """
    evaluation = problem.evaluate(values)
    if any(f.table == forbidden_value(f.table.dtype) for f in constants):
        return Outcome("infeasible", None, None, None, None)
    feasible = evaluation.violation == 0
    objective = evaluation.objective if feasible else None
    bound: Number | None = None
    proven = False
    if roots is not None:
        if any(arithmetic.is_lowest(root) for root in roots):
            return Outcome("infeasible", None, None, None, None)
        terms = addends or len(problem.factors)
        outward = arithmetic.outward(sum(roots) + margin if margin else sum(roots), terms)
        if math.isfinite(outward):
            utility = not_below(exact_sum([outward, *(f.table.item() for f in constants)]))
            bound = problem.to_own_sense(utility) if math.isfinite(utility) else None
        proven = arithmetic.same(problem.utility_inside(values), exact_sum(roots), terms, margin)
    if not feasible:
        return Outcome("unsatisfied", None, bound, None, evaluation.violation)
    return Outcome("optimal" if proven else "feasible", objective, bound, gap_of(objective, bound), 0)
