"""Presolve the problem before a run, if that is worthwhile, and restore the answer to the problem as given.

Presolve removes values, variables and entries. :class:`OriginalProblem` has the way back: for the assignment, for the
bound, and for the outcome.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dmcmc.solving.tuning as tuning
from dmcmc.config.settings import Settings
from dmcmc.inference.model.arithmetic import Arithmetic, Exact, exact_sum
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden, forbidden_value, magnitude, normalise
from dmcmc.inference.orders.best_order import cells_upper_bound, joins_at_least
from dmcmc.inference.presolve.equal_variables import merge_equal_variables
from dmcmc.inference.presolve.presolve import PresolvedProblem, RemovalCounts, presolve
from dmcmc.inference.presolve.small_buckets import estimate_presolve_gain
from dmcmc.inference.presolve.working_problem import PresolveLimit
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.tuning import MAX_BITSET_VARIABLES, MAX_INTERPRETED_VARIABLES
from dmcmc.results.outcome import AssignmentQuality, BoundProof, SolveOutcome, gap_of, judge, quality_of
from dmcmc.results.result import PresolveReport, TracePoint

if TYPE_CHECKING:
    from dmcmc.samplers.local_search.local_search import Ascent


_BYTES_PER_ENTRY = 24  # bytes per table entry: original, widened and final copy

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
    bound: int | float | None
    trace: tuple[TracePoint, ...]
    ascent: "Ascent | None"


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
    def moved_utility(self) -> Exact:
        """The exact utility that the presolved problem has as a constant, and the problem as given in its tables."""
        return 0 if self.reduction is None else _constant(self.reduction.problem) - _constant(self.problem)

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
        original_proof = None if proof is None else self._proof_of_original(reduction, proof)
        return restored, self._with_first_bound(judge(self.problem, quality, constants, original_proof))

    def _proof_of_original(self, reduction: PresolvedProblem, proof: BoundProof) -> BoundProof:
        """Return the bound on the presolved problem as a bound on the original problem."""
        arithmetic, integer = proof.arithmetic, _all_integer(self.problem)
        if not integer:  # integer sums were rounded from floats
            arithmetic = replace(arithmetic, dtype=np.dtype(np.float64), total=float(arithmetic.total), integral=False)
        margin = 0.0 if integer else _rounding(self.problem, reduction.roundings)
        return proof._replace(arithmetic=arithmetic, margin=proof.margin + margin, removed_utility=self.moved_utility)

    def _with_first_bound(self, outcome: SolveOutcome) -> SolveOutcome:
        """Return an outcome with the bound of the first answer, if that is tighter."""
        first_bound = None if self.first is None else self.first.bound
        if first_bound is None or outcome.status not in ("feasible", "unsatisfied"):
            return outcome
        sign = 1 if self.problem.sense == "max" else -1
        if outcome.bound is not None and sign * outcome.bound <= sign * first_bound:
            return outcome
        return outcome._replace(bound=first_bound, gap=gap_of(outcome.objective, first_bound))


@dataclass(frozen=True)
class Presolved:
    """A problem that is ready to be divided among its agents: presolved, with dense tables.

    Attributes
    ----------
    given : OriginalProblem
        The problem as the user gave it, on which the answer is evaluated, and the way back to it from the presolved
        one.
    original : Problem
        The problem to solve: that problem, or what presolve has left of it.
    problem : Problem
        The same with dense tables; variables beyond those of ``original`` are hidden states of automata.
    arithmetic : Arithmetic
        Encoding of the utilities, which holds their sums.
    """

    given: OriginalProblem
    original: Problem
    problem: Problem
    arithmetic: Arithmetic


def merged_if_applicable(problem: Problem, config: Settings) -> PresolvedProblem | None:
    """Return the problem with equal variables merged (``presolve: merge``); None if this changes nothing."""
    return merge_equal_variables(problem) if _is_applicable(config) else None


def _is_applicable(config: Settings) -> bool:
    """Return whether the chosen methods work on a presolved problem."""
    local, combine = config.local, config.combine
    return local.method in ("auto", "exact") and combine.method != "mini-bucket" and local.guarantee is None


def presolve_if_worthwhile(
    original: Problem, dense: Problem, config: Settings, stop: Deadline = NO_DEADLINE
) -> PresolvedProblem | None:
    """Return the presolved problem, the same on all ranks; None if presolve is off or hardly changes it.

    An algorithm that was chosen by name works on the problem as given. For several agents without hard constraints, the
    problem is presolved only if a sample of the variables promises a reduction.

    Parameters
    ----------
    original
        The problem as given.
    dense
        The problem as dense tables.
    config
        Settings of the run.
    stop
        Deadline in addition to presolve's share of the time budget; on several ranks there must be none.
    """
    if (
        config.presolve == "none"
        or not _is_applicable(config)
        or not _may_be_worthwhile(dense, timed=config.budget.time is not None)
    ):
        return None
    limit = (
        PresolveLimit(stop=stop)
        if config.budget.time is None
        else PresolveLimit(tuning.PRESOLVE_TIME_SHARE * config.budget.time, stop)
    )
    reduction = presolve(original, config.budget.bytes, limit, dense, config.presolve == "merge")
    if reduction.infeasible:
        return replace(reduction, problem=_infeasible_problem(original))
    return reduction if _is_substantial(original, reduction) else None


def _may_be_worthwhile(dense: Problem, timed: bool) -> bool:
    """Return whether there is much to eliminate, and enough memory for presolve.

    With a time budget, very large problems are presolved without an estimate, which would take seconds; the share of
    the time budget limits presolve.
    """
    is_small = dense.n_variables <= MAX_INTERPRETED_VARIABLES  # needs no compiled kernels
    if _BYTES_PER_ENTRY * dense.flat.data.size > MEMORY_ACCOUNT.budget_share(tuning.PRESOLVE_MEMORY_SHARE, 1 << 62):
        return False
    if (
        is_small
        and dense.shape_facts.get_or_compute("cells", lambda: _estimate_cells(dense)) < tuning.MIN_PRESOLVED_CELLS
    ):
        return False
    if (
        dense.n_agents > 1
        and not dense.facts.get_or_compute("hard", lambda: _has_hard_constraints(dense))
        and estimate_presolve_gain(dense) < tuning.MIN_PROMISE
    ):
        return False
    if is_small or (timed and dense.n_variables > MAX_BITSET_VARIABLES):
        return True
    return dense.shape_facts.get_or_compute("joins many cells", lambda: _joins_many_cells(dense))


def _joins_many_cells(dense: Problem) -> bool:
    """Return whether an elimination of all variables joins enough cells for presolve to be faster."""
    scopes, everything = [factor.scope for factor in dense.factors], range(dense.n_variables)
    return joins_at_least(scopes, dense.domains, everything, (), tuning.MIN_PRESOLVED_CELLS)


def _estimate_cells(dense: Problem) -> float:
    """Return an upper bound on the number of cells of an elimination, from a cheap order."""
    return cells_upper_bound([factor.scope for factor in dense.factors], dense.domains, range(dense.n_variables))


def _has_hard_constraints(dense: Problem) -> bool:
    """Return whether a table has forbidden entries."""
    data = dense.flat.data
    return bool(data.size) and bool(data.min() == forbidden_value(data.dtype))


def _is_substantial(original: Problem, reduction: PresolvedProblem) -> bool:
    """Return whether enough has been removed."""
    small, removed = reduction.problem, reduction.removed
    cells = sum(array.size for factor in original.factors for array in factor.arrays())
    return (
        small.n_variables <= (1 - tuning.MIN_REMOVED_SHARE) * original.n_variables
        or removed.inconsistent + removed.dominated >= tuning.MIN_REMOVED_SHARE * original.domains.sum()
        or removed.cells >= tuning.MIN_REMOVED_SHARE * cells
    )


def _infeasible_problem(problem: Problem) -> Problem:
    """Return an infeasible problem without variables: its only factor is a forbidden constant."""
    empty = np.zeros(0, dtype=np.int64)
    forbidden_constant = (Factor.of((), -np.inf),)
    return Problem((), empty, problem.agents, empty, forbidden_constant, sense=problem.sense, name=problem.name)


def presolve_report(reduction: PresolvedProblem | None) -> PresolveReport | None:
    """Return the presolve section of a result; None if presolve has removed nothing."""
    if reduction is None or reduction.removed == RemovalCounts():
        return None
    return PresolveReport(**asdict(reduction.removed))


class CentredTables(NamedTuple):
    """Integer tables around 0, and the constant that is missing in their sum.

    Attributes
    ----------
    factors : list of Factor
        The factors; of the integer tables, the middle of the range is subtracted.
    constant : int
        The sum of what was subtracted.
    """

    factors: list[Factor]
    constant: int

    @property
    def constants(self) -> tuple[Factor, ...]:
        """The constant as a factor without variables; none if it is 0."""
        return (Factor.of((), self.constant, name="middle of the tables"),) if self.constant else ()


def centred_tables(factors: Iterable[Factor]) -> CentredTables:
    """Move the middle of each integer table into a constant: large utilities that differ little need few digits."""
    found, constant = list[Factor](), 0
    for factor in factors:
        allowed = factor.table[~forbidden(factor.table)] if type(factor) is Factor and factor.scope else np.zeros(0)
        if allowed.size and allowed.dtype.kind == "i":
            middle = (int(allowed.min()) + int(allowed.max())) // 2
            lowest = forbidden_value(np.dtype(np.int64))
            moved = np.where(forbidden(factor.table), lowest, factor.table.astype(np.int64) - middle)
            factor, constant = Factor(factor.scope, normalise(moved), factor.name), constant + middle
        found.append(factor)
    return CentredTables(found, constant)


def with_centred_tables(problem: Problem, reduction: PresolvedProblem | None) -> PresolvedProblem | None:
    """Return a problem with centred tables as a reduction; None if the constant does not fit 64 bits, or with levels.

    Parameters
    ----------
    problem : Problem
        The problem to solve, presolved or not.
    reduction : PresolvedProblem or None
        What presolve has done before.
    """
    centred = centred_tables(problem.factors)
    if problem.levels or abs(centred.constant) >= 1 << 63:
        return None
    shifted = replace(problem, factors=(*centred.factors, *centred.constants))
    if reduction is None:
        return PresolvedProblem(shifted, False, RemovalCounts(), 0, lambda values: values)
    return replace(reduction, problem=shifted)


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
