"""Text of files, and their names.

Open problem files: decompress them within memory limits, and report errors with line numbers.

Read files with one name per line, such as elimination orders.
"""

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, cast

from dmcmc.inference.runtime.errors import FileError, Unavailable
from dmcmc.inference.runtime.memory import format_bytes, memory_limit

_CHUNK_BYTES = 1 << 20  # bytes decompressed at once
# Text may take 1/8 of the memory: its numbers take four times as much, and the text is briefly held twice.
_MEMORY_PER_TEXT = 8
OBJECTS_PER_CHECK = 1 << 12  # objects that a reader makes between two checks of the memory: less than 4 MiB
_MAX_MESSAGE_LENGTH = 400  # characters of an error message
COMPRESSED_SUFFIXES = (".gz", ".xz", ".bz2")
STANDARD_INPUT = "-"  # file name that stands for standard input
_ZIP_SIGNATURE = b"PK"


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
