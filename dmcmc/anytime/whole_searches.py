"""The searches over the whole assignment that run while the agents work: local search, external engine, GPU chains.

They exist where a rank knows the whole problem. In a run with private inputs there are none, and everything here does
nothing.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.local_search import IncumbentSearch
from dmcmc.anytime.scheduler.proposal import MeasuredGain
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.results.outcome import quality_of
from dmcmc.solving.planning.setup import Setup

_POLL_SECONDS = 0.05  # seconds between two polls of the external search engine


class BackgroundSearches:
    """The external engine and the GPU chains of one rank, which search in the background until they are ended.

    Parameters
    ----------
    world : World
        The ranks.
    search : IncumbentSearch or None
        The search that has them; None if there are no searches over the whole assignment.
    """

    def __init__(self, world: World, search: IncumbentSearch | None) -> None:
        self._world, self._search = world, search

    @property
    def engine_may_improve(self) -> bool:
        """Whether the external engine of this rank may still improve the incumbent or the bound."""
        return self._search is not None and self._search.engine.may_improve

    @property
    def gpu_is_active(self) -> bool:
        """Whether a background search on this rank's GPU is still active."""
        return self._search is not None and self._search.gpu_search is not None and self._search.gpu_search.running

    def have_ended_run(self) -> bool:
        """Return whether the external engine has reached the goal of the run; called by all ranks."""
        return self._search is not None and self._search.engine.has_ended_run()

    def take_gains(self) -> list[MeasuredGain]:
        """Return the seconds and gains of these searches since the last call."""
        if self._search is None:
            return []
        on_gpu = self._search.gpu_search
        return [*self._search.engine.take_gains(), *([] if on_gpu is None else on_gpu.take_gains())]

    def continue_engine(self, wanted: bool, setup: Setup) -> Setup:
        """Let the external engine go on, or end it; return the setup with the cores that are free."""
        if self._search is None:
            return setup
        if not wanted:
            return self._search.engine.disengage(setup)
        self._search.engine.resume()
        return setup

    def allow_gpu_seconds(self, seconds: float) -> None:
        """Let the chains in the background use some seconds of the GPU."""
        if self._search is not None and self._search.gpu_search is not None:
            self._search.gpu_search.allow(seconds)

    def wait_for_engine(self, seconds: float) -> None:
        """Wait for the external engine on all ranks, until it ends or the time is over."""
        engine = None if self._search is None else self._search.engine.process
        until, stop = time.perf_counter() + seconds, None if self._search is None else self._search.stop
        while engine is not None and engine.on and time.perf_counter() < until and stop is not None and not stop.over:
            engine.wait(_POLL_SECONDS)
        if seconds > 0:
            self._world.wait()


class WholeSearches:
    """The searches over the whole assignment of one rank; the methods are called by all ranks.

    Parameters
    ----------
    world : World
        The ranks.
    search : IncumbentSearch or None
        The local search, which has the external engine and the GPU chains; None if there are no such searches.

    Attributes
    ----------
    background : BackgroundSearches
        The external engine and the GPU chains.
    """

    def __init__(self, world: World, search: IncumbentSearch | None) -> None:
        self._world, self._search, self.background = world, search, BackgroundSearches(world, search)

    @property
    def exist(self) -> bool:
        """Whether there are searches over the whole assignment."""
        return self._search is not None

    @property
    def feasible_utility(self) -> Number | None:
        """Utility of the best assignment that all ranks know; None if it breaks hard constraints or is not known."""
        return None if self._search is None else self._search.quality.feasible_utility

    @contextmanager
    def during_tables(self, setup: Setup) -> Iterator[None]:
        """Search in the background, also on a GPU if that is wanted, while the body makes the first tables."""
        with nullcontext() if self._search is None else self._search.during_tables(setup):
            yield

    @contextmanager
    def in_background(self, wanted: bool = True) -> Iterator[None]:
        """Search in the background while the body works."""
        with nullcontext() if self._search is None else self._search.in_background(wanted):
            yield

    def improve(self, seconds: float) -> bool:
        """Let the local search work for some seconds on all ranks; return whether it has found something better."""
        return self._search is not None and self._search.improve(seconds, 0)

    def record(self, assignments: Sequence[NDArray[np.int64]], by: str) -> None:
        """Record assignments that an improver has found, made 1-optimal (rank 0)."""
        for values in assignments if self._search is not None else ():
            assert self._search is not None
            self._search.record(values, by)

    def record_best(self, found: Sequence[NDArray[np.int64]]) -> None:
        """Record the best of the assignments that each rank has found, made 1-optimal; called by all ranks."""
        if self._search is None:
            return
        original = self._search.parts.original
        qualities = [quality_of(original, values[: original.n_variables]) for values in found]
        best = max(range(len(qualities)), key=lambda number: qualities[number], default=None)
        self._search.make_1_optimal(None if best is None else found[best])

    def suggest(self, starts: Sequence[NDArray[np.int64]]) -> None:
        """Let the local search of this rank start from some given assignments, too."""
        if self._search is not None:
            self._search.suggest(starts)

    def use_remaining_time(self, reserved: bool = False) -> None:
        """Search until the deadline, unless the run has reached its goal.

        Parameters
        ----------
        reserved
            Whether only the time is left that was reserved for a combination, in a run whose time is over.
        """
        if self._search is None or (reserved and self._search.decodes_only):
            return
        incumbent = self._search.incumbent
        if not reserved or self._world.on_first_rank(lambda: incumbent.timed_out):
            self._search.use_remaining_time()
            incumbent.timed_out |= reserved
