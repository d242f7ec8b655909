"""Files that are written at once, belong to this user, and have a checksum.

Files with a checksum: what is read back is exactly what was written under this name by this user, or nothing.

The first line of a file is ``dmcmc cache 1``, a space and a BLAKE2b digest of the file's key and contents; the contents
follow. A truncated, altered or renamed file, or a file of another program, fails the check before its contents are
used. The digest protects from accidents only; that nobody else has written the file is checked by its owner and
permissions (:mod:`dmcmc.inference.storage.checked_file`).

Write files atomically: a file exists completely or not at all.

Find out who besides this user can write to a file or folder.

Compiled kernels are executed, so they are loaded only from files that nobody but this user and root can have written.
The rules are those of OpenSSH for keys (``StrictModes`` in its manual page sshd_config): the file and all folders above
it belong to this user or to root, and nobody else can write to them. A folder with the sticky bit, such as ``/tmp``,
may be above, since only the owner of an entry can replace it there. The group of a user who is its only member does not
count as somebody else.
"""

import contextlib
import hashlib
import os
import secrets
import stat
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


_ROOT = 0  # user id of the system administrator, who can replace any file


def folder_problem(folder: Path) -> str | None:
    """Return why another user could replace the files of an existing folder; None if only this user and root can.

    Windows protects the folders of a user by access control lists, so nothing is checked there.

    Parameters
    ----------
    folder : Path
        An absolute path.

    Raises
    ------
    OSError
        If the folder or one above it cannot be inspected.
    """
    return parents_problem(folder) or (_problem(str(folder), os.stat(folder)) if _has_owners() else None)


def parents_problem(folder: Path) -> str | None:
    """Return why another user could replace a folder, or create it; None if only this user and root can.

    Links are followed: the folders above a link and above its target are both inspected.

    Raises
    ------
    OSError
        If a folder above cannot be inspected.
    """
    if not _has_owners():
        return None
    # In a container without a mapped administrator, the folder / has another owner; that one can replace everything.
    administrator = os.stat(folder.anchor).st_uid
    for path in dict.fromkeys((*reversed(folder.parents), *reversed(Path(os.path.realpath(folder)).parents))):
        status = os.stat(path)
        problem = _problem(str(path), status, administrator, sticky_allowed=True)
        if problem is not None:
            return problem
    return None


def file_problem(name: str, status: os.stat_result) -> str | None:
    """Return why another user could have written a file, given its status; None if only this user and root could."""
    return _problem(name, status) if _has_owners() else None


def _has_owners() -> bool:
    """Return whether files have an owner and permissions as in POSIX."""
    return hasattr(os, "geteuid")


def _problem(name: str, status: os.stat_result, administrator: int = _ROOT, sticky_allowed: bool = False) -> str | None:
    """Return why somebody else could write to a file or folder, given its status; None if nobody can."""
    if status.st_uid not in (_ROOT, administrator, os.geteuid()):
        return f"{name} belongs to another user (uid {status.st_uid})"
    if sticky_allowed and status.st_mode & stat.S_ISVTX:
        return None
    if status.st_mode & stat.S_IWOTH:
        return f"all users can write to {name}"
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid):
        return f"its group (gid {status.st_gid}) can write to {name}"
    return None


def _is_private_group(group: int, user: int) -> bool:
    """Return whether a group is the group of one user: with the user's name and without other members."""
    import grp
    import pwd

    try:
        members, owner = grp.getgrgid(group), pwd.getpwuid(user)
    except KeyError:
        return False
    return owner.pw_gid == group and members.gr_name == owner.pw_name and set(members.gr_mem) <= {owner.pw_name}


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
