"""Processes that carry out runs side by side, each ended where it takes more time or memory than it may."""

import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from dmcmc.experiments.worker import READY
from dmcmc.inference.runtime.memory import readable
from dmcmc.inference.runtime.processes import end_process
from dmcmc.mpi.launcher import launched

_LOOK = 0.1  # seconds between two looks at a process
_READY_BY = 900.0  # seconds in which kernels are compiled, before a run's time begins
Answer = dict[str, Any]


class Worker:
    """A process that is started when it is needed, and anew after it was ended.

    Parameters
    ----------
    cores : sequence of int
        Those that it may use; empty for all.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        self._cores = list(cores)
        self._process: subprocess.Popen[bytes] | None = None

    def carry_out(self, job: Answer, seconds: float, memory: int) -> Answer:
        """Return what a job brings: an answer, or that its process was ended or has died."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        begun, line, limit = time.perf_counter(), b"", _READY_BY
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return self._died()
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], _LOOK)
            if ready:
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    return self._died()
                line += piece
                if line.startswith(READY):
                    begun, line, limit = time.perf_counter(), line.removeprefix(READY), seconds
            elif time.perf_counter() - begun > limit:
                self.end()
                return {"outcome": "out of time", "error": f"more than {limit:g} s"}
            elif _resident(process.pid) > memory:
                self.end()
                return {"outcome": "out of memory", "error": f"more than {readable(memory)}"}
        found: Answer = json.loads(line)
        return found

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            self.end()
            clean = {name: value for name, value in os.environ.items() if not launched({name: value})}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dmcmc.experiments.worker", str(os.getpid()), json.dumps(self._cores)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=clean,
                start_new_session=True,
            )
        return self._process

    def _died(self) -> Answer:
        code = None if self._process is None else self._process.wait()
        self.end()
        return {"outcome": "failed", "error": f"its process has ended (exit code {code})"}

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            end_process(self._process)
            self._process = None


def carry_out_all(
    jobs: Sequence[Answer], workers: int, limits: tuple[float, int], done: Callable[[int, Answer], None]
) -> None:
    """Carry out jobs on so many processes; ``done`` is called with each one's place and answer, one call at a time.

    Parameters
    ----------
    limits
        Seconds and resident bytes of a job.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for place in range(len(jobs)):
        waiting.put(place)
    lock, failures = threading.Lock(), list[BaseException]()

    def work(cores: Sequence[int]) -> None:
        worker = Worker(cores)
        try:
            while not failures:
                try:
                    place = waiting.get_nowait()
                except queue.Empty:
                    return
                answer = worker.carry_out(jobs[place], *limits)
                with lock:
                    done(place, answer)
        except BaseException as error:
            failures.append(error)
        finally:
            worker.end()

    threads = [threading.Thread(target=work, args=(cores,), daemon=True) for cores in _divided(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _divided(workers: int) -> list[list[int]]:
    """Return which cores each process may use: all for one, else as many each as there are."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    each = len(cores) // workers
    if workers == 1 or not each:
        return [[] for _ in range(workers)]
    return [cores[i * each : (i + 1) * each] for i in range(workers)]


def _resident(process: int) -> int:
    """Return the bytes of a process that are in memory; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{process}/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
