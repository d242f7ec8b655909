"""Who asks a run to end early: a command line that hears signals, or Ctrl-C in a program of somebody's own."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from dmcmc.inference.runtime.deadline import Stop, Wish
from dmcmc.results.result import Result

_LATE, _LATE_SHARE = 0.7, 0.03  # seconds, or of the time, after its end: all that hears of it has ended by then


def _nothing() -> None:
    return None


@dataclass
class Ending:
    """What a run and whoever may end it early know of each other.

    Attributes
    ----------
    wish : Wish
        To end soon, with what there is; the run looks at it.
    best : callable
        Set by the run: returns the best so far as a result, from any thread and without other ranks; None where there
        is nothing yet, or the rank is not 0.
    leave : callable or None
        Set by a run of which no rank knows the whole answer: leaves what this one knows of it, on any rank and from any
        thread.
    due : float
        When somebody else may deliver that (``time.perf_counter``): a while after the time budget's end; inf while
        kernels are compiled, which the budget does not count.
    """

    wish: Wish = field(default_factory=Wish)
    best: Callable[[], Result | None] = _nothing
    leave: Callable[[], object] | None = None
    due: float = float("inf")

    @property
    def running(self) -> bool:
        """Whether the run has come so far that there may be something."""
        return self.best is not _nothing

    @contextmanager
    def watched(self, stop: Stop) -> Iterator[None]:
        """Let the time budget's end be watched: work that does not hear of it is not waited for."""
        left = stop.until - time.perf_counter()
        self.due = stop.until + max(_LATE, _LATE_SHARE * left)
        try:
            yield
        finally:
            self.due = float("inf")


class Interrupt:
    """A context in which the first SIGINT is noted in ``stop`` instead of raised; a second one is raised.

    Parameters
    ----------
    armed
        False leaves signals alone.
    """

    def __init__(self, stop: Stop, armed: bool) -> None:
        self._stop = stop
        self._armed = armed and threading.current_thread() is threading.main_thread()
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._armed:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._armed:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._stop.asked:
            raise KeyboardInterrupt
        self._stop.wish.ask()
