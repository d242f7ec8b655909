"""Reading ``.npz`` archives that nobody vouches for: a header's claims are held against the file before it is read."""

import math
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.memory import memory_limit, readable
from dmcmc.inference.runtime.types import Array

_DEFLATE_AT_BEST = 1032  # no deflate stream unpacks to more than this many times its size
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
                dtype, shape, size = self._header(name, member)
            if dtype.kind not in kinds and dtype.str not in kinds:
                raise self.fail(name, f"has dtype {dtype}; {_wanted(kinds)} needed")
            if len(shape) != ndim:
                raise self.fail(name, f"has shape {shape}; {ndim} axes are needed")
            claimed, there = math.prod(shape) * dtype.itemsize, info.file_size - size
            if claimed != there or min(shape, default=0) < 0:
                raise self.fail(name, f"claims shape {shape}, which is {claimed} bytes, but holds {there}")
            with self.file.open(info) as member:
                array: Array = np.lib.format.read_array(member, allow_pickle=False)  # type: ignore[no-untyped-call,unused-ignore]
        except (*BROKEN, MemoryError) as error:
            raise self.fail(name, f"is damaged: {str(error) or type(error).__name__}") from None
        array = array.astype(dtype.newbyteorder("="), copy=False)
        array.flags.writeable = False
        return array

    def _header(self, name: str, member: IO[bytes]) -> tuple[np.dtype[np.generic], tuple[int, ...], int]:
        """Return an array's dtype and shape as it claims them, and how many bytes it took to do so."""
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of headers as Python 2 wrote them
                shape, _, dtype = read[np.lib.format.read_magic(member)](member)  # type: ignore[no-untyped-call,unused-ignore]
        except Exception:  # a damaged header is parsed as Python text, and many things may be wrong with that
            shape, dtype = (), np.dtype(object)
        if dtype.hasobject or dtype.kind == "V":
            raise self.fail(name, "is not a plain array of numbers (objects and records are not read)")
        return dtype, shape, member.tell()


def _wanted(kinds: str) -> str:
    return {"i": "signed integers are", "iu": "integers are", "iuf": "integers or floats are", "U": "a string is"}.get(
        kinds, f"{np.dtype(kinds) if kinds.startswith('<') else kinds} is"
    )
