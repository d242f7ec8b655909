"""Continue the last run of a session if it was exact; otherwise run anew and keep what may be continued."""

from collections.abc import Callable
from contextlib import nullcontext

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.interpreted import interpreted_kernels
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.run.incremental.incremental_run import IncrementalRun
from dmcmc.solving.util_value_cycle import FinishedCycle
from dmcmc.solving.warm_start.retained_work import RetainedWork


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
        with interpreted_kernels() if last.cycle.interpreted else nullcontext():
            again = last.solve(problem, settings, world)
        if again is not None:
            retained.result_is_shared = True
            retained.tables_reused, retained.steps_reused = last.kept
            return again
    retained.incremental = retained.finished_cycle = None
    retained.result_is_shared = False
    result = solve_anew(problem, settings, world, retained)
    if all(world.allgather(_may_continue(problem, settings, retained))):
        assert isinstance(retained.finished_cycle, FinishedCycle)
        retained.incremental = IncrementalRun.begin(problem, settings, result, retained.finished_cycle, world)
    return result


def _may_continue(problem: Problem, settings: Settings, retained: RetainedWork) -> bool:
    """Return whether the last run was exact, and on the problem as given."""
    cycle = retained.finished_cycle
    return (
        isinstance(cycle, FinishedCycle)
        and cycle.setup.given.problem is problem
        and cycle.setup.given.reduction is None
        and cycle.setup.problem.n_variables == problem.n_variables
        and problem.dense
        and not any(cycle.setup.helpers)
        and settings.combine.method in ("auto", "exact")
    )
