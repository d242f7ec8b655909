"""The searches over the whole assignment that run beside the agents' work: local search, external engine, GPU chains.

They exist where a rank knows the whole problem. In a run with private inputs there are none, and everything here does
nothing.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.run.local_search import MIN_RELATIVE_GAIN, IncumbentSearch
from dmcmc.run.scheduler.directive import Directive
from dmcmc.run.scheduler.proposal import BRANCH, EXTERNAL_SEARCH, GPU_CHAINS, MeasuredGain
from dmcmc.solving.planning.combination_plan import will_prove
from dmcmc.solving.planning.setup import Setup

_POLL_SECONDS = 0.05  # seconds between two polls of the external search engine


class WholeSearches:
    """The searches over the whole assignment of one rank; the methods are called by all ranks.

    Parameters
    ----------
    world : World
        The ranks.
    search : IncumbentSearch or None
        The local search, which has the external engine and the GPU chains; None if there are no such searches.
    """

    def __init__(self, world: World, search: IncumbentSearch | None) -> None:
        self._world, self._search = world, search

    @property
    def exist(self) -> bool:
        """Whether there are searches over the whole assignment."""
        return self._search is not None

    @property
    def engine_may_improve(self) -> bool:
        """Whether the external engine of this rank may still improve the incumbent or the bound."""
        return self._search is not None and self._search.engine.may_improve

    @property
    def gpu_is_active(self) -> bool:
        """Whether a background search on this rank's GPU is still active."""
        return self._search is not None and self._search.gpu_search is not None and self._search.gpu_search.running

    @property
    def feasible_utility(self) -> Number | None:
        """Utility of the best assignment that all ranks know; None if it breaks hard constraints or is not known."""
        return None if self._search is None else self._search.quality.feasible_utility

    def begin_on_gpu(self, setup: Setup) -> None:
        """Start background chains on rank 0's GPU, if they are wanted and tables will not prove the optimum soon."""
        if self._search is not None:
            self._search.begin_on_gpu(setup)

    @contextmanager
    def beside_tables(self, setup: Setup) -> Iterator[None]:
        """Search in the background while the body makes the first tables."""
        if self._search is None:
            yield
            return
        brief = self._search.brief_search_seconds(setup)
        searching = self._search.in_background(not will_prove(setup), MIN_RELATIVE_GAIN, brief_seconds=brief)
        with searching, self._search.overlapped.overlapping():
            yield

    @contextmanager
    def in_background(self, wanted: bool = True) -> Iterator[None]:
        """Search in the background while the body works."""
        with nullcontext() if self._search is None else self._search.in_background(wanted):
            yield

    def have_ended_run(self) -> bool:
        """Return whether the external engine has reached the goal of the run."""
        return self._search is not None and self._search.engine.has_ended_run()

    def take_gains(self) -> list[MeasuredGain]:
        """Return the seconds and gains of the searches in the background since the last call."""
        if self._search is None:
            return []
        on_gpu = self._search.gpu_search
        return [*self._search.engine.take_gains(), *([] if on_gpu is None else on_gpu.take_gains())]

    def allow(self, directive: Directive, setup: Setup) -> Setup:
        """Let the searches in the background work as rank 0 decides; return the setup with the cores that are free."""
        if self._search is None:
            return setup
        if directive.allocations_of(EXTERNAL_SEARCH):
            self._search.engine.resume()
        else:
            setup = self._search.engine.disengage(setup)
        if self._search.gpu_search is not None:
            seconds = sum(allocation.seconds for allocation in directive.allocations_of(GPU_CHAINS))
            self._search.gpu_search.allow(seconds)
        return setup

    def improve(self, seconds: float) -> bool:
        """Let the local search work for some seconds on all ranks; return whether it has found something better."""
        return self._search is not None and self._search.improve(seconds, 0)

    def wait_for_engine(self, seconds: float) -> None:
        """Wait for the external engine on all ranks, until it ends or the time is over."""
        engine = None if self._search is None else self._search.engine.process
        until, stop = time.perf_counter() + seconds, None if self._search is None else self._search.stop
        while engine is not None and engine.on and time.perf_counter() < until and stop is not None and not stop.over:
            engine.wait(_POLL_SECONDS)
        if seconds > 0:
            self._world.wait()

    def record(self, assignments: Sequence[NDArray[np.int64]]) -> None:
        """Record assignments that branch and bound has found, made 1-optimal (rank 0)."""
        for values in assignments if self._search is not None else ():
            assert self._search is not None
            self._search.record(values, by=BRANCH)

    def suggest(self, starts: Sequence[NDArray[np.int64]]) -> None:
        """Let the local search of this rank start from some given assignments, too."""
        if self._search is not None:
            self._search.suggest(starts)

    def use_remaining_time(self) -> None:
        """Search until the deadline, unless the run has reached its goal."""
        if self._search is not None:
            self._search.use_remaining_time()

    def use_time_of_combination(self) -> None:
        """Search until the deadline of a run whose time is over but for what was reserved for a combination."""
        if self._search is not None and not self._search.decodes_only:
            incumbent = self._search.incumbent
            if self._world.on_first_rank(lambda: incumbent.timed_out):
                self._search.use_remaining_time()
                incumbent.timed_out = True
