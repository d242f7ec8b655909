"""Compile something once on a machine: one rank of each node does, and a marker says that it is there.

Kernels are compiled by solving tiny problems. A marker beside the compiled kernels says that they are there. On several
ranks one of each node compiles, and the others wait: all of them at once would do the same work, and race for the same
files.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numba

from dmcmc.inference.runtime.compile import counted_compiling
from dmcmc.inference.runtime.compiler_metadata import leftovers_returned
from dmcmc.inference.runtime.kernel_cache import warm_marker
from dmcmc.mpi.world import World
from dmcmc.run.monitoring.progress import Progress

_LOG = logging.getLogger(__name__)
_TITLE = "compiling kernels, once"
_TOLD = 2.0  # seconds between two lines on how many kernels are compiled
_PARTS = {  # what there is to compile, by how its name begins: what for, and about how many kernels
    "planning": ("plans", 4),
    "rates": ("how fast this machine is", 44),
    "order ": ("orders", 30),
    "search": ("the first assignment", 8),
    "chains": ("better assignments", 55),
    "orders": ("orders of large plans", 19),
    "solving": ("tables", 8),
    "undivided": ("split buckets", 20),
    "filtering": ("filters", 15),
    "branching": ("branch and bound", 17),
}

WARM_UP = 600.0  # seconds that a tiny problem has: more than it takes to compile

_LOADED: set[str] = set()  # what this process has searched with
_THERE: set[Path] = set()  # markers that it has seen
_AT_WORK: list[str] = []  # what is being compiled


def once(what: str, work: Callable[[], None], world: World, progress: Progress) -> None:
    """Do something on one rank of each node, if it has not been done on this machine before; never fail."""
    if numba.config.DISABLE_JIT or _AT_WORK:  # what is being done may be a run
        return
    missing = is_missing(what, world)
    if not any(world.allgather(missing)):
        return
    marker = warm_marker(what)
    title, about = _title(what)
    progress.stage(title)
    if missing:
        try:
            _AT_WORK.append(what)
            with leftovers_returned(), counted_compiling(_now_and_then(progress, title, about)):
                work()
            if marker is not None:
                marker.touch()
        except Exception as error:  # the run itself will tell what is wrong with it
            why = f"{type(error).__name__}: {error}"
            _LOG.warning(f"dmcmc: not all kernels are compiled before the clock starts: {why}")
        finally:
            _AT_WORK.remove(what)
    world.wait()


def load(what: str, work: Callable[[], None], world: World, progress: Progress) -> None:
    """Do something on one rank of each node if it never was, and in this process: kernels are read from the disk."""

    def loaded() -> None:
        work()
        _LOADED.add(what)

    once(what, loaded, world, progress)
    if what not in _LOADED and not numba.config.DISABLE_JIT:
        with suppress(Exception):  # the run itself will tell what is wrong with it
            loaded()


def is_missing(what: str, world: World) -> bool:
    """Return whether this rank would compile something."""
    if numba.config.DISABLE_JIT or _AT_WORK:
        return False
    marker = warm_marker(what)
    if marker is None:  # there may be no place for kernels either: every rank compiles its own
        return True
    if world.local_rank == 0 and marker not in _THERE and marker.is_file():
        _THERE.add(marker)
    return world.local_rank == 0 and marker not in _THERE


def _title(what: str) -> tuple[str, int]:
    """Return what a user is told of something that is compiled, and about how many kernels it has."""
    purpose, about = next((part for name, part in _PARTS.items() if what.startswith(name)), ("", 0))
    return f"{_TITLE}: {purpose}" if purpose else _TITLE, about


def _now_and_then(progress: Progress, title: str, about: int) -> Callable[[int], None]:
    """Return what says how many kernels are compiled, every two seconds."""
    last = time.perf_counter()

    def tell(done: int) -> None:
        nonlocal last
        if time.perf_counter() - last >= _TOLD:
            last = time.perf_counter()
            progress.stage(f"{title}, {done} of about {about}" if done < about else f"{title}, {done} so far")

    return tell
