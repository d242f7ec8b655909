"""Memory limits: what this process may use, how much of it is free, and how much the tables of one problem may take."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.tuning import (
    INTERPRETER_BYTES,
    MAX_TABLE_BYTES,
    MAX_WORKSPACE_BYTES,
    MIN_CHECKED_BYTES,
    WORKSPACE_SHARE,
)


def memory_limit() -> int:
    """Return the bytes that the tables of one problem may take: the budget, ``process_memory``, or at most 16 GiB."""
    limits, budget = (MAX_TABLE_BYTES, process_memory()), MEMORY_ACCOUNT.budget
    limit = min(limit for limit in limits if limit is not None)
    return limit if budget is None else min(limit, max(budget, MIN_CHECKED_BYTES))


def process_memory() -> int | None:
    """Return the bytes that this process may use, or None if no limit is known.

    It is the minimum of the machine's memory, the limit of the container (cgroups) and the process's own limit.
    """
    limits = [limit for limit in (_machine(), _address_space()) if limit is not None]
    return min(limits, default=None)


class MemoryAccount:
    """The memory budget of the run in this process, and the memory in use.

    The memory in use is the resident set size that the operating system reports. It includes tables, copies and Python
    objects, so nothing is counted twice or forgotten. Memory that compilation takes is excluded, so that a first run,
    which compiles, gives the same results as a later one. Rules that must agree on all ranks use ``budget_share``,
    which depends only on the budget; ``claim`` rejects an allocation that does not fit.

    The account is closed (no budget) until ``open``; within that block the available bytes are budget + baseline −
    resident bytes. The baseline is what the process held before the run; it grows by what each compilation adds.

    Attributes
    ----------
    budget : int or None
        The memory budget of the current run in bytes; None outside a run.
    """

    def __init__(self) -> None:
        self.budget: int | None = None
        self._baseline = INTERPRETER_BYTES
        self._compilation_depth = 0
        self._resident_before = 0
        self._is_listening = False

    @contextmanager
    def open(self, budget: int, baseline: int = 0) -> Iterator[None]:
        """Set the memory budget of a run; inside another run, the outer budget stays in force.

        Parameters
        ----------
        budget : int
            Bytes that the run may take.
        baseline : int
            Bytes that this process held before it read the problem.
        """
        if self.budget is not None:
            yield
            return
        self._listen()
        self.budget, self._baseline = budget, max(INTERPRETER_BYTES, baseline)
        try:
            yield
        finally:
            self.budget, self._baseline = None, INTERPRETER_BYTES

    def record_compilation(self, begins: bool) -> None:
        """Record that Numba starts (``begins``) or ends compiling or loading a kernel, on any thread."""
        if begins:
            if not self._compilation_depth:
                self._resident_before = resident_memory()
            self._compilation_depth += 1
        elif self._compilation_depth:
            self._compilation_depth -= 1
            if not self._compilation_depth:
                self._baseline += max(0, resident_memory() - self._resident_before)

    def _listen(self) -> None:
        """Observe Numba's compiler lock, once per account."""
        if self._is_listening:
            return
        from numba.core import event

        account, self._is_listening = self, True

        class _CompilationListener(event.Listener):  # type: ignore[misc]
            """Records when Numba takes and releases its compiler lock."""

            def on_start(self, event: Any) -> None:
                account.record_compilation(True)

            def on_end(self, event: Any) -> None:
                account.record_compilation(False)

        event.register("numba:compiler_lock", _CompilationListener())

    def budget_share(self, share: float, limit: int) -> int:
        """Return a share of the budget, but at most ``limit`` bytes; ``limit`` if there is no budget."""
        return limit if self.budget is None else min(limit, int(share * self.budget))

    def workspace_bytes(self) -> int:
        """Return the bytes that one large workspace may take."""
        return self.budget_share(WORKSPACE_SHARE, MAX_WORKSPACE_BYTES)

    def available_bytes(self) -> int | None:
        """Return the bytes of the budget that are still available; None if there is no budget."""
        return None if self.budget is None else self.budget + self._baseline - resident_memory()

    def check(self, what: str) -> None:
        """Raise OutOfMemory if the budget is used up; for loops that make many small objects (see ``claim``)."""
        self.claim(MIN_CHECKED_BYTES, what)

    def claim(self, size: int, what: str) -> None:
        """Raise OutOfMemory if an allocation does not fit into the budget.

        Parameters
        ----------
        size : int
            Bytes to be allocated.
        what : str
            Purpose of the bytes, for the error message.

        Raises
        ------
        OutOfMemory
            If ``size`` exceeds the available bytes.
        """
        if self.budget is None or size < MIN_CHECKED_BYTES:
            return
        available = self.budget + self._baseline - resident_memory()
        if size > available:
            raise OutOfMemory(
                f"{what}: {format_bytes(size)} more do not fit budget.memory ({format_bytes(self.budget)}), of which"
                f" {format_bytes(max(0, available))} are left; raise it, or divide the problem into more agents"
            )


