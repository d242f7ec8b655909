"""Compile kernels once per machine: one rank per node compiles, and a marker file records that it is done.

Kernels are compiled by solving tiny problems; the marker lies next to the compiled kernels. On several ranks one rank
per node compiles while the others wait. Otherwise all of them would do the same work and write the same files.
"""

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numba

from dmcmc.inference.runtime.compile import count_compilations
from dmcmc.inference.runtime.compiler_metadata import release_compiler_metadata
from dmcmc.inference.storage.cache_folders import compiled_marker, put_marker
from dmcmc.inference.storage.numba_cache import unsaved_kernels
from dmcmc.mpi.world import World
from dmcmc.run.monitoring.progress import ProgressReporter

_LOG = logging.getLogger(__name__)
_TITLE = "compiling kernels, once"
_REPORT_INTERVAL = 2.0  # seconds between two progress lines while kernels are compiled
_PURPOSES = {  # by the prefix of the task name: the purpose shown to the user, and the approximate number of kernels
    "planning": ("plans", 4),
    "rates": ("speed measurements", 44),
    "order ": ("orders", 30),
    "search": ("the first assignment", 8),
    "chains": ("better assignments", 55),
    "orders": ("orders of large plans", 19),
    "solving": ("tables", 8),
    "whole problem": ("mini-buckets", 20),
    "filtering": ("function filtering", 15),
    "branching": ("branch and bound", 17),
}

COMPILE_LIMIT = 600.0  # time limit of a tiny problem in seconds, longer than any compilation

_LOADED_TASKS: set[str] = set()  # tasks whose kernels this process has loaded
_FOUND_MARKERS: set[Path] = set()  # markers that this process has found
_IN_PROGRESS: list[str] = []  # task that is being compiled


def compile_once(task: str, work: Callable[[], None], world: World, progress: ProgressReporter) -> None:
    """Compile a task's kernels on one rank per node, unless this machine has them already; never fail.

    Parameters
    ----------
    task
        Name of the task, which also names its marker file.
    work
        Function that compiles the kernels by calling them.
    world
        The ranks; all of them call this function.
    progress
        Receives the progress of the compilation.
    """
    if numba.config.DISABLE_JIT or _IN_PROGRESS:  # a run that is itself compilation work
        return
    missing = is_missing(task, world)
    if not any(world.allgather(missing)):
        return
    marker = compiled_marker(task)
    title, estimate = _title(task)
    progress.stage(title)
    if missing:
        try:
            _IN_PROGRESS.append(task)
            unsaved = unsaved_kernels()
            with release_compiler_metadata(), count_compilations(_progress_reporter(progress, title, estimate)):
                work()
            if marker is not None and unsaved_kernels() == unsaved:
                put_marker(marker)
        except Exception as error:  # the run itself reports the error
            reason = f"{type(error).__name__}: {error}"
            _LOG.warning(f"dmcmc: not all kernels are compiled before the clock starts: {reason}")
        finally:
            _IN_PROGRESS.remove(task)
    world.wait()


def compile_and_load(task: str, work: Callable[[], None], world: World, progress: ProgressReporter) -> None:
    """Compile a task's kernels on one rank per node if needed, and load them from disk in this process."""

    def loaded() -> None:
        work()
        _LOADED_TASKS.add(task)

    compile_once(task, loaded, world, progress)
    if task not in _LOADED_TASKS and not numba.config.DISABLE_JIT:
        with suppress(Exception):  # the run itself reports the error
            loaded()


def is_missing(task: str, world: World) -> bool:
    """Return whether this rank would compile a task."""
    if numba.config.DISABLE_JIT or _IN_PROGRESS:
        return False
    marker = compiled_marker(task)
    if marker is None:  # without a cache folder every rank compiles its own kernels
        return True
    if world.local_rank == 0 and marker not in _FOUND_MARKERS and os.path.isfile(marker):
        _FOUND_MARKERS.add(marker)
    return world.local_rank == 0 and marker not in _FOUND_MARKERS


def _title(task: str) -> tuple[str, int]:
    """Return the progress title of a task, and its approximate number of kernels."""
    purpose, estimate = next((part for name, part in _PURPOSES.items() if task.startswith(name)), ("", 0))
    return f"{_TITLE}: {purpose}" if purpose else _TITLE, estimate


def _progress_reporter(progress: ProgressReporter, title: str, estimate: int) -> Callable[[int], None]:
    """Return a callback that reports the number of compiled kernels every two seconds."""
    last = time.perf_counter()

    def report(done: int) -> None:
        nonlocal last
        if time.perf_counter() - last >= _REPORT_INTERVAL:
            last = time.perf_counter()
            progress.stage(f"{title}, {done} of about {estimate}" if done < estimate else f"{title}, {done} so far")

    return report
