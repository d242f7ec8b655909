"""Read problem files, lists of names, and archives of arrays, all from untrusted sources and within memory limits.

Text is decompressed, and errors name the line. The header of each array in an ``.npz`` archive is compared with the
file before its data are read (:func:`open_archive`); :func:`load_saved` reads what an earlier run has saved.
"""

import bz2
import contextlib
import gzip
import io
import lzma
import math
import os
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, BinaryIO, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.errors import CheckpointWarning, FileError, Unavailable
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, format_bytes, memory_limit
from dmcmc.inference.runtime.types import Array

_CHUNK_BYTES = 1 << 20  # bytes decompressed at once
# Text may take 1/8 of the memory: its numbers take four times as much, and the text is briefly held twice.
_MEMORY_PER_TEXT = 8
OBJECTS_PER_CHECK = 1 << 12  # objects that a reader makes between two checks of the memory: less than 4 MiB
_MAX_MESSAGE_LENGTH = 400  # characters of an error message
COMPRESSED_SUFFIXES = (".gz", ".xz", ".bz2")
STANDARD_INPUT = "-"  # file name that stands for standard input
_ZIP_SIGNATURE = b"PK"

T = TypeVar("T")


@dataclass(frozen=True)
class SourceFile:
    """Content of an uncompressed problem file.

    Attributes
    ----------
    name : str
        Name of the file in error messages.
    data : bytes
        Its content.
    path : Path or None
        Its path, to find companion files in the same folder; None for text from memory.
    """

    name: str
    data: bytes
    path: Path | None = None

    def line(self, offset: int) -> int:
        """Return the number of the line that contains a byte offset, counted from 1."""
        return 1 + self.data.count(b"\n", 0, offset)

    def error(self, offset: int, message: str) -> FileError:
        """Return the error for a byte offset; it names the file and the line."""
        return FileError(f"{self.name}: line {self.line(offset)}: {clipped(message)}")

    def refusal(self, offset: int, what: str) -> Unavailable:
        """Return the error for a feature that this version does not read; ``what`` ends with "is" or "are"."""
        return Unavailable(f"{self.name}: line {self.line(offset)}: {clipped(what)} not available in this version")

    def text(self) -> str:
        """Return the file as UTF-8 text."""
        try:
            return self.data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(error.start, "is not UTF-8 text") from None


def clipped(message: str) -> str:
    """Return a message as one line of limited length; the middle of a long message is omitted."""
    line = " ".join(message.split())
    return (
        line
        if len(line) <= _MAX_MESSAGE_LENGTH
        else f"{line[: _MAX_MESSAGE_LENGTH // 2]} ... {line[-_MAX_MESSAGE_LENGTH // 2 :]}"
    )


@cache
def standard_input() -> bytes:
    """Return the content of standard input; it is read once and cached.

    Raises
    ------
    FileError
        If the content does not fit the memory.
    """
    limit = memory_limit() // _MEMORY_PER_TEXT
    content = sys.stdin.buffer.read(limit + 1)
    if len(content) > limit:
        raise FileError(f"standard input: has more than {format_bytes(limit)}, which does not fit the memory")
    return content


def open_source(path: str | os.PathLike[str], native: bool = False) -> SourceFile | None:
    """Read and decompress a file; its first bytes give the compression.

    Parameters
    ----------
    path
        The file; ``-`` is standard input.
    native
        Return None for a zip archive, without reading it.

    Raises
    ------
    FileError
        If the file does not exist, is damaged, or its text does not fit the memory.
    """
    file, limit, is_standard_input = Path(path), memory_limit() // _MEMORY_PER_TEXT, os.fspath(path) == STANDARD_INPUT
    try:
        if file.is_dir():
            raise FileError(f"{path}: is a folder; a problem file is needed")
        with io.BytesIO(standard_input()) if is_standard_input else open(file, "rb") as raw:
            head = raw.read(6)
            if native and not is_standard_input and head.startswith(_ZIP_SIGNATURE):
                return None
            raw.seek(0)
            chunks, size = [], 0
            with decompressed(raw, head) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > limit:
                        raise FileError(
                            f"{path}: has more than {format_bytes(limit)} of text, which exceeds the memory limit"
                        )
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error, MemoryError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error or "out of memory").split())
        raise FileError(f"{path}: cannot be read: {reason}") from None
    return SourceFile(
        "standard input" if is_standard_input else os.fspath(path),
        b"".join(chunks),
        None if is_standard_input else file,
    )


def decompressed(raw: BinaryIO, head: bytes) -> BinaryIO:
    """Return a stream of the decompressed bytes of ``raw``, whose first bytes are ``head``."""
    if head.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.open(raw))
    if head.startswith(b"\xfd7zXZ\x00"):
        return cast(BinaryIO, lzma.open(raw))
    if head.startswith(b"BZh"):
        return cast(BinaryIO, bz2.open(raw))
    return raw


