"""Write files atomically: a file exists completely or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_TEMPORARY_FILES: set[Path] = set()  # temporary files that are being written


@contextlib.contextmanager
def open_replacement(path: str | os.PathLike[str], synced: bool = True, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces an existing one when the block ends without an error.

    The data goes to a temporary file in the same folder, which is renamed at the end and deleted after an error. A
    symbolic link is followed: its target is replaced.

    Parameters
    ----------
    path : str or path-like
        The file to write.
    synced : bool
        Whether to wait until the data is on the disk. This takes long for many files, and is not needed for files whose
        digests are verified on reading.
    mode : int
        Permissions of the file, from which the process's ``umask`` may remove some.

    Yields
    ------
    BinaryIO
        The temporary file, open for writing.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If the name is not a valid file name.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{os.getpid()}-{secrets.token_hex(4)}.part")
    _TEMPORARY_FILES.add(temporary)
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as stream:
            yield stream
            if synced:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
        _TEMPORARY_FILES.discard(temporary)


def discard_partial_files() -> None:
    """Delete all unfinished temporary files; for a process that exits immediately."""
    for temporary in list(_TEMPORARY_FILES):
        with contextlib.suppress(OSError):
            temporary.unlink()
