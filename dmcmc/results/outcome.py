"""Derive status, objective, bound and gap of a result from an assignment and proven upper bounds.

Assignments are compared by ``quality_of``; at the end of a run ``judge`` compares the best one with the bounds.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import Arithmetic, Exact, exact_sum, nearest, round_up
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Status


class SolveOutcome(NamedTuple):
    """Status, objective, bound, gap and violation of a result, in the problem's own sense.

    Attributes
    ----------
    status : str
        ``optimal``, ``feasible``, ``infeasible`` or ``unsatisfied``.
    objective : int, float or None
        The objective; None if the assignment breaks a hard constraint, or the problem is infeasible.
    bound : int, float or None
        Proven bound on the objective; None without one.
    gap : float or None
        |bound − objective| / max(1, |objective|); None if either is missing.
    violation : int or None
        Number of hard constraints that the assignment breaks; None if the problem is infeasible.
    """

    status: Status
    objective: Number | None
    bound: Number | None
    gap: float | None
    violation: int | None


class AssignmentQuality(NamedTuple):
    """The quality of an assignment: first fewer broken hard constraints, then more utility.

    Attributes
    ----------
    negated_violation : int
        Minus the number of hard constraints that it breaks.
    utility : int or Fraction
        Exact sum of utilities, without constants and without forbidden entries; to be maximised.
    objective : int or float
        The objective with constants, in the problem's own sense.
    """

    negated_violation: int
    utility: Exact
    objective: Number

    @property
    def feasible_utility(self) -> Number | None:
        """The utility, rounded up to a number of the tables; None if a hard constraint is broken."""
        return None if self.negated_violation else round_up(self.utility)

    def is_better_than(self, other: "AssignmentQuality | None") -> bool:
        """Return whether this quality is better than ``other``, or than no assignment (None)."""
        return other is None or self[:2] > other[:2]


def quality_of(problem: Problem, values: NDArray[np.int64]) -> AssignmentQuality:
    """Return the quality of an assignment.

    Parameters
    ----------
    problem : Problem
        The problem.
    values : (n,) int64
        Value index of each variable.
    """
    evaluation, utility = problem.appraise(values)
    return AssignmentQuality(-evaluation.violation, utility, evaluation.objective)


class BoundProof(NamedTuple):
    """Proven upper bounds on the utility of a problem.

    Attributes
    ----------
    root_bounds : sequence of number
        Upper bounds of the connected components of the agents' graph, in the numbers of ``arithmetic``.
    arithmetic : Arithmetic
        The number type of the bounds: dtype, representation of −∞, and rounding.
    addends : int
        Number of tables that they sum over; rounding errors grow with it.
    margin : float
        Allowance for rounding errors of moment matching and presolve with floats, added to the sum of the bounds.
    removed_utility : int or Fraction
        Exact utility of the parts that presolve removed, without constants; added to the root bounds.
    """

    root_bounds: Sequence[Number]
    arithmetic: Arithmetic
    addends: int
    margin: float = 0.0
    removed_utility: Exact = 0


def judge(
    problem: Problem, quality: AssignmentQuality, constants: Sequence[Factor], proof: BoundProof | None
) -> SolveOutcome:
    """Compare the quality of an assignment with proven upper bounds.

    The bound is Σ root bounds + margin (rounded up) + removed utility + constants. ``optimal`` is a proof
    (``Arithmetic.proves_optimal``): integers are equal, and floats differ by no more than the rounding error of this
    problem's sums, independent of constants and of the reported gap. ``infeasible`` is proven by a forbidden constant,
    or by a root bound of −∞.

    Parameters
    ----------
    problem
        The problem.
    quality
        The quality of the assignment.
    constants
        Factors without variables; they are added once, here.
    proof
        The proven upper bounds; None if there are none.

    Returns
    -------
    SolveOutcome
        Status, objective, bound, gap and violation.
    """
    if any(f.table == forbidden_value(f.table.dtype) for f in constants):
        return SolveOutcome("infeasible", None, None, None, None)
    feasible = quality.negated_violation == 0
    objective = quality.objective if feasible else None
    bound: Number | None = None
    proven = False
    if proof is not None:
        root_bounds, arithmetic, addends, margin, removed = proof
        if any(arithmetic.is_lowest(root) for root in root_bounds):
            return SolveOutcome("infeasible", None, None, None, None)
        rounded_up_sum = arithmetic.outward(sum(root_bounds) + margin if margin else sum(root_bounds), addends)
        if math.isfinite(rounded_up_sum):
            utility = round_up(removed + exact_sum([rounded_up_sum, *(f.table.item() for f in constants)]))
            bound = problem.to_own_sense(utility) if math.isfinite(utility) else None
        proven = arithmetic.proves_optimal(quality.utility, exact_sum(root_bounds) + removed, addends, margin)
    if not feasible:
        return SolveOutcome("unsatisfied", None, bound, None, -quality.negated_violation)
    gap = None if bound is None else gap_of(objective, bound)
    return SolveOutcome("optimal" if proven else "feasible", objective, bound, gap, 0)


def gap_of(objective: Number | None, bound: Number | None) -> float | None:
    """Return |bound - objective| / max(1, |objective|); None if either is missing or not finite.

    The objective includes the problem's constants. The gap measures how much may still be improved, but proves nothing:
    it may round to 0. ``status`` says what is proven.

    Parameters
    ----------
    objective, bound : int, float or None
        The objective of an assignment and a proven bound, in the problem's own sense.

    Examples
    --------
    >>> gap_of(200, 210), gap_of(0.5, 0.75), gap_of(None, 3)
    (0.05, 0.25, None)
    """
    if objective is None or bound is None:
        return None
    if any(isinstance(number, float) and not math.isfinite(number) for number in (objective, bound)):
        return None
    try:
        return float(abs(bound - objective) / max(1, abs(objective)))
    except OverflowError:  # integers beyond all floats
        gap = nearest(abs(Fraction(bound) - Fraction(objective)) / max(Fraction(1), abs(Fraction(objective))))
        return float(gap) if math.isfinite(gap) else None
