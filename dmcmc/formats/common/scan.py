"""Numbers from text, compiled: words between white space, converted where that is exact, noted where it is not."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.formats.common.scan_kernels import floats, integers, offset
from dmcmc.inference.runtime.types import Array

_FEW = 1 << 12  # words that are noted before more room is made


class Scanned(NamedTuple):
    """The words of a text as numbers.

    Attributes
    ----------
    numbers : (words,) int64 or float64
        0 for a word that is noted.
    noted : (k, 3) int64
        Words that could not be converted: their index, first byte and the byte after the last.
    """

    numbers: Array
    noted: NDArray[np.int64]


def scan_integers(text: bytes, begin: int = 0) -> Scanned:
    """Return the words of a text, from a byte on, as int64; noted is what is no integer or needs more bits."""
    return _scan(integers, text, begin, np.dtype(np.int64))


def scan_floats(text: bytes, begin: int = 0) -> Scanned:
    """Return the words of a text, from a byte on, as correctly rounded float64; noted is what is no decimal number.

    Decimal numbers that the compiled code cannot round correctly are converted by Python.
    """
    numbers, noted = _scan(floats, text, begin, np.dtype(np.float64))
    keep = []
    for i, (index, first, last) in enumerate(noted.tolist()):
        word = text[first:last]
        if word.strip(b"+-0123456789.eE"):
            keep.append(i)
            continue
        try:
            numbers[index] = float(word)
        except ValueError:
            keep.append(i)
    return Scanned(numbers, noted[keep])


def word_offset(text: bytes, begin: int, index: int) -> int:
    """Return the byte where a word starts, counted from ``begin``; the end of the text if there is none."""
    return int(offset(np.frombuffer(text, dtype=np.uint8), begin, index))


def _scan(kernel: Any, text: bytes, begin: int, dtype: np.dtype[Any]) -> Scanned:
    data = np.frombuffer(text, dtype=np.uint8)
    numbers = np.empty((len(text) - begin) // 2 + 1, dtype=dtype)  # only what is written to becomes memory
    room = _FEW
    while True:
        noted = np.empty((room, 3), dtype=np.int64)
        count, extra = kernel(data, begin, numbers, noted)
        if extra <= room:
            return Scanned(numbers[:count], noted[:extra])
        room = max(extra, numbers.size)
