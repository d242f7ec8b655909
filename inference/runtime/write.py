"""Files that are there whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to write; it takes its name at the end, in place of what had it, or never if an error ends it.

    A link is followed: what it points to is replaced.

    Raises
    ------
    OSError
        If it cannot be written.
    ValueError
        For a name that no file can have.
    """
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, target)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
