"""Choose the algorithm that the settings name: dmcmc's own, or a baseline algorithm."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run import solve as dmcmc_run
from dmcmc.run.compilation.small_problems import interpreted_if_small
from dmcmc.run.incremental.solve_again import solve_again
from dmcmc.run.levels.solve_levels import solve_levels
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import Explain, ProgressReporter
from dmcmc.solving.warm_start.moving_costs import agree_on_costs
from dmcmc.solving.warm_start.retained_work import RetainedWork

# Takes the parameters of :func:`solve`, with ranks, and returns its result.
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


def solve(
    problem: Problem | None,
    settings: Settings,
    world: World | None = None,
    progress: ProgressReporter | None = None,
    explain: Explain | None = None,
    ending: RunHandle | None = None,
    retained: RetainedWork | None = None,
) -> Result | None:
    """Solve a problem with the algorithm that the settings name; called by every rank with the same arguments.

    Parameters, result and errors are those of :func:`dmcmc.run.solve.solve`. With ``stay``, the costs of moving are
    added to the problem, and the result says which variables moved.
    """
    ranks = world or World()
    with algorithm_for(problem, settings, ranks, retained) as algorithm:
        return algorithm(problem, settings, ranks, progress, explain, ending, retained)


def solve_alone(problem: Problem, settings: Settings) -> Result:
    """Solve a problem in this process, without other ranks."""
    result = solve(problem, settings, World())
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
        return solve(part, msgspec.structs.replace(limited, stay=None), world, progress, explain, ending)

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
    from dmcmc.run.algorithms import run_algorithm  # loaded only if needed: it compiles kernels

    return run_algorithm.solve(problem, settings, world, progress, explain, ending)
