"""toulbar2 in a process of its own.

A background search of a whole problem: an engine in a separate process or thread, observed by a thread.

The engine minimises costs, nonnegative integers: a utility is a constant less cost / scale. Its *top* is the cost that
an assignment has to beat.

The toulbar2 process of a search.
"""

import importlib.util
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.errors import DmcmcError, OutOfTime, Unavailable
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.external.process import EngineProcess, SearchProgress, SearchThread
from dmcmc.samplers.toulbar2.costs import CostProblem

# Lines of toulbar2's output: the values of all variables of an assignment; a lower bound on the cost.
_ASSIGNMENT = re.compile(r"\d+( \d+)*")
_LOWER = re.compile(r"(?:Optimality gap|bounds): \[(\d+), *\d+\]|^Dual bound: (\d+)")
_LIMIT_MESSAGE = "Time limit expired"  # printed by toulbar2 if a search has not been completed in time


def available() -> bool:
    """Return whether toulbar2 is installed."""
    return importlib.util.find_spec("pytoulbar2") is not None


@dataclass
class Toulbar2Progress(SearchProgress):
    """The results of a search by toulbar2 so far."""

    _limited: bool = False

    def _parse(self, line: str, variables: int) -> None:
        """Take the content of a line that toulbar2 prints."""
        if _ASSIGNMENT.fullmatch(line) and len(words := line.split()) == variables:
            self.values = np.array([int(word) for word in words], dtype=np.int64)
        elif found := _LOWER.search(line):
            self.lower = max(self.lower, int(found[1] or found[2]))
        elif _LIMIT_MESSAGE in line:
            self._limited = True
        elif line == "done":
            self.complete, self.ended = not self._limited, True


class Toulbar2Process(EngineProcess):
    """A toulbar2 process that searches one problem after the other.

    Parameters
    ----------
    memory : int
        Maximum of bytes besides its libraries; 0 for no limit.
    known : callable
        Returns the best known assignment, whose values a search tries first: value indices of the first variables;
        None if there is none.

    Raises
    ------
    Unavailable
        If toulbar2 is not installed.
    """

    engine = Path(__file__).with_name("worker.py")

    def __init__(self, memory: int = 0, known: Callable[[], NDArray[np.int64] | None] = lambda: None) -> None:
        if not available():
            raise Unavailable("toulbar2 is not installed; pip install 'dmcmc[toulbar2]'")
        super().__init__(memory, known)

    def _job(self, costs: CostProblem) -> dict[str, Any]:
        """Return the initial solution."""
        return {"known": self._known_values(costs)}

    def _progress(self) -> SearchProgress:
        """Return the object that reads toulbar2's output."""
        return Toulbar2Progress()


_MAX_BOUNDS = 256  # maximum of recorded bounds


@dataclass(frozen=True)
class SearchObserver:
    """Callbacks of a background search, called in its thread.

    Attributes
    ----------
    known_utility : callable
        Returns the utility of the best known assignment; None if there is none without violations.
    on_assignment : callable
        Called with every better assignment, (n,) int64.
    on_bound : callable
        Called with an upper bound on the utility of assignments better than the best known one; None if the problem is
        infeasible.
    deadline : callable
        Returns the time of the deadline (``time.perf_counter``); it may change while kernels are compiled.
    """

    known_utility: Callable[[], Number | None]
    on_assignment: Callable[[NDArray[np.int64]], object]
    on_bound: Callable[[Number | None], object]
    deadline: Callable[[], float]


CostSearchEngine = EngineProcess | SearchThread
"""An engine that searches cost problems: the process of another package's engine, or a thread of dmcmc."""


