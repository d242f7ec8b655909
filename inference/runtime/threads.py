"""The cores of this process, shared by everything that works in parallel here.

Kernels release the interpreter lock, so plain threads run them side by side.
"""

import math
import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import NO_STOP, Stop

_LOOK = 0.02  # seconds between two looks at the time
_BEHIND = 4  # niceness: two fifths of what another thread has that wants the same core


def cores() -> int:
    """Return how many cores this process may use: those it may run on, or as many as its container's share makes."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = _container_cores()
    return there if share is None else min(there, max(1, math.ceil(share)))


@cache
def _container_cores() -> float | None:
    """Return what the container (cgroups) allows, perhaps a part of a core; None without a limit."""
    import proclimits  # takes some hundredths of a second

    return proclimits.get_cpu_limit()


def step_back() -> None:
    """Let other threads go first where they want this one's core, from now on and for good; where the system can."""
    if sys.platform == "linux":  # elsewhere threads have no niceness of their own
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BEHIND)


@lru_cache(maxsize=8)
def _pool(threads: int, behind: bool = False) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="dmcmc", initializer=step_back if behind else None)


if hasattr(os, "register_at_fork"):  # a forked process has none of its parent's threads: its pools are its own
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run_parallel(tasks: Iterable[Callable[[], None]], threads: int, stop: Stop = NO_STOP) -> bool:
    """Run tasks on ``threads`` threads, or one after the other on this one; the first error is raised when all ended.

    Those that have not begun when it is time to stop are left out; returns whether none was.
    """
    left_out = False

    def run(task: Callable[[], None]) -> None:
        nonlocal left_out
        if stop is NO_STOP or not stop.over:
            task()
        else:
            left_out = True

    waiting = list(tasks)
    if threads <= 1 or len(waiting) == 1:  # another thread would take longer to begin than small tasks take
        for task in waiting:
            run(task)
        return not left_out
    futures = [_pool(threads).submit(run, task) for task in waiting]
    try:
        for future in futures:
            future.exception()
    except BaseException:  # Ctrl-C: nothing that has not begun is worth waiting for
        for future in futures:
            future.cancel()
        raise
    for future in futures:
        future.result()
    return not left_out


def run_watched(
    tasks: Iterable[Callable[[], None]], threads: int, stop: Stop, halt: NDArray[Any], behind: bool = False
) -> bool:
    """Run tasks on other threads, while this one hears signals and sets ``halt[0]`` when it is time to end.

    The tasks are kernels that look at ``halt`` and then return early; ``behind`` other work they have what that leaves
    of the cores. Returns whether they were left alone.
    """
    if stop is NO_STOP:
        return run_parallel(tasks, threads)
    futures = [_pool(threads, behind).submit(task) for task in tasks]
    try:
        while wait(futures, timeout=_LOOK).not_done:
            halt[0] |= stop.over
    except BaseException:  # a second Ctrl-C
        halt[0] = 1
        for future in futures:
            future.cancel()
        raise
    for future in futures:
        future.result()
    return not halt[0]