MEMORY_ACCOUNT = MemoryAccount()


def free_memory() -> int | None:
    """Return the bytes that this process can still allocate, or None if unknown.

    It is the minimum over the machine, the container and the process's own limit. File caches that the system can drop
    count as free.
    """
    import proclimits

    budget = proclimits.get_memory_budget()
    limit = _address_space()
    free_amounts = [
        None if budget is None else budget.available,
        _available() or proclimits.get_machine_memory_bytes(),
        None if limit is None else max(0, limit - _mapped()),
    ]
    return min((free for free in free_amounts if free is not None), default=None)


def resident_memory() -> int:
    """Return the resident set size of this process in bytes; 0 if unknown."""
    return _statm_bytes(1)


@cache  # called for each table of a file, and it reads several system files
def _machine() -> int | None:
    """Return the memory of the machine, or of the container if that is less; None if unknown."""
    import proclimits  # importing it takes some hundredths of a second

    budget = proclimits.get_memory_budget()
    return proclimits.get_machine_memory_bytes() if budget is None else budget.limit


def _address_space() -> int | None:
    """Return the limit on the address space (``ulimit -v``); None if there is none."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _available() -> int | None:
    """Return the memory that is available without swapping, as Linux estimates it; None on other systems."""
    with suppress(OSError, ValueError), open("/proc/meminfo", "rb") as lines:
        for line in lines:
            if line.startswith(b"MemAvailable:"):
                return 1024 * int(line.split()[1])
    return None


def _mapped() -> int:
    """Return the size of this process's address space in bytes."""
    return _statm_bytes(0)


def _statm_bytes(field: int) -> int:
    """Return a field of ``/proc/self/statm`` in bytes; 0 if there is no such file.

    Field 0 is the size of the address space, field 1 the resident set.
    """
    descriptor = _open_statm(os.getpid())
    with suppress(OSError, ValueError, IndexError):
        return 0 if descriptor is None else int(os.pread(descriptor, 128, 0).split()[field]) * _page_bytes()
    return 0


@cache  # opening the file takes most of the time of a query
def _open_statm(process: int) -> int | None:
    """Return a descriptor of ``/proc/self/statm``, one per process because a forked process has a different file."""
    with suppress(OSError):
        return os.open("/proc/self/statm", os.O_RDONLY) if hasattr(os, "pread") else None
    return None


@cache
def _page_bytes() -> int:
    """Return the size of a memory page in bytes."""
    import resource

    return resource.getpagesize()


def format_bytes(count: int) -> str:
    """Format a number of bytes for messages.

    Examples
    --------
    >>> format_bytes(3 * 2**30)
    '3.0 GiB'
    """
    for unit, size in (("EiB", 2**60), ("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count >= 10 * size else f"{count / size:.1f} {unit}"
    return f"{count} bytes"
