"""Ctrl-C as a wish to stop soon, with the best answer so far; a second one stops at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from dmcmc.inference.runtime.deadline import Stop


class Interrupt:
    """A context in which the first SIGINT is noted in ``stop`` instead of raised.

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
