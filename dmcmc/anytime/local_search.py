"""The searches over the whole assignment in a run with a time budget: in time slices, and in the background.

:class:`RankSearch`, which a run with fixed work uses, has the local search itself.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.background_local_search import BackgroundTurns, is_worthwhile
from dmcmc.anytime.engines.background_engine import BackgroundEngine
from dmcmc.anytime.engines.early_engine import EarlyEngine
from dmcmc.anytime.improvers import gpu_chains
from dmcmc.anytime.time_before_tables import brief_search_seconds, max_seconds_before_tables
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.mpi.world import World
from dmcmc.run.compilation.kernel_supply import KernelSupply
from dmcmc.run.compilation.search_components import SearchComponents, constraint_search, first_search_of
from dmcmc.samplers.local_search.local_search import Ascent, ascent_of
from dmcmc.samplers.local_search.uncompiled_ascent import UncompiledAscent
from dmcmc.samplers.tuning import common
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.rank_search import RankSearch, proves_on_gpu
from dmcmc.tuning import anytime as tuning


class IncumbentSearch(RankSearch):
    """A rank's part of the searches over the whole assignment, with a time budget.

    It searches in time slices and in the background, begins before its kernels are compiled, and has the other searches
    over the whole assignment: the external engine and the chains on the GPU.

    Parameters
    ----------
    parts, incumbent, world, stop
        As for :class:`RankSearch`.
    kernels
        The kernels of the run.
    early
        The engine that may already search the problem as given, on rank 0.

    Attributes
    ----------
    engine : BackgroundEngine
        The external search engine in the background, if there is one.
    gpu_search : BackgroundGpuChains or None
        The search on the GPU in the background, on rank 0 once it has begun.
    components : SearchComponents or None
        Kernels of the local search, which say whether they are ready; None on ranks that do not search.
    """

    def __init__(
        self,
        parts: DividedProblem,
        incumbent: Incumbent,
        world: World,
        stop: Deadline,
        kernels: KernelSupply,
        early: EarlyEngine | None = None,
    ) -> None:
        self.kernels = kernels
        self.components = None if world.rank and parts.scattered else SearchComponents.of(parts)
        begins_compiled = self.components is None or not parts.original.tabular or self.components.first.is_ready()
        self._has_first = all(world.allgather(begins_compiled))
        super().__init__(parts, incumbent, world, stop)
        if self.components is not None:
            self._search.chains.may_move_blocks = self.components.block_moves.is_ready
            self._search.chains.may_search_constraints = partial(constraint_search().is_ready, requested=False)
        self.engine = BackgroundEngine(parts, incumbent, world, self._search, stop, early)
        self.gpu_search: gpu_chains.BackgroundGpuChains | None = None

    def __exit__(self, *_: object) -> None:
        self.engine.end()
        if self.gpu_search is not None:
            self.gpu_search.end()
        super().__exit__()

    def _make_ascent(self, stop: Deadline, threads: int) -> Ascent:
        """Return the hill climbing on the problem to solve, without kernels until they are compiled."""
        problem = self.parts.original
        if not self._has_first:
            return UncompiledAscent(problem, stop)
        if problem.tabular:
            return super()._make_ascent(stop, threads)
        return ascent_of(problem, 1, stop, constraint_search().is_ready)

    def _make_original_ascent(self, stop: Deadline) -> Ascent | None:
        """Return the hill climbing on the problem as given; None if its kernels are needed and not compiled."""
        given = self.parts.given.problem
        if first_search_of(given).is_ready():
            return super()._make_original_ascent(stop)
        return UncompiledAscent(given, stop) if given.tabular else None

    def start_engine(self, stop: Deadline) -> Deadline:
        """Start the external search engine if it is wanted; return the deadline, which the engine's proof ends, too."""
        stop = self.engine.engage(stop)
        self._set_deadline(stop)
        return stop

    def delay(self, seconds: float) -> Deadline:
        """Move the start and the deadline of the run by some seconds of compilation; return the new deadline."""
        stop = self._search.stop
        if stop.until < float("inf"):
            stop = replace(stop, until=stop.until + seconds)
        self.incumbent.delay(seconds)
        self._set_deadline(stop)
        self.engine.shift_clock(seconds, stop)
        return stop

    def record(self, values: NDArray[np.int64], by: str) -> None:
        """Improve an assignment of rank 0 to a local optimum and record it as found by an improver."""
        self.incumbent.update(self._search.one_opt(values), by)

    def suggest(self, starts: Sequence[NDArray[np.int64]]) -> None:
        """Let this rank's search start from some given assignments, too."""
        for start in starts if self.searches else ():
            self._search.suggest(start)

    @contextmanager
    def in_background(
        self,
        wanted: bool = True,
        min_relative_gain: float = 0.0,
        low_priority: bool | None = None,
        brief_seconds: float = 0.0,
    ) -> Iterator[None]:
        """Search in a background thread on half of the cores while the body works; pause while nothing is found.

        It does not pause before a whole tournament round of the chains is finished. It runs only in runs with a time
        budget. The body may read the best assignment so far, but must not start a search.

        Parameters
        ----------
        wanted
            Whether to search for the whole duration of the body.
        min_relative_gain
            Relative gain in utility that a time slice as long as all earlier ones has to bring; below it the search
            pauses.
        low_priority
            Whether the search has a lower priority than the body and other processes. If None, that is the case with
            several agents, because their tables give assignments, too.
        brief_seconds
            If the search is not wanted: search once at the start for at most this many seconds.
        """
        if not (wanted or brief_seconds) or not self.parts.timed or not self.chains_are_ready():
            yield
            return
        if not self.searches:
            yield
            self._share_best(None)
            return
        low_priority = self.parts.problem.n_agents > 1 if low_priority is None else low_priority
        turns = BackgroundTurns(self._search, self.best, self._report_better, low_priority)
        work = partial(turns.repeated, min_relative_gain) if wanted else partial(turns.brief, brief_seconds)
        threads = self._search.threads  # half of each rank's threads, but at least one
        half = min(threads, self._ranks_served * max(1, threads // self._ranks_served // 2))
        with turns.running(work, half):
            yield
        self._share_best(turns.best)

    @contextmanager
    def during_tables(self, setup: Setup) -> Iterator[None]:
        """Search in the background, also on a GPU if that is wanted, while the body makes the first tables.

        If the tables will prove the optimum, the search is brief, and not on a GPU.
        """
        proves, brief = setup.will_prove, 0.0
        if self.world.rank == 0 and not proves:
            self.gpu_search = gpu_chains.start(self._search, self.incumbent, setup, self.stop)
        if not self.decodes_only:
            brief = brief_search_seconds(
                setup, self.world, self._search.stop, lambda: self._search.ascent.graph.columns
            )
        searching = self.in_background(not proves, tuning.MIN_SLICE_GAIN, brief_seconds=brief)
        with searching, self.overlapped.overlapping():
            yield

    def before_tables(self, setup: Setup) -> None:
        """Search while it is worthwhile before there are tables; only briefly if these will soon prove the optimum."""
        if not setup.timed:
            super().before_tables(setup)
            return
        if not proves_on_gpu(setup):
            self.overlapped.run()
        self.improve_while_it_pays(max_seconds_before_tables(setup, self.world, self._search.stop, setup.will_prove))

    def improve_while_it_pays(self, max_seconds: float) -> None:
        """Search in slices of growing length while they bring a gain, up to ``max_seconds``; called by all ranks."""
        spent = 0.0
        if max_seconds >= common.CHECK_SECONDS:
            self.improve(0.0)  # lays out the columns for the chains
        while (seconds := min(max(common.SLICE_SECONDS, spent), max_seconds - spent)) >= common.CHECK_SECONDS:
            before, start = self.quality, time.perf_counter()
            self.improve(seconds)
            spent, over = self.world.bcast((spent + time.perf_counter() - start, self._search.stop.over))
            if over or not is_worthwhile(before, self.quality):
                return

    def chains_are_ready(self) -> bool:
        """Return whether all ranks have the kernels of the chains; then hill climbing uses kernels, too."""
        parts = self.components
        ready = all(self.world.allgather(parts is None or (parts.chains.is_ready() and parts.first.is_ready())))
        if ready and not self._has_first:
            self._has_first = True
            if self.searches:
                self._search.ascent = ascent_of(self.parts.original, self._search.threads, self._search.ascent.stop)
        return ready

    def use_remaining_time(self) -> None:
        """Search until the deadline, unless the run has reached its goal."""

        def seconds() -> float:
            return 0.0 if self.incumbent.reached else self._search.stop.left

        left = self.world.on_first_rank(seconds)
        if common.CHECK_SECONDS < left < float("inf"):
            self.improve(left)
        self.incumbent.timed_out = self._search.stop.over

    def improve(self, seconds: float | None, sweeps: int = 0) -> bool:
        """Search for some seconds or a number of sweeps, once the kernels are compiled; return whether that gained."""
        stop = self.stop if seconds is None else self.stop.by(time.perf_counter() + seconds)
        with suppress(OutOfTime):
            self.delay(self.kernels.wait(self.world.bcast(self.components and self.components[:2]), stop))
        return self.chains_are_ready() and super().improve(seconds, sweeps)
