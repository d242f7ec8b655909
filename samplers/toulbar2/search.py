"""A search by toulbar2 beside other work: started, looked at, and ended at any time."""

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
from dmcmc.samplers.toulbar2.costs import Costs

_WORKER = Path(__file__).with_name("worker.py")
_ASSIGNMENT = re.compile(r" \d+( \d+)*\s*")
_LOWER = re.compile(r"(?:Optimality gap|bounds): \[(\d+), *\d+\]|^Dual bound: (\d+)")
_BEHIND = 15  # niceness: about a thirtieth of a core that others want too
_LIMIT = "Time limit expired"
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # whose stacks would count as its memory


def available() -> bool:
    """Return whether toulbar2 is installed."""
    return importlib.util.find_spec("pytoulbar2") is not None


@dataclass
class Progress:
    """What one search has found so far.

    Attributes
    ----------
    values : (n,) int64 or None
        The best assignment that it has printed; to be evaluated by whoever asked.
    lower : int
        A proven lower bound on what is cheaper than what was to be beaten.
    complete : bool
        Whether nothing is cheaper than ``values`` (than what was to be beaten, if there are none).
    ended : bool
        Whether it does nothing any more.
    """

    values: NDArray[np.int64] | None = None
    lower: int = 0
    complete: bool = False
    ended: bool = False
    _limited: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, line: str, variables: int) -> bool:
        """Take in a printed line; return whether it ends the search."""
        with self._lock:
            if _ASSIGNMENT.fullmatch(line) and len(words := line.split()) == variables:
                self.values = np.array([int(word) for word in words], dtype=np.int64)
            elif found := _LOWER.search(line):
                self.lower = max(self.lower, int(found[1] or found[2]))
            elif _LIMIT in line:
                self._limited = True
            elif line.strip() == "done":
                self.complete, self.ended = not self._limited, True
            return self.ended

    def end(self) -> None:
        """Note that the process is gone."""
        with self._lock:
            self.ended = True


class Engine:
    """A process that searches one problem after the other; a context manager that ends it.

    Parameters
    ----------
    memory : int
        Bytes that it may take beside its libraries; 0 for no limit.

    Raises
    ------
    Unavailable
        If toulbar2 is not installed.
    """

    def __init__(self, memory: int = 0) -> None:
        if not available():
            raise Unavailable("toulbar2 is not installed; pip install 'dmcmc[search]'")
        self._process = subprocess.Popen(
            [sys.executable, str(_WORKER), str(memory), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,  # Ctrl-C is for the run, which ends its search
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        end_process(self._process)

    def step_back(self) -> bool:
        """Let what else runs on this machine go first, from now on, where the system can; true once that is said."""
        if hasattr(os, "setpriority"):
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, self._process.pid, _BEHIND)
        return True

    def pause(self) -> bool:
        """Do nothing until :meth:`go_on`; return whether the system can end a process that pauses with ours."""
        if sys.platform != "linux":
            return False
        self._process.send_signal(signal.SIGSTOP)
        return True

    def go_on(self) -> None:
        """Go on after a pause."""
        self._process.send_signal(signal.SIGCONT)

    def start(self, costs: Costs, beat: Number | None, seconds: float) -> Progress:
        """Begin to search a problem; return at once.

        Parameters
        ----------
        beat
            The utility of an assignment that is known: only better ones are of interest.
        seconds
            Of processor time, at most (rounded up).
        """
        progress = Progress()
        job = self._send(costs, beat, seconds)
        threading.Thread(target=self._read, args=(job, progress, costs.domains.size), daemon=True).start()
        return progress

    def search(self, costs: Costs, beat: Number | None, seconds: float) -> Progress:
        """Search a problem to the end."""
        progress = Progress()
        self._read(self._send(costs, beat, seconds), progress, costs.domains.size)
        return progress

    def _send(self, costs: Costs, beat: Number | None, seconds: float) -> bool:
        """Give the process a problem; return whether it has taken it."""
        arrays = io.BytesIO()
        costs.save(arrays)
        top = costs.top if beat is None else costs.to_beat(beat)
        job = {"bytes": arrays.tell(), "top": top, "seconds": max(1, int(np.ceil(min(seconds, 1e8))))}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.write(arrays.getbuffer())
            self._process.stdin.flush()
        except (OSError, ValueError):  # it has ended, or was closed
            return False
        return True

    def _read(self, sent: bool, progress: Progress, variables: int) -> None:
        """Follow what the process prints, to the end of one search."""
        for line in self._lines() if sent else ():
            if progress.take(line, variables):
                return
        progress.end()

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        with suppress(ValueError, OSError):  # closed while it was read
            while line := self._process.stdout.readline():
                yield line.decode(errors="replace")