class SearchSpeed:
    """How fast the bounds of a search fall, and whether it may end in time.

    Parameters
    ----------
    deadline : callable
        Returns the time of the deadline (``time.perf_counter``).

    Attributes
    ----------
    begun : float
        Time at which the search began, moved on by the time of a pause; infinite before.
    initial_bound : float
        Bound on all utilities before the search has proven anything.
    paused : bool
        Whether the search has paused since it was slow; stays True after the pause.
    """

    def __init__(self, deadline: Callable[[], float]) -> None:
        self._deadline = deadline
        self.begun, self.initial_bound, self.paused = float("inf"), float("inf"), False
        self._bounds: list[tuple[float, float]] = []  # pairs (time, bound)

    def add_bound(self, bound: Number, at: float | None = None) -> None:
        """Record an upper bound that is proven now, or was proven at a given time."""
        self._bounds.append((time.perf_counter() if at is None else at, float(bound)))
        if len(self._bounds) > _MAX_BOUNDS:  # every other bound suffices
            del self._bounds[1:-1:2]

    def has_run(self, seconds: float, share: float) -> bool:
        """Return whether the search has run for ``seconds`` and for a share of the time."""
        now = time.perf_counter()
        return now - self.begun >= max(seconds, share * (self._deadline() - self.begun))

    def is_slow(self, known: float) -> bool:
        """Return whether the search needs far more than the remaining time, at the rate at which its bounds fall.

        The rate is the fall of the bound in the second half of the time since the begin. A search that has proven
        no bound is slow. ``known`` is the utility of the best known assignment.
        """
        if not self._bounds:
            return True
        now = time.perf_counter()
        spent, left = now - self.begun, max(0.0, self._deadline() - now)
        earlier = [b for at, b in self._bounds if at <= self.begun + spent / 2] or [self._bounds[0][1]]
        rate = (earlier[-1] - self._bounds[-1][1]) / (spent / 2)
        return self._bounds[-1][1] - known > tuning.UNPROMISING_FACTOR * left * rate

    def is_unpromising(self, known: float | None, bound: float | None) -> bool:
        """Return whether the search needs far more than the remaining time, and its bound is looser than ``bound``.

        Parameters
        ----------
        known, bound : float or None
            Utility of the best known assignment, and the best known upper bound.
        """
        share = tuning.UNTRIED_SHARE if self._bounds else 4 * tuning.UNTRIED_SHARE
        tried = self.paused or self.has_run(tuning.MIN_TRIED_SECONDS, share)
        if known is None or bound is None or not tried:
            return False
        own_bound = self._bounds[-1][1] if self._bounds else self.initial_bound
        return own_bound - known > 2 * (bound - known) and self.is_slow(known)


