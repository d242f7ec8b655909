"""Solve a problem of one file: with a fixed amount of work, or with a time budget.

The memory is accounted for, and kernels are compiled in the background, in the same way for both. Private inputs are
solved by :mod:`dmcmc.anytime.solve_private`.
"""

import msgspec

from dmcmc.compilation.run_components import RunComponents
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem, bytes_of_tables, check_domains
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.mpi.world import World
from dmcmc.results.result import Result
from dmcmc.solving.observe import Explain, NoProgress, ProgressReporter, RunHandle, Watch
from dmcmc.solving.planning.divided_problem import with_memory_limit
from dmcmc.solving.solve import solve_fixed_work
from dmcmc.solving.warm_start.retained_work import RetainedWork


def solve_tiny(problem: Problem, config: Settings, ending: str) -> None:
    """Solve a tiny problem without a time budget.

    Parameters
    ----------
    problem, config
        The problem and its settings.
    ending : {"none", "deadline"}
        How the run ends. Work with a deadline has other kernels than work without one.
    """
    solve(problem, config, ending=None if ending == "none" else RunHandle())


# An external search engine works at the same time as the agents, so it needs the scheduler also without a time budget.
_SEARCHES_OF_FIXED_WORK = ("auto", "none")


def solve(
    problem: Problem | None,
    config: Settings,
    world: World | None = None,
    progress: ProgressReporter | None = None,
    explain: Explain | None = None,
    ending: RunHandle | None = None,
    retained: RetainedWork | None = None,
) -> Result | None:
    """Solve a problem; called by every rank with the same arguments.

    Parameters
    ----------
    problem
        The problem. It may be None on other ranks than 0; rank 0 then sends each rank the parts of its agents.
    config
        Settings of the run.
    world
        The ranks, from :func:`dmcmc.mpi.world.connect`; this process alone if None.
    progress
        Receives this rank's progress, and on rank 0 each point of the result's trace as soon as it is reached.
    explain
        Called on rank 0 with the plan before the work begins, and again if some agents' methods had to change.
    ending
        Handle by which a caller that handles signals ends the run early. Without it, the first Ctrl-C ends a run with a
        time budget with the best result so far, and is raised in a run without one.
    retained
        Work of earlier runs that may be used again, and receives that of this run; None to keep nothing.

    Returns
    -------
    Result or None
        The result on rank 0, None on the others.

    Raises
    ------
    DmcmcError
        If a table does not fit the memory or a method is unknown; raised on every rank. After any other error of one
        rank, the others raise :class:`dmcmc.mpi.collective_calls.OtherRankError`, or are ended when that rank ends.
    """
    world, progress = world or World(), progress or NoProgress()
    try:
        config = with_memory_limit(config, world)
        tables = 0 if problem is None else bytes_of_tables(problem)
        with (
            MEMORY_ACCOUNT.open(config.budget.bytes, resident_memory() - tables),
            RunComponents(world, config, progress, solve_tiny) as components,
        ):
            if problem is not None:
                check_domains(problem)
            observers = () if explain is None or world.rank > 0 else (explain,)
            watch = Watch(progress, observers, ending, handles_signals=ending is not None)
            if config.budget.time is None and config.search in _SEARCHES_OF_FIXED_WORK:
                components.begin(problem)
                watch = components.ahead(watch, can_end_early=ending is not None)
                result = solve_fixed_work(problem, config, world, watch, retained)
            else:
                from dmcmc.anytime.solve_in_time import solve_in_time  # fixed work needs no scheduler

                result = solve_in_time(problem, config, world, watch, components, retained)
            seconds = sum(world.allgather(components.seconds))
            return None if result is None else msgspec.structs.replace(result, time_compiling=seconds)
    except BaseException as error:
        world.abort_on_exit(error)
        raise
