"""The searches over the whole assignment in a run with a time budget: in time slices, and in the background.

:class:`RankSearch`, which a run with fixed work uses, has the local search itself.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from threading import Event, Thread

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.background_engine import BackgroundEngine
from dmcmc.anytime.early_engine import EarlyEngine
from dmcmc.anytime.improvers import gpu_chains
from dmcmc.inference.runtime.deadline import NO_DEADLINE, CancellationToken, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.inference.runtime.threads import lower_priority
from dmcmc.mpi.world import World
from dmcmc.results.improver_names import GPU_CHAINS
from dmcmc.results.outcome import AssignmentQuality, quality_of
from dmcmc.results.result import Result
from dmcmc.run.compilation import kernel_sets
from dmcmc.run.compilation.kernel_sets import KernelSet, SearchVariant
from dmcmc.run.compilation.kernel_supply import ConcurrentWork, KernelSupply
from dmcmc.samplers.local_search.ascent import Ascent
from dmcmc.samplers.local_search.constraint_ascent import ascent_of
from dmcmc.samplers.local_search.uncompiled_ascent import UncompiledAscent
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.planning.combination_plan import will_prove
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.planning.setup import Setup
from dmcmc.solving.rank_search import RankSearch, proves_on_gpu

# Of the remaining time: maximum search before there are tables; later it goes on in the background
_MAX_SHARE_BEFORE_TABLES = 0.03
# Of the estimated time of exact tables: the same limit if those tables prove the optimum
_MAX_SHARE_OF_EXACT_TABLES = 0.02
_MIN_SLICE = 0.02  # shortest time slice, seconds
_MIN_BRIEF_SEARCH = 0.01  # shortest brief search in the background of tables that prove the optimum, seconds
_LAYOUT_SECONDS_PER_ENTRY = 2e-8  # estimated seconds per entry for laying out the columns that chains read
_FIRST_SLICE = 0.3  # first time slice, seconds
MIN_RELATIVE_GAIN = 5e-4  # relative gain in utility below which a slice as long as all earlier ones was not worthwhile
_MIN_FOREGROUND_SECONDS = 0.1  # foreground work shorter than this (seconds) gets no background search


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
    kernels : KernelSupply
        The kernels that are compiled.
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
        self._has_kernels = _agree_on_first_search(parts, world, kernels)
        super().__init__(parts, incumbent, world, stop)
        self._search.chains.may_move_blocks = partial(self._is_ready, kernel_sets.block_moves)
        self._search.chains.may_search_constraints = partial(
            self._is_ready, lambda variant: kernel_sets.constraint_search()
        )
        self.engine = BackgroundEngine(parts, incumbent, world, self._search, stop, kernels, early)
        self.gpu_search: gpu_chains.BackgroundGpuChains | None = None

    def __exit__(self, *_: object) -> None:
        self.engine.end()
        if self.gpu_search is not None:
            self.gpu_search.end()
        super().__exit__()

    def _make_ascent(self, stop: Deadline, threads: int) -> Ascent:
        """Return the hill climbing on the problem to solve, without kernels until they are compiled."""
        problem = self.parts.original
        if not self._has_kernels:
            return UncompiledAscent(problem, stop)
        if problem.tabular:
            return super()._make_ascent(stop, threads)
        return ascent_of(problem, 1, stop, partial(self.kernels.is_ready, kernel_sets.constraint_search()))

    def _make_original_ascent(self, stop: Deadline) -> Ascent | None:
        """Return the hill climbing on the problem as given; None if its kernels are needed and not compiled."""
        given = self.parts.given.problem
        if self.kernels.is_ready(kernel_sets.first_search_of(given)):
            return super()._make_original_ascent(stop)
        return UncompiledAscent(given, stop) if given.dense else None

    @property
    def stoppable(self) -> bool:
        """Whether a deadline or a cancellation can end the run early."""
        return self._stop is not NO_DEADLINE

    def start_engine(self, stop: Deadline) -> Deadline:
        """Start the external search engine if it is wanted; return the deadline, which the engine's proof ends, too."""
        stop = self.engine.engage(stop)
        self._set_deadline(stop)
        return stop

    def result_without_tables(self) -> Result | None:
        """Return the result before there are tables, on rank 0; None on other ranks."""
        return self.best_so_far() if self.world.rank == 0 else None

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
        self, wanted: bool = True, min_relative_gain: float = 0.0, low_priority: bool = True, brief_seconds: float = 0.0
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
            Whether the search has a lower priority than the body. It applies to several agents only, because their
            tables give assignments, too.
        brief_seconds
            If the search is not wanted: search once at the start for at most this many seconds.
        """
        low_priority = low_priority and self.parts.problem.n_agents > 1
        search, stop, threads = self._search, self._search.stop, self._search.threads
        cancellation, best = CancellationToken(stop.cancellation.requested_at), self.best
        ended = Event()

        def search_in_turns() -> None:
            nonlocal best
            spent, pause = 0.0, _MIN_FOREGROUND_SECONDS
            with suppress(OutOfMemory):
                if not wanted:
                    lower_priority()
                    for seconds in (0.0, brief_seconds):  # the first call lays out the columns for the chains
                        best = search.improve(best, seconds, 0, self._report_better)
                    return
                while not ended.wait(pause) and not search.stop.over:
                    if low_priority and not spent:
                        lower_priority()
                    before, seconds, rounds_before = best, max(_FIRST_SLICE, spent), search.chains.rounds
                    best = search.improve(before, seconds, 0, self._report_better)
                    improved = search.better(best, before)
                    if min_relative_gain and improved:
                        improved = _is_worthwhile(self._worth_of(before), self._worth_of(best), min_relative_gain)
                    spent, pause = (
                        spent + seconds,
                        0.0 if improved or search.chains.rounds == rounds_before else seconds,
                    )

        if not (wanted or brief_seconds) or not self.parts.timed or not self._chains_are_ready():
            yield
            return
        if not self.searches:
            yield
            self._share_best(None)
            return
        thread = Thread(target=search_in_turns, name="dmcmc search", daemon=True)
        search.stop, search.threads, search.behind = (
            replace(stop, cancellation=cancellation),
            self._background_threads(threads),
            low_priority,
        )
        thread.start()
        try:
            yield
        finally:
            cancellation.request()
            ended.set()
            thread.join()
            search.stop, search.threads, search.behind = stop, threads, False
        self._share_best(best)

    def _background_threads(self, threads: int) -> int:
        """Return the number of threads of a background search: half of each rank's threads, but at least one."""
        return min(threads, self._ranks_served * max(1, threads // self._ranks_served // 2))

    def brief_search_seconds(self, setup: Setup) -> float:
        """Return the seconds of a brief search in the background of tables that will prove the optimum.

        It shows a better assignment than the first incumbent while the tables are made. The result is 0 if laying out
        the columns for the chains would delay the tables.
        """
        if not setup.timed or self.decodes_only or not will_prove(setup):
            return 0.0
        max_seconds = self._max_seconds_before_tables(setup, proven=True)

        def is_affordable() -> bool:  # other ranks may know too little
            return (
                max_seconds >= _MIN_BRIEF_SEARCH
                and _LAYOUT_SECONDS_PER_ENTRY * self._search.ascent.graph.columns <= 3 * max_seconds
            )

        return max_seconds if self.world.on_first_rank(is_affordable) else 0.0

    def _worth_of(self, values: NDArray[np.int64]) -> AssignmentQuality:
        """Return violations and utility of an assignment."""
        return quality_of(self.parts.original, values[: self.parts.original.n_variables])

    def before_tables(self, setup: Setup) -> None:
        """Search while it is worthwhile before there are tables; only briefly if these will soon prove the optimum."""
        if not setup.timed:
            super().before_tables(setup)
            return
        if not proves_on_gpu(setup):
            self.overlapped.run()
        self.improve_while_it_pays(self._max_seconds_before_tables(setup, will_prove(setup)))

    def improve_while_it_pays(self, max_seconds: float) -> None:
        """Search in slices of growing length while they bring a gain, up to ``max_seconds``; called by all ranks."""
        spent = 0.0
        if max_seconds >= _MIN_SLICE:
            self.improve(0.0)  # lays out the columns for the chains
        while (seconds := min(max(_FIRST_SLICE, spent), max_seconds - spent)) >= _MIN_SLICE:
            before, start = self.quality, time.perf_counter()
            self.improve(seconds)
            spent, over = self.world.bcast((spent + time.perf_counter() - start, self._search.stop.over))
            if over or not _is_worthwhile(before, self.quality):
                return

    def without_tables(self, error: ResourceError) -> Result | None:
        """Search until the time is over, because no plan fits the resources; return the result on rank 0."""
        self.incumbent.give_up(error)
        self.engine.start_without_tables()
        self.use_remaining_time()
        return self.best_so_far() if self.world.rank == 0 else None

    def begin_on_gpu(self, setup: Setup) -> None:
        """Start background chains on rank 0's GPU, if they are wanted and tables will not prove the optimum soon.

        If agents' tables use the GPU, too, the chains get only a part of its time.
        """
        if self.world.rank or will_prove(setup) or not gpu_chains.wanted(setup.config):
            return
        no_tables_on_gpu = setup.backend.device != "cuda" and all(choice.device == "cpu" for choice in setup.choices)
        self.gpu_search = gpu_chains.BackgroundGpuChains(
            self._search, self._incumbent_values, self._record_gpu_result, no_tables_on_gpu, self._stop
        )

    def _incumbent_values(self) -> NDArray[np.int64]:
        """Return the best assignment so far (rank 0)."""
        assert self.incumbent.values is not None
        return self.incumbent.values

    def _record_gpu_result(self, values: NDArray[np.int64]) -> float:
        """Record an assignment of the GPU chains, on their thread; return the gain in utility."""
        before = self.incumbent.utility
        self.incumbent.update(values, GPU_CHAINS)
        after = self.incumbent.utility
        return 0.0 if before is None or after is None else max(0.0, float(after - before))

    def _is_ready(self, kernels_of: Callable[[SearchVariant], KernelSet]) -> bool:
        """Return whether this rank has kernels of the local search."""
        return not self.searches or self.kernels.is_ready(kernels_of(self._variant))

    @cached_property
    def _variant(self) -> SearchVariant:
        """The variant of the kernels of the local search; only ranks that search know it."""
        return SearchVariant.of(self.parts)

    def _chains_are_ready(self) -> bool:
        """Return whether all ranks have the kernels of the chains, and of the first search if they had not before."""
        ready = all(self.world.allgather(self._is_ready(kernel_sets.chains) and self._is_ready(_first_search)))
        if ready and not self._has_kernels:
            self._has_kernels = True
            if self.searches:
                self._search.ascent = ascent_of(self.parts.original, self._search.threads, self._search.ascent.stop)
        return ready

    def _wait_for_chains(self, seconds: float | None) -> bool:
        """Wait for the kernels of the chains, for some seconds at most; return whether all ranks have them."""
        stop = self._stop if seconds is None else self._stop.by(time.perf_counter() + seconds)
        sets = [_first_search(self._variant), kernel_sets.chains(self._variant)] if self.searches else []
        with suppress(OutOfTime):
            self.delay(self.kernels.wait(self.world.bcast(sets), stop))
        return self._chains_are_ready()

    def request_kernels(self) -> float:
        """Compile the kernels of searches in the background; return the seconds that do not count as run time."""
        sets = []
        sets += kernel_sets.own_engine(self.engine.name)
        if self.searches and not self.decodes_only:
            sets += kernel_sets.local_search(self.parts)
            if self.quality.negated_violation < 0:
                sets.append(kernel_sets.constraint_search())
        if self.parts.timed:
            sets.append(kernel_sets.rates())
        return self.kernels.request(*sets)

    @property
    def concurrent_work(self) -> ConcurrentWork:
        """The search in the background, as work for the time in which the run waits for other kernels."""
        chains = kernel_sets.chains(self._variant) if self.searches else None
        return ConcurrentWork(self.world.bcast(chains), partial(self.in_background, low_priority=False))

    def use_remaining_time(self) -> None:
        """Search until the deadline, unless the run has reached its goal."""

        def seconds() -> float:
            return 0.0 if self.incumbent.reached else self._search.stop.left

        left = self.world.on_first_rank(seconds)
        if _MIN_SLICE < left < float("inf"):
            self.improve(left)
        self.incumbent.timed_out = self._search.stop.over

    def _max_seconds_before_tables(self, setup: Setup, proven: bool) -> float:
        """Return the maximum seconds of search before there are tables; the same on all ranks."""

        def seconds() -> float:
            left = max(0.0, self._search.stop.until - time.perf_counter())
            if not proven:
                return _MAX_SHARE_BEFORE_TABLES * left
            work = sum(choice.seconds for choice in setup.choices) / max(1, setup.limits.threads * self.world.size)
            return min(_MAX_SHARE_BEFORE_TABLES * left, _MAX_SHARE_OF_EXACT_TABLES * work)

        max_seconds: float = self.world.on_first_rank(seconds)
        return max_seconds

    def improve(self, seconds: float | None, sweeps: int = 0) -> bool:
        """Search for some seconds or a number of sweeps, once the kernels are compiled; return whether that gained."""
        return self._wait_for_chains(seconds) and super().improve(seconds, sweeps)


def _agree_on_first_search(parts: DividedProblem, world: World, kernels: KernelSupply) -> bool:
    """Return whether all ranks that search have the kernels of the first search, or need them at once."""
    searches = world.rank == 0 or not parts.scattered

    def is_ready() -> bool:
        first_kernels = kernel_sets.first_search(parts.problem.flat.data.dtype, parts.original.dense)
        return not searches or not parts.original.dense or kernels.is_ready(first_kernels)

    return all(world.allgather(is_ready()))


def _first_search(variant: SearchVariant) -> KernelSet:
    """Return the kernels that find the first incumbent and make answers 1-optimal."""
    return kernel_sets.first_search(variant.dtype, variant.dense, variant.constrained)


def _is_worthwhile(
    before: AssignmentQuality, after: AssignmentQuality, min_relative_gain: float = MIN_RELATIVE_GAIN
) -> bool:
    """Return whether the improvement from one assignment to another justifies more search.

    That is the case if hard constraints are or were violated, or if the relative gain in utility exceeds
    ``min_relative_gain``.
    """
    if after.negated_violation != before.negated_violation or after.negated_violation < 0:
        return True
    return float(after.utility - before.utility) > min_relative_gain * abs(float(before.utility))
