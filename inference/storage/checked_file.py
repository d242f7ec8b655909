"""Files with a checksum: what is read back is exactly what was written under this name by this user, or nothing.

The first line of a file is ``dmcmc cache 1``, a space and a BLAKE2b digest of the file's key and contents; the contents
follow. A truncated, altered or renamed file, or a file of another program, fails the check before its contents are
used. The digest protects from accidents only; that nobody else has written the file is checked by its owner and
permissions (:mod:`dmcmc.inference.storage.ownership`).
"""

import hashlib
import os
from pathlib import Path

from dmcmc.inference.storage.atomic_write import open_replacement
from dmcmc.inference.storage.ownership import file_problem

_HEAD = b"dmcmc cache 1 "
_DIGEST_BYTES = 32
_HEAD_BYTES = len(_HEAD) + 2 * _DIGEST_BYTES + 1  # the digest in hexadecimal digits, and the end of the line
_MODE = 0o644  # all users can read the file, only its owner can write to it


class CachedFileError(Exception):
    """A cached file that must not be used; the message names the file and the reason."""


def read_checked(path: Path, key: str) -> bytes | None:
    """Return the contents of a file that :func:`write_checked` has written with the same key; None if there is no file.

    Raises
    ------
    CachedFileError
        If the file is damaged, was written with another key, or another user could have written it.
    OSError
        If the file cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            problem = file_problem(str(path), os.fstat(stream.fileno()))
            if problem is not None:
                raise CachedFileError(problem)
            data = stream.read()
    except FileNotFoundError:
        return None
    contents = memoryview(data)[_HEAD_BYTES:]
    if data[:_HEAD_BYTES] != _head(key, contents):
        raise CachedFileError(f"{path} is damaged (its checksum does not match)")
    return bytes(contents)


def write_checked(path: Path, key: str, contents: bytes) -> None:
    """Write a file atomically for :func:`read_checked`; concurrent writers of the same file do not disturb each other.

    Raises
    ------
    OSError
        If the file cannot be written; an existing file stays unchanged.
    """
    with open_replacement(path, synced=False, mode=_MODE) as stream:
        stream.write(_head(key, memoryview(contents)))
        stream.write(contents)


def _head(key: str, contents: memoryview) -> bytes:
    """Return the first line of a file."""
    digest = hashlib.blake2b(key.encode() + b"\0", digest_size=_DIGEST_BYTES)
    digest.update(contents)
    return _HEAD + digest.hexdigest().encode() + b"\n"
