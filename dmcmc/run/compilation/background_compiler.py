"""Processes that compile kernel sets while a run works (:mod:`.compiler_process`)."""

import json
import os
import pickle
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dmcmc.inference.runtime.processes import end_process, python_command
from dmcmc.inference.storage.cache_folders import compiled_marker, put_marker

if TYPE_CHECKING:
    from dmcmc.inference.runtime.compile import KernelSet

# Bytes of a process that compiles: about 350 MiB were measured for the largest kernels
PROCESS_BYTES = 400 << 20
_PROGRAM = "dmcmc.run.compilation.compiler_process"  # module that a process executes


class BackgroundCompiler:
    """Compiles kernel sets in several processes, those that bring most per second of compiling first.

    Parameters
    ----------
    processes : int
        Number of processes, at most. They are started when there is work for them.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._waiting: list[KernelSet] = []
        self._requested: dict[str, bool] = {}  # by name: whether the set has been compiled, or cannot be compiled
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._children: list[subprocess.Popen[bytes]] = []
        self._seconds: dict[int, float] = {}
        self._closed = False

    @property
    def seconds(self) -> float:
        """Processor seconds of all processes, up to the last kernel set that each has compiled."""
        return sum(self._seconds.values())

    def request(self, sets: "Sequence[KernelSet]", at_once: bool = False) -> None:
        """Compile kernel sets by gain, and among equals the earlier ones first (``at_once``: these first)."""
        with self._changed:
            new = [kernels for kernels in sets if kernels.name not in self._requested]
            self._requested |= {kernels.name: False for kernels in new}
            waiting = [*new, *self._waiting] if at_once else [*self._waiting, *new]
            self._waiting = sorted(waiting, key=lambda kernels: kernels.rank)
            self._changed.notify_all()
            idle = self._processes - len(self._threads)
            for _ in range(min(idle, len(new)) if not self._closed else 0):
                thread = threading.Thread(target=self._run_process, name="dmcmc compiler", daemon=True)
                self._threads.append(thread)
                thread.start()

    def is_done(self, kernels: "KernelSet") -> bool:
        """Return whether a requested set has been compiled, or cannot be compiled by another process."""
        return self._requested.get(kernels.name, False)

    def wait(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Wait until a condition holds, for some seconds at most."""
        with self._changed:
            self._changed.wait_for(is_ready, seconds)

    def close(self) -> None:
        """End all processes, also those that compile."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for child in self._children:  # kernels are stored atomically, so that nothing is lost but the current one
            end_process(child)

    def _run_process(self) -> None:
        """Start a process and give it one kernel set after the other."""
        try:
            child = subprocess.Popen(
                [*python_command(), "-m", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        except OSError:  # no process can be started: the run compiles what it needs itself
            self._give_up_all()
            return
        with self._changed:
            self._children.append(child)
        while (kernels := self._next()) is not None:
            stored = False
            try:
                assert child.stdin is not None and child.stdout is not None
                child.stdin.write(pickle.dumps(kernels))
                child.stdin.flush()
                reply = json.loads(child.stdout.readline())
                stored, self._seconds[child.pid] = bool(reply["stored"]), float(reply["seconds"])
            except Exception:  # the process has ended, or the set cannot be sent to it
                pass
            marker = compiled_marker(kernels.name) if stored else None
            if marker is not None:
                put_marker(marker)
            with self._changed:
                self._requested[kernels.name] = True
                self._changed.notify_all()
            if child.poll() is not None:
                self._give_up_all()
        end_process(child)  # also if it has started after the end

    def _next(self) -> "KernelSet | None":
        """Return the next set to compile, when there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return None if self._closed else self._waiting.pop(0)

    def _give_up_all(self) -> None:
        """Regard what is waiting as done, because no process works on it."""
        with self._changed:
            self._requested |= {kernels.name: True for kernels in self._waiting}
            self._waiting.clear()
            self._changed.notify_all()


def _environment() -> dict[str, str]:
    """Return the environment of a process: one that is not a rank, with one thread for numerical libraries."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "PMIX_", "OMPI_", "MPI_"))}
    return own | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
