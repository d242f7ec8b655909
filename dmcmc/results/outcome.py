"""What an assignment and a proven bound together say: status, objective, bound and gap."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.exact_sum import Exact, exact_sum, not_below
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


class Worth(NamedTuple):
    """What an assignment is worth: less violation is better, then more utility.

    Attributes
    ----------
    kept : int
        Minus the hard constraints that it breaks.
    utility : int or Fraction
        Exact, without constants, forbidden entries left out; to be maximised.
    objective : int or float
        The same with constants in the problem's own sense.
    """

    kept: int
    utility: Exact
    objective: Number

    def better(self, other: "Worth | None") -> bool:
        """Return whether an assignment of this worth is better than one of that, or than none."""
        return other is None or self[:2] > other[:2]


def worth_of(problem: Problem, values: NDArray[np.int64]) -> Worth:
    """Evaluate an assignment, value indices, on a problem's factors."""
    evaluation, inside = problem.appraise(values)
    return Worth(-evaluation.violation, inside, evaluation.objective)


class Proof(NamedTuple):
    """Upper UTIL values that hold for the whole problem.

    Attributes
    ----------
    roots
        Encoded upper bounds of the components of the agents' graph.
    arithmetic
        The numbers they are encoded in.
    addends
        Tables that they sum over.
    margin
        What moment matching of floats adds to them for its own rounding, and reductions for theirs.
    beside
        What the whole is worth beside them, constants not counted: what reductions have taken out. Exact.
    """

    roots: Sequence[Number]
    arithmetic: Arithmetic
    addends: int
    margin: float = 0.0
    beside: Exact = 0


def judge(problem: Problem, worth: Worth, constants: Sequence[Factor], proof: Proof | None) -> Outcome:
    """Hold what an assignment is worth against proven UTIL values.

    ``optimal`` is a proof, see :meth:`.Arithmetic.same`: integers are equal, floats no further apart than the rounding
    error of this problem's sums, whatever constants are added and whatever the reported gap is relative to.

    Parameters
    ----------
    constants
        Factors without variables: they count once, here.
    proof
        None where nothing is proven.
    """
    if any(f.table == forbidden_value(f.table.dtype) for f in constants):
        return Outcome("infeasible", None, None, None, None)
    feasible = worth.kept == 0
    objective = worth.objective if feasible else None
    bound: Number | None = None
    proven = False
    if proof is not None:
        roots, arithmetic, terms, margin, beside = proof
        if any(arithmetic.is_lowest(root) for root in roots):
            return Outcome("infeasible", None, None, None, None)
        outward = arithmetic.outward(sum(roots) + margin if margin else sum(roots), terms)
        if math.isfinite(outward):
            utility = not_below(beside + exact_sum([outward, *(f.table.item() for f in constants)]))
            bound = problem.to_own_sense(utility) if math.isfinite(utility) else None
        proven = arithmetic.same(worth.utility, exact_sum(roots) + beside, terms, margin)
    if not feasible:
        return Outcome("unsatisfied", None, bound, None, -worth.kept)
    return Outcome("optimal" if proven else "feasible", objective, bound, gap_of(objective, bound), 0)
