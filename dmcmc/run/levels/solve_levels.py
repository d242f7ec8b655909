"""Solve the levels of an objective one after the other, where one weighted sum of them does not fit 64 bits."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.inference.levels.one_after_the_other import (
    problem_of_next_levels,
    totals,
    values_of_next_levels,
)
from dmcmc.inference.levels.results import level_values
from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.world import World
from dmcmc.results.result import LevelReport, Result
from dmcmc.samplers.tuning import common

_NOTE = "levels were solved one after the other: objective is their sum, and the trace that of the last ones"


class _Progress:
    """The levels that are solved so far, on rank 0.

    Parameters
    ----------
    problem : Problem
        The problem.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.solved: list[int] = []
        self.reports: list[LevelReport] = []
        self.values: NDArray[np.int64] | None = None
        self.proven = True  # all solved levels are

    def take(self, part: Problem, result: Result) -> bool:
        """Take the result of a step; return whether there are more levels to solve.

        If a step finds no assignment without violations, that of the earlier step stays.
        """
        if result.assignment is not None and not result.violation:
            self.values = self.problem.values_of(result.assignment)
        if self.values is None:
            self.reports = [LevelReport(*value) for value in level_values(self.problem, None, None)]
            self.proven = False
            return False
        bound = result.bound if self.proven else None
        new = [LevelReport(*value) for value in values_of_next_levels(part, self.solved, self.values, bound)]
        self.reports += new
        self.proven = self.proven and all(report.objective == report.bound for report in new)
        self.solved = totals(self.problem, self.values)[: len(part.levels)]
        return len(part.levels) < len(self.problem.levels)

    def result(self, last: Result, seconds: float) -> Result:
        """Return the result for all levels, given that of the last step."""
        if self.values is None:
            return msgspec.structs.replace(last, bound=None, gap=None, levels=tuple(self.reports), time=seconds)
        evaluation = self.problem.evaluate(self.values)
        status = "optimal" if self.proven else "feasible" if last.status in ("optimal", "infeasible") else last.status
        return msgspec.structs.replace(
            last,
            status=status,
            objective=evaluation.objective,
            bound=evaluation.objective if self.proven else None,
            gap=0.0 if self.proven else None,
            violation=evaluation.violation,
            assignment=self.problem.assignment(self.values),
            levels=tuple(self.reports),
            note=_NOTE,
            time=seconds,
        )


def solve_levels(
    problem: Problem | None,
    settings: Settings,
    world: World,
    solve: Callable[[Problem | None, Settings], Result | None],
) -> Result | None:
    """Solve as many levels at a time as fit 64 bits; called by every rank.

    A step that is not the last one gets half of the remaining time, if there is a time limit.

    Parameters
    ----------
    problem : Problem or None
        A problem whose levels have no weights; it may be None on other ranks than 0.
    settings : Settings
        Settings of the run.
    world : World
        The ranks.
    solve : callable
        Solves a problem with weighted levels.

    Raises
    ------
    LevelsTooLarge
        If the next level does not fit 64 bits together with what is known of the earlier ones.
    """
    start, run = time.perf_counter(), None if problem is None else _Progress(problem)
    while True:
        part = world.on_all_ranks(partial(_next_part, run, world.bcast(None if run is None else run.solved)))
        is_last = world.on_first_rank(partial(_has_all_levels, run, part))
        result = solve(part, _limited(settings, start, is_last))
        if not world.on_first_rank(partial(_take, run, part, result)):
            return None if run is None or result is None else run.result(result, time.perf_counter() - start)


def _next_part(run: _Progress | None, solved: Sequence[int]) -> Problem | None:
    """Return the problem of the next levels; None on ranks without the problem."""
    return None if run is None else problem_of_next_levels(run.problem, solved)


def _has_all_levels(run: _Progress | None, part: Problem | None) -> bool:
    """Return whether a part has the last level."""
    return run is not None and part is not None and len(part.levels) == len(run.problem.levels)


def _take(run: _Progress | None, part: Problem | None, result: Result | None) -> bool:
    """Take the result of a part on rank 0; return whether there are more levels to solve."""
    return run is not None and part is not None and result is not None and run.take(part, result)


def _limited(settings: Settings, start: float, is_last: bool) -> Settings:
    """Return settings whose time limit is what is left, or half of it."""
    if settings.budget.time is None:
        return settings
    left = settings.budget.time - (time.perf_counter() - start)
    seconds = max(common.CHECK_SECONDS / 2, left if is_last else left / 2)
    return replace(settings, budget=replace(settings.budget, time=seconds))
