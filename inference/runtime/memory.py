"""How much a single problem may take of this machine's memory."""

import os

MOST_BYTES = 2**34  # 16 GiB


def memory_limit(share: float = 1.0) -> int:
    """Return the bytes that one problem may take: 16 GiB, or a share of the machine's memory where that is less."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return MOST_BYTES
    return min(MOST_BYTES, int(share * physical)) if physical > 0 else MOST_BYTES


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
