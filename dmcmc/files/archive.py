"""Read ``.npz`` archives from untrusted sources: each header is compared with the file before the data are read.

:mod:`dmcmc.formats.native` reads problem files with it; checkpoints are read with :func:`open_archive`.
"""

import contextlib
import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, format_bytes, memory_limit
from dmcmc.inference.runtime.types import Array

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


def _required_kind(kinds: str) -> str:
    """Return the required dtype in words, with the verb."""
    return {"i": "signed integers are", "iu": "integers are", "iuf": "integers or floats are", "U": "a string is"}.get(
        kinds, f"{np.dtype(kinds) if kinds.startswith('<') else kinds} is"
    )
