"""How a caller observes a run: its progress (not shown, lines of text, or callbacks), its plan, and its end."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.results.result import Solution, TracePoint

if TYPE_CHECKING:  # the interface in Python imports this module, and loads no plan
    from dmcmc.solving.monitoring.interrupt import RunHandle


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
