"""What a rank's searches do while a run with a time budget has no tables: wait for kernels, or end without a plan."""

from functools import partial

from dmcmc.anytime.local_search import IncumbentSearch
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.results.result import Result
from dmcmc.run.compilation.kernel_supply import ConcurrentWork


def request_kernels(search: IncumbentSearch) -> float:
    """Compile the kernels of searches in the background; return the seconds that do not count as run time."""
    searches, violated = search.searches and not search.decodes_only, search.quality.negated_violation < 0
    return search.search_kernels.request(search.engine.name, searches, violated)


def waiting_search(search: IncumbentSearch) -> ConcurrentWork:
    """Return the search in the background as work for the time in which the run waits for other kernels."""
    return ConcurrentWork(search.search_kernels.chains(), partial(search.in_background, low_priority=False))


def result_without_tables(search: IncumbentSearch) -> Result | None:
    """Return the result before there are tables, on rank 0; None on other ranks."""
    return search.best_so_far() if search.world.rank == 0 else None


def end_without_tables(search: IncumbentSearch, error: ResourceError) -> Result | None:
    """Search until the time is over, because no plan fits the resources; return the result on rank 0."""
    search.incumbent.give_up(error)
    if search.engine.process is not None:
        search.engine.process.begin()  # if it has not started
    search.use_remaining_time()
    return result_without_tables(search)