class BackgroundSearch:
    """A search in the background until it is complete, the deadline passes, or it is cancelled; a context manager.

    Order of states: waiting (for ``begin``, or ``wait`` seconds), searching, perhaps restarted with a better assignment
    to beat, ended. A slow search at low priority pauses once; after the pause it does not pause again. ``cancel`` ends
    any state.

    Parameters
    ----------
    make : callable
        ``make(check)`` returns the problem as costs; called in the thread. It should call ``check`` often, which raises
        ``OutOfTime`` once the search is cancelled.
    memory : int
        Maximum of bytes of the engine.
    observer : SearchObserver
        Callbacks.
    wait : float
        Seconds before the search starts, unless ``begin`` is called earlier: the problem may be solved by then.
    engine : callable
        Returns the engine, given its memory; toulbar2's process by default.

    Attributes
    ----------
    on : bool
        Whether the search may still find something.
    complete : bool
        Whether the optimum is proven.
    speed : SearchSpeed
        How fast its bounds fall.
    """

    def __init__(
        self,
        make: Callable[[Callable[[], None]], CostProblem],
        memory: int,
        observer: SearchObserver,
        wait: float = 0.0,
        engine: Callable[[int], CostSearchEngine] | None = None,
    ) -> None:
        self._make, self._memory, self._observer, self._wait = make, memory, observer, wait
        self._engine = engine or Toulbar2Process
        self._begin, self._cancelled = threading.Event(), threading.Event()
        self._ended, self._no_pause = threading.Event(), threading.Event()
        self._deadline, self._low_priority = float("inf"), False
        self.complete, self.speed = False, SearchSpeed(observer.deadline)
        self._thread = threading.Thread(target=self._run, name="dmcmc search engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def on(self) -> bool:
        """Whether the search may still find something."""
        return not self._ended.is_set() and not self._cancelled.is_set()

    def begin(self, seconds: float = float("inf"), low_priority: bool = False) -> None:
        """Begin the search if it has not begun, and end it after ``seconds``.

        Parameters
        ----------
        seconds : float
            Time limit from now on.
        low_priority : bool
            Whether all other work has priority; a slow search then pauses until ``end_pause`` is called.
        """
        self._deadline, self._low_priority = time.perf_counter() + seconds, low_priority
        self._begin.set()

    def end_pause(self) -> None:
        """End the pause, and do not pause again: there is no better use of the core."""
        self._no_pause.set()

    def cancel(self) -> None:
        """Ask the search to end; return at once."""
        self._cancelled.set()
        self._begin.set()

    def end(self) -> None:
        """End the search and wait until its engine is gone."""
        self.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def wait(self, seconds: float) -> None:
        """Wait until the search ends, ``seconds`` at most."""
        self._ended.wait(min(seconds, threading.TIMEOUT_MAX))

    def _run(self) -> None:
        """Begin and follow the search, restart it where that pays; runs in the thread."""
        with suppress(DmcmcError, MemoryError, OSError):  # then there is no search
            self._begin.wait(min(self._wait, threading.TIMEOUT_MAX))
            if not self._cancelled.is_set():
                costs, discarded = self._make(self._check), 0.0
                self.speed.initial_bound = float(costs.bound(0))
                if not costs.feasible:
                    self._report(partial(self._observer.on_bound, None))
                while costs.feasible and not self._over:
                    start = time.perf_counter()
                    self.speed.begun = min(self.speed.begun, start)
                    with self._engine(self._memory) as engine:
                        restart = self._follow_search(engine, costs, engine.max_discarded_seconds - discarded)
                    discarded += time.perf_counter() - start
                    if not restart:
                        break
        self._ended.set()

    def _check(self) -> None:
        """Raise ``OutOfTime`` if the search is cancelled."""
        if self._cancelled.is_set():
            raise OutOfTime("the search is cancelled")

    @property
    def _over(self) -> bool:
        """Whether the search has to end."""
        return self._cancelled.is_set() or time.perf_counter() > min(self._deadline, self._observer.deadline())

    def _follow_search(self, engine: CostSearchEngine, costs: CostProblem, spare: float) -> bool:
        """Report what one search finds; return whether to restart it with a better assignment to beat.

        Parameters
        ----------
        engine : CostSearchEngine
            The engine.
        costs : CostProblem
            The problem.
        spare : float
            Seconds of work that a restart may discard; later there is no restart.
        """
        beat, start = self._observer.known_utility(), time.perf_counter()
        top = costs.top if beat is None else costs.cost_to_beat(beat)
        progress = engine.start(costs, beat, max(1.0, self._observer.deadline() - start))
        values, lower, has_low_priority = None, 0, False
        while not self._over:
            if self._low_priority:
                has_low_priority = has_low_priority or engine.step_back()
                self._pause(engine)
            ended = progress.ended  # read first: if it has ended, the numbers below are final
            if progress.values is not None and progress.values is not values:
                values = progress.values
                self._report(partial(self._observer.on_assignment, values))
                top = min(top, costs.of(values))
            if progress.lower > lower and not ended:
                lower, bound = progress.lower, costs.bound(progress.lower)
                self._report(partial(self.speed.add_bound, bound))
                self._report(partial(self._observer.on_bound, bound))
            if ended:
                if progress.complete:
                    self.complete = True
                    self._report(partial(self._observer.on_bound, _optimum(costs, progress, beat, top)))
                return False
            known = self._observer.known_utility()
            if time.perf_counter() - start < spare and _restart_pays(costs, known, lower, top):
                return True
            time.sleep(tuning.CHECK_SECONDS)
        return False

    def _pause(self, engine: CostSearchEngine) -> None:
        """Suspend the engine if the search is slow, until the pause is ended or the search is over."""
        known = self._observer.known_utility()
        if (
            known is None
            or self._no_pause.is_set()
            or not self.speed.has_run(tuning.MIN_TRIED_SECONDS / 2, tuning.UNTRIED_SHARE / 2)
            or not self.speed.is_slow(known)
        ):
            return
        if engine.pause():
            since, self.speed.paused = time.perf_counter(), True
            while not (self._over or self._no_pause.wait(tuning.CHECK_SECONDS)):
                pass
            engine.go_on()
            self.speed.begun += time.perf_counter() - since  # as if it had begun later
        self._no_pause.set()

    def _report(self, report: Callable[[], object]) -> None:
        """Make a report, unless the search is cancelled."""
        if not self._cancelled.is_set():
            report()


def _restart_pays(costs: CostProblem, known: Number | None, lower: int, top: int) -> bool:
    """Return whether a restart pays: the utility ``known`` of an assignment is much better than the engine's best.

    It must lower the cost to beat by more than ``tuning.RESTART_GAIN`` · (``top`` − ``lower``), and by more than 1.
    """
    return known is not None and top - costs.cost_to_beat(known) > max(1, int(tuning.RESTART_GAIN * (top - lower)))


def _optimum(costs: CostProblem, progress: SearchProgress, beat: Number | None, top: int) -> Number | None:
    """Return the best utility, which the end of a complete search proves; None if the problem is infeasible.

    All better assignments have a lower cost than the one to beat, and no cost is lower: the known one is optimal.
    """
    return beat if progress.values is None else costs.bound(top)
