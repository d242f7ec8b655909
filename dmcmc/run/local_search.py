"""Local search over the whole assignment: it finds incumbents, and makes assignments decoded from tables 1-optimal.

Every rank runs some of the Markov chains (``dmcmc.samplers.local_search``). If rank 0 alone knows the problem
(``parts.scattered``), it runs all chains, with the threads of all ranks that share its cores. The best assignment is
complete, and the same on all ranks. 1-optimal means that no change of a single variable improves the assignment.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from threading import Event, Thread
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, CancellationToken, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.inference.runtime.threads import cores, lower_priority
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality, quality_of
from dmcmc.results.result import Result
from dmcmc.run.background_engine import BackgroundEngine
from dmcmc.run.compilation import kernel_sets
from dmcmc.run.compilation.kernel_sets import KernelSet, SearchVariant
from dmcmc.run.compilation.kernel_supply import ConcurrentWork, KernelSupply
from dmcmc.run.improvers import gpu_chains
from dmcmc.run.incumbent import Incumbent
from dmcmc.run.metrics import early_result
from dmcmc.run.monitoring.saved_incumbent import SavedIncumbent
from dmcmc.run.overlapped_work import OverlappedWork, may_wait_for_gpu, proves_on_gpu
from dmcmc.run.planning.combination_plan import will_prove
from dmcmc.run.planning.divided_problem import DividedProblem
from dmcmc.run.planning.setup import Setup
from dmcmc.run.scheduler.proposal import BRANCH_AND_BOUND, GPU_CHAINS, LOCAL_SEARCH
from dmcmc.samplers.local_search.constraint_ascent import ascent_of
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.local_search.rank_exchange import SINGLE_PROCESS
from dmcmc.samplers.local_search.uncompiled_ascent import UncompiledAscent

SWEEPS = 400  # sweeps (passes over the variables) of all chains together, without a time budget
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
_ONE_OPT_GRACE = 0.3  # seconds after the deadline in which an answer may still be made 1-optimal

_EMPTY_PROBLEM = Problem((), np.zeros(0, dtype=np.int64), (), np.zeros(0, dtype=np.int64), ())


class _RankExchange:
    """Exchanges the final states of chains between ranks, once per tournament round, as the search expects."""

    def __init__(self, world: World) -> None:
        self.rank, self.size, self.all = world.rank, world.size, partial(world.allgather, what="search")


class IncumbentSearch:
    """A rank's part of the local search over the whole assignment.

    Parameters
    ----------
    parts
        The divided problem as this rank knows it.
    incumbent
        The incumbent; rank 0 records better assignments there.
    world
        The ranks.
    stop
        Deadline of the run.
    kernels
        The kernels of the run.

    Attributes
    ----------
    best : ndarray of int64
        The best assignment so far: value indices of all variables of the dense problem; the same on all ranks.
    quality : AssignmentQuality
        Violations and utility of ``best``; the same on all ranks.
    engine : BackgroundEngine
        The external search engine in the background, if there is one.
    decodes_only : bool
        Whether the answer is decoded from the tables, without local search (``local_search: none``).
    gpu_search : BackgroundGpuChains or None
        The search on the GPU in the background, on rank 0 once it has begun.
    kernels : KernelSupply
        The kernels that are compiled.
    overlapped : OverlappedWork
        The search for the first assignment, if it is postponed until a GPU is at work.
    """

    best: NDArray[np.int64]
    quality: AssignmentQuality

    def __init__(
        self, parts: DividedProblem, incumbent: Incumbent, world: World, stop: Deadline, kernels: KernelSupply
    ) -> None:
        self.parts, self.incumbent, self.world, self.kernels = parts, incumbent, world, kernels
        self.decodes_only = parts.config.local_search == "none"
        self._ranks_served = world.core_sharers if parts.scattered else 1  # ranks whose cores this rank's search uses
        threads = max(1, cores() * self._ranks_served // world.core_sharers)
        self._searches = world.rank == 0 or not parts.scattered  # other ranks know too little of the problem to search
        problems = (parts.original, parts.problem) if self._searches else (_EMPTY_PROBLEM, _EMPTY_PROBLEM)
        ranks = SINGLE_PROCESS if parts.scattered else _RankExchange(world)
        given, self._greedy_start = parts.given, None
        ascent = None
        if given.first is not None and given.reduction is None and given.first.ascent is not None:
            ascent, self._greedy_start = given.first.ascent, given.first.values
        self._has_kernels = self._agree_on_first_search()
        if ascent is None and self._searches and not self._has_kernels:
            ascent = UncompiledAscent(parts.original, stop)
        self._search = LocalSearch(*problems, parts.config.seed, threads, stop, ranks, ascent)
        self._search.may_move_blocks = partial(self._is_ready, kernel_sets.block_moves)
        self._search.may_search_constraints = partial(self._is_ready, lambda variant: kernel_sets.constraint_search())
        self._set_deadline(stop)
        self.engine = BackgroundEngine(parts, incumbent, world, self._search, stop, kernels)
        self.gpu_search: gpu_chains.BackgroundGpuChains | None = None
        self.overlapped = OverlappedWork()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.end()
        if self.gpu_search is not None:
            self.gpu_search.end()
        if self.incumbent.saved is not None:
            self.incumbent.saved.flush()

    def _set_deadline(self, stop: Deadline) -> None:
        """Set the deadline of the search; the 1-opt descent of an answer may take a little longer."""
        self._stop = stop
        self._search.stop, self._search.ascent.stop = stop, stop.later(_ONE_OPT_GRACE)

    @property
    def stop(self) -> Deadline:
        """Deadline of the run."""
        return self._stop

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

    def best_so_far(self) -> Result:
        """Return the result if the run ended now; callable from any thread of rank 0."""
        return early_result(self.parts, self.incumbent, self.world.size, 0, self.make_original_1_optimal)

    def delay(self, seconds: float) -> Deadline:
        """Move the start and the deadline of the run by some seconds of compilation; return the new deadline."""
        stop = self._search.stop
        if stop.until < float("inf"):
            stop = replace(stop, until=stop.until + seconds)
        self.incumbent.delay(seconds)
        self._set_deadline(stop)
        self.engine.shift_clock(seconds, stop)
        return stop

    def first(self, may_wait: bool = False) -> None:
        """Find the first incumbent; if the answer is only decoded from tables, take each variable's first value.

        Parameters
        ----------
        may_wait
            Whether each variable's first value may do at first, if a GPU will soon be at work. The search is then left
            to ``overlapped``.
        """
        postponed = may_wait and not self.decodes_only and self._searches and may_wait_for_gpu(self.parts, self.world)
        if self.decodes_only or postponed:
            self._share_best(np.zeros(self.parts.problem.n_variables, dtype=np.int64))
        if postponed:
            self.overlapped.defer(self._find_first)
        elif not self.decodes_only:
            self._find_first()

    def _find_first(self) -> None:
        """Search for the first incumbent, and share it with all ranks."""
        self._share_best(
            self.world.on_all_ranks(
                lambda: self._search.first(self._report_better, self._greedy_start) if self._searches else None
            )
        )

    def resume_from(self, folder: str) -> None:
        """Start from the best assignment that an earlier run saved in a folder, and save better ones there."""

        def load_on_first_rank() -> NDArray[np.int64] | None:
            if self.incumbent.saved is None:
                self.incumbent.saved = SavedIncumbent(folder, self.parts.problem)
            return self.incumbent.saved.load()

        values = self.world.on_first_rank(load_on_first_rank)
        if values is not None:
            self._share_best(values)

    def make_1_optimal(self, values: NDArray[np.int64] | None) -> None:
        """Improve rank 0's assignment to a local optimum and record it; with ``decodes_only`` record it unchanged."""

        def improved() -> NDArray[np.int64] | None:
            return values if self.decodes_only or values is None else self._search.one_opt(values)

        self._share_best(self.world.on_all_ranks(improved))

    def record(self, values: NDArray[np.int64], by: str) -> None:
        """Improve an assignment of rank 0 to a local optimum and record it as found by an improver."""
        self.incumbent.update(self._search.one_opt(values), by)

    def suggest(self, starts: Sequence[NDArray[np.int64]]) -> None:
        """Let this rank's search start from some given assignments, too."""
        for start in starts if self._searches else ():
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
                    before, seconds, rounds_before = best, max(_FIRST_SLICE, spent), search.rounds
                    best = search.improve(before, seconds, 0, self._report_better)
                    improved = search.better(best, before)
                    if min_relative_gain and improved:
                        improved = _is_worthwhile(self._worth_of(before), self._worth_of(best), min_relative_gain)
                    spent, pause = spent + seconds, 0.0 if improved or search.rounds == rounds_before else seconds

        if not (wanted or brief_seconds) or not self.parts.timed or not self._chains_are_ready():
            yield
            return
        if not self._searches:
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

    def _report_better(self, values: NDArray[np.int64]) -> None:
        """Record a better assignment at once, if this is rank 0."""
        if self.world.rank == 0:
            self.incumbent.update(values, LOCAL_SEARCH)

    def make_original_1_optimal(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a local optimum of the original problem (before presolve) reached from an assignment."""
        if self.decodes_only:
            return values
        stop, given = self._search.ascent.stop, self.parts.given.problem
        if stop.over:  # the run is over: allow a little more time
            stop = Deadline(time.perf_counter() + _ONE_OPT_GRACE)
        if self.kernels.is_ready(kernel_sets.first_search_of(given)):
            return ascent_of(given, 1, stop).climb(values)
        return UncompiledAscent(given, stop).climb(values) if given.dense else values

    def before_tables(self, setup: Setup) -> None:
        """Search while it is worthwhile before there are tables; only briefly if these will soon prove the optimum."""
        if not proves_on_gpu(setup):
            self.overlapped.run()
        if setup.timed:
            self.improve_while_it_pays(self._max_seconds_before_tables(setup, will_prove(setup)))
        elif not will_prove(setup) and not self.decodes_only:
            self.improve(None, SWEEPS)

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
        return not self._searches or self.kernels.is_ready(kernels_of(self._variant))

    @cached_property
    def _variant(self) -> SearchVariant:
        """The variant of the kernels of the local search; only ranks that search know it."""
        return SearchVariant.of(self.parts)

    def _agree_on_first_search(self) -> bool:
        """Return whether all ranks have the kernels of the first search, or need them at once."""
        parts = self.parts

        def is_ready() -> bool:
            first_kernels = kernel_sets.first_search(parts.problem.flat.data.dtype, parts.original.dense)
            return not self._searches or not parts.original.dense or self.kernels.is_ready(first_kernels)

        return all(self.world.allgather(is_ready()))

    def _chains_are_ready(self) -> bool:
        """Return whether all ranks have the kernels of the chains, and of the first search if they had not before."""
        ready = all(self.world.allgather(self._is_ready(kernel_sets.chains) and self._is_ready(_first_search)))
        if ready and not self._has_kernels:
            self._has_kernels = True
            if self._searches:
                self._search.ascent = ascent_of(self.parts.original, self._search.threads, self._search.ascent.stop)
        return ready

    def _wait_for_chains(self, seconds: float | None) -> bool:
        """Wait for the kernels of the chains, for some seconds at most; return whether all ranks have them."""
        stop = self._stop if seconds is None else self._stop.by(time.perf_counter() + seconds)
        sets = [_first_search(self._variant), kernel_sets.chains(self._variant)] if self._searches else []
        with suppress(OutOfTime):
            self.delay(self.kernels.wait(self.world.bcast(sets), stop))
        return self._chains_are_ready()

    def request_kernels(self) -> float:
        """Compile the kernels of searches in the background; return the seconds that do not count as run time."""
        sets = []
        if self.engine.name == BRANCH_AND_BOUND:
            sets.append(kernel_sets.branch_and_bound())
        if self._searches and not self.decodes_only:
            variant = self._variant
            sets += [_first_search(variant), kernel_sets.chains(variant), kernel_sets.block_moves(variant)]
            if self.quality.negated_violation < 0:
                sets.append(kernel_sets.constraint_search())
        if self.parts.timed:
            sets.append(kernel_sets.rates())
        return self.kernels.request(*sets)

    @property
    def concurrent_work(self) -> ConcurrentWork:
        """The search in the background, as work for the time in which the run waits for other kernels."""
        chains = kernel_sets.chains(self._variant) if self._searches else None
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
        """Search for a better incumbent for some seconds or a number of sweeps; return whether one was found."""
        before = self.quality
        if not self._wait_for_chains(seconds):
            return False

        def improved() -> NDArray[np.int64] | None:
            if not self._searches:
                return None
            return self._search.improve(self.best, seconds, sweeps, self._report_better)

        self._share_best(self.world.run(improved))
        return self.quality.is_better_than(before)

    def _share_best(self, values: NDArray[np.int64] | None) -> None:
        """Record the best assignment of all ranks on rank 0, and broadcast the incumbent."""
        self.best, self.quality = self.world.on_first_rank(partial(self._best_of, self.world.gather(values)))

    def _best_of(
        self, assignments: Sequence[NDArray[np.int64] | None] | None
    ) -> tuple[NDArray[np.int64], AssignmentQuality]:
        """Record the ranks' assignments; return the incumbent (rank 0)."""
        for values in assignments or []:
            if values is None:
                continue
            if self.incumbent.values is None or not np.array_equal(values, self.incumbent.values):
                self.incumbent.update(values)
        assert self.incumbent.values is not None and self.incumbent.quality is not None
        return self.incumbent.values, self.incumbent.quality


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
