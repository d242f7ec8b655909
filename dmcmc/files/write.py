"""Write files atomically, compressed according to their suffix, and check beforehand whether they can be written."""

import bz2
import contextlib
import gzip
import lzma
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.storage.atomic_write import open_replacement


@contextlib.contextmanager
def open_packed_atomically(path: str | os.PathLike[str], synced: bool = True) -> Iterator[BinaryIO]:
    """Open a file for atomic writing: a killed run leaves no partial file under this name.

    Missing folders are created.

    Parameters
    ----------
    path
        The file.
    synced
        Whether to flush the file to the disk, as for
        :func:`dmcmc.inference.storage.atomic_write.open_replacement`.

    Raises
    ------
    FileError
        If the file cannot be written.
    """
    check_writable(path)
    try:
        Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
        with open_replacement(path, synced) as stream:
            yield stream
    except (OSError, ValueError) as error:
        raise _failure(path, getattr(error, "strerror", None) or error) from None


def replace_file(path: str | os.PathLike[str], pieces: Iterable[str | bytes]) -> None:
    """Write text or bytes atomically, compressed if the file's suffix says so.

    Raises
    ------
    FileError
        If the file cannot be written.
    """
    with open_packed_atomically(path) as raw, _compressor(raw, Path(path).suffix.lower()) as stream:
        for piece in pieces:
            stream.write(piece.encode("utf-8") if isinstance(piece, str) else piece)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise ``FileError`` if the folder of a file does not exist; for functions that do not create folders."""
    folder = Path(os.path.abspath(path)).parent
    if not folder.is_dir():
        raise _failure(path, f"the folder {folder} does not exist; create it first")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise ``FileError`` if a file cannot be written; called before any work is done, and leaves nothing behind."""
    try:
        if os.fspath(path).endswith(os.sep):
            raise _failure(path, "is a folder; a file is needed")
        absolute = Path(os.path.abspath(path))
        # /dev/stdout may be a link to a file that another program has open
        if absolute.is_relative_to("/dev") and not absolute.is_relative_to("/dev/shm"):
            raise _failure(path, "a device, not a file")
        target = Path(os.path.realpath(path))
        if not stat.S_ISREG(target.stat().st_mode):
            raise _failure(path, "not a regular file")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise _failure(path, getattr(error, "strerror", None) or error) from None
    folder = next(p for p in target.parents if p.exists())
    if not folder.is_dir():
        raise _failure(path, f"{folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _failure(path, f"no permission in {folder}")
    try:
        with tempfile.TemporaryFile(dir=folder):  # some writable folders cannot hold files: /proc, a full quota
            pass
    except OSError as error:
        raise _failure(path, f"{folder}: {error.strerror or error}") from None


def _failure(path: str | os.PathLike[str], reason: object) -> FileError:
    """Return the error for a file that cannot be written."""
    return FileError(f"{os.fspath(path)}: cannot be written: {reason}")


def _compressor(raw: BinaryIO, suffix: str) -> BinaryIO:
    """Return a stream that compresses into ``raw``; closing it leaves ``raw`` open. Equal texts give equal bytes."""
    match suffix:
        case ".gz":
            return cast(BinaryIO, gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
        case ".xz":
            return cast(BinaryIO, lzma.open(raw, "wb"))
        case ".bz2":
            return cast(BinaryIO, bz2.open(raw, "wb"))
    return cast(BinaryIO, contextlib.nullcontext(raw))