def read_order(path: str, required: Iterable[str]) -> dict[str, int]:
    """Return the position of each name in a file with one name per line; empty lines are skipped.

    Parameters
    ----------
    path
        The file.
    required
        Names that the file must contain; it may contain others.

    Raises
    ------
    FileError
        If the file cannot be read, repeats a name, or lacks a required name.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read as an order ({error})") from None
    positions: dict[str, int] = {}
    for number, name in enumerate(lines, 1):
        if name in positions:
            raise FileError(f"{path}: line {number}: variable {name!r} occurs twice")
        if name:
            positions[name] = len(positions)
    for name in required:
        if name not in positions:
            raise FileError(f"{path}: variable {name!r} is missing; an order names every variable that is eliminated")
    return positions


_MAX_DEFLATE_RATIO = 1032  # a deflate stream expands its input by at most this factor
DAMAGE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    OverflowError,
)
"""Exceptions that reading a damaged archive may raise."""


class Archive:
    """The arrays of an ``.npz`` file; each array is checked before it is read.

    Attributes
    ----------
    file : ZipFile
        The open archive.
    path : Path
        Its path, for error messages.
    members : dict of str to ZipInfo
        The members by array name, without the suffix ``.npy``.

    Raises
    ------
    FileError
        If the uncompressed archive exceeds the memory.
    """

    def __init__(self, file: zipfile.ZipFile, path: Path) -> None:
        self.file, self.path = file, path
        self.members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
        unpacked, limit = sum(info.file_size for info in file.infolist()), memory_limit()
        if unpacked > limit:
            raise FileError(f"{path}: unpacks to {format_bytes(unpacked)}; at most {format_bytes(limit)} is read")

    def fail(self, name: str, problem: str) -> FileError:
        """Return the error that names the file and the array."""
        return FileError(
            f"{self.path}: array {name!r}: {' '.join(problem.split())}"
        )  # one line, whatever the message quotes

    def array(self, name: str, kinds: str, ndim: int = 1) -> Array:
        """Read an array.

        Parameters
        ----------
        name
            Name of the array.
        kinds
            Required dtype (``"<i8"``), or the permitted dtype kinds (``"i"``, ``"iu"``).
        ndim
            Required number of axes.
        """
        info = self.members.get(name)
        if info is None:
            available = ", ".join(map(ascii, sorted(self.members)[:12])) or "nothing"
            raise FileError(f"{self.path}: array {name!r} is missing; the file has {available}")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self.fail(name, "must be stored plain or deflated")
        if info.file_size > _MAX_DEFLATE_RATIO * info.compress_size + 1024:
            raise self.fail(name, f"cannot unpack {info.compress_size} bytes to {info.file_size}; the file is damaged")
        try:
            with self.file.open(info) as member:
                dtype, shape, header_bytes = self._header(name, member)
            if not (dtype.str == kinds if kinds.startswith(("<", "|")) else dtype.kind in kinds):
                raise self.fail(name, f"has dtype {dtype}; {_required_kind(kinds)} needed")
            if len(shape) != ndim:
                raise self.fail(name, f"has shape {shape}; {ndim} axes are needed")
            declared_bytes, stored_bytes = math.prod(shape) * dtype.itemsize, info.file_size - header_bytes
            if declared_bytes != stored_bytes or min(shape, default=0) < 0:
                raise self.fail(
                    name, f"claims shape {shape}, which is {declared_bytes} bytes, but holds {stored_bytes}"
                )
            MEMORY_ACCOUNT.claim(declared_bytes, f"array {name!r}")
            with self.file.open(info) as member:
                array: Array = np.lib.format.read_array(member, allow_pickle=False)  # type: ignore[no-untyped-call,unused-ignore]
        except (*DAMAGE_ERRORS, MemoryError) as error:
            raise self.fail(name, f"is damaged: {str(error) or type(error).__name__}") from None
        array = array.astype(dtype.newbyteorder("="), copy=False)
        array.flags.writeable = False
        return array

    def _header(self, name: str, member: IO[bytes]) -> tuple[np.dtype[np.generic], tuple[int, ...], int]:
        """Return the dtype and shape in an array's header, and the length of the header in bytes."""
        readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # headers written by Python 2 cause warnings
                shape, _, dtype = readers[np.lib.format.read_magic(member)](member)  # type: ignore[no-untyped-call,unused-ignore]
        except Exception:  # a damaged header is parsed as Python text and can raise almost anything
            shape, dtype = (), np.dtype(object)
        if dtype.hasobject or dtype.kind == "V":
            raise self.fail(name, "is not a plain array of numbers (objects and records are not read)")
        return dtype, shape, member.tell()


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive for reading; whatever a damaged one raises inside the block becomes a ``FileError``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FileError
        If the file cannot be read, is damaged, or does not fit the memory.
    """
    try:
        with open(path, "rb") as stream, zipfile.ZipFile(stream) as file:
            yield Archive(file, path)
    except FileNotFoundError:
        raise
    except (*DAMAGE_ERRORS, MemoryError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise FileError(f"{path}: not a complete .npz archive: {' '.join(reason.split())}") from None


def load_saved(
    path: Path, made_from: NDArray[np.uint8], read: Callable[[Archive], T], texts: tuple[str, str]
) -> T | None:
    """Return what an earlier run has saved; None if there is no file of these inputs, with a warning if it is unusable.

    Parameters
    ----------
    path
        The archive.
    made_from
        The digest of what it has to be made from, its array ``made_from``.
    read
        Returns the data of the archive; raises ``FileError`` if it is damaged.
    texts
        What another file belongs to, and what happens without the file, for warnings.
    """
    owner, remedy = texts
    try:
        with open_archive(path) as archive:
            if archive.array("made_from", "|u1").tobytes() == made_from.tobytes():
                return read(archive)
        problem, reason = f"belongs to another {owner}", ""
    except FileNotFoundError:
        return None
    except FileError as error:
        problem, reason = "is damaged", f" ({str(error).removeprefix(f'{path}: ')})"
    warnings.warn(f"{path}: the file {problem}; {remedy}{reason}", CheckpointWarning, stacklevel=3)
    return None


def _required_kind(kinds: str) -> str:
    """Return the required dtype in words, with the verb."""
    return {"i": "signed integers are", "iu": "integers are", "iuf": "integers or floats are", "U": "a string is"}.get(
        kinds, f"{np.dtype(kinds) if kinds.startswith('<') else kinds} is"
    )
