"""One rank's part of the local search over the whole assignment: the first incumbent, and answers made 1-optimal.

:func:`begin` makes the search and its first incumbent when the problem is divided.

Every rank runs some of the Markov chains (``dmcmc.samplers.local_search``). If rank 0 alone knows the problem
(``parts.scattered``), it runs all chains, with the threads of all ranks that share its cores. The best assignment is
complete, and the same on all ranks. 1-optimal means that no change of a single variable improves the assignment.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import is_gpu_in_use, shared_device
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.world import World
from dmcmc.results.outcome import AssignmentQuality
from dmcmc.results.result import LOCAL_SEARCH, Result
from dmcmc.samplers.local_search.local_search import Ascent, LocalSearch, UncompiledAscent, ascent_of
from dmcmc.solving.incumbent import Incumbent, SavedIncumbent
from dmcmc.solving.metrics import early_result, solution_of
from dmcmc.solving.observe import ProgressReporter
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.tuning import ONE_OPT_GRACE, SWEEPS
from dmcmc.solving.warm_start.start_assignment import carried_over, completed

_EMPTY_PROBLEM = Problem((), np.zeros(0, dtype=np.int64), (), np.zeros(0, dtype=np.int64), ())


class _RankExchange:
    """Exchanges the final states of chains between ranks, once per tournament round, as the search expects."""

    def __init__(self, world: World) -> None:
        self.rank, self.size, self.all = world.rank, world.size, partial(world.allgather, what="search")


class OverlappedWork:
    """Work on the host that is deferred until a GPU kernel runs and the host would only wait.

    At most one piece of work is stored: ``defer`` stores it, and ``run`` or ``overlapping`` does it once.
    """

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None

    def defer(self, work: Callable[[], None]) -> None:
        """Defer a piece of work."""
        self._work = work

    def run(self) -> None:
        """Do the deferred work, if there is any."""
        work, self._work = self._work, None
        if work is not None:
            work()

    @contextmanager
    def overlapping(self) -> Iterator[None]:
        """Do the deferred work as soon as the GPU is busy in the body, otherwise at the end of the body.

        The work is also done if the body ends for lack of memory or time: the run then ends with the results so far.
        """
        if self._work is None:
            yield
            return
        device = shared_device()
        device.overlapped_work = self.run
        try:
            yield
        except ResourceError:
            self.run()
            raise
        finally:
            device.overlapped_work = None
        self.run()


class RankSearch:
    """A rank's part of the local search over the whole assignment, with a fixed amount of work.

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

    Attributes
    ----------
    best : ndarray of int64
        The best assignment so far: value indices of all variables of the dense problem; the same on all ranks.
    quality : AssignmentQuality
        Violations and utility of ``best``; the same on all ranks.
    decodes_only : bool
        Whether the answer is decoded from the tables, without local search (``local_search: none``).
    searches : bool
        Whether this rank searches. If rank 0 alone knows the problem, other ranks know too little of it.
    stop : Deadline
        Deadline of the run.
    overlapped : OverlappedWork
        The search for the first assignment, if it is postponed until a GPU is at work.
    """

    best: NDArray[np.int64]
    quality: AssignmentQuality

    def __init__(self, parts: DividedProblem, incumbent: Incumbent, world: World, stop: Deadline) -> None:
        self.parts, self.incumbent, self.world = parts, incumbent, world
        self.decodes_only = parts.config.local_search == "none"
        self._ranks_served = world.core_sharers if parts.scattered else 1  # ranks whose cores this rank's search uses
        threads = max(1, cores() * self._ranks_served // world.core_sharers)
        self.searches = world.rank == 0 or not parts.scattered
        problems = (parts.original, parts.problem) if self.searches else (_EMPTY_PROBLEM, _EMPTY_PROBLEM)
        ranks = _RankExchange(World() if parts.scattered else world)
        given, self._greedy_start, ascent = parts.given, None, None
        if given.first is not None and given.reduction is None and given.first.ascent is not None:
            ascent, self._greedy_start = given.first.ascent, given.first.values
        if ascent is None and self.searches:
            ascent = self._make_ascent(stop, threads)
        self._search = LocalSearch(*problems, parts.config.seed, threads, stop, ranks, ascent)
        self._set_deadline(stop)
        self.overlapped = OverlappedWork()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.incumbent.saved is not None:
            self.incumbent.saved.flush()

    def _make_ascent(self, stop: Deadline, threads: int) -> Ascent:
        """Return the hill climbing on the problem to solve."""
        return ascent_of(self.parts.original, threads, stop)

    def _make_original_ascent(self, stop: Deadline) -> Ascent | None:
        """Return the hill climbing on the problem as given; None if there is none yet."""
        return ascent_of(self.parts.given.problem, 1, stop)

    def _set_deadline(self, stop: Deadline) -> None:
        """Set the deadline of the search; the 1-opt descent of an answer may take a little longer."""
        self.stop = stop
        self._search.stop, self._search.ascent.stop = stop, stop.later(ONE_OPT_GRACE)

    def best_so_far(self) -> Result:
        """Return the result if the run ended now; callable from any thread of rank 0."""
        return early_result(self.parts, self.incumbent, self.world.size, 0, self.make_original_1_optimal)

    def first(self, may_wait: bool = False) -> None:
        """Find the first incumbent; if the answer is only decoded from tables, take each variable's first value.

        Parameters
        ----------
        may_wait
            Whether each variable's first value may do at first, if a GPU will soon be at work. The search is then left
            to ``overlapped``, which the caller has to run.
        """
        config, one_untimed_rank = self.parts.config, self.world.size == 1 and not self.parts.timed
        may_wait = may_wait and one_untimed_rank and config.search in ("auto", "none") and not self.decodes_only
        postponed = may_wait and config.device != "cpu" and is_gpu_in_use()
        if postponed:
            self.overlapped.defer(self.first)
        if self.decodes_only or postponed:
            self._share_best(np.zeros(self.parts.problem.n_variables, dtype=np.int64))
        else:
            values: NDArray[np.int64] | None = None
            with self.world.together():
                if self.searches:
                    values = self._search.first(self._report_better, self._greedy_start)
            self._share_best(values)

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
        with self.world.together():
            if not self.decodes_only and values is not None:
                values = self._search.one_opt(values)
        self._share_best(values)

    def make_original_1_optimal(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a local optimum of the original problem (before presolve) reached from an assignment."""
        if self.decodes_only:
            return values
        stop = self._search.ascent.stop
        if stop.over:  # the run is over: allow a little more time
            stop = Deadline(time.perf_counter() + ONE_OPT_GRACE)
        ascent = self._make_original_ascent(stop)
        return values if ascent is None else ascent.climb(values)

    def before_tables(self, tables_prove: bool, on_gpu: bool, _table_seconds: float) -> None:
        """Search before there are tables, unless these will prove the optimum.

        Parameters
        ----------
        tables_prove
            Whether the tables will prove the optimum.
        on_gpu
            Whether a GPU computes some of these tables. The work that overlaps with them then waits.
        _table_seconds
            The estimated seconds of the tables; used in runs with a time budget.
        """
        if not on_gpu:
            self.overlapped.run()
        if not tables_prove and not self.decodes_only:
            self.improve(None, SWEEPS)

    def improve(self, seconds: float | None, sweeps: int = 0) -> bool:
        """Search for a better incumbent for some seconds or a number of sweeps; return whether one was found."""
        before = self.quality

        def improved() -> NDArray[np.int64] | None:
            if not self.searches:
                return None
            return self._search.improve(self.best, seconds, sweeps, self._report_better)

        self._share_best(self.world.run(improved))
        return self.quality.is_better_than(before)

    def _report_better(self, values: NDArray[np.int64]) -> None:
        """Record a better assignment at once, if this is rank 0."""
        if self.world.rank == 0:
            self.incumbent.update(values, LOCAL_SEARCH)

    def _share_best(self, values: NDArray[np.int64] | None) -> None:
        """Record the best assignment of all ranks on rank 0, and broadcast the incumbent."""
        incumbent, assignments = self.incumbent, self.world.gather(values)
        with self.world.together():
            for found in assignments or []:  # on rank 0
                if found is None:
                    continue
                if incumbent.values is None or not np.array_equal(found, incumbent.values):
                    incumbent.update(found)
        best, quality = self.world.decided((incumbent.values, incumbent.quality))
        assert best is not None and quality is not None
        self.best, self.quality = best, quality


