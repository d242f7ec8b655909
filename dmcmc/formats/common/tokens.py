"""Split a file into words and punctuation, each with its byte offset, and convert the numbers of a text.

Words are separated by white space. The compiled code converts the words that it can convert exactly, and notes the
positions of all others.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import OBJECTS_PER_CHECK, SourceFile
from dmcmc.formats.common.scan_kernels import floats, integers, offset
from dmcmc.inference.runtime.interpreted import interpreted_if_short
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.tuning import run as tuning

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_SHOWN_BYTES = 40  # bytes of a token that an error message shows


class Tokens:
    """Stream of the tokens of a file, with one token of lookahead; several readers use it.

    Parameters
    ----------
    source
        The file.
    pattern
        Matches one token by its first participating group, or skipped text (no group). Text that it does not match is
        an error.

    Attributes
    ----------
    source : SourceFile
        The file.
    quoted : bool
        Whether the last token taken was in double quotes.
    """

    def __init__(self, source: SourceFile, pattern: re.Pattern[bytes]) -> None:
        """Start at the first token."""
        self.source = source
        self.quoted = False
        self._ahead: tuple[bytes, int, bool] | None = None
        self._stream = self._matches(pattern)
        self._offset = 0

    def _matches(self, pattern: re.Pattern[bytes]) -> Iterator[tuple[bytes, int, bool]]:
        """Yield each token with its byte offset and whether it is in double quotes."""
        data = self.source.data
        at = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
        for i, match in enumerate(pattern.finditer(data, at)):
            if not i % OBJECTS_PER_CHECK:
                MEMORY_ACCOUNT.check("the words of the text")
            if match.start() != at:
                break
            at = match.end()
            if match.lastindex is not None:
                yield match[match.lastindex], match.start(), match[0].startswith(b'"')
        if at < len(data):
            raise self.source.error(at, f"unexpected {shown(data[at : at + 1])}")

    def peek(self) -> bytes:
        """Return the next token without consuming it; empty at the end of the file."""
        if self._ahead is None:
            self._ahead = next(self._stream, None) or (b"", len(self.source.data.rstrip()), False)
        return self._ahead[0]

    def peek_quoted(self) -> bool:
        """Return whether the next token is in double quotes."""
        self.peek()
        return self._ahead is not None and self._ahead[2]

    def take(self) -> bytes:
        """Consume and return the next token; empty at the end of the file."""
        token = self.peek()
        if self._ahead is not None:
            _, self._offset, self.quoted = self._ahead
            self._ahead = None
        return token

    def word(self, what: str, punctuation: bytes = b"{}[]();,|:") -> str:
        """Consume a name, or fail with ``what`` was expected, or if the name is not UTF-8."""
        token = self.take()
        if not self.quoted and (not token or token in punctuation):
            self.expected(what, token)
        try:
            return token.decode("utf-8")
        except UnicodeDecodeError:
            self.fail("is not UTF-8 text")

    def expect(self, *tokens: bytes) -> bytes:
        """Consume one of several tokens, or fail."""
        token = self.take()
        if token not in tokens or self.quoted:
            self.expected(" or ".join(f"'{t.decode()}'" for t in tokens), token)
        return token

    def skip(self, *tokens: bytes) -> bool:
        """Consume the next token if it is one of those given and not quoted; return whether it was."""
        if self.peek() in tokens and self.peek() and not self.peek_quoted():
            self.take()
            return True
        return False

    def expected(self, what: str, token: bytes) -> NoReturn:
        """Raise the error that another token was expected in place of the last one taken."""
        self.fail(f"expected {what}, {'got ' + shown(token) if token or self.quoted else 'but the file ends'}")

    def fail(self, message: str) -> NoReturn:
        """Raise an error at the place of the last token taken."""
        raise self.source.error(self._offset, message)

    @property
    def offset(self) -> int:
        """Byte offset of the last token taken."""
        return self._offset


def shown(token: bytes) -> str:
    """Return a token in the form that error messages show."""
    return ascii(token[:_MAX_SHOWN_BYTES].decode("utf-8", "replace"))


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
