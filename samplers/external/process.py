"""A solver in another process, and the thread that waits for it.

The child process of a search engine: it can be started, observed, paused and ended at any time.

The thread of a search engine of dmcmc, with the interface of an engine in a process (``process.py``).
"""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import CancellationToken, Deadline
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.threads import end_process, lower_priority
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.contract import tuning

if TYPE_CHECKING:
    from dmcmc.samplers.toulbar2.costs import CostProblem

_WORKER = Path(__file__).with_name("worker.py")
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # the stacks of more threads would count as memory


@dataclass
class SearchProgress:
    """The results of a search so far.

    Attributes
    ----------
    values : (n,) int64 or None
        The best assignment reported; the caller evaluates it.
    lower : int
        Proven lower bound on the costs of assignments better than the known one.
    complete : bool
        Whether no assignment is better than ``values`` (than the known one, if ``values`` is None).
    ended : bool
        Whether the search has stopped.
    """

    values: NDArray[np.int64] | None = None
    lower: int = 0
    complete: bool = False
    ended: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def parse(self, line: str, variables: int) -> bool:
        """Parse a line of the engine's output; return whether it ends the search.

        Parameters
        ----------
        line : str
            The line.
        variables : int
            Number of variables of the problem.
        """
        with self._lock:
            self._parse(line.strip(), variables)
            return self.ended

    def _parse(self, line: str, variables: int) -> None:
        """Take the content of a line; a subclass knows its engine's output."""
        raise NotImplementedError

    def end(self) -> None:
        """Mark the search as stopped."""
        with self._lock:
            self.ended = True


class PrintedProgress(SearchProgress):
    """The results of an engine that prints ``solution`` with values, ``bound`` with a bound, ``complete``, ``done``."""

    def _parse(self, line: str, variables: int) -> None:
        """Take the content of a line of the worker's output."""
        kind, *numbers = line.split() or [""]
        if kind == "solution" and len(numbers) == variables:
            self.values = np.array([int(number) for number in numbers], dtype=np.int64)
        elif kind == "bound":
            self.lower = max(self.lower, int(numbers[0]))
        elif kind == "complete":
            self.complete = True
        elif kind == "done":
            self.ended = True


class EngineProcess:
    """A process that searches one problem after the other; a context manager that ends it.

    Subclasses say which script the process runs, and how its output is read.

    Parameters
    ----------
    memory : int
        Maximum of bytes besides its libraries; 0 for no limit.
    known : callable
        Returns the best known assignment, from which a search starts: value indices of the first variables; None if
        there is none.

    Attributes
    ----------
    engine : Path
        The script with the engine's functions ``prepare`` and ``search`` (``worker.py``).
    max_discarded_seconds : float
        Seconds of work, in total, that restarts with a better known assignment may discard.
    """

    engine: Path
    max_discarded_seconds: float = 4.0

    def __init__(self, memory: int = 0, known: Callable[[], NDArray[np.int64] | None] = lambda: None) -> None:
        self._known = known
        self._process = subprocess.Popen(
            [sys.executable, str(_WORKER), str(memory), str(os.getpid()), str(self.engine)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,  # Ctrl-C goes to the run only, which ends its search
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process."""
        end_process(self._process)

    def step_back(self) -> bool:
        """Lower the priority of the process if the system allows it; return True."""
        if hasattr(os, "setpriority"):
            with suppress(OSError):  # the process has ended
                os.setpriority(os.PRIO_PROCESS, self._process.pid, tuning.NICENESS)
        return True

    def pause(self) -> bool:
        """Suspend the process; do nothing and return False on systems other than Linux.

        Only Linux ends a suspended process together with this one.
        """
        if sys.platform != "linux":
            return False
        self._process.send_signal(signal.SIGSTOP)
        return True

    def go_on(self) -> None:
        """Resume the process after a pause."""
        self._process.send_signal(signal.SIGCONT)

    def start(self, costs: "CostProblem", beat: Number | None, seconds: float) -> SearchProgress:
        """Begin to search a problem and return at once.

        Parameters
        ----------
        costs : CostProblem
            The problem.
        beat : int, float or None
            Utility of the best known assignment: only better ones are searched for.
        seconds : float
            Time limit, rounded up.
        """
        progress = self._progress()
        job = self._send(costs, beat, seconds)
        threading.Thread(target=self._read, args=(job, progress, costs.domains.size), daemon=True).start()
        return progress

    def search(self, costs: "CostProblem", beat: Number | None, seconds: float) -> SearchProgress:
        """Search a problem until the search ends."""
        progress = self._progress()
        self._read(self._send(costs, beat, seconds), progress, costs.domains.size)
        return progress

    def _progress(self) -> SearchProgress:
        """Return the object that reads the engine's output."""
        return PrintedProgress()

    def _known_values(self, costs: "CostProblem") -> list[int] | None:
        """Return the best known assignment of a problem's variables, as JSON has it."""
        known = self._known()
        return None if known is None else known[: costs.domains.size].tolist()

    def _job(self, costs: "CostProblem") -> dict[str, Any]:
        """Return further entries of a job, as JSON has them."""
        return {}

    def _send(self, costs: "CostProblem", beat: Number | None, seconds: float) -> bool:
        """Send the process a problem; return whether it has been received."""
        arrays = io.BytesIO()
        costs.save(arrays)
        top = costs.top if beat is None else costs.cost_to_beat(beat)
        job = {"bytes": arrays.tell(), "top": top, "seconds": max(1, int(np.ceil(min(seconds, 1e8))))}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job | self._job(costs)).encode() + b"\n")
            self._process.stdin.write(arrays.getbuffer())
            self._process.stdin.flush()
        except (OSError, ValueError):  # the process has ended, or was closed
            return False
        return True

    def _read(self, sent: bool, progress: SearchProgress, variables: int) -> None:
        """Read the output of the process until the end of one search."""
        for line in self._lines() if sent else ():
            if progress.parse(line, variables):
                return
        progress.end()

    def _lines(self) -> Iterator[str]:
        """Yield the lines that the process prints, until it ends."""
        assert self._process.stdout is not None
        with suppress(ValueError, OSError):  # closed while it was read
            while line := self._process.stdout.readline():
                yield line.decode(errors="replace")


class SearchThread(ABC):
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

    def start(self, costs: "CostProblem", beat: Number | None, seconds: float) -> SearchProgress:
        """Begin to search a problem and return at once; see ``process.EngineProcess.start``."""
        progress, stop = SearchProgress(), Deadline(time.perf_counter() + seconds, cancellation=self._cancellation)
        top = costs.top if beat is None else min(costs.top, costs.cost_to_beat(beat))
        self._thread = threading.Thread(target=self._run, args=(costs, top, stop, progress), name="search engine")
        self._thread.daemon = True
        self._thread.start()
        return progress

    def search(self, costs: "CostProblem", beat: Number | None, seconds: float) -> SearchProgress:
        """Search a problem until the search ends."""
        progress = self.start(costs, beat, seconds)
        if self._thread is not None:
            self._thread.join()
        return progress

    def _run(self, costs: "CostProblem", top: int, stop: Deadline, progress: SearchProgress) -> None:
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
    def _search(self, costs: "CostProblem", top: int, stop: Deadline, progress: SearchProgress) -> None:
        """Search for assignments that cost less than ``top``, and write what is found to ``progress``.

        Parameters
        ----------
        costs : CostProblem
            The problem.
        top : int
            The cost to beat.
        stop : Deadline
            The time limit, which is also over when the thread is closed.
        progress : SearchProgress
            Receives assignments and bounds.
        """