def has_start(problem: Problem, settings: Settings) -> bool:
    """Return whether the settings or the problem give an assignment to start from."""
    return settings.start is not None or (bool(problem.initial_values) and settings.local_search != "none")


Search = TypeVar("Search", bound=RankSearch)


def begin(
    parts: DividedProblem,
    world: World,
    stop: Deadline,
    start: float,
    progress: ProgressReporter,
    search_of: Callable[[DividedProblem, Incumbent, World, Deadline], Search],
) -> Search:
    """Return a local search without an assignment, to call :meth:`RankSearch.first` of; called by all ranks.

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
        Receives each point of the trace.
    search_of
        Makes the search of this rank: :class:`RankSearch`, or one that has a time budget.
    """
    deadline, first = stop.until if parts.timed else None, parts.given.first
    incumbent = Incumbent(parts.original, parts.config, start, deadline, progress.point, parts)
    if first is not None:
        incumbent.trace += first.trace
    incumbent.on_better = lambda better: progress.solution(partial(solution_of, parts, better))
    return search_of(parts, incumbent, world, stop)


def take_start(search: RankSearch) -> None:
    """Give a search the assignment to start from, and that of a checkpoint; called by all ranks."""
    parts, world = search.parts, search.world
    carried = world.on_first_rank(partial(_start_of_presolved, parts, search.stop))
    if carried is not None:
        search.make_1_optimal(carried if world.rank == 0 else None)
    if parts.timed and parts.config.checkpoint is not None:
        search.resume_from(parts.config.checkpoint)


def _start_of_presolved(parts: DividedProblem, stop: Deadline) -> NDArray[np.int64] | None:
    """Return the first answer as an assignment of the problem that is solved, if a start was given (rank 0).

    Values that presolve has removed are replaced greedily.
    """
    given, problem = parts.given, parts.original
    if given.first is None or given.proven_infeasible or not has_start(given.problem, parts.config):
        return None
    if given.reduction is None:
        return given.first.values
    compiled = not isinstance(given.first.ascent, UncompiledAscent)
    return completed(problem, carried_over(given.first.values, given.problem, problem), compiled, stop)
