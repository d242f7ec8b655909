"""Threads and child processes of a run, and the cores that they may use.

Kernels release Python's global interpreter lock, so plain threads run them in parallel. NumPy's matrix products can be
limited to the calling thread, for callers that run several of them on their own threads.
"""

import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache, lru_cache
from subprocess import Popen
from typing import Any

from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.tuning import LOW_PRIORITY_NICENESS, MAX_CHECK_INTERVAL


def cores() -> int:
    """Return the number of cores that this process may use, limited by its CPU affinity and its container."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = _container_cores()
    return available if share is None else min(available, max(1, math.ceil(share)))


@cache
def _container_cores() -> float | None:
    """Return the CPU limit of the container (cgroups), possibly a fraction of a core; None without a limit."""
    import proclimits  # importing it takes some hundredths of a second

    return proclimits.get_cpu_limit()


def lower_priority() -> None:
    """Lower the scheduling priority of the calling thread permanently, where the system supports it."""
    if sys.platform == "linux":  # other systems have no niceness per thread
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY_NICENESS)


@lru_cache(maxsize=8)
def _pool(threads: int, low_priority: bool = False) -> ThreadPoolExecutor:
    """Return the shared pool with this number of threads and this priority."""
    return ThreadPoolExecutor(threads, thread_name_prefix="dmcmc", initializer=lower_priority if low_priority else None)


if hasattr(os, "register_at_fork"):  # a forked process has none of its parent's threads and needs new pools
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run_parallel(tasks: Iterable[Callable[[], None]], threads: int, stop: Deadline = NO_DEADLINE) -> bool:
    """Run tasks on several threads and return whether all of them were run.

    Parameters
    ----------
    tasks : iterable of callable
        Functions without arguments. With one thread or one task they run on the calling thread.
    threads : int
        Number of threads.
    stop : Deadline
        Tasks that have not started at this deadline are skipped.

    Returns
    -------
    bool
        Whether no task was skipped.

    Raises
    ------
    Exception
        The first exception of a task, after all tasks have ended.
    """
    skipped = False

    def run(task: Callable[[], None]) -> None:
        nonlocal skipped
        if stop is NO_DEADLINE or not stop.over:
            task()
        else:
            skipped = True

    pending = list(tasks)
    if threads <= 1 or len(pending) == 1:  # starting another thread would take longer than small tasks
        for task in pending:
            run(task)
        return not skipped
    futures = [_pool(threads).submit(copy_context().run, run, task) for task in pending]
    try:
        for future in futures:
            future.exception()
    except BaseException:  # Ctrl-C: do not wait for tasks that have not started
        for future in futures:
            future.cancel()
        raise
    for future in futures:
        future.result()
    return not skipped


def run_until_deadline(
    tasks: Iterable[Callable[[], None]], threads: int, stop: Deadline, halt: NDArray[Any], low_priority: bool = False
) -> bool:
    """Run kernels on other threads while the calling thread handles signals and watches the deadline.

    Parameters
    ----------
    tasks : iterable of callable
        Functions without arguments that run kernels; the kernels poll ``halt`` and return early when it is set.
    threads : int
        Number of threads.
    stop : Deadline
        ``halt[0]`` is set to 1 at this deadline.
    halt : ndarray of uint8, shape (1,)
        The halt flag that is shared with the kernels.
    low_priority : bool
        Whether the threads run at low priority, so that other work on the same cores goes first.

    Returns
    -------
    bool
        Whether all tasks ended without being halted.
    """
    if stop is NO_DEADLINE:
        return run_parallel(tasks, threads)
    futures = [_pool(threads, low_priority).submit(copy_context().run, task) for task in tasks]
    try:
        while wait(futures, timeout=MAX_CHECK_INTERVAL).not_done:
            halt[0] |= stop.over
    except BaseException:  # a second Ctrl-C
        halt[0] = 1
        for future in futures:
            future.cancel()
        raise
    for future in futures:
        future.result()
    return not halt[0]


def python_command() -> list[str]:
    """Return the command for a Python that imports modules from the working directory only if this process does."""
    try:
        here = os.getcwd()
    except OSError:  # the working directory was deleted
        here = ""
    return [sys.executable] if "" in sys.path or here in sys.path else [sys.executable, "-P"]


def end_process(process: "Popen[bytes]") -> None:
    """Kill a child process, wait until it has ended, and close its pipes."""
    with suppress(OSError):
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


_PRODUCTS_LOCK = threading.Lock()
# Number of threads inside the block, and the object that restores the previous limit (None before the first use).
_PRODUCTS_STATE: dict[str, Any] = {"users": 0, "limits": None}


@contextmanager
def products_on_one_thread() -> Iterator[None]:
    """Limit NumPy's matrix products to one thread each inside the block; threads may enter it concurrently.

    The limit applies to the whole process: the first user sets it and the last one restores the previous limit.
    """
    from threadpoolctl import threadpool_limits  # importing it takes some hundredths of a second

    with _PRODUCTS_LOCK:
        _PRODUCTS_STATE["users"] += 1
        if _PRODUCTS_STATE["users"] == 1:
            _PRODUCTS_STATE["limits"] = threadpool_limits(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _PRODUCTS_LOCK:
            _PRODUCTS_STATE["users"] -= 1
            if _PRODUCTS_STATE["users"] == 0:
                _PRODUCTS_STATE["limits"].restore_original_limits()
