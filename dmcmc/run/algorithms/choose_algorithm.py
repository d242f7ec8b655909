"""Choose the algorithm that the settings name: dmcmc's own, or a baseline algorithm."""

from collections.abc import Callable
from functools import partial

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.inference.levels.one_after_the_other import are_separate
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run import solve as dmcmc_run
from dmcmc.run.compilation.small_problems import interpreted_if_small
from dmcmc.run.incremental.solve_again import solve_again
from dmcmc.run.levels.solve_levels import solve_levels
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import ProgressReporter
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.warm_start.moving_costs import agree_on_costs
from dmcmc.solving.warm_start.retained_work import RetainedWork


def solve(
    problem: Problem | None,
    settings: Settings,
    world: World | None = None,
    progress: ProgressReporter | None = None,
    explain: Callable[[Setup], None] | None = None,
    ending: RunHandle | None = None,
    retained: RetainedWork | None = None,
) -> Result | None:
    """Solve a problem with the algorithm that the settings name; called by every rank with the same arguments.

    Parameters, result and errors are those of :func:`dmcmc.run.solve.solve`. With ``stay``, the costs of moving are
    added to the problem, and the result says which variables moved.
    """
    costs = None if settings.stay is None else agree_on_costs(problem, settings, world or World())
    if costs is not None:
        problem = costs.problem
        if ending is not None:
            ending.complete = costs.report
    ranks = world or World()
    if _has_separate_levels(problem, ranks, known_on_all_ranks=retained is not None):

        def solve_part(part: Problem | None, limited: Settings) -> Result | None:
            """Solve a problem with one of the levels; the costs of moving are already in it."""
            return solve(part, msgspec.structs.replace(limited, stay=None), ranks, progress, explain, ending)

        result = solve_levels(problem, settings, ranks, solve_part)
    elif settings.algorithm_settings.name != "dmcmc":
        result = _solve_by_baseline(problem, settings, world, progress, explain, ending)
    elif retained is not None and problem is not None:
        anew = partial(_solve_anew, progress, explain, ending)
        result = solve_again(problem, settings, world or World(), retained, anew)
    else:
        with interpreted_if_small(problem, settings, world):
            result = dmcmc_run.solve(problem, settings, world, progress, explain, ending, retained)
    return result if result is None or costs is None else costs.report(result)


def _has_separate_levels(problem: Problem | None, world: World, known_on_all_ranks: bool) -> bool:
    """Return whether the levels of a problem are solved one after the other; called by all ranks."""

    def answer() -> bool:
        return problem is not None and bool(problem.levels) and are_separate(problem)

    return answer() if known_on_all_ranks else world.on_first_rank(answer)


def _solve_anew(
    progress: ProgressReporter | None,
    explain: Callable[[Setup], None] | None,
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
    world: World | None,
    progress: ProgressReporter | None,
    explain: Callable[[Setup], None] | None,
    ending: RunHandle | None,
) -> Result | None:
    """Solve a problem by a baseline algorithm."""
    # All ranks have to raise the error.
    rank_0_only = problem is None if world is None else any(world.allgather(problem is None))
    if problem is None or rank_0_only:
        name = settings.algorithm_settings.name
        raise ConfigError(f"only rank 0 has the problem, but algorithm: {name} needs it on all ranks")
    from dmcmc.run.algorithms import run_algorithm  # loaded only if needed: it compiles kernels

    return run_algorithm.solve(problem, settings, world, progress, explain, ending)
