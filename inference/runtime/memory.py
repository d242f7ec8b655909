"""How much memory there is for this process, how much of it is free, and how much of it a single problem may take."""

import sys
from contextlib import suppress
from functools import cache

MOST_BYTES = 2**34  # 16 GiB


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
    if sys.platform == "win32":
        return 0
    import resource

    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as sizes:
        return int(sizes.read().split()[field]) * resource.getpagesize()
    return 0


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
