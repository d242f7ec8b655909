"""The toulbar2 process of a background search: it can be started, observed, paused and ended at any time."""

import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.inference.runtime.processes import end_process
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.toulbar2.costs import CostProblem

_WORKER = Path(__file__).with_name("worker.py")
# Lines of toulbar2's output: the values of all variables of an assignment; a lower bound on the cost.
_ASSIGNMENT = re.compile(r" \d+( \d+)*\s*")
_LOWER = re.compile(r"(?:Optimality gap|bounds): \[(\d+), *\d+\]|^Dual bound: (\d+)")
_NICENESS = 15  # niceness: about a thirtieth of a core that other work wants, too
_LIMIT_MESSAGE = "Time limit expired"  # printed by toulbar2 if a search has not been completed in time
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # the stacks of more threads would count as memory


def available() -> bool:
    """Return whether toulbar2 is installed."""
    return importlib.util.find_spec("pytoulbar2") is not None


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
    _limited: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def parse(self, line: str, variables: int) -> bool:
        """Parse a line of toulbar2's output; return whether it ends the search."""
        with self._lock:
            if _ASSIGNMENT.fullmatch(line) and len(words := line.split()) == variables:
                self.values = np.array([int(word) for word in words], dtype=np.int64)
            elif found := _LOWER.search(line):
                self.lower = max(self.lower, int(found[1] or found[2]))
            elif _LIMIT_MESSAGE in line:
                self._limited = True
            elif line.strip() == "done":
                self.complete, self.ended = not self._limited, True
            return self.ended

    def end(self) -> None:
        """Mark the search as stopped."""
        with self._lock:
            self.ended = True


class Toulbar2Process:
    """A toulbar2 process that searches one problem after the other; a context manager that ends it.

    Parameters
    ----------
    memory : int
        Maximum of bytes besides its libraries; 0 for no limit.

    Raises
    ------
    Unavailable
        If toulbar2 is not installed.
    """

    def __init__(self, memory: int = 0) -> None:
        if not available():
            raise Unavailable("toulbar2 is not installed; pip install 'dmcmc[toulbar2]'")
        self._process = subprocess.Popen(
            [sys.executable, str(_WORKER), str(memory), str(os.getpid())],
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
                os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICENESS)
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

    def start(self, costs: CostProblem, beat: Number | None, seconds: float) -> SearchProgress:
        """Begin to search a problem and return at once.

        Parameters
        ----------
        costs : CostProblem
            The problem.
        beat : int, float or None
            Utility of the best known assignment: only better ones are searched for.
        seconds : float
            Limit of processor time, rounded up.
        """
        progress = SearchProgress()
        job = self._send(costs, beat, seconds)
        threading.Thread(target=self._read, args=(job, progress, costs.domains.size), daemon=True).start()
        return progress

    def search(self, costs: CostProblem, beat: Number | None, seconds: float) -> SearchProgress:
        """Search a problem until the search ends."""
        progress = SearchProgress()
        self._read(self._send(costs, beat, seconds), progress, costs.domains.size)
        return progress

    def _send(self, costs: CostProblem, beat: Number | None, seconds: float) -> bool:
        """Send the process a problem; return whether it has been received."""
        arrays = io.BytesIO()
        costs.save(arrays)
        top = costs.top if beat is None else costs.cost_to_beat(beat)
        job = {"bytes": arrays.tell(), "top": top, "seconds": max(1, int(np.ceil(min(seconds, 1e8))))}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
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
