"""A search of a whole problem beside other work: a process on a core of its own, followed by a thread."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.toulbar2.costs import Costs
from dmcmc.samplers.toulbar2.search import Engine, Progress

_LOOK = 0.02  # seconds between two looks at what it has printed
_THROWN = 4.0  # seconds of work, in all, that may be thrown away for a better assignment to be beaten
_PAYS = 0.1  # of what lies between its best and its bound: a better assignment is worth a new start
_TRIAL, _TRIAL_SHARE = 2.0, 0.1  # seconds, and the part of the time, after which it may be seen that it is hopeless
_SILENT_SHARE = 0.4  # likewise, where it has proven nothing at all: it may still be through at any time
_FAR = 6.0  # times what is left: so long, at its pace, is hopeless; searches end faster than they go
_LOOSER = 2.0  # times our gap is its own: then its bound is of no use either
_ALONE, _ALONE_SHARE = 1.0, 0.05  # seconds, and the part of the time, that it has behind other work before it may pause
_KEPT = 256  # bounds with their times


@dataclass(frozen=True)
class Listener:
    """Whom a search beside other work talks to, from its own thread.

    Attributes
    ----------
    known : callable
        Returns what the best known assignment is worth; None while there is none without violations.
    found : callable
        Called with every better assignment.
    proven : callable
        Called with a number that no assignment better than the best known exceeds; None where there is none at all.
    until : callable
        Returns when to end (``time.perf_counter``); it may change as long as kernels are compiled.
    """

    known: Callable[[], Number | None]
    found: Callable[[NDArray[np.int64]], object]
    proven: Callable[[Number | None], object]
    until: Callable[[], float]


class SearchEngine(Protocol):
    """Something that searches problems of costs: toulbar2's process, or a thread of our own."""

    def __enter__(self) -> Self:
        """Begin to exist."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, whatever it does."""
        ...

    def start(self, costs: Costs, beat: Number | None, seconds: float) -> Progress:
        """Begin to search a problem for what beats a utility, if there is one; return at once."""
        ...

    def step_back(self) -> bool:
        """Let all other work go first, from now on."""
        ...

    def pause(self) -> bool:
        """Do nothing until :meth:`go_on`; return whether it can."""
        ...

    def go_on(self) -> None:
        """Go on after a pause."""
        ...


