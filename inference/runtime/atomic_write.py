"""Files that are there whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_PARTS: set[Path] = set()  # files being written


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], synced: bool = True) -> Iterator[BinaryIO]:
    """Open a file to write; it takes its name at the end, in place of what had it, or never if an error ends it.

    A link is followed: what it points to is replaced.

    Parameters
    ----------
    synced
        Wait until it is on the disk. That takes long for many files, and is not needed of those whose digests are kept.

    Raises
    ------
    OSError
        If it cannot be written.
    ValueError
        For a name that no file can have.
    """
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{os.getpid()}-{secrets.token_hex(4)}.part")
    _PARTS.add(part)
    try:
        with open(part, "xb") as stream:
            yield stream
            if synced:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(part, target)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
        _PARTS.discard(part)


def discard_parts() -> None:
    """Delete what has been written of files that are not whole yet: for a process that ends at once."""
    for part in list(_PARTS):
        with contextlib.suppress(OSError):
            part.unlink()
