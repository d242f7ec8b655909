"""A run's answer to what was asked, where the problem was reduced before."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.exact_sum import Exact, exact_sum
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.presolve.presolve import Reduction
from dmcmc.results.outcome import Outcome, Proof, judge, worth_of

Values = NDArray[np.int64]


@dataclass(frozen=True)
class Asked:
    """What was asked, and the way back to it from what is solved.

    Attributes
    ----------
    problem : Problem
    reduction : Reduction or None
        None where what is solved is what was asked.
    """

    problem: Problem
    reduction: Reduction | None = None

    @property
    def refuted(self) -> bool:
        """Whether it is proven that nothing satisfies the hard constraints."""
        return self.reduction is not None and self.reduction.infeasible

    def answer(
        self, found: tuple[Values, Outcome], proof: Proof | None, polish: Callable[[Values], Values] | None = None
    ) -> tuple[Values, Outcome]:
        """Return an assignment of what was asked, and what it and a bound say together.

        Parameters
        ----------
        found
            The same of what is solved; hidden variables come last.
        proof
            The bound on what is solved.
        polish
            Makes an assignment that breaks something 1-optimal. One that breaks nothing is, as it was before: values
            that are gone are no better than others, and what was eliminated has its best values.
        """
        (values, outcome), reduction = found, self.reduction
        if reduction is None or outcome.status == "infeasible":
            return values[: self.problem.n_variables], outcome
        own = reduction.restore(values[: reduction.problem.n_variables])
        worth = worth_of(self.problem, own)
        if worth.kept < 0 and polish is not None:
            own = polish(own)
            worth = worth_of(self.problem, own)
        constants = [factor for factor in self.problem.factors if not factor.scope]
        return own, judge(
            self.problem, worth, constants, None if proof is None else _beyond(self.problem, reduction, proof)
        )


def _beyond(asked: Problem, reduction: Reduction, proof: Proof) -> Proof:
    """Return a proof about the reduced problem as one about what was asked."""
    beside = _constant(reduction.problem) - _constant(asked)
    arithmetic, whole = proof.arithmetic, _whole(asked)
    if not whole:  # sums that came out whole were rounded
        arithmetic = replace(arithmetic, dtype=np.dtype(np.float64), total=float(arithmetic.total), whole=False)
    margin = 0.0 if whole else _rounding(asked, reduction.roundings)
    return proof._replace(arithmetic=arithmetic, margin=proof.margin + margin, beside=beside)


def _constant(problem: Problem) -> Exact:
    return exact_sum(factor.table.item() for factor in problem.factors if not factor.scope)


def _whole(problem: Problem) -> bool:
    return all(array.dtype.kind == "i" for factor in problem.factors for array in factor.arrays())


def _rounding(problem: Problem, additions: int) -> float:
    """Return more than what so many additions to a utility may be off by; see :meth:`.Arithmetic.rounding`."""
    total = sum(float(magnitude(array)) for factor in problem.factors for array in factor.arrays())
    return 4 * (additions + 2) * 2.0**-53 * total
