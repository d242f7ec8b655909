"""Carry out runs in parallel worker processes, and end a process that exceeds its time or memory limit.

A worker process (:mod:`dmcmc.experiments.worker`) reads jobs from its standard input as lines of JSON. For each it
writes the line ``ready`` when the kernels are compiled, and then the record of the run as a line of JSON.
"""

import json
import os
import queue
import select
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from dmcmc.experiments.worker import READY
from dmcmc.inference.runtime.memory import format_bytes
from dmcmc.inference.runtime.processes import end_process, python_command
from dmcmc.mpi.launcher import launched

_POLL_SECONDS = 0.1  # between two checks of a process
_COMPILE_SECONDS = 900.0  # limit for compiling kernels, before the time of a run starts
Record = dict[str, Any]


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

        The limit is first that of compilation; from the line ``ready`` on it is ``seconds``.

        Parameters
        ----------
        job
            ``data`` (a configuration), ``peer``, ``seconds`` and ``task``; see :func:`dmcmc.experiments.job.carry_out`.
        seconds, memory
            Limits: wall-clock seconds after compilation, and resident bytes of the process.

        Returns
        -------
        dict
            The record. ``outcome`` is ``out of time`` or ``out of memory`` if a limit was exceeded, and ``failed`` if
            the process ended unexpectedly.
        """
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        begun, output, limit = time.perf_counter(), b"", _COMPILE_SECONDS
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return self._died()
        while not output.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], _POLL_SECONDS)
            if ready:
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    return self._died()
                output += chunk
                if output.startswith(READY):
                    begun, output, limit = time.perf_counter(), output.removeprefix(READY), seconds
            elif time.perf_counter() - begun > limit:
                self.end()
                return {"outcome": "out of time", "error": f"more than {limit:g} s"}
            elif _resident(process.pid) > memory:
                self.end()
                return {"outcome": "out of memory", "error": f"more than {format_bytes(memory)}"}
        record: Record = json.loads(output)
        return record

    def _started(self) -> "subprocess.Popen[bytes]":
        """Return the running process; start one if there is none."""
        if self._process is None or self._process.poll() is not None:
            self.end()
            environment = {name: value for name, value in os.environ.items() if not launched({name: value})}
            self._process = subprocess.Popen(
                [*python_command(), "-m", "dmcmc.experiments.worker", str(os.getpid()), json.dumps(self._cores)],
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
