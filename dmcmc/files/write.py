"""Write files atomically, compressed by their suffix, and read dmcmc's own text files, which may be damaged.

Whatever is wrong with a file or with JSON text in it is one kind of error, of one line.
"""

import bz2
import contextlib
import gzip
import json
import lzma
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TypeVar, cast

from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.storage.checked_file import open_replacement


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
        :func:`dmcmc.inference.storage.checked_file.open_replacement`.

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


T = TypeVar("T")


def read_own(path: str | os.PathLike[str], what: str, decode: Callable[[bytes], T], hint: str = "") -> T:
    """Return what a file of dmcmc's own holds.

    Parameters
    ----------
    path
        The file.
    what
        What the file should be, for error messages.
    decode
        Returns the data in the bytes of the file; raises a ``ValueError`` if they are not what they should be.
    hint
        The end of the message if the file cannot be read.

    Raises
    ------
    FileError
        If the file cannot be read, or is something else; one line.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or error
        raise FileError(f"{os.fspath(path)}: {reason}{hint}") from None
    try:
        return decode(content)
    except (ValueError, RecursionError) as error:  # errors of msgspec are ValueErrors
        raise FileError(f"{os.fspath(path)}: is not {what}: {' '.join(str(error).split())}") from None


_MAX_DEPTH = 64  # nested lists and objects; files of dmcmc have at most ten
# Largest magnitude of a number. Sums of utilities are below 2^1000; sums and differences of a few of them fit float64.
_MAX_NUMBER = 1e302
_BYTES_PER_OBJECT = 150  # bytes of one value of a list or object, or half of an object; measured
_MAX_DIGITS = 302  # digits of an integer below that limit


def plain_json(content: bytes) -> Any:
    """Return the data in JSON text.

    Integers stay integers. Numbers are finite and small enough for float64.

    Raises
    ------
    ValueError
        If the text is not UTF-8 or not JSON, is nested too deeply, or has a number or a character that cannot be
        written again. The message is one line.

    Examples
    --------
    >>> plain_json(b'{"x": [1, 2.5]}')
    {'x': [1, 2.5]}
    """
    try:
        text = content.decode("utf-8")
        objects = 2 * text.count("{") + text.count("[") + text.count(",")
        MEMORY_ACCOUNT.claim(_BYTES_PER_OBJECT * objects, "the values of JSON text")
        data = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_refused)
        if "\\ud" in text.lower():  # half of a character: it cannot be encoded
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise ValueError("it is not UTF-8 text") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth(data)
    return data


_TOO_DEEP = f"lists and objects are nested more than {_MAX_DEPTH} deep"


def _integer(text: str) -> int:
    """Return an integer of limited length."""
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"it has an integer of {len(text)} digits; at most {_MAX_DIGITS}")
    return int(text)


def _float(text: str) -> float:
    """Return a finite float."""
    value = float(text)
    if not abs(value) <= _MAX_NUMBER:
        _refused(text[:20])
    return value


def _refused(text: str) -> NoReturn:
    """Raise an error for a number that is too large, infinite or NaN."""
    raise ValueError(f"it has the number {text}; numbers are finite and at most {_MAX_NUMBER:g}")


def _check_depth(data: Any) -> None:
    """Raise an error if lists and objects are nested too deeply."""
    level = [data]
    for _ in range(_MAX_DEPTH):
        parts = [part for part in level if isinstance(part, dict | list)]
        if not parts:
            return
        level = [inner for part in parts for inner in (part.values() if isinstance(part, dict) else part)]
    raise ValueError(_TOO_DEEP)
