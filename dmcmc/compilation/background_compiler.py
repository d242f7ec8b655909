"""Processes that compile kernel sets while runs work (:mod:`.compiler_process`).

All runs of this process share them. They outlive a run until what it has requested is compiled, so that many short runs
have their kernels after some time. They end with this process.
"""

import atexit
import json
import os
import pickle
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dmcmc.inference.runtime.threads import end_process, python_command
from dmcmc.inference.storage.cache_folders import compiled_marker, put_marker

if TYPE_CHECKING:
    from dmcmc.inference.runtime.compile import KernelSet


# Bytes of a process that compiles: about 350 MiB were measured for the largest kernels
PROCESS_BYTES = 400 << 20
_PROGRAM = "dmcmc.compilation.compiler_process"  # module that a process executes


class BackgroundCompiler:
    """Compiles kernel sets in several processes, those that bring most per second of compiling first."""

    def __init__(self) -> None:
        self._processes = 1  # at most; they are started when there is work for them
        self._runs = 0  # that have begun and not ended
        self._waiting: list[KernelSet] = []
        self._urgent: set[str] = set()  # names of the sets that come first
        self._left_over: set[str] = set()  # names of the sets that only runs before have requested; they come last
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

    def begin_run(self, processes: int) -> None:
        """Use at most some processes from now on, and compile what this run requests before what is left of others."""
        with self._changed:
            self._processes, self._runs = processes, self._runs + 1
            self._urgent.clear()
            if self._runs == 1:
                self._left_over = {kernels.name for kernels in self._waiting}

    def end_run(self, goes_on: bool) -> None:
        """Let the processes end when no run goes on, and what is waiting is compiled, or dropped (not ``goes_on``)."""
        with self._changed:
            self._runs -= 1
            if not (self._runs or goes_on):
                for kernels in self._waiting:
                    del self._requested[kernels.name]
                self._waiting.clear()
            self._changed.notify_all()

    def request(self, sets: "Sequence[KernelSet]", at_once: bool = False) -> None:
        """Compile kernel sets by gain, and among equals the earlier ones first (``at_once``: before all others)."""
        with self._changed:
            new = [kernels for kernels in sets if kernels.name not in self._requested]
            self._requested |= {kernels.name: False for kernels in new}
            self._left_over -= {kernels.name for kernels in sets}
            self._urgent |= {kernels.name for kernels in sets if at_once}
            self._waiting = sorted([*self._waiting, *new], key=self._place)
            self._changed.notify_all()
            idle = self._processes - len(self._threads)
            for _ in range(min(idle, len(new)) if not self._closed else 0):
                thread = threading.Thread(target=self._run_process, name="dmcmc compiler", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _place(self, kernels: "KernelSet") -> tuple[bool, bool, int]:
        """Return the place of a kernel set in the order of compiling."""
        return kernels.name in self._left_over, kernels.name not in self._urgent, kernels.rank

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
        while child.poll() is None and (kernels := self._next()) is not None:
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
        """Return the next set to compile, when there is one; None if there is none left and no run goes on."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed or not self._runs)
            if self._waiting and not self._closed:
                return self._waiting.pop(0)
            self._leave()
            return None

    def _leave(self) -> None:
        """Let another thread start a process when there is work again."""
        if threading.current_thread() in self._threads:
            self._threads.remove(threading.current_thread())

    def _give_up_all(self) -> None:
        """Regard what is waiting as done, because no process works on it."""
        with self._changed:
            self._leave()
            self._requested |= {kernels.name: True for kernels in self._waiting}
            self._waiting.clear()
            self._changed.notify_all()


_COMPILERS: dict[tuple[int, Path | None], BackgroundCompiler] = {}  # of this process; by its id and the kernel folder


def background_compiler() -> BackgroundCompiler:
    """Return the processes that compile for all runs of this process; others for another folder, or after a fork."""
    place = os.getpid(), compiled_marker("")
    if place not in _COMPILERS:
        _COMPILERS[place] = BackgroundCompiler()
        atexit.register(_COMPILERS[place].close)
    return _COMPILERS[place]


def _environment() -> dict[str, str]:
    """Return the environment of a process: one that is not a rank, with one thread for numerical libraries."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PMI_", "PMIX_", "OMPI_", "MPI_"))}
    return own | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
