"""The single delivery of a run's result, which several threads may undertake, and the best result so far."""

import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmcmc.solving.monitoring.interrupt import RunHandle

PREPARED_VALID = 1.0
"""Seconds for which a prepared result is used without preparing it again."""


class Delivery(Enum):
    """The state of the single delivery of a result; it only moves forward."""

    OPEN = "no thread has undertaken to deliver a result"
    CLAIMED = "a thread has undertaken it, and is still computing the result"
    WRITING = "the result is being written and printed"
    DONE = "the result is printed, or there is none"


class ResultDelivery:
    """The single delivery of a result: the first thread that claims it delivers, and all others wait for it.

    Parameters
    ----------
    report
        Reports an error of the delivery, and returns the exit code.

    Attributes
    ----------
    write : callable or None
        Writes and prints a result, and returns the exit code; None before a run begins.
    clear_display : callable
        Removes the progress display from the terminal.
    code : int or None
        Exit code of the process; None until a result is delivered or the run has none.
    """

    def __init__(self, report: Callable[[Exception], int]) -> None:
        self._report = report
        self.write: Callable[[Any], int] | None = None
        self.clear_display: Callable[[], object] = _nothing
        self.code: int | None = None
        self._lock, self._state = threading.Lock(), Delivery.OPEN  # the lock protects the state
        self._delivered = threading.Event()  # set when the result is delivered

    @property
    def state(self) -> Delivery:
        """How far the delivery is."""
        return self._state

    def claim(self, rank: int) -> bool:
        """Return whether the caller is to deliver the result: the first caller, on rank 0."""
        with self._lock:
            is_first = self._state is Delivery.OPEN
            if is_first:
                self._state = Delivery.CLAIMED
        return is_first and rank == 0

    def before_writing(self, action: Callable[[], object]) -> None:
        """Do something unless a thread has begun to write the result, and let none begin until it is done."""
        with self._lock:
            if self._state in (Delivery.OPEN, Delivery.CLAIMED):
                action()

    def deliver(self, result: Any, note: str) -> int:
        """Deliver a result and return the exit code; an error in doing so is reported, and its code returned.

        Parameters
        ----------
        result
            The result.
        note
            The kind of the signal that was received, which a result of a run that has not ended gets as its note; empty
            without a signal.
        """
        import msgspec  # already imported by the result

        assert self.write is not None
        code = 1
        try:
            self.clear_display()
            if note and getattr(result, "status", "") == "timeout":
                result = msgspec.structs.replace(result, note=note)
            with self._lock:
                self._state = Delivery.WRITING
            code = self.write(result)
        except Exception as error:
            code = self._report(error)
        return self.done(code)

    def done(self, code: int) -> int:
        """Note that the delivery is over, and return the exit code of the process."""
        with self._lock:
            self.code, self._state = code, Delivery.DONE
        self._delivered.set()
        return code

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the delivery by another thread, and return its exit code; 1 if it is not known."""
        self._delivered.wait(seconds)
        return 1 if self.code is None else self.code


class BestResult:
    """The best result of a run so far, which may be prepared in advance.

    Parameters
    ----------
    run
        The run.
    """

    def __init__(self, run: "RunHandle") -> None:
        self._run = run
        self._prepared: Any = None
        self._prepared_at = 0.0  # time (``time.perf_counter``) of the preparation; 0 without a prepared result
        self._preparing = threading.Lock()  # held while a result is computed

    def get(self) -> Any:
        """Return the best result so far, None if there is none; a recently prepared one is used again."""
        with self._preparing:
            if time.perf_counter() - self._prepared_at < PREPARED_VALID:
                return self._prepared
            return self._run.result()

    def prepare(self) -> None:
        """Prepare the best result so far, since the process may be ended soon."""
        with self._preparing:
            if self._run.running:
                self._prepared = self._run.result()
                self._prepared_at = 0.0 if self._prepared is None else time.perf_counter()


def _nothing() -> None:
    """Do nothing: there is no progress display."""
