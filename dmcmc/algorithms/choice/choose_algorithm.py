"""Choose the algorithm that the settings name: dmcmc's own, or a baseline algorithm.

The levels of an objective are solved one after the other where one weighted sum of them does not fit 64 bits.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms.choice import run_baseline
from dmcmc.anytime import solve as dmcmc_run
from dmcmc.compilation.small_problems import interpreted_if_small
from dmcmc.config.settings import Settings
from dmcmc.inference.building.levels import (
    level_values,
    problem_of_next_levels,
    totals,
    values_of_next_levels,
)
from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.world import World
from dmcmc.results.result import LevelReport, Result
from dmcmc.samplers.contract import tuning
from dmcmc.session.incremental.incremental_run import solve_again
from dmcmc.solving.observe import Explain, ProgressReporter, RunHandle
from dmcmc.solving.warm_start.retained_work import RetainedWork
from dmcmc.solving.warm_start.start_assignment import agree_on_costs

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
    solve_part: Callable[[Problem | None, Settings], Result | None],
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
    solve_part : callable
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
        result = solve_part(part, _limited(settings, start, is_last))
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
    seconds = max(tuning.CHECK_SECONDS / 2, left if is_last else left / 2)
    return replace(settings, budget=replace(settings.budget, time=seconds))


# Takes the parameters of :func:`solve_as_configured`, with ranks, and returns its result.
Algorithm = Callable[..., Result | None]


@contextmanager
def algorithm_for(
    problem: Problem | None,
    settings: Settings,
    world: World,
    retained: RetainedWork | None = None,
    has_costs: bool = False,
) -> Iterator[Algorithm]:
    """Choose an algorithm, which has to be called in this block; called by every rank.

    In the block kernels are interpreted if the problem is small.

    Parameters
    ----------
    problem, settings, world, retained
        Those with which the algorithm will be called.
    has_costs
        Whether the problem includes the costs of moving already (``stay``).
    """
    if settings.stay is not None and not has_costs:
        yield _solve_with_costs
    elif _has_separate_levels(problem, world, known_on_all_ranks=retained is not None):
        yield _solve_levels
    elif settings.algorithm_settings.name != "dmcmc":
        yield _solve_by_baseline
    elif retained is not None and problem is not None:
        yield _solve_again
    else:
        with interpreted_if_small(problem, settings, world):
            yield dmcmc_run.solve


def solve_as_configured(
    problem: Problem | None,
    settings: Settings,
    world: World | None = None,
    progress: ProgressReporter | None = None,
    explain: Explain | None = None,
    ending: RunHandle | None = None,
    retained: RetainedWork | None = None,
) -> Result | None:
    """Solve a problem with the algorithm that the settings name; called by every rank with the same arguments.

    Parameters, result and errors are those of :func:`dmcmc.anytime.solve.solve`. With ``stay``, the costs of moving are
    added to the problem, and the result says which variables moved.
    """
    ranks = world or World()
    with algorithm_for(problem, settings, ranks, retained) as algorithm:
        return algorithm(problem, settings, ranks, progress, explain, ending, retained)


def solve_alone(problem: Problem, settings: Settings) -> Result:
    """Solve a problem in this process, without other ranks."""
    result = solve_as_configured(problem, settings, World())
    assert result is not None, "the only rank has the result"
    return result


def _solve_with_costs(
    problem: Problem | None,
    settings: Settings,
    world: World,
    progress: ProgressReporter | None = None,
    explain: Explain | None = None,
    ending: RunHandle | None = None,
    retained: RetainedWork | None = None,
) -> Result | None:
    """Solve a problem with the costs of moving, and report which variables moved."""
    costs = agree_on_costs(problem, settings, world)
    if costs is not None:
        problem = costs.problem
        if ending is not None:
            ending.complete = costs.report
    with algorithm_for(problem, settings, world, retained, has_costs=True) as algorithm:
        result = algorithm(problem, settings, world, progress, explain, ending, retained)
    return result if result is None or costs is None else costs.report(result)


def _solve_levels(
    problem: Problem | None,
    settings: Settings,
    world: World,
    progress: ProgressReporter | None = None,
    explain: Explain | None = None,
    ending: RunHandle | None = None,
    _retained: RetainedWork | None = None,
) -> Result | None:
    """Solve a problem with several levels of objectives, one level after the other."""

    def solve_part(part: Problem | None, limited: Settings) -> Result | None:
        """Solve a problem with one of the levels; the costs of moving are already in it."""
        return solve_as_configured(part, msgspec.structs.replace(limited, stay=None), world, progress, explain, ending)

    return solve_levels(problem, settings, world, solve_part)


def _solve_again(
    problem: Problem,
    settings: Settings,
    world: World,
    progress: ProgressReporter | None = None,
    explain: Explain | None = None,
    ending: RunHandle | None = None,
    retained: RetainedWork | None = None,
) -> Result | None:
    """Continue the last run of a session, or solve its problem anew."""
    assert retained is not None
    return solve_again(problem, settings, world, retained, partial(_solve_anew, progress, explain, ending))


def _has_separate_levels(problem: Problem | None, world: World, known_on_all_ranks: bool) -> bool:
    """Return whether the levels of a problem are solved one after the other; called by all ranks."""

    def answer() -> bool:
        return problem is not None and problem.has_separate_levels

    return answer() if known_on_all_ranks else world.on_first_rank(answer)


def _solve_anew(
    progress: ProgressReporter | None,
    explain: Explain | None,
    ending: RunHandle | None,
    problem: Problem,
    settings: Settings,
    world: World,
    retained: RetainedWork,
) -> Result | None:
    """Solve a problem of a session from its beginning, interpreted if it is small."""
    with interpreted_if_small(problem, settings, world):
        return dmcmc_run.solve(problem, settings, world, progress, explain, ending, retained)


def _solve_by_baseline(
    problem: Problem | None,
    settings: Settings,
    world: World,
    progress: ProgressReporter | None = None,
    explain: Explain | None = None,
    ending: RunHandle | None = None,
    _retained: RetainedWork | None = None,
) -> Result | None:
    """Solve a problem by a baseline algorithm."""
    return run_baseline.solve_by_baseline(problem, settings, world, progress, explain, ending)
