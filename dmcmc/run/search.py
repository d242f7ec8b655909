"""Local search over the whole assignment, beside the tables: where the incumbent comes from, and what polishes answers.

Every rank moves its own agents' variables. The values that come out are complete, and the same on all ranks.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.world import World
from dmcmc.results.outcome import Worth
from dmcmc.results.result import Result
from dmcmc.run.incumbent import Incumbent
from dmcmc.run.metrics import early_result
from dmcmc.run.progress import Progress
from dmcmc.run.setup import Divided
from dmcmc.samplers.local_search.search import LocalSearch

_POLISH = 0.3  # seconds beyond the end that an answer may take to have no better neighbour


class Search:
    """This rank's part of the search.

    Attributes
    ----------
    best : ndarray of int64
        The best assignment so far, values of all variables of the dense problem; the same on all ranks.
    worth : Worth
        What it is worth, likewise.
    """

    best: NDArray[np.int64]
    worth: Worth

    def __init__(self, parts: Divided, incumbent: Incumbent, world: World, stop: Stop) -> None:
        self.parts, self.incumbent, self.world = parts, incumbent, world
        agents = np.array_split(np.arange(parts.problem.n_agents), world.size)[world.rank].tolist()
        threads = max(1, cores() // world.local_size)
        self._search = LocalSearch(parts.original, parts.problem, agents, parts.config.seed, threads, stop)
        self._until(stop)

    def _until(self, stop: Stop) -> None:
        """Say when to end; an answer may take a little longer to become 1-optimal."""
        self._search.stop, self._search.ascent.stop = stop, stop.later(_POLISH)

    def best_so_far(self) -> Result:
        """Return what would be the result if nothing else came, from any thread (rank 0)."""
        return early_result(self.parts, self.incumbent, self.world.size, 0)

    def delay(self, seconds: float) -> Stop:
        """Move the start of the run, and its end: something was compiled. Return when it ends now."""
        stop = self._search.stop
        stop = replace(stop, until=stop.until + seconds)
        self.incumbent.delay(seconds)
        self._until(stop)
        return stop

    def first(self) -> None:
        """Make the first incumbent."""
        self._take(self._search.first())

    def polish(self, values: NDArray[np.int64]) -> None:
        """Make an assignment 1-optimal, and the incumbent if that is better."""
        self._take(self._search.polish(values))

    def improve(self, seconds: float | None, sweeps: int = 0) -> bool:
        """Look for a better incumbent for some seconds, or by so many sweeps; return whether there is one now."""
        before = self.worth
        told = self.incumbent.update if self.world.rank == 0 else _ignore
        self._take(self._search.improve(self.best, seconds, sweeps, told))
        return self.worth.better(before)

    def _take(self, values: NDArray[np.int64]) -> None:
        """Let rank 0 take in the best of what all ranks have found, and tell all of them."""
        found = self.world.gather(values)

        def taken() -> tuple[NDArray[np.int64], Worth]:
            for one in found or []:
                if self.incumbent.values is None or not np.array_equal(one, self.incumbent.values):
                    self.incumbent.update(one)
            assert self.incumbent.values is not None and self.incumbent.worth is not None
            return self.incumbent.values, self.incumbent.worth

        self.best, self.worth = self.world.decided(taken)


def _ignore(values: NDArray[np.int64]) -> None:
    pass


def begin(parts: Divided, world: World, stop: Stop, start: float, progress: Progress) -> Search:
    """Return a search with a first incumbent; called by all ranks.

    Parameters
    ----------
    start
        When the clock started (``time.perf_counter``).
    progress
        Told each point of the trace.
    """
    deadline = stop.until if parts.timed else None
    incumbent = Incumbent(parts.original, parts.config, start, deadline, progress.point)
    search = Search(parts, incumbent, world, stop)
    search.first()
    return search