class Beside:
    """A search that goes on until it is through, has no more time, or is not wanted any more; a context manager.

    Parameters
    ----------
    make : callable
        Returns the problem as costs; called in the thread.
    memory : int
        Bytes that the process may take.
    listener : Listener
    wait : float
        Seconds before it starts, unless :meth:`go` says so earlier: the problem may be solved by then.
    engine : callable
        Returns the engine, given its memory; toulbar2's by default.

    Attributes
    ----------
    on : bool
        Whether it may still bring something.
    complete : bool
        Whether it has proven what is best.
    paused : bool
        Whether it has paused behind other work, since it was slow.
    """

    def __init__(
        self,
        make: Callable[[], Costs],
        memory: int,
        listener: Listener,
        wait: float = 0.0,
        engine: Callable[[int], SearchEngine] | None = None,
    ) -> None:
        self._make, self._memory, self._listener, self._wait = make, memory, listener, wait
        self._engine = engine or Engine
        self._go, self._open, self._unwanted = threading.Event(), threading.Event(), threading.Event()
        self._open.set()
        self._ended, self._awaited = threading.Event(), threading.Event()
        self._until, self._behind = float("inf"), False
        self._bounds: list[tuple[float, float]] = []
        self._most = float("inf")  # what anything is worth at most, before it has proven anything
        self.complete, self.begun, self.paused = False, float("inf"), False
        self._thread = threading.Thread(target=self._run, name="dmcmc search engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def on(self) -> bool:
        """Whether it may still bring something."""
        return not self._ended.is_set() and not self._unwanted.is_set()

    def go(self, seconds: float = float("inf"), behind: bool = False) -> None:
        """Start now, if it has not, and end after so many seconds at most.

        ``behind``: all other work goes first, and where it is slow it pauses until :meth:`go_on`.
        """
        self._until, self._behind = time.perf_counter() + seconds, behind
        self._go.set()

    def go_on(self) -> None:
        """Pause no more: there is nothing better."""
        self._awaited.set()

    def hold(self) -> None:
        """Say nothing until :meth:`resume`: the clock stands still."""
        self._open.clear()

    def resume(self) -> None:
        """Talk again."""
        self._open.set()

    def leave(self) -> None:
        """End it soon, whatever it does."""
        self._unwanted.set()
        self._go.set()
        self._open.set()

    def end(self) -> None:
        """End it, whatever it does, and wait until its process is gone."""
        self.leave()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def wait(self, seconds: float) -> None:
        """Wait until it ends, so many seconds at most."""
        self._ended.wait(min(seconds, threading.TIMEOUT_MAX))

    def hopeless(self, known: float | None, bound: float | None) -> bool:
        """Return whether it would need far more time than there is, and its bound is looser than another.

        Parameters
        ----------
        known, bound
            What the best known assignment is worth, and the best bound.
        """
        tried = self.paused or self._tried(_TRIAL, _TRIAL_SHARE if self._bounds else _SILENT_SHARE)
        if known is None or bound is None or not tried:
            return False
        own = self._bounds[-1][1] if self._bounds else self._most
        return own - known > _LOOSER * (bound - known) and self._slow(known)

    def _tried(self, seconds: float, share: float) -> bool:
        """Return whether it has had so many seconds, and such a share of the time."""
        now = time.perf_counter()
        return now - self.begun >= max(seconds, share * (self._listener.until() - self.begun))

    def _slow(self, known: float) -> bool:
        """Return whether it would need far more time than there is, at the pace of its bounds."""
        if not self._bounds:
            return True
        now = time.perf_counter()
        spent, left = now - self.begun, max(0.0, self._listener.until() - now)
        earlier = [b for at, b in self._bounds if at <= self.begun + spent / 2] or [self._bounds[0][1]]
        pace = (earlier[-1] - self._bounds[-1][1]) / (spent / 2)
        return self._bounds[-1][1] - known > _FAR * left * pace

    def _run(self) -> None:
        """Start it, follow it, start it anew where that pays; the thread's own work."""
        with suppress(DmcmcError, MemoryError, OSError):  # then there is none
            self._go.wait(min(self._wait, threading.TIMEOUT_MAX))
            self._open.wait()  # what is known by then may say that it is not wanted
            if not self._unwanted.is_set():
                costs, thrown = self._make(), 0.0
                self._most = float(costs.bound(0))
                if not costs.feasible:
                    self._say(partial(self._listener.proven, None))
                while costs.feasible and not self._over:
                    start = time.perf_counter()
                    self.begun = min(self.begun, start)
                    with self._engine(self._memory) as engine:
                        again = self._follow(engine, costs, _THROWN - thrown)
                    thrown += time.perf_counter() - start
                    if not again:
                        break
        self._ended.set()

    @property
    def _over(self) -> bool:
        return self._unwanted.is_set() or time.perf_counter() > min(self._until, self._listener.until())

    def _follow(self, engine: SearchEngine, costs: Costs, spare: float) -> bool:
        """Pass on what one search finds; return whether to start anew with what is known by then.

        Parameters
        ----------
        spare
            Seconds of work that may be thrown away.
        """
        beat, start = self._listener.known(), time.perf_counter()
        top = costs.top if beat is None else costs.to_beat(beat)
        progress = engine.start(costs, beat, max(1.0, self._listener.until() - start))
        values, lower, behind = None, 0, False
        while not self._over:
            if self._behind:
                behind = behind or engine.step_back()
                self._pause(engine)
            ended = progress.ended  # before its numbers are read: they are final then
            if progress.values is not None and progress.values is not values:
                values = progress.values
                self._say(partial(self._listener.found, values))
                top = min(top, costs.of(values))
            if progress.lower > lower and not ended:
                lower = progress.lower
                self._say(partial(self._bounded, costs.bound(lower)))
            if ended:
                self._conclude(costs, progress, beat, top)
                return False
            if time.perf_counter() - start < spare and self._better(costs, lower, top):
                return True
            time.sleep(_LOOK)
        return False

    def _pause(self, engine: SearchEngine) -> None:
        """Pause where it is slow, until it is told to go on or to end."""
        known = self._listener.known()
        if known is None or self._awaited.is_set() or not self._tried(_ALONE, _ALONE_SHARE) or not self._slow(known):
            return
        if engine.pause():
            since, self.paused = time.perf_counter(), True
            while not (self._over or self._awaited.wait(_LOOK)):
                pass
            engine.go_on()
            self.begun += time.perf_counter() - since  # as if it had begun later
        self._awaited.set()

    def _better(self, costs: Costs, lower: int, top: int) -> bool:
        """Return whether something so much better than its best is known that it should know."""
        known = self._listener.known()
        return known is not None and top - costs.to_beat(known) > max(1, int(_PAYS * (top - lower)))

    def _bounded(self, bound: Number) -> None:
        self._bounds.append((time.perf_counter(), float(bound)))
        if len(self._bounds) > _KEPT:  # every other will do
            del self._bounds[1:-1:2]
        self._listener.proven(bound)

    def _conclude(self, costs: Costs, progress: Progress, beat: Number | None, top: int) -> None:
        """Say what the end of a search proves."""
        if not progress.complete:
            return
        self.complete = True
        # Nothing is below a cost that all are below that are better than what is known: that is the best, to the bit.
        best = beat if progress.values is None else costs.bound(top)
        self._say(partial(self._listener.proven, best))

    def _say(self, what: Callable[[], object]) -> None:
        """Say something when that is allowed, if anybody still wants to hear it."""
        self._open.wait()
        if not self._unwanted.is_set():
            what()
