"""Convert the numbers of a text with compiled code.

Words are separated by white space. The compiled code converts the words that it can convert exactly, and notes the
positions of all others.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.formats.common.scan_kernels import floats, integers, offset
from dmcmc.inference.runtime.interpreted import interpreted_if_short
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.tuning import formats as tuning

_INITIAL_UNCONVERTED = 1 << 12  # capacity of the first attempt for words that cannot be converted


class ScannedNumbers(NamedTuple):
    """The words of a text as numbers.

    Attributes
    ----------
    numbers : (words,) int64 or float64
        Value of each word; 0 for an unconverted word.
    unconverted : (k, 3) int64
        For each unconverted word: its index, its first byte and the byte after its last.
    """

    numbers: Array
    unconverted: NDArray[np.int64]


def scan_integers(text: bytes, begin: int = 0) -> ScannedNumbers:
    """Return the words of a text from byte ``begin`` on as int64; words other than 64-bit integers stay unconverted.

    ``begin`` must not lie within a word.
    """
    return _scan(integers, text, begin, np.dtype(np.int64))


def scan_floats(text: bytes, begin: int = 0) -> ScannedNumbers:
    """Return the words of a text from byte ``begin`` on as correctly rounded float64.

    Words that are not decimal numbers stay unconverted. Python converts decimal numbers that the compiled code cannot
    round correctly.
    """
    numbers, unconverted = _scan(floats, text, begin, np.dtype(np.float64))
    keep = []
    for i, (index, first, last) in enumerate(unconverted.tolist()):
        word = text[first:last]
        if word.strip(b"+-0123456789.eE"):
            keep.append(i)
            continue
        try:
            numbers[index] = float(word)
        except ValueError:
            keep.append(i)
    return ScannedNumbers(numbers, unconverted[keep])


def word_offset(text: bytes, begin: int, index: int) -> int:
    """Return the byte where word ``index`` starts, counted from ``begin``; the end of the text if there is none."""
    with interpreted_if_short(tuning.STEPS_PER_BYTE * (len(text) - begin)):
        return int(offset(np.frombuffer(text, dtype=np.uint8), begin, index))


def _scan(kernel: Any, text: bytes, begin: int, dtype: np.dtype[Any]) -> ScannedNumbers:
    """Run a scan kernel, again with a larger buffer if too many words stay unconverted.

    Parameters
    ----------
    kernel
        ``integers`` or ``floats``: takes (text, begin, numbers, unconverted) and returns the number of words and of
        unconverted words. The latter exceeds the buffer's size if the buffer was too small.
    text, begin
        The text, and the byte at which to start.
    dtype
        dtype of the numbers.
    """
    data = np.frombuffer(text, dtype=np.uint8)
    MEMORY_ACCOUNT.claim(4 * (len(text) - begin), "the numbers of the text")
    numbers = np.empty((len(text) - begin) // 2 + 1, dtype=dtype)  # a word with its separator has 2 bytes or more
    capacity = _INITIAL_UNCONVERTED
    while True:
        MEMORY_ACCOUNT.claim(24 * capacity, "the words of the text that are not plain numbers")
        unconverted = np.empty((capacity, 3), dtype=np.int64)
        with interpreted_if_short(tuning.STEPS_PER_BYTE * (len(text) - begin)):
            count, unconverted_count = kernel(data, begin, numbers, unconverted)
        if unconverted_count <= capacity:
            return ScannedNumbers(numbers[:count], unconverted[:unconverted_count])
        capacity = min(8 * capacity, numbers.size)
