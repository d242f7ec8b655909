"""Local search over the whole assignment, beside the tables: where the incumbent comes from, and what polishes answers.

Every rank runs some of the chains; where rank 0 alone knows the problem (``dealt``) it runs all of them, for all ranks
that share its cores. The values that come out are complete, and the same on all ranks.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_STOP, Stop, Wish
from dmcmc.inference.runtime.errors import OutOfMemory, ResourceError
from dmcmc.inference.runtime.threads import cores, step_back
from dmcmc.mpi.world import World
from dmcmc.results.outcome import Worth, worth_of
from dmcmc.results.result import Result
from dmcmc.run.background_engine import RunEngine
from dmcmc.run.improvers import gpu_chains
from dmcmc.run.incumbent import Incumbent
from dmcmc.run.metrics import early_result
from dmcmc.run.monitoring.saved_incumbent import KeptIncumbent
from dmcmc.run.overlapped_work import Meanwhile, may_soon_wait, proves_on_gpu
from dmcmc.run.planning.combination_plan import will_prove
from dmcmc.run.planning.divided_problem import Divided
from dmcmc.run.planning.setup import Setup
from dmcmc.run.scheduler.proposal import GPU_SEARCH, SEARCH
from dmcmc.samplers.local_search.ascent import Ascent
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.local_search.rank_exchange import ALONE

SWEEPS = 400  # of all chains together, where work is fixed
_SHARE = 0.03  # of the time that is left: search before there are tables, at most; then it goes on beside them
_BESIDE = 0.02  # of what exact tables take: likewise, where they prove what is best
_LEAST = 0.02  # seconds of a slice
_MOMENT = 0.01  # seconds of a search beside tables that prove what is best, at least
_LAYOUT = 2e-8  # seconds that an entry of chains' columns takes to lay out
_SLICE = 0.3  # seconds of the first
PAYS = 5e-4  # of the utility: less than this in a slice as long as all before it
_AT_LEAST = 0.1  # seconds that work takes where a search beside it is worth while
_POLISH = 0.3  # seconds beyond the end that an answer may take to have no better neighbour

_NOTHING = Problem((), np.zeros(0, dtype=np.int64), (), np.zeros(0, dtype=np.int64), ())


class _Ranks:
    """Hands between ranks, as the search wants it, how chains have ended: once a heat."""

    def __init__(self, world: World) -> None:
        self.rank, self.size, self.all = world.rank, world.size, partial(world.allgather, what="search")


class Search:
    """This rank's part of the search.

    Attributes
    ----------
    best : ndarray of int64
        The best assignment so far, values of all variables of the dense problem; the same on all ranks.
    worth : Worth
        What it is worth, likewise.
    engine : RunEngine
        The search engine beside the run, if there is one.
    plain : bool
        Whether the answer is what the tables say, without any search over the whole assignment.
    on_gpu : OnGpu or None
        The search on the GPU beside the run, on rank 0 once it has begun.
    unready : callable or None
        Compiles what looks for better assignments, and returns the seconds that this took; None where it is there. It
        is left until it is needed where tables should soon prove the answer: then the clock stands still.
    meanwhile : Meanwhile
        The first assignment, where that is left for when a GPU is at work.
    """

    best: NDArray[np.int64]
    worth: Worth

    def __init__(self, parts: Divided, incumbent: Incumbent, world: World, stop: Stop) -> None:
        self.parts, self.incumbent, self.world = parts, incumbent, world
        self.plain = parts.config.polish == "none"
        self._for = world.core_sharers if parts.dealt else 1  # ranks that share its cores
        threads = max(1, cores() * self._for // world.core_sharers)
        self._leads = world.rank == 0 or not parts.dealt  # others know too little to search
        known = (parts.original, parts.problem) if self._leads else (_NOTHING, _NOTHING)
        ranks = ALONE if parts.dealt else _Ranks(world)
        self._search = LocalSearch(*known, parts.config.seed, threads, stop, ranks)
        self._until(stop)
        self.engine = RunEngine(parts, incumbent, world, self._search, stop)
        self.on_gpu: gpu_chains.OnGpu | None = None
        self.unready: Callable[[], float] | None = None
        self.meanwhile = Meanwhile()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.end()
        if self.on_gpu is not None:
            self.on_gpu.end()
        if self.incumbent.kept is not None:
            self.incumbent.kept.flush()

    def _until(self, stop: Stop) -> None:
        """Say when to end; an answer may take a little longer to become 1-optimal."""
        self._stop = stop
        self._search.stop, self._search.ascent.stop = stop, stop.later(_POLISH)

    @property
    def stop(self) -> Stop:
        """When the run ends."""
        return self._stop

    @property
    def stoppable(self) -> bool:
        """Whether anything may end the run before it is through."""
        return self._stop is not NO_STOP

    def engage(self, stop: Stop) -> Stop:
        """Let a search engine begin beside the run, where it is wanted; return when the run ends: also by a proof."""
        stop = self.engine.engage(stop)
        self._until(stop)
        return stop

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """While kernels are compiled the clock stands still; the body moves the run's start by what that took."""
        self.incumbent.held = time.perf_counter()
        try:
            with self.engine.compiling():
                yield
        finally:
            self.incumbent.held = None

    def early(self) -> Result | None:
        """Return what is known before there are tables, on rank 0."""
        return self.best_so_far() if self.world.rank == 0 else None

    def best_so_far(self) -> Result:
        """Return what would be the result if nothing else came, from any thread (rank 0)."""
        return early_result(self.parts, self.incumbent, self.world.size, 0, self.polish_asked)

    def delay(self, seconds: float) -> Stop:
        """Move the start of the run, and its end: something was compiled. Return when it ends now."""
        stop = self._search.stop
        if stop.until < float("inf"):
            stop = replace(stop, until=stop.until + seconds)
        self.incumbent.delay(seconds)
        self._until(stop)
        self.engine.delay(seconds, stop)
        return stop

    def first(self, may_wait: bool = False) -> None:
        """Make the first incumbent; of a plain run each variable's first value, which is no search.

        Parameters
        ----------
        may_wait
            Whether that is enough at first where a GPU may soon be at work: the rest is left for then.
        """
        later = may_wait and not self.plain and self._leads and may_soon_wait(self.parts, self.world)
        if self.plain or later:
            self._take(np.zeros(self.parts.problem.n_variables, dtype=np.int64))
        if later:
            self.meanwhile.leave(self._find_first)
        elif not self.plain:
            self._find_first()

    def _find_first(self) -> None:
        self._take(self._search.first(self._tell) if self._leads else None)

    def go_on(self, folder: str) -> None:
        """Begin with the best assignment that an earlier run has kept in a folder, and keep the best there (rank 0)."""

        def found() -> NDArray[np.int64] | None:
            if self.incumbent.kept is None:
                self.incumbent.kept = KeptIncumbent(folder, self.parts.problem)
            return self.incumbent.kept.find()

        values = self.world.decided(found)
        if values is not None:
            self._take(values)

    def polish(self, values: NDArray[np.int64] | None) -> None:
        """Make rank 0's assignment 1-optimal, and the incumbent if that is better; a plain run takes it as it is."""
        self._take(values if self.plain or values is None else self._search.polish(values))

    def suggest(self, starts: Sequence[NDArray[np.int64]]) -> None:
        """Let this rank's search begin at some assignments, too."""
        for start in starts if self._leads else ():
            self._search.suggest(start)

    @contextmanager
    def beside(
        self, wanted: bool = True, enough: float = 0.0, behind: bool = True, moment: float = 0.0
    ) -> Iterator[None]:
        """Search in a thread of its own while the body works, on half of the cores; it rests where it brings nothing.

        What has little of the cores does not rest before it has come to the end of a heat. By the clock only. The
        body may look at the best so far, but must not ask for a search.

        Parameters
        ----------
        enough
            What it has to bring in a slice as long as all before it, of the utility.
        behind
            Whether it has what the body leaves of those cores, where agents' tables make assignments, too.
        moment
            Where it is not wanted otherwise: search at once, and no longer than so many seconds.
        """
        behind = behind and self.parts.problem.n_agents > 1
        search, stop, threads = self._search, self._search.stop, self._search.threads
        wish, best = Wish(stop.wish.asked), self.best
        ended = Event()

        def work() -> None:
            nonlocal best
            spent, rest = 0.0, _AT_LEAST
            with suppress(OutOfMemory):
                if not wanted:
                    step_back()
                    for seconds in (0.0, moment):  # the first lays out tables for chains
                        best = search.improve(best, seconds, 0, self._tell)
                    return
                while not ended.wait(rest) and not search.stop.over:
                    if behind and not spent:
                        step_back()
                    before, seconds, heats = best, max(_SLICE, spent), search.heats
                    best = search.improve(before, seconds, 0, self._tell)
                    gained = search.better(best, before)
                    if enough and gained:
                        gained = _pays(self._worth_of(before), self._worth_of(best), enough)
                    spent, rest = spent + seconds, 0.0 if gained or search.heats == heats else seconds

        if not (wanted or moment) or not self.parts.timed or self.unready is not None:
            yield
            return
        if not self._leads:
            yield
            self._take(None)
            return
        thread = Thread(target=work, name="dmcmc search", daemon=True)
        search.stop, search.threads, search.behind = replace(stop, wish=wish), self._beside(threads), behind
        thread.start()
        try:
            yield
        finally:
            wish.ask()
            ended.set()
            thread.join()
            search.stop, search.threads, search.behind = stop, threads, False
        self._take(best)

    def _beside(self, threads: int) -> int:
        """Return how many threads search beside other work: half of each rank's that it searches for, one at least."""
        return min(threads, self._for * max(1, threads // self._for // 2))

    def moment(self, setup: Setup) -> float:
        """Return the seconds of a search beside tables that will prove what is best; 0 where that would delay them.

        They show something better than the first incumbent meanwhile. What chains read has to be laid out for it.
        """
        if not setup.timed or self.plain or not will_prove(setup):
            return 0.0
        most = self._most(setup, proven=True)

        def pays() -> bool:  # other ranks may know too little
            return most >= _MOMENT and _LAYOUT * self._search.ascent.graph.columns <= 3 * most

        return most if self.world.decided(pays) else 0.0

    def _worth_of(self, values: NDArray[np.int64]) -> Worth:
        return worth_of(self.parts.original, values[: self.parts.original.n_variables])

    def _tell(self, values: NDArray[np.int64]) -> None:
        """Let rank 0 know of a better assignment at once."""
        if self.world.rank == 0:
            self.incumbent.update(values, SEARCH)

    def polish_asked(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Make an assignment of what was asked, before it was reduced, 1-optimal."""
        if self.plain:
            return values
        stop = self._search.ascent.stop
        if stop.over:  # a little longer: nothing else is done any more
            stop = Stop(time.perf_counter() + _POLISH)
        return Ascent(self.parts.asked.problem, 1, stop).climb(values)

    def before_tables(self, setup: Setup) -> None:
        """Search as long as it pays before there are tables; not where they will soon prove what is best."""
        if not proves_on_gpu(setup):
            self.meanwhile.do()
        if setup.timed:
            self.improve_while_it_pays(self._most(setup, will_prove(setup)))
        elif not will_prove(setup) and not self.plain:
            self.improve(None, SWEEPS)

    def improve_while_it_pays(self, most: float) -> None:
        """Search in slices of growing length, as long as they bring something, for so many seconds at most."""
        spent = 0.0
        if most >= _LEAST:
            self.improve(0.0)  # lays out tables for chains
        while (seconds := min(max(_SLICE, spent), most - spent)) >= _LEAST:
            before, start = self.worth, time.perf_counter()
            self.improve(seconds)
            spent, over = self.world.bcast((spent + time.perf_counter() - start, self._search.stop.over))
            if over or not _pays(before, self.worth):
                return

    def without_tables(self, error: ResourceError) -> Result | None:
        """Search until the time is over, as no plan fits what a run may take; return the result on rank 0."""
        self.incumbent.give_up(error)
        self.engine.alone()
        self.until_the_end()
        return self.best_so_far() if self.world.rank == 0 else None

    def begin_on_gpu(self, setup: Setup) -> None:
        """Let chains go on beside the run on the GPU of rank 0, where that is wanted and tables do not prove all soon.

        Where agents' tables use the GPU, too, chains take a part of it.
        """
        if self.world.rank or will_prove(setup) or not gpu_chains.wanted(setup.config):
            return
        alone = setup.backend.device != "cuda" and all(choice.device == "cpu" for choice in setup.choices)
        self.on_gpu = gpu_chains.OnGpu(self._search, self._known, self._found_on_gpu, alone, self._stop)

    def _known(self) -> NDArray[np.int64]:
        assert self.incumbent.values is not None
        return self.incumbent.values

    def _found_on_gpu(self, values: NDArray[np.int64]) -> float:
        """Take in what chains on the GPU have found, on their thread; return what the best is better by."""
        before = self.incumbent.utility
        self.incumbent.update(values, GPU_SEARCH)
        after = self.incumbent.utility
        return 0.0 if before is None or after is None else max(0.0, float(after - before))

    def until_the_end(self) -> None:
        """Search as long as there is time, where more is wanted."""

        def seconds() -> float:
            return 0.0 if self.incumbent.reached else self._search.stop.left

        left = self.world.decided(seconds)
        if _LEAST < left < float("inf"):
            self.improve(left)
        self.incumbent.timed_out = self._search.stop.over

    def _most(self, setup: Setup, proven: bool) -> float:
        """Return the seconds that a search may take before there are tables; the same on all ranks."""

        def seconds() -> float:
            left = max(0.0, self._search.stop.until - time.perf_counter())
            if not proven:
                return _SHARE * left
            work = sum(choice.seconds for choice in setup.choices) / max(1, setup.limits.threads * self.world.size)
            return min(_SHARE * left, _BESIDE * work)

        most: float = self.world.decided(seconds)
        return most

    def improve(self, seconds: float | None, sweeps: int = 0) -> bool:
        """Look for a better incumbent for some seconds, or by so many sweeps; return whether there is one now."""
        before = self.worth
        if self.unready is not None:
            ready, self.unready = self.unready, None
            self.delay(ready())
        self._take(self._search.improve(self.best, seconds, sweeps, self._tell) if self._leads else None)
        return self.worth.better(before)

    def _take(self, values: NDArray[np.int64] | None) -> None:
        """Let rank 0 take in the best of what ranks have found, and tell all of them."""
        self.best, self.worth = self.world.decided(partial(self._best_of, self.world.gather(values)))

    def _best_of(self, found: Sequence[NDArray[np.int64] | None] | None) -> tuple[NDArray[np.int64], Worth]:
        """Return the best assignment that there is, those found by the ranks included (rank 0)."""
        for one in found or []:
            if one is None:
                continue
            if self.incumbent.values is None or not np.array_equal(one, self.incumbent.values):
                self.incumbent.update(one)
        assert self.incumbent.values is not None and self.incumbent.worth is not None
        return self.incumbent.values, self.incumbent.worth


def _pays(before: Worth, after: Worth, enough: float = PAYS) -> bool:
    """Return whether the way from one worth to another was worth its time."""
    if after.kept != before.kept or after.kept < 0:
        return True
    return float(after.utility - before.utility) > enough * abs(float(before.utility))
