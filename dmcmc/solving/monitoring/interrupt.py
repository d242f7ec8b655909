"""Requests to end a run early: from a command line that handles signals, or by Ctrl-C in a user's program.

A run polls its ``CancellationToken``. If it does not end soon after its deadline, another thread of the command line
reads the best result from the :class:`RunHandle` and delivers it.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from dmcmc.inference.runtime.deadline import CancellationToken, Deadline
from dmcmc.results.result import Output, Result
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
