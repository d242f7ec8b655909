"""Locks by which processes agree that only one of them compiles a kernel.

All processes lock bytes of one file in the kernel folder; the position of the byte is a digest of the kernel's key.
The system releases the locks of a process that ends, in whatever way. A lock is an optimisation: without one, two
processes compile the same kernel and store the same file.
"""

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FILE_NAME = "locks"
_POSITION_BYTES = 7  # bytes of the digest: positions are below 2^56, which all systems allow
_HELD = threading.local()


@contextmanager
def lock_kernel(folder: Path, key: str) -> Iterator[bool]:
    """Hold the lock of a kernel in the block; wait if another process holds it.

    Parameters
    ----------
    folder : Path
        The kernel folder.
    key : str
        What distinguishes the kernel from all others.

    Yields
    ------
    bool
        Whether no other process held the lock: nobody else has just compiled the kernel.
    """
    position = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=_POSITION_BYTES).digest(), "big")
    held: set[int] = _HELD.__dict__.setdefault("positions", set())
    descriptor = None if fcntl is None or position in held else _descriptor(str(folder), os.getpid())
    if descriptor is None:
        yield True
        return
    free = _lock(descriptor, position)
    held.add(position)
    try:
        yield free
    finally:
        held.discard(position)
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, position)


def _lock(descriptor: int, position: int) -> bool:
    """Lock a byte; return whether it was free. Without support by the file system, return True."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, position)
        return True
    except BlockingIOError:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, position)
        except OSError:  # another process waits for this one
            return True
        return False
    except OSError:
        return True


@cache
def _descriptor(folder: str, process: int) -> int | None:
    """Open the file of locks for this process; return None if that is not possible.

    It stays open: closing any descriptor of the file would release all locks of the process.
    """
    try:
        return os.open(os.path.join(folder, _FILE_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
