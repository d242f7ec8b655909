"""The first step of a run: a local search with an initial incumbent, before anything is planned."""

from functools import partial

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.mpi.world import World
from dmcmc.run.incumbent import Incumbent
from dmcmc.run.local_search import IncumbentSearch
from dmcmc.run.metrics import solution_of
from dmcmc.run.monitoring.progress import ProgressReporter
from dmcmc.run.planning.divided_problem import DividedProblem


def begin(
    parts: DividedProblem,
    world: World,
    stop: Deadline,
    start: float,
    progress: ProgressReporter,
    may_wait: bool = False,
) -> IncumbentSearch:
    """Return a local search that has an initial incumbent; called by all ranks.

    Parameters
    ----------
    parts
        The divided problem.
    world
        The ranks.
    stop
        Deadline of the run.
    start
        Time at which the run's clock started (``time.perf_counter``).
    progress
        Receives each point of the trace, and each better assignment.
    may_wait
        Whether the first assignment may be computed later, while a GPU is at work; see
        ``IncumbentSearch.first``. The caller then has to run ``IncumbentSearch.overlapped``.
    """
    deadline = stop.until if parts.timed else None
    incumbent = Incumbent(parts.original, parts.config, start, deadline, progress.point, parts)
    incumbent.on_better = lambda: progress.solution(partial(solution_of, parts, incumbent))
    search = IncumbentSearch(parts, incumbent, world, stop)
    search.first(may_wait)
    if parts.timed and parts.config.checkpoint is not None:
        search.resume_from(parts.config.checkpoint)
    return search
