"""The beginning of a run: a search with a first incumbent, before anything is planned."""

from functools import partial

from dmcmc.inference.runtime.deadline import Stop
from dmcmc.mpi.world import World
from dmcmc.run.incumbent import Incumbent
from dmcmc.run.local_search import Search
from dmcmc.run.metrics import solution_of
from dmcmc.run.monitoring.progress import Progress
from dmcmc.run.planning.divided_problem import Divided


def begin(parts: Divided, world: World, stop: Stop, start: float, progress: Progress, may_wait: bool = False) -> Search:
    """Return a search with a first incumbent; called by all ranks.

    Parameters
    ----------
    start
        When the clock started (``time.perf_counter``).
    progress
        Told each point of the trace, and each better assignment.
    may_wait
        As for :meth:`.Search.first`: what follows sees to ``Search.meanwhile``.
    """
    deadline = stop.until if parts.timed else None
    incumbent = Incumbent(parts.original, parts.config, start, deadline, progress.point, parts)
    incumbent.tell_better = lambda: progress.solution(partial(solution_of, parts, incumbent))
    search = Search(parts, incumbent, world, stop)
    search.first(may_wait)
    if parts.timed and parts.config.checkpoint is not None:
        search.go_on(parts.config.checkpoint)
    return search
