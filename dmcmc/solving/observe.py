"""How a caller observes a run (its progress, its plan and its end), and how a run is asked to end early.

Progress is not shown, or goes to callbacks or lines of text. A run polls its ``CancellationToken``, which is set by a
command line that handles signals, or by Ctrl-C in a user's program. If the run does not end soon after its deadline,
another thread of the command line reads the best result from the :class:`RunHandle` and delivers it.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from dmcmc.inference.runtime.deadline import NO_DEADLINE, CancellationToken, Deadline
from dmcmc.results.result import Output, Result, Solution, TracePoint
from dmcmc.solving.tuning import DELIVERY_GRACE_SECONDS, DELIVERY_GRACE_SHARE


def _no_result() -> None:
    """Return None: there is no result yet."""
    return None


def _unchanged(result: Result) -> Result:
    """Return the result."""
    return result


@dataclass
class RunHandle:
    """A handle on a run, by which its caller can end it early and read the best result so far.

    Attributes
    ----------
    cancellation : CancellationToken
        Request to end soon with the best result; the run polls it.
    best : callable
        Set by the run. Returns the best result so far, from any thread and without other ranks; None if there is no
        result yet or the rank is not 0.
    complete : callable
        Returns a result with what the caller of the run adds to it.
    save_partial : callable or None
        Set by a run in which no rank knows the whole answer. Writes this rank's part of it, on any rank and from any
        thread.
    due : float
        Time (``time.perf_counter``) from which another thread may deliver the result, somewhat after the deadline. It
        is infinite before the clock starts.
    """

    cancellation: CancellationToken = field(default_factory=CancellationToken)
    best: Callable[[], Output | None] = _no_result
    complete: Callable[[Result], Result] = _unchanged
    save_partial: Callable[[], object] | None = None
    due: float = float("inf")

    @property
    def running(self) -> bool:
        """Whether the run has got far enough that there may be a result."""
        return self.best is not _no_result

    def result(self) -> Output | None:
        """Return the best result so far as the caller of the run returns it; None if there is none."""
        found = self.best()
        return self.complete(found) if isinstance(found, Result) else found

    @contextmanager
    def deliver_if_late(self, stop: Deadline) -> Iterator[None]:
        """Let another thread deliver the result if the body has not ended a while after the deadline."""
        left = stop.until - time.perf_counter()
        self.due = stop.until + max(DELIVERY_GRACE_SECONDS, DELIVERY_GRACE_SHARE * left)
        try:
            yield
        finally:
            self.due = float("inf")


class Interrupt:
    """A context in which the first SIGINT cancels the run through ``stop``; a second one raises ``KeyboardInterrupt``.

    Parameters
    ----------
    stop
        Deadline and cancellation of the run.
    armed
        Whether to handle signals at all.
    """

    def __init__(self, stop: Deadline, armed: bool) -> None:
        self._stop = stop
        self._armed = armed and threading.current_thread() is threading.main_thread()
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._armed:
            self._before = signal.signal(signal.SIGINT, self._request_end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._armed:
            signal.signal(signal.SIGINT, self._before)

    def _request_end(self, number: int, frame: FrameType | None) -> None:
        """Cancel the run at the first signal; raise ``KeyboardInterrupt`` at the second one."""
        if self._stop.is_cancelled:
            raise KeyboardInterrupt
        self._stop.cancellation.request()


Explain = Callable[[Any], object]
"""Receives the plan of a run."""


class ProgressReporter(Protocol):
    """Receiver of a run's progress. Calls have to be cheap enough for a few hundred per second."""

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage of ``total`` steps (None if unknown); the previous stage is over."""

    def advance(self, steps: int = 1) -> None:
        """Report that ``steps`` more steps of the stage are done."""

    def point(self, point: TracePoint) -> None:
        """Report a new objective or bound (on rank 0)."""

    def solution(self, make: Callable[[], Solution]) -> None:
        """Report a better feasible assignment (on rank 0); call ``make`` only if the solution is needed."""


class NoProgress:
    """Progress that is not shown."""

    def stage(self, title: str, total: int | None = None) -> None:
        """Do nothing."""

    def advance(self, steps: int = 1) -> None:
        """Do nothing."""

    def point(self, point: TracePoint) -> None:
        """Do nothing."""

    def solution(self, make: Callable[[], Solution]) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class LineProgress(NoProgress):
    """Progress as lines of text: one per stage, and one per second for the steps of a long stage.

    Parameters
    ----------
    write : callable
        Called with each line.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write, self._start, self._last = write, time.perf_counter(), 0.0
        self._title, self._total, self._done = "", None, 0

    _total: int | None

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage; see :class:`ProgressReporter`."""
        if title != self._title:
            self._line(title if total is None else f"{title}: {total}")
        self._title, self._total, self._done = title, total, 0

    def advance(self, steps: int = 1) -> None:
        """Report steps; see :class:`ProgressReporter`."""
        self._done += steps
        if time.perf_counter() - self._last >= 1:
            self._line(f"{self._title}: {self._done}" + ("" if self._total is None else f" of {self._total}"))

    def _line(self, text: str) -> None:
        """Write a line with the elapsed time."""
        self._last = time.perf_counter()
        self._write(f"{self._last - self._start:7.1f} s  {text}")


class CallbackProgress(NoProgress):
    """Progress that is passed on to a caller's callbacks.

    Parameters
    ----------
    progress
        Object with ``stage`` and ``advance`` as in :class:`ProgressReporter`, or a function of a line of text; None for
        neither.
    trace
        Called with each :class:`~dmcmc.results.result.TracePoint`.
    solution
        Called with each :class:`~dmcmc.results.result.Solution`.
    """

    def __init__(
        self,
        progress: Any,
        trace: Callable[[TracePoint], object] | None,
        solution: Callable[[Solution], object] | None = None,
    ) -> None:
        if progress is None:
            progress = NoProgress()
        elif not hasattr(progress, "stage"):
            progress = LineProgress(progress)
        self.stage, self.advance, self._trace = progress.stage, progress.advance, trace  # type: ignore[method-assign]
        self._solution = solution

    def point(self, point: TracePoint) -> None:
        """Report a new objective or bound."""
        if self._trace is not None:
            self._trace(point)

    def solution(self, make: Callable[[], Solution]) -> None:
        """Report a better assignment."""
        if self._solution is not None:
            self._solution(make())


@dataclass(frozen=True)
class Watch:
    """An observer of a run, given by its caller; its functions are called on all ranks.

    Attributes
    ----------
    progress : ProgressReporter
        Receives the stages of the run and, on rank 0, each point of the result's trace.
    plan_observers : tuple of callable
        Called with the plan one after the other, see :meth:`planned`.
    handle : RunHandle or None
        Handle by which the run can be ended early, and by which its best result so far can be read.
    handles_signals : bool
        Whether the caller handles signals; otherwise, a run with a time budget ends at the first Ctrl-C.
    """

    progress: ProgressReporter
    plan_observers: tuple[Explain, ...] = ()
    handle: "RunHandle | None" = None
    handles_signals: bool = False

    @property
    def stop(self) -> Deadline:
        """The deadline of the run: never, unless the caller asks for the end."""
        return NO_DEADLINE if self.handle is None else Deadline(cancellation=self.handle.cancellation)

    def with_handle(self, handle: "RunHandle") -> "Watch":
        """Return the same with a handle."""
        return replace(self, handle=handle)

    def with_planned(self, observer: Explain) -> "Watch":
        """Return the same with another observer of the plan, who is called before the present ones."""
        return replace(self, plan_observers=(observer, *self.plan_observers))

    def planned(self, setup: Any) -> float:
        """Show the plan to its observers, before the work begins, and again if some agents' methods had to change.

        Return the seconds that this takes, which are not counted as time of the run.
        """
        start = time.perf_counter()
        for observer in self.plan_observers:
            observer(setup)
        return time.perf_counter() - start


UNWATCHED = Watch(NoProgress())
