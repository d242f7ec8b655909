"""Reading ``.npz`` archives that nobody vouches for: a header's claims are held against the file before it is read."""

import math
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.memory import memory_limit, readable
from dmcmc.inference.runtime.types import Array

_DEFLATE_AT_BEST = 1032  # no deflate stream unpacks to more than this many times its size
_HEADER = re.compile(
    rb"\s*\{\s*'descr':\s*'([<>|=]?[a-zA-Z]\d{0,9})',\s*'fortran_order':\s*(True|False),"
    rb"\s*'shape':\s*\(((?:\d{1,18}(?:,\s*\d{1,18})*)?),?\s*\)\s*,?\s*\}\s*"
)
BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError, OverflowError)
"""What reading a damaged archive may raise."""


class Archive:
    """The arrays of an ``.npz`` file, each checked before it is read.

    Attributes
    ----------
    members : dict of str to ZipInfo
        By array name, without the ``.npy``.

    Raises
    ------
    FileError
        If the archive unpacks to more than the memory.
    """

    def __init__(self, file: zipfile.ZipFile, path: Path) -> None:
        self.file, self.path = file, path
        self.members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
        unpacked, limit = sum(info.file_size for info in file.infolist()), memory_limit()
        if unpacked > limit:
            raise FileError(f"{path}: unpacks to {readable(unpacked)}; at most {readable(limit)} is read")

    def fail(self, name: str, problem: str) -> FileError:
        """Return the error that names the file and the array."""
        return FileError(f"{self.path}: array {name!r}: {' '.join(problem.split())}")  # one line, whatever is quoted

    def array(self, name: str, kinds: str, ndim: int = 1) -> Array:
        """Read an array of ``ndim`` axes, of one dtype (``"<i8"``) or of some kinds (``"i"``, ``"iu"``)."""
        info = self.members.get(name)
        if info is None:
            have = ", ".join(map(ascii, sorted(self.members)[:12])) or "nothing"
            raise FileError(f"{self.path}: array {name!r} is missing; the file has {have}")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self.fail(name, "must be stored plain or deflated")
        if info.file_size > _DEFLATE_AT_BEST * info.compress_size + 1024:
            raise self.fail(name, f"cannot unpack {info.compress_size} bytes to {info.file_size}; the file is damaged")
        try:
            with self.file.open(info) as member:
                head = _head(member)
                if head is None:
                    raise self.fail(name, "is not a plain array of numbers (objects and records are not read)")
                dtype, shape = head.dtype, head.shape
                if dtype.kind not in kinds and dtype.str not in kinds:
                    raise self.fail(name, f"has dtype {dtype}; {_wanted(kinds)} needed")
                if len(shape) != ndim:
                    raise self.fail(name, f"has shape {shape}; {ndim} axes are needed")
                claimed, there = math.prod(shape) * dtype.itemsize, info.file_size - head.size
                if claimed != there:
                    raise self.fail(name, f"claims shape {shape}, which is {claimed} bytes, but holds {there}")
                body = member.read()
        except (*BROKEN, MemoryError) as error:
            raise self.fail(name, f"is damaged: {str(error) or type(error).__name__}") from None
        if len(body) != claimed:
            raise self.fail(name, f"is cut short: {len(body)} of {claimed} bytes")
        array = np.frombuffer(body, dtype=dtype).reshape(shape, order="F" if head.fortran else "C")
        return array.astype(dtype.newbyteorder("="), copy=False)


@dataclass(frozen=True)
class _Head:
    """What an array says of itself: dtype, axes' order, shape, and how many bytes it took to say so."""

    dtype: np.dtype[np.generic]
    fortran: bool
    shape: tuple[int, ...]
    size: int


def _head(member: IO[bytes]) -> _Head | None:
    """Read the header of a ``.npy`` member without evaluating it; None where it is not a plain array's."""
    magic = member.read(8)
    width = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}.get(magic)
    if width is None:
        return None
    length = int.from_bytes(member.read(width), "little")
    match = _HEADER.fullmatch(member.read(length)) if length <= 4096 else None
    if match is None or match[1][-1:] == b"O":
        return None
    try:
        dtype = np.dtype(match[1].decode())
    except TypeError:
        return None
    shape = tuple(int(axis) for axis in re.findall(rb"\d+", match[3]))
    return _Head(dtype, match[2] == b"True", shape, 8 + width + length)


def _wanted(kinds: str) -> str:
    return {"i": "signed integers are", "iu": "integers are", "iuf": "integers or floats are", "U": "a string is"}.get(
        kinds, f"{np.dtype(kinds) if kinds.startswith('<') else kinds} is"
    )
