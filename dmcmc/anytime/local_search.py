"""The searches over the whole assignment in a run with a time budget: in time slices, and in the background.

They exist where a rank knows the whole problem: local search, an external engine, chains on a GPU. In a run with
private inputs there are none, and :class:`WholeSearches` does nothing. :class:`RankSearch`, which a run with fixed work
uses, has the local search itself. In the background it takes turns in a thread, on some of the cores, while other work
is done.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmcmc.anytime.engines.background_engine import BackgroundEngine
from dmcmc.anytime.engines.early_engine import EarlyEngine
from dmcmc.anytime.improvers import assignments as gpu_chains
from dmcmc.anytime.scheduler.proposal import MeasuredGain
from dmcmc.inference.model.arithmetic import exact_sum, round_up
from dmcmc.inference.runtime.deadline import CancellationToken, Deadline
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.runtime.threads import lower_priority
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality, quality_of
from dmcmc.results.result import LAST_RUN, Result
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.samplers.local_search.local_search import Ascent, LocalSearch, UncompiledAscent, ascent_of
from dmcmc.solving.incumbent import Incumbent
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.rank_search import RankSearch
from dmcmc.tuning import run as tuning

if TYPE_CHECKING:
    from dmcmc.compilation.run_components import RunComponents
    from dmcmc.solving.planning.plan import Setup

Values = NDArray[np.int64]


class BackgroundTurns:
    """Turns of a local search in a separate thread.

    Parameters
    ----------
    search : LocalSearch
        The search; while the thread runs, its deadline, threads and priority are those of the background.
    best : (n,) int64
        The assignment from which it starts.
    report : callable
        Called at once with every better assignment.
    low_priority : bool
        Whether the search has a lower priority than other work.

    Attributes
    ----------
    best : (n,) int64
        The best assignment so far.
    """

    def __init__(
        self, search: LocalSearch, best: Values, report: Callable[[Values], object], low_priority: bool
    ) -> None:
        self.best, self._search, self._report, self._low_priority = best, search, report, low_priority
        self._ended = Event()

    def brief(self, seconds: float) -> None:
        """Search once for some seconds."""
        lower_priority()
        for limit in (0.0, seconds):  # the first call lays out the columns for the chains
            self.best = self._search.improve(self.best, limit, 0, self._report)

    def repeated(self, min_relative_gain: float) -> None:
        """Search in slices as long as all earlier ones; pause after a slice that was not worthwhile.

        It does not pause before a whole tournament round of the chains is finished.
        """
        search, spent, pause = self._search, 0.0, 5 * sampler_tuning.CHECK_SECONDS
        while not self._ended.wait(pause) and not search.stop.over:
            if self._low_priority and not spent:
                lower_priority()
            before, seconds, rounds_before = self.best, max(sampler_tuning.SLICE_SECONDS, spent), search.chains.rounds
            self.best = search.improve(before, seconds, 0, self._report)
            improved = search.better(self.best, before)
            if min_relative_gain and improved:
                improved = is_worthwhile(self._quality_of(before), self._quality_of(self.best), min_relative_gain)
            unfinished = search.chains.rounds == rounds_before
            spent, pause = spent + seconds, 0.0 if improved or unfinished else seconds

    def _quality_of(self, values: Values) -> AssignmentQuality:
        """Return violations and utility of an assignment."""
        return quality_of(self._search.original, self._search.original_values(values))

    @contextmanager
    def running(self, turns: Callable[[], None], threads: int) -> Iterator[None]:
        """Run the turns in a thread while the body works; end them at its end."""

        def run() -> None:
            with suppress(ResourceError):
                turns()

        search = self._search
        stop, usual_threads = search.stop, search.threads
        cancellation = CancellationToken(stop.cancellation.requested_at)
        thread = Thread(target=run, name="dmcmc search", daemon=True)
        search.stop, search.threads, search.behind = (
            replace(stop, cancellation=cancellation),
            threads,
            self._low_priority,
        )
        thread.start()
        try:
            yield
        finally:
            cancellation.request()
            self._ended.set()
            thread.join()
            search.stop, search.threads, search.behind = stop, usual_threads, False


def is_worthwhile(
    before: AssignmentQuality, after: AssignmentQuality, min_relative_gain: float = tuning.MIN_SLICE_GAIN
) -> bool:
    """Return whether the improvement from one assignment to another justifies more search.

    That is the case if hard constraints are or were violated, or if the relative gain in utility exceeds
    ``min_relative_gain``.
    """
    if after.negated_violation != before.negated_violation or after.negated_violation < 0:
        return True
    return float(after.utility - before.utility) > min_relative_gain * abs(float(before.utility))


def max_seconds_before_tables(world: World, stop: Deadline, table_seconds: float | None) -> float:
    """Return the maximum seconds of search before there are tables; the same on all ranks.

    Parameters
    ----------
    world
        The ranks, all of which call this.
    stop
        Deadline of the run.
    table_seconds
        The estimated seconds of tables that will prove the optimum; None if they prove nothing.
    """

    def seconds() -> float:
        left = max(0.0, stop.until - time.perf_counter())
        work = left if table_seconds is None else table_seconds / world.size
        return sampler_tuning.UNNOTICED_SHARE * min(left, work)

    max_seconds: float = world.on_first_rank(seconds)
    return max_seconds


def brief_search_seconds(world: World, stop: Deadline, table_seconds: float, columns: Callable[[], int]) -> float:
    """Return the seconds of a brief search in the background of tables that will prove the optimum.

    It shows a better assignment than the first incumbent while the tables are made. The result is 0 if laying out the
    columns for the chains would delay the tables.

    Parameters
    ----------
    world, stop, table_seconds
        As for :func:`max_seconds_before_tables`.
    columns
        Returns the number of entries of the columns that the chains read; called on rank 0.
    """
    max_seconds = max_seconds_before_tables(world, stop, table_seconds)

    def is_affordable() -> bool:  # other ranks may know too little
        return (
            max_seconds >= sampler_tuning.CHECK_SECONDS / 2
            and tuning.LAYOUT_SECONDS_PER_ENTRY * columns() <= 3 * max_seconds
        )

    return max_seconds if world.on_first_rank(is_affordable) else 0.0


class IncumbentSearch(RankSearch):
    """A rank's part of the searches over the whole assignment, with a time budget.

    It searches in time slices and in the background, begins before all its components are ready, and has the other
    searches over the whole assignment: the external engine and the chains on the GPU.

    Parameters
    ----------
    parts, incumbent, world, stop
        As for :class:`RankSearch`.
    components
        The components of the run.
    early
        The engine that may already search the problem as given, on rank 0.

    Attributes
    ----------
    engine : BackgroundEngine
        The external search engine in the background, if there is one.
    gpu_search : BackgroundGpuChains or None
        The search on the GPU in the background, on rank 0 once it has begun.
    components : SearchComponents or None
        Components of the local search, which say whether they are ready; None on ranks that do not search.
    """

    def __init__(
        self,
        parts: DividedProblem,
        incumbent: Incumbent,
        world: World,
        stop: Deadline,
        components: "RunComponents",
        early: EarlyEngine | None = None,
    ) -> None:
        self._run, self.components = components, components.of_search(parts)
        begins_ready = self.components is None or not parts.original.tabular or self.components.first.is_ready()
        self._has_first = all(world.allgather(begins_ready))
        super().__init__(parts, incumbent, world, stop)
        if self.components is not None:
            self._search.chains.may_move_blocks = self.components.block_moves.is_ready
            self._search.chains.may_search_constraints = partial(self.components.constraints.is_ready, requested=False)
        self.engine = BackgroundEngine(parts, incumbent, world, self._search, stop, early)
        self.gpu_search: gpu_chains.BackgroundGpuChains | None = None

    def __exit__(self, *_: object) -> None:
        self.engine.end()
        if self.gpu_search is not None:
            self.gpu_search.end()
        super().__exit__()

    def _make_ascent(self, stop: Deadline, threads: int) -> Ascent:
        """Return the hill climbing on the problem to solve; until it is ready, a slower one."""
        problem = self.parts.original
        if not self._has_first:
            return UncompiledAscent(problem, stop)
        if problem.tabular or self.components is None:
            return super()._make_ascent(stop, threads)
        return ascent_of(problem, 1, stop, self.components.constraints.is_ready)

    def _make_original_ascent(self, stop: Deadline) -> Ascent | None:
        """Return the hill climbing on the problem as given; None if it is not ready, and there is no slower one."""
        given = self.parts.given.problem
        if self._run.is_first_search_ready(given):
            return super()._make_original_ascent(stop)
        return UncompiledAscent(given, stop) if given.tabular else None

    def start_engine(self, stop: Deadline) -> Deadline:
        """Start the external search engine if it is wanted; return the deadline, which the engine's proof ends, too."""
        stop = self.engine.engage(stop)
        self._set_deadline(stop)
        return stop

    def cancel_by(self, cancellation: CancellationToken) -> None:
        """End the search when this token is requested, instead of that of its deadline."""
        self._set_deadline(replace(self._search.stop, cancellation=cancellation))

    def delay(self, seconds: float) -> Deadline:
        """Move the start and the deadline of the run by some seconds; return the new deadline."""
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
    def during_tables(self, setup: "Setup") -> Iterator[None]:
        """Search in the background, also on a GPU if that is wanted, while the body makes the first tables.

        If the tables will prove the optimum, the search is brief, and not on a GPU.
        """
        proves, brief = setup.will_prove, 0.0
        if self.world.rank == 0 and not proves:
            self.gpu_search = gpu_chains.start(self._search, self.incumbent, setup.leaves_gpu_idle, self.stop)
        if proves and self.parts.timed and not self.decodes_only:
            columns = lambda: self._search.ascent.graph.columns  # noqa: E731
            brief = brief_search_seconds(self.world, self._search.stop, setup.table_seconds, columns)
        searching = self.in_background(not proves, tuning.MIN_SLICE_GAIN, brief_seconds=brief)
        with searching, self.overlapped.overlapping():
            yield

    def before_tables(self, tables_prove: bool, on_gpu: bool, table_seconds: float) -> None:
        """Search while it is worthwhile before there are tables; only briefly if these will soon prove the optimum."""
        if not self.parts.timed:
            super().before_tables(tables_prove, on_gpu, table_seconds)
            return
        if not on_gpu:
            self.overlapped.run()
        seconds = table_seconds if tables_prove else None
        self.improve_while_it_pays(max_seconds_before_tables(self.world, self._search.stop, seconds))

    def improve_while_it_pays(self, max_seconds: float) -> None:
        """Search in slices of growing length while they bring a gain, up to ``max_seconds``; called by all ranks."""
        spent = 0.0
        if max_seconds >= sampler_tuning.CHECK_SECONDS:
            self.improve(0.0)  # lays out the columns for the chains
        while (
            seconds := min(max(sampler_tuning.SLICE_SECONDS, spent), max_seconds - spent)
        ) >= sampler_tuning.CHECK_SECONDS:
            before, start = self.quality, time.perf_counter()
            self.improve(seconds)
            spent, over = self.world.bcast((spent + time.perf_counter() - start, self._search.stop.over))
            if over or not is_worthwhile(before, self.quality):
                return

    def chains_are_ready(self) -> bool:
        """Return whether the chains of all ranks are ready; then hill climbing is, too."""
        parts = self.components
        ready = all(self.world.allgather(parts is None or (parts.chains.is_ready() and parts.first.is_ready())))
        if ready and not self._has_first:
            self._has_first = True
            if self.searches:
                self._search.ascent = ascent_of(self.parts.original, self._search.threads, self._search.ascent.stop)
        return ready

    def result(self) -> Result | None:
        """Return the result if the run ended now, on rank 0; None on other ranks."""
        return self.best_so_far() if self.world.rank == 0 else None

    def result_without_tables(self, error: ResourceError) -> Result | None:
        """Search until the time is over, because no plan fits the resources; return the result on rank 0."""
        self.incumbent.give_up(error)
        if self.engine.process is not None:
            self.engine.process.begin()  # if it has not started
        self.use_remaining_time()
        return self.result()

    def use_remaining_time(self) -> None:
        """Search until the deadline, unless the run has reached its goal."""

        def seconds() -> float:
            return 0.0 if self.incumbent.reached else self._search.stop.left

        left = self.world.on_first_rank(seconds)
        if sampler_tuning.CHECK_SECONDS < left < float("inf"):
            self.improve(left)
        self.incumbent.timed_out = self._search.stop.over

    def improve(self, seconds: float | None, sweeps: int = 0) -> bool:
        """Search for some seconds or a number of sweeps, once the chains are ready; return whether that gained."""
        stop = self.stop if seconds is None else self.stop.by(time.perf_counter() + seconds)
        with suppress(OutOfTime):
            self.delay(self._run.wait(self.world.bcast(self.components and self.components[:2]), stop))
        return self.chains_are_ready() and super().improve(seconds, sweeps)


def take_known_bound(incumbent: Incumbent, parts: DividedProblem) -> None:
    """Record the bound that is known from the last run of a session, if there is one (rank 0).

    Parameters
    ----------
    incumbent
        The best assignment and bound of the run.
    parts
        The divided problem.
    """
    known = None if parts.retained is None else parts.retained.known_bound
    constants = [factor.entry(()) for factor in parts.original.factors if not factor.scope]
    if known is None or any(entry is None for entry in constants) or incumbent.values is None:
        return
    exact = Fraction(known) - exact_sum(entry for entry in constants if entry is not None)
    bound = math.floor(exact) if parts.arithmetic.integral else exact
    incumbent.update_bound(bound if parts.arithmetic.exact and isinstance(bound, int) else round_up(bound), LAST_RUN)


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

    def continue_engine(self, wanted: bool, setup: "Setup") -> "Setup":
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
            engine.wait(sampler_tuning.CHECK_SECONDS)
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
    def during_tables(self, setup: "Setup") -> Iterator[None]:
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
