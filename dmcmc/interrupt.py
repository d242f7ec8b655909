"""Ctrl-C as a wish to stop soon, with the best answer so far; a second one stops at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupt:
    """A context in which the first SIGINT is noted instead of raised.

    Attributes
    ----------
    asked : bool
        Whether it came.

    Parameters
    ----------
    armed
        False leaves signals alone.
    """

    def __init__(self, armed: bool) -> None:
        self.asked = False
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
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
