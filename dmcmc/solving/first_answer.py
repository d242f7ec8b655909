"""The first answer to the problem as given: a greedy assignment, and the assignment to start from if one is given.

With a time budget it comes before presolve, division and planning, whose time grows with the problem.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.inference.dpop.agent_step import Clock
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality, BoundProof, judge, quality_of
from dmcmc.results.result import LOCAL_SEARCH, Result, Solution, TracePoint
from dmcmc.samplers.local_search.local_search import ConstraintAscent, UncompiledAscent, ascent_of
from dmcmc.solving.agent.bounds import largest_total
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.metrics import RankOutcome, answer_of, result_of
from dmcmc.solving.observe import ProgressReporter
from dmcmc.solving.planning.divided_problem import DividedProblem, arithmetic_for
from dmcmc.solving.planning.presolve import FirstAnswer, OriginalProblem, Presolved
from dmcmc.solving.rank_search import has_start
from dmcmc.solving.tuning import ONE_OPT_GRACE
from dmcmc.solving.warm_start.start_assignment import completed, start_of

# Seconds after the start of the run at which an incomplete greedy assignment is reported: users expect an answer
# within half a second, and its evaluation takes some hundredths of a second for 10^5 factors.
_REPORT_SECONDS = 0.35


class _FirstTrace:
    """The points of the trace before there is an incumbent.

    Attributes
    ----------
    values : (n,) int64
        The best assignment so far.
    quality : AssignmentQuality or None
        Its quality; None before the first one.
    bound : int, float or None
        Bound on the objective, in the problem's own sense.
    points : list of TracePoint
        The points so far.
    """

    def __init__(self, problem: Problem, proof: BoundProof | None, start: float, progress: ProgressReporter) -> None:
        self.problem, self.proof, self.start, self.progress = problem, proof, start, progress
        self.constants = [factor for factor in problem.factors if not factor.scope]
        self.values = np.zeros(problem.n_variables, dtype=np.int64)
        self.quality: AssignmentQuality | None = None
        self.bound: int | float | None = None
        self.points = list[TracePoint]()

    @property
    def violated(self) -> bool:
        """Whether the best assignment so far breaks a hard constraint."""
        return self.quality is not None and self.quality.negated_violation < 0

    def record(self, values: NDArray[np.int64]) -> None:
        """Add a point for an assignment, if it is the best so far."""
        quality = quality_of(self.problem, values)
        if not quality.is_better_than(self.quality):
            return
        outcome = judge(self.problem, quality, self.constants, self.proof)
        self.values, self.quality, self.bound = values, quality, outcome.bound
        point = TracePoint(time.perf_counter() - self.start, outcome.objective, outcome.bound, LOCAL_SEARCH)
        self.points.append(point)
        self.progress.point(point)
        if outcome.objective is not None:
            self.progress.solution(partial(self._solution, point, outcome.objective, values))

    def _solution(self, point: TracePoint, objective: int | float, values: NDArray[np.int64]) -> Solution:
        """Return an assignment that breaks no hard constraint, by variable names."""
        return Solution(point.time, objective, self.problem.assignment(values), point.found_by)


def first_answer_on_ranks(
    problem: Problem | None,
    config: Settings,
    world: World,
    stop: Deadline,
    start: float,
    progress: ProgressReporter,
    is_ready: Callable[[Problem], bool] = lambda problem: True,
    can_plan: Callable[[], bool] = lambda: True,
) -> FirstAnswer | None:
    """Return what rank 0 finds before anything is divided, if there is a time budget or an assignment to start from.

    The result is None on other ranks, all of which call this; the parameters are those of :func:`find_first_answer`.
    """

    def answer() -> FirstAnswer | None:
        if problem is None or world.rank > 0 or (config.budget.time is None and not has_start(problem, config)):
            return None
        return find_first_answer(problem, config, stop, start, progress, partial(is_ready, problem), can_plan)

    return world.on_all_ranks(answer)


def find_first_answer(
    problem: Problem,
    config: Settings,
    stop: Deadline,
    start: float,
    progress: ProgressReporter,
    is_ready: Callable[[], bool] = lambda: True,
    can_plan: Callable[[], bool] = lambda: True,
) -> FirstAnswer:
    """Return a greedy assignment of the problem as given, and report it at once; called on rank 0 only.

    If an assignment is given to start from, it is completed and is the first point of the trace. The answer is then the
    better one of two local optima: that reached from it, and that reached from the greedy assignment.

    If the answer is to be decoded from tables only (``local_search: none``), each variable has its first value. The
    bound is the sum of the largest entries of all factors; it is left out if some factor is no dense table.

    Parameters
    ----------
    problem
        The problem as given.
    config
        Settings of the run.
    stop
        Deadline of the run.
    start
        Time at which the run's clock started (``time.perf_counter``).
    progress
        Receives the points of the trace.
    is_ready
        Returns whether the first search is ready; until then, NumPy finds the answer to a problem without global
        constraints.
    can_plan
        Returns whether the problem can be divided and planned; until then, the search on global constraints goes on.
    """
    proof = None
    if problem.dense and problem.factors and config.local.bound != "none":
        with suppress(OutOfTime):  # there is no bound then
            arithmetic = arithmetic_for(problem, config.combine, stop)
            proof = BoundProof([largest_total(problem, arithmetic)], arithmetic, len(problem.factors))
    trace, ascent = _FirstTrace(problem, proof, start, progress), None
    given = start_of(problem, config) if has_start(problem, config) else None
    if config.local_search != "none":
        with suppress(OutOfTime, OutOfMemory, MemoryError):  # the best assignment so far is the answer then
            compiled = not problem.tabular or is_ready()
            ascent = ascent_of(problem, cores(), stop, is_ready) if compiled else UncompiledAscent(problem, stop)
            if given is not None:
                begun = completed(problem, given, compiled, stop)
                trace.record(begun)
                trace.record(ascent.climb(begun))
                trace.record(ascent.climb(ascent.greedy()))
            else:
                trace.record(ascent.greedy(Deadline(start + _REPORT_SECONDS), trace.record))
            if isinstance(ascent, UncompiledAscent):  # planning has to wait, too
                trace.record(ascent.climb(trace.values))
                if trace.violated:
                    repaired = ascent.repair(trace.values, is_ready)
                    trace.record(ascent.climb(repaired))
            if isinstance(ascent, ConstraintAscent):
                ascent.improve_until(can_plan, trace.values, trace.record)
    if trace.quality is None:
        trace.record(trace.values)
    assert trace.quality is not None
    return FirstAnswer(trace.values, trace.quality, trace.bound, tuple(trace.points), ascent)


def result_of_first(problem: Problem, first: FirstAnswer, config: Settings, start: float, ranks: int) -> Result:
    """Return the result of a run that ends before its problem is divided, a local optimum if there is time for it.

    Parameters
    ----------
    problem
        The problem as given.
    first
        Its first answer.
    config
        Settings of the run.
    start
        Time at which the run's clock started (``time.perf_counter``).
    ranks
        Number of ranks.
    """
    undivided, given = replace(problem, factors=()), OriginalProblem(problem, first=first)
    presolved = Presolved(given, problem, undivided, choose_arithmetic(()))
    parts = DividedProblem(presolved, config, divide(undivided))
    incumbent = Incumbent(problem, config, start, None, parts=parts, timed_out=True, trace=list(first.trace))
    incumbent.update(first.values)
    with suppress(OutOfTime, OutOfMemory, MemoryError):
        if first.ascent is not None:
            first.ascent.stop = Deadline(time.perf_counter() + ONE_OPT_GRACE)
            incumbent.update(first.ascent.climb(first.values))
    return result_of(parts, incumbent, answer_of(parts, incumbent), [RankOutcome({}, Clock(), False, {})], ranks, 0)
