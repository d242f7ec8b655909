"""The thread of a search engine of dmcmc, with the interface of an engine in a process (``process.py``)."""

import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Generic, Self, TypeVar

import numpy as np

from dmcmc.inference.runtime.deadline import CancellationToken, Deadline
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.threads import lower_priority
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.external.process import SearchedProblem, SearchProgress

P = TypeVar("P", bound=SearchedProblem)


class SearchThread(ABC, Generic[P]):
    """A thread that searches one problem; a context manager that ends it.

    Subclasses search in steps of some milliseconds, and ask between them whether to go on.

    Parameters
    ----------
    memory : int
        Maximum of bytes; 0 for no limit. A larger problem is not searched: the search ends at once, incomplete.

    Attributes
    ----------
    max_discarded_seconds : float
        Seconds of work, in total, that restarts with a better known assignment may discard.
    halt : (1,) uint8
        Set to 1 by ``close``, and never cleared: a kernel returns.
    """

    max_discarded_seconds: float = 4.0

    def __init__(self, memory: int = 0) -> None:
        self._memory, self._low_priority, self._has_low_priority = memory, False, False
        self.halt, self._not_paused = np.zeros(1, dtype=np.uint8), threading.Event()
        self._cancellation = CancellationToken()
        self._thread: threading.Thread | None = None
        self._not_paused.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the search and wait until its thread has ended."""
        self.halt[0] = 1
        self._cancellation.request()
        self._not_paused.set()
        if self._thread is not None:
            self._thread.join()

    def step_back(self) -> bool:
        """Lower the priority of the thread; return True."""
        self._low_priority = True
        return True

    def pause(self) -> bool:
        """Suspend the search; return True."""
        self._not_paused.clear()
        return True

    def go_on(self) -> None:
        """Resume the search after a pause."""
        self._not_paused.set()

    def start(self, costs: P, beat: Number | None, seconds: float) -> SearchProgress:
        """Begin to search a problem and return at once; see ``process.EngineProcess.start``."""
        progress, stop = SearchProgress(), Deadline(time.perf_counter() + seconds, cancellation=self._cancellation)
        top = costs.top if beat is None else min(costs.top, costs.cost_to_beat(beat))
        self._thread = threading.Thread(target=self._run, args=(costs, top, stop, progress), name="search engine")
        self._thread.daemon = True
        self._thread.start()
        return progress

    def search(self, costs: P, beat: Number | None, seconds: float) -> SearchProgress:
        """Search a problem until the search ends."""
        progress = self.start(costs, beat, seconds)
        if self._thread is not None:
            self._thread.join()
        return progress

    def _run(self, costs: P, top: int, stop: Deadline, progress: SearchProgress) -> None:
        """Search until the search is complete, stopped or out of time; runs in the thread."""
        try:
            with suppress(DmcmcError, MemoryError):  # the search ends incomplete
                self._search(costs, top, stop, progress)
        finally:
            progress.end()

    def _may_continue(self, stop: Deadline) -> bool:
        """Wait while the search is paused, and return whether it should go on; runs in the thread."""
        self._not_paused.wait()
        if self._low_priority and not self._has_low_priority:
            self._has_low_priority = True
            lower_priority()
        return not self.halt[0] and not stop.over

    @abstractmethod
    def _search(self, costs: P, top: int, stop: Deadline, progress: SearchProgress) -> None:
        """Search for assignments that cost less than ``top``, and write what is found to ``progress``.

        Parameters
        ----------
        costs : SearchedProblem
            The problem.
        top : int
            The cost to beat.
        stop : Deadline
            The time limit, which is also over when the thread is closed.
        progress : SearchProgress
            Receives assignments and bounds.
        """
