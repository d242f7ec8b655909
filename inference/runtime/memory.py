"""How much memory there is for this process, how much of it is free, and how much of it a single problem may take."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from dmcmc.inference.runtime.errors import OutOfMemory

MOST_BYTES = 2**34  # 16 GiB
OWN = 200 << 20  # bytes of the interpreter and its libraries, before a run
_SMALL = 1 << 22  # bytes that are taken without asking


def memory_limit() -> int:
    """Return the bytes that one problem's tables may take: 16 GiB, or :func:`process_memory` where that is less."""
    there = process_memory()
    return MOST_BYTES if there is None else min(MOST_BYTES, there)


def process_memory() -> int | None:
    """Return the bytes that this process may have: the machine's, its container's (cgroups) or its own limit's.

    None where nothing says.
    """
    known = [bound for bound in (_machine(), _address_space()) if bound is not None]
    return min(known, default=None)


class Account:
    """What the run in this process may take, and what it holds.

    What is held is what the system says is resident: tables, copies and Python objects alike, whoever made them. So
    nobody counts twice and nothing is forgotten. What compiling takes is not the run's: a first run, which compiles,
    has the answers of a later one. Rules that must be the same on all ranks go by :meth:`part`, which depends on the
    budget alone; :meth:`claim` refuses what would not fit after all.
    """

    def __init__(self) -> None:
        self.budget: int | None = None
        self._own, self._depth, self._before, self._listening = OWN, 0, 0, False

    @contextmanager
    def open(self, budget: int, own: int = 0) -> Iterator[None]:
        """Set the bytes that a run may take; within another run, that one's stay.

        Parameters
        ----------
        own
            Bytes that this process held before there was a problem.
        """
        if self.budget is not None:
            yield
            return
        self._listen()
        self.budget, self._own = budget, max(OWN, own)
        try:
            yield
        finally:
            self.budget, self._own = None, OWN

    @property
    def compiles(self) -> bool:
        """Whether Numba compiles now, or loads what is compiled."""
        return self._depth > 0

    def compiling(self, begins: bool) -> None:
        """Hear that Numba begins, or ends, to compile or to load what is compiled; on any thread."""
        if begins:
            if not self._depth:
                self._before = resident_memory()
            self._depth += 1
        elif self._depth:
            self._depth -= 1
            if not self._depth:
                self._own += max(0, resident_memory() - self._before)

    def _listen(self) -> None:
        if self._listening:
            return
        from numba.core import event

        account, self._listening = self, True

        class Compiling(event.Listener):  # type: ignore[misc]
            def on_start(self, event: Any) -> None:
                account.compiling(True)

            def on_end(self, event: Any) -> None:
                account.compiling(False)

        event.register("numba:compiler_lock", Compiling())

    def part(self, share: float, most: int) -> int:
        """Return a share of the budget, but no more than ``most`` bytes; those where there is no budget."""
        return most if self.budget is None else min(most, int(share * self.budget))

    def left(self) -> int | None:
        """Return the bytes that could still be taken; None where there is no budget."""
        return None if self.budget is None else self.budget + self._own - resident_memory()

    def claim(self, size: int, what: str) -> None:
        """Refuse what would not fit.

        Raises
        ------
        OutOfMemory
            If so many bytes more would be beyond the budget.
        """
        if self.budget is None or size < _SMALL:
            return
        left = self.budget + self._own - resident_memory()
        if size > left:
            raise OutOfMemory(
                f"{what}: {readable(size)} more do not fit budget.memory ({readable(self.budget)}), of which"
                f" {readable(max(0, left))} are left; raise it, or divide the problem into more agents"
            )


ACCOUNT = Account()


def free_memory() -> int | None:
    """Return the bytes that this process could still take: of the machine, its container and its own limit.

    None where nothing says. What the system keeps of files, and can drop, is free.
    """
    import proclimits

    budget = proclimits.get_memory_budget()
    limit = _address_space()
    known = [
        None if budget is None else budget.available,
        _available() or proclimits.get_machine_memory_bytes(),
        None if limit is None else max(0, limit - _mapped()),
    ]
    return min((free for free in known if free is not None), default=None)


def resident_memory() -> int:
    """Return the bytes of memory that this process holds now; 0 where nothing says."""
    return _pages(1)


@cache  # asked for each table of a file, and read from several files of the system
def _machine() -> int | None:
    """Return the memory of the machine, or of the container where that is less."""
    import proclimits  # takes some hundredths of a second

    budget = proclimits.get_memory_budget()
    return proclimits.get_machine_memory_bytes() if budget is None else budget.limit


def _address_space() -> int | None:
    """Return what ``ulimit -v`` allows."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _available() -> int | None:
    """Return what Linux says that new work could have without swapping."""
    with suppress(OSError, ValueError), open("/proc/meminfo", "rb") as lines:
        for line in lines:
            if line.startswith(b"MemAvailable:"):
                return 1024 * int(line.split()[1])
    return None


def _mapped() -> int:
    """Return the bytes of this process's address space."""
    return _pages(0)


def _pages(field: int) -> int:
    """Return a number of ``/proc/self/statm`` in bytes; 0 where there is no such file."""
    sizes = _sizes(os.getpid())
    with suppress(OSError, ValueError, IndexError):
        return 0 if sizes is None else int(os.pread(sizes, 128, 0).split()[field]) * _page()
    return 0


@cache  # a run asks some times: opening the file is most of what that takes
def _sizes(process: int) -> int | None:
    """Return this process's ``/proc/self/statm``, open; a process that was forked has another one."""
    with suppress(OSError):
        return os.open("/proc/self/statm", os.O_RDONLY) if hasattr(os, "pread") else None
    return None


@cache
def _page() -> int:
    """Return the bytes of a page."""
    import resource

    return resource.getpagesize()


def readable(count: int) -> str:
    """Return a number of bytes for the reader.

    Examples
    --------
    >>> readable(3 * 2**30)
    '3.0 GiB'
    """
    for unit, size in (("EiB", 2**60), ("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count >= 10 * size else f"{count / size:.1f} {unit}"
    return f"{count} bytes"
