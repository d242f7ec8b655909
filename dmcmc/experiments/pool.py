"""The processes that run the jobs of an experiment.

Carry out runs in parallel worker processes, and end a process that exceeds its time or memory limit.

A worker process (:mod:`dmcmc.experiments.pool`) reads jobs from its standard input as lines of JSON. For each it writes
the line ``ready`` when the run begins, and then the record of the run as a line of JSON. The time limit of a run does
not include what the worker reports as compiling in between.

A process that carries out runs: it reads a job and writes a result, one line of JSON each.

Between the two it writes the line ``ready`` when the run begins, after importing and compiling what is known to be
needed. If more is compiled during the run, it writes ``compiling`` when that begins and ``working`` when it ends. It
ends with the process that started it.
"""

import ctypes
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from dmcmc.inference.runtime.memory import format_bytes
from dmcmc.inference.runtime.threads import end_process, python_command
from dmcmc.mpi.compute_node import launched
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.tuning import run as tuning

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


Record = dict[str, Any]


class WorkClock:
    """Measures how long a run works, from the lines that its worker writes.

    Parameters
    ----------
    seconds : float
        Time limit of the run, without importing and compiling.

    Attributes
    ----------
    _ready, _working : bool
        Whether the run has begun, and whether it is working: not before it has begun, and not while it compiles.
    _worked : float
        Seconds that the run has worked before the last change of this state.
    _since : float
        Time (``time.perf_counter``) of the last change.
    """

    def __init__(self, seconds: float) -> None:
        self._limit, self._ready, self._working, self._worked = seconds, False, False, 0.0
        self._since = time.perf_counter()

    def notice(self, line: bytes) -> bool:
        """Take a line of the worker into account; return whether it is about the time, and not a record."""
        now = time.perf_counter()
        if line == READY:
            self._ready = self._working = True
            self._since = now
        elif line == COMPILING and self._ready:
            self._worked, self._working, self._since = self._worked + now - self._since, False, now
        elif line == WORKING and self._ready:
            self._working, self._since = True, now
        return line in (READY, COMPILING, WORKING)

    @property
    def exceeded(self) -> str:
        """The limit that is exceeded, in words; empty if none is."""
        elapsed = time.perf_counter() - self._since
        if self._working:
            return f"more than {self._limit:g} s" if self._worked + elapsed > self._limit else ""
        return f"more than {tuning.COMPILE_SECONDS:g} s of compiling" if elapsed > tuning.COMPILE_SECONDS else ""


class Worker:
    """A worker process, started on the first job and again after it was ended.

    Parameters
    ----------
    cores : sequence of int
        The CPU cores that the process may use; empty for all.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        self._cores = list(cores)
        self._process: subprocess.Popen[bytes] | None = None

    def carry_out(self, job: Record, seconds: float, memory: int) -> Record:
        """Carry out a job and return its record, also if the process was ended or died.

        Parameters
        ----------
        job
            ``data`` (a configuration), ``peer``, ``seconds`` and ``task``; see :func:`dmcmc.experiments.job.carry_out`.
        seconds, memory
            Limits: wall-clock seconds without importing and compiling (:class:`WorkClock`), and resident bytes of the
            process.

        Returns
        -------
        dict
            The record. ``outcome`` is ``out of time`` or ``out of memory`` if a limit was exceeded, and ``failed`` if
            the process ended unexpectedly.
        """
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        clock, output = WorkClock(seconds), b""
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return self._died()
        while True:
            if select.select([process.stdout], [], [], sampler_tuning.CHECK_SECONDS)[0]:
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    return self._died()
                *lines, output = (output + chunk).split(b"\n")
                for line in lines:
                    if not clock.notice(line):
                        record: Record = json.loads(line)
                        return record
            if reason := clock.exceeded:
                self.end()
                return {"outcome": "out of time", "error": reason}
            if _resident(process.pid) > memory:
                self.end()
                return {"outcome": "out of memory", "error": f"more than {format_bytes(memory)}"}

    def _started(self) -> "subprocess.Popen[bytes]":
        """Return the running process; start one if there is none."""
        if self._process is None or self._process.poll() is not None:
            self.end()
            environment = {name: value for name, value in os.environ.items() if not launched({name: value})}
            self._process = subprocess.Popen(
                [*python_command(), "-m", "dmcmc.experiments.pool", str(os.getpid()), json.dumps(self._cores)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        return self._process

    def _died(self) -> Record:
        """Return the record of a run whose process ended unexpectedly."""
        code = None if self._process is None else self._process.wait()
        self.end()
        return {"outcome": "failed", "error": f"the worker process ended unexpectedly (exit code {code})"}

    def end(self) -> None:
        """End the process immediately."""
        if self._process is not None:
            end_process(self._process)
            self._process = None


def carry_out_all(
    jobs: Sequence[Record], workers: int, limits: tuple[float, int], done: Callable[[int, Record], None]
) -> None:
    """Carry out jobs on several worker processes.

    An exception in this process (not in a worker) lets the current runs finish, and is raised then.

    Parameters
    ----------
    jobs
        The jobs, see :func:`dmcmc.experiments.job.carry_out`.
    workers
        Number of processes.
    limits
        Wall-clock seconds and resident bytes of a job.
    done
        Called with the index of a job and its record, one call at a time, in the order in which runs finish.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(jobs)):
        waiting.put(index)
    lock, failures = threading.Lock(), list[BaseException]()

    def work(cores: Sequence[int]) -> None:
        worker = Worker(cores)
        try:
            while not failures:
                try:
                    index = waiting.get_nowait()
                except queue.Empty:
                    return
                record = worker.carry_out(jobs[index], *limits)
                with lock:
                    done(index, record)
        except BaseException as error:
            failures.append(error)
        finally:
            worker.end()

    threads = [threading.Thread(target=work, args=(cores,), daemon=True) for cores in _cores_of(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _cores_of(workers: int) -> list[list[int]]:
    """Return the cores of each process: equal parts, or all cores (empty) for one process or too few cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    count = len(cores) // workers
    if workers == 1 or not count:
        return [[] for _ in range(workers)]
    return [cores[i * count : (i + 1) * count] for i in range(workers)]


def _resident(process: int) -> int:
    """Return the resident memory of a process in bytes; 0 if the system does not report it."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{process}/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
