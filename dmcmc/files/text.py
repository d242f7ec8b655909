"""Opening problem files: unpacking within limits, and errors that name the line."""

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, cast

from dmcmc.inference.runtime.errors import FileError, Unavailable
from dmcmc.inference.runtime.memory import memory_limit, readable

_PIECE = 1 << 20  # bytes unpacked at once
_TEXT_SHARE = 8  # of the memory: numbers take four times their text, and the text is there twice for a moment
_LONGEST = 400  # characters of a message
PACKERS = (".gz", ".xz", ".bz2")
STANDARD_INPUT = "-"  # in place of a file's name
_ZIP = b"PK"


@dataclass(frozen=True)
class Source:
    """An unpacked problem file.

    Attributes
    ----------
    name : str
        How errors call it.
    data : bytes
        What it holds.
    path : Path or None
        Where it is, for files beside it; None for text from memory.
    """

    name: str
    data: bytes
    path: Path | None = None

    def line(self, offset: int) -> int:
        """Return the line of a byte, from 1."""
        return 1 + self.data.count(b"\n", 0, offset)

    def error(self, offset: int, message: str) -> FileError:
        """Return the error for a byte of the file."""
        return FileError(f"{self.name}: line {self.line(offset)}: {clipped(message)}")

    def refusal(self, offset: int, what: str) -> Unavailable:
        """Return the error for what this version does not read; ``what`` ends with "is" or "are"."""
        return Unavailable(f"{self.name}: line {self.line(offset)}: {clipped(what)} not available in this version")

    def text(self) -> str:
        """Return the file as UTF-8 text."""
        try:
            return self.data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(error.start, "is not UTF-8 text") from None


def clipped(message: str) -> str:
    """Return a message on one line, without the middle if it is long: names may be."""
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} ... {line[-_LONGEST // 2 :]}"


@cache
def standard_input() -> bytes:
    """Return all that standard input has; read once, whoever asks.

    Raises
    ------
    FileError
        If it is more than fits the memory.
    """
    limit = memory_limit() // _TEXT_SHARE
    content = sys.stdin.buffer.read(limit + 1)
    if len(content) > limit:
        raise FileError(f"standard input: has more than {readable(limit)}, which does not fit the memory")
    return content


def open_source(path: str | os.PathLike[str], native: bool = False) -> Source | None:
    """Read and unpack a file; what it is packed with is told by its first bytes.

    Parameters
    ----------
    path
        The file; ``-`` is standard input.
    native
        Return None for a zip archive, without reading it.

    Raises
    ------
    FileError
        If there is no such file, it is damaged, or its text does not fit the memory.
    """
    file, limit, own = Path(path), memory_limit() // _TEXT_SHARE, os.fspath(path) == STANDARD_INPUT
    try:
        if file.is_dir():
            raise FileError(f"{path}: is a folder; a problem file is needed")
        with io.BytesIO(standard_input()) if own else open(file, "rb") as raw:
            head = raw.read(6)
            if native and not own and head.startswith(_ZIP):
                return None
            raw.seek(0)
            pieces, size = [], 0
            with unpacked(raw, head) as stream:
                while piece := stream.read(_PIECE):
                    pieces.append(piece)
                    size += len(piece)
                    if size > limit:
                        raise FileError(
                            f"{path}: has more than {readable(limit)} of text, which does not fit the memory"
                        )
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error, MemoryError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error or "out of memory").split())
        raise FileError(f"{path}: cannot be read: {reason}") from None
    return Source("standard input" if own else os.fspath(path), b"".join(pieces), None if own else file)


def unpacked(raw: BinaryIO, head: bytes) -> BinaryIO:
    """Return a stream of the unpacked bytes of ``raw``, whose first bytes are ``head``."""
    if head.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.open(raw))
    if head.startswith(b"\xfd7zXZ\x00"):
        return cast(BinaryIO, lzma.open(raw))
    if head.startswith(b"BZh"):
        return cast(BinaryIO, bz2.open(raw))
    return raw
