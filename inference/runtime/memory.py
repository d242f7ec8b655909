"""How much memory there is for this process, and how much of it a single problem may take."""

import sys
from functools import cache

MOST_BYTES = 2**34  # 16 GiB


def memory_limit(share: float = 1.0) -> int:
    """Return the bytes that one problem may take: 16 GiB, or a share of :func:`process_memory` where that is less."""
    there = process_memory()
    return MOST_BYTES if there is None else min(MOST_BYTES, int(share * there))


def process_memory() -> int | None:
    """Return the bytes that this process may have: the machine's, its container's (cgroups) or its own limit's.

    None where nothing says.
    """
    known = [bound for bound in (_machine(), _address_space()) if bound is not None]
    return min(known, default=None)


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
