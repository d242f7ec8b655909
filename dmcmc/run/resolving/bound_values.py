"""Bound the values of one variable after the other, by an elimination that keeps it, or by a search with its values."""

import time
from collections.abc import Sequence

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.types import Ints
from dmcmc.results.outcome import AssignmentQuality, BoundProof, judge, quality_of
from dmcmc.run.resolving.kept_variable import ValueAnswer, answers_by_elimination
from dmcmc.run.resolving.value_search import search_values
from dmcmc.run.resolving.value_table import ValueTable
from dmcmc.samplers.tuning import common


def bound_variables(
    problem: Problem, wanted: Sequence[int], settings: Settings, bounds: ValueTable, end: float
) -> None:
    """Bound the values of some variables, one variable after the other, by an elimination or a search."""
    until = time.perf_counter() + common.PLANNED_SHARE * (end - time.perf_counter())
    for i, v in enumerate(wanted):
        stop = Deadline(time.perf_counter() + (until - time.perf_counter()) / (len(wanted) - i))
        values = range(int(problem.domains[v]))
        left = stop.until - time.perf_counter()
        if left <= 0 or all(bounds.is_proven(v, value) for value in values):
            continue
        answers = answers_by_elimination(problem, v, settings, stop, left)
        for value, answer in enumerate(answers or ()):
            bounds.record(v, value, answer)
        if answers is None:
            _search(problem, v, settings, bounds, stop.until)


def _search(problem: Problem, v: int, settings: Settings, bounds: ValueTable, until: float) -> None:
    """Bound the values of a variable by branch and bound, and take the assignments that it reaches."""

    def found(value: int, values: Ints) -> None:
        bounds.record(v, value, _appraised(problem, values))

    def best(value: int) -> Ints | None:
        return bounds.examples.get((v, value))

    searched = search_values(problem, v, best, found, bounds.best_values, settings, until)
    if searched is None:
        return
    row_bounds, arithmetic, addends = searched
    constants = [factor for factor in problem.factors if not factor.scope]
    for value, bound in enumerate(row_bounds):
        values, proof = bounds.examples.get((v, value)), BoundProof([bound], arithmetic, addends)
        quality = AssignmentQuality(-1, 0, 0) if values is None else quality_of(problem, values)
        bounds.record(v, value, ValueAnswer(judge(problem, quality, constants, proof), values))


def _appraised(problem: Problem, values: Ints) -> ValueAnswer:
    """Return an assignment with its outcome, without a bound."""
    return ValueAnswer(judge(problem, quality_of(problem, values), [], None), values)
