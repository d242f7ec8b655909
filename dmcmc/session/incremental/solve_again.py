"""Continue the last run of a session if it was exact; otherwise run anew and keep what may be continued."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.device import gpu_fault
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.session.incremental.incremental_run import IncrementalRun
from dmcmc.session.incremental.private_run import PrivateRun
from dmcmc.solving.combine_tables import FinishedCycle
from dmcmc.solving.private.private_inputs import PrivateAnswer, RankInputs
from dmcmc.solving.warm_start.retained_work import RetainedWork

T = TypeVar("T")


def solve_again(
    problem: Problem,
    settings: Settings,
    world: World,
    retained: RetainedWork,
    solve_anew: Callable[[Problem, Settings, World, RetainedWork], Result | None],
) -> Result | None:
    """Solve a problem of a session; called by all ranks, each with the whole problem.

    Parameters
    ----------
    problem
        The problem as it stands.
    settings
        Settings of the run.
    world
        The ranks.
    retained
        Work of earlier runs; receives that of this run.
    solve_anew
        Solves the problem without continuing the last run.

    Returns
    -------
    Result or None
        The result; None on other ranks than 0 after a new run (``retained.result_is_shared`` is then false).
    """
    last = retained.incremental
    if isinstance(last, IncrementalRun):
        again = _continued(retained, world, partial(last.solve, problem, settings, world))
        if again is not None:
            retained.result_is_shared = True
            retained.kept_on_all_ranks = last.kept
            return again
    retained.incremental = retained.finished_cycle = None
    retained.result_is_shared = False
    result = solve_anew(problem, settings, world, retained)
    if all(world.allgather(_may_continue(problem, settings, retained))):
        assert isinstance(retained.finished_cycle, FinishedCycle)
        retained.incremental = IncrementalRun.begin(problem, settings, result, retained.finished_cycle, world)
    return result


def solve_private_again(
    parts: Mapping[int, Problem],
    settings: Settings,
    world: World,
    retained: RetainedWork,
    shares_assignment: bool,
    solve_anew: Callable[[Settings], tuple[RankInputs, PrivateAnswer]],
) -> PrivateAnswer:
    """Solve a problem of a session on private inputs; called by all ranks, each with its agents' parts.

    Parameters
    ----------
    parts
        The problems of this rank's agents as they stand.
    settings
        Settings of the run.
    world
        The ranks.
    retained
        Work of earlier runs; receives that of this run.
    shares_assignment
        Whether rank 0 knows the values of all variables.
    solve_anew
        Solves the problem without continuing the last run; returns the inputs, too.

    Returns
    -------
    PrivateAnswer
        The answer as this rank knows it.
    """
    last = retained.incremental
    if isinstance(last, PrivateRun):
        again = _continued(retained, world, partial(last.solve, parts, settings, world))
        if again is not None:
            retained.kept_on_all_ranks = last.kept
            return again
    retained.incremental = retained.finished_cycle = None
    inputs, answer = solve_anew(settings)
    cycle = retained.finished_cycle
    may_continue = isinstance(cycle, FinishedCycle) and inputs.is_as_given and _is_continuable(cycle, settings)
    if all(world.allgather(may_continue and all(part.dense for part in parts.values()))):
        assert isinstance(cycle, FinishedCycle)
        given = inputs, settings, answer, cycle, shares_assignment, world
        retained.incremental = PrivateRun.begin(*given)
    return answer


def _continued(retained: RetainedWork, world: World, solve: Callable[[], T | None]) -> T | None:
    """Return the result of a continued run; None if it has to begin anew, also because the GPU has failed."""
    try:
        return world.run(solve)
    except Exception as error:
        if gpu_fault(error) is None or not world.is_agreed(error):
            raise
        retained.forget_all()
    return None


def _may_continue(problem: Problem, settings: Settings, retained: RetainedWork) -> bool:
    """Return whether the last run was exact, and on the problem as given."""
    cycle = retained.finished_cycle
    return (
        isinstance(cycle, FinishedCycle)
        and cycle.setup.divided.given.problem is problem
        and cycle.setup.divided.given.reduction is None
        and cycle.setup.divided.problem.n_variables == problem.n_variables
        and problem.dense
        and cycle.needed is None
        and _is_continuable(cycle, settings)
    )


def _is_continuable(cycle: FinishedCycle, settings: Settings) -> bool:
    """Return whether a cycle of exact messages was made by ranks that own agents, without mini-buckets."""
    return not any(cycle.setup.helpers) and settings.combine.method in ("auto", "exact")
