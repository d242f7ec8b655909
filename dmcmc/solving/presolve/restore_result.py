"""Restore the answer of a presolved problem to the original problem: its assignment, its bound and its outcome."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.exact_sum import Exact, exact_sum
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.presolve.presolve import PresolvedProblem
from dmcmc.inference.runtime.types import Number
from dmcmc.results.outcome import AssignmentQuality, BoundProof, SolveOutcome, judge, quality_of
from dmcmc.results.result import TracePoint, gap_of
from dmcmc.samplers.local_search.ascent import Ascent

Values = NDArray[np.int64]


class FirstAnswer(NamedTuple):
    """An assignment of the problem as given, found before presolve and planning, and a bound that needs no search.

    Attributes
    ----------
    values : (n,) int64
        Value index of each variable.
    quality : AssignmentQuality
        Violations and utility of ``values``.
    bound : int, float or None
        Bound on the objective, in the problem's own sense; None if it is not known.
    trace : tuple of TracePoint
        The points of the trace so far; the last one is that of ``values``.
    ascent : Ascent or None
        Hill climbing on the problem as given, for further use; None if no search is wanted.
    """

    values: Values
    quality: AssignmentQuality
    bound: Number | None
    trace: tuple[TracePoint, ...]
    ascent: Ascent | None


@dataclass(frozen=True)
class OriginalProblem:
    """The problem as the user gave it, and its presolved form.

    Attributes
    ----------
    problem : Problem
        The problem as the user gave it.
    reduction : PresolvedProblem or None
        The presolved problem and the way back; None without presolve.
    first : FirstAnswer or None
        The answer that was found before presolve, on rank 0 of a run with a time budget.
    """

    problem: Problem
    reduction: PresolvedProblem | None = None
    first: FirstAnswer | None = None

    @property
    def proven_infeasible(self) -> bool:
        """Whether presolve has proven that the hard constraints cannot be satisfied."""
        return self.reduction is not None and self.reduction.infeasible

    def restore(
        self,
        found: tuple[Values, SolveOutcome],
        proof: BoundProof | None,
        make_1_optimal: Callable[[Values], Values] | None = None,
    ) -> tuple[Values, SolveOutcome]:
        """Return an assignment of the original problem, and its outcome; the first answer if that is better.

        Parameters
        ----------
        found
            Assignment and outcome of the problem that was solved; its hidden variables come last.
        proof
            Bound on the problem that was solved.
        make_1_optimal
            Makes the first answer and assignments with violations 1-optimal. A feasible one is 1-optimal if it was so
            before restoring: removed values are no better than others, and eliminated variables have their best values.
        """
        (values, outcome), reduction = found, self.reduction
        if reduction is None or outcome.status == "infeasible":
            return values[: self.problem.n_variables], self._with_first_bound(outcome)
        restored = reduction.restore(values[: reduction.problem.n_variables])
        quality = quality_of(self.problem, restored)
        if quality.negated_violation < 0 and make_1_optimal is not None:
            restored = make_1_optimal(restored)
            quality = quality_of(self.problem, restored)
        if self.first is not None and self.first.quality.is_better_than(quality):
            restored = self.first.values if make_1_optimal is None else make_1_optimal(self.first.values)
            quality = quality_of(self.problem, restored)
        constants = [factor for factor in self.problem.factors if not factor.scope]
        original_proof = None if proof is None else _proof_of_original(self.problem, reduction, proof)
        return restored, self._with_first_bound(judge(self.problem, quality, constants, original_proof))

    def _with_first_bound(self, outcome: SolveOutcome) -> SolveOutcome:
        """Return an outcome with the bound of the first answer, if that is tighter."""
        first_bound = None if self.first is None else self.first.bound
        if first_bound is None or outcome.status not in ("feasible", "unsatisfied"):
            return outcome
        sign = 1 if self.problem.sense == "max" else -1
        if outcome.bound is not None and sign * outcome.bound <= sign * first_bound:
            return outcome
        return outcome._replace(bound=first_bound, gap=gap_of(outcome.objective, first_bound))


def _proof_of_original(original: Problem, reduction: PresolvedProblem, proof: BoundProof) -> BoundProof:
    """Return the bound on the presolved problem as a bound on the original problem."""
    constant = _constant(reduction.problem) - _constant(original)
    arithmetic, integer = proof.arithmetic, _all_integer(original)
    if not integer:  # integer sums were rounded from floats
        arithmetic = replace(arithmetic, dtype=np.dtype(np.float64), total=float(arithmetic.total), integral=False)
    margin = 0.0 if integer else _rounding(original, reduction.roundings)
    return proof._replace(arithmetic=arithmetic, margin=proof.margin + margin, removed_utility=constant)


def _constant(problem: Problem) -> Exact:
    """Return the exact sum of the factors without variables."""
    return exact_sum(factor.table.item() for factor in problem.factors if not factor.scope)


def _all_integer(problem: Problem) -> bool:
    """Return whether all tables are integers."""
    return all(array.dtype.kind == "i" for factor in problem.factors for array in factor.arrays())


def _rounding(problem: Problem, additions: int) -> float:
    """Return an upper bound on the rounding error of additions to a utility; see ``Arithmetic.rounding``."""
    total = sum(float(magnitude(array)) for factor in problem.factors for array in factor.arrays())
    return 4 * (additions + 2) * 2.0**-53 * total
