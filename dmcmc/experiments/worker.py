"""A process that carries out runs: it reads a job and writes a result, one line of JSON each.

Between the two it writes the line ``ready`` when the run begins, after importing and compiling what is known to be
needed. If more is compiled during the run, it writes ``compiling`` when that begins and ``working`` when it ends. It
ends with the process that started it.
"""

import ctypes
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any, BinaryIO

READY = b"ready"  # written when the kernels are compiled: the time of the run starts
COMPILING = b"compiling"  # written when a kernel is compiled or loaded during a run: its time stops
WORKING = b"working"  # written when that is done: the time of the run continues
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def main() -> None:
    """Carry out jobs from standard input one after the other; the output of libraries is discarded.

    The command line gives the number of the parent process and the CPU cores to use as a JSON list; an empty list means
    all.
    """
    parent, cores = int(sys.argv[1]), json.loads(sys.argv[2])
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before prctl was called
        os._exit(1)
    if cores and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
    answers = AnswerLines(os.fdopen(os.dup(1), "wb"))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    from dmcmc.experiments.job import carry_out, warm_up

    answers.report_compiling()
    warmed: set[str] = set()
    for line in sys.stdin.buffer:
        job = json.loads(line)
        warm_up(job, warmed)
        answers.write(READY)
        record = carry_out(job)
        answers.write(json.dumps(record, allow_nan=False).encode())


class AnswerLines:
    """Writes whole lines to the process that started this one, from any thread.

    Attributes
    ----------
    _lock : Lock
        Held while a line is written.
    _depth : int
        Number of compilations in progress: a kernel may compile others, and a thread may wait for another one.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._lock, self._depth = stream, threading.Lock(), 0

    def write(self, line: bytes) -> None:
        """Write a line, given without its end."""
        with self._lock:
            self._write(line)

    def report_compiling(self) -> None:
        """Write a line from now on when Numba begins and ends to compile or load kernels, on any thread."""
        from numba.core import event

        answers = self

        class CompilationListener(event.Listener):  # type: ignore[misc]
            """Reports when Numba takes and releases its compiler lock."""

            def on_start(self, event: Any) -> None:
                answers.count_compilations(1)

            def on_end(self, event: Any) -> None:
                answers.count_compilations(-1)

        event.register("numba:compiler_lock", CompilationListener())

    def count_compilations(self, change: int) -> None:
        """Change the number of compilations in progress; write a line when the first begins or the last ends."""
        with self._lock:
            before, self._depth = self._depth, self._depth + change
            if not before or not self._depth:
                self._write(WORKING if before else COMPILING)

    def _write(self, line: bytes) -> None:
        """Write a line; the lock is held."""
        self._stream.write(line + b"\n")
        self._stream.flush()


if __name__ == "__main__":
    main()
