"""The numbers of a ``.wcsp`` file after its header, consumed one after another."""

import re
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.scan import scan_integers, word_offset
from dmcmc.inference.runtime.errors import Unavailable

_INTEGER = re.compile(rb"[+-]?\d+")


class WcspNumbers:
    """The words after the header of a file, of which most are numbers.

    Parameters
    ----------
    source : SourceFile
        The file.
    begin : int
        Byte offset of the end of the header.

    Attributes
    ----------
    all : (words,) int64
        All words as numbers; 0 for words that are not numbers.
    position : int
        Index in ``all`` of the next word to consume.
    _unconverted : (k, 3) int64
        For each word that is not a number: its index in ``all``, its first byte and the byte after its last.
    _words_taken : int
        Number of rows of ``_unconverted`` consumed so far.
    """

    def __init__(self, source: SourceFile, begin: int) -> None:
        self._source, self._begin = source, begin
        self.all, self._unconverted = scan_integers(source.data, begin)
        self.position = self._words_taken = 0

    @property
    def left(self) -> int:
        """The number of words that are not consumed."""
        return int(self.all.size) - self.position

    def check_rest(self) -> None:
        """Fail if a word that is not consumed is not a number."""
        self._check_words(self.all.size)

    def take(self, count: int, what: str) -> NDArray[np.int64]:
        """Consume and return the next ``count`` numbers; ``what`` names them in error messages."""
        self._check_words(min(self.position + count, self.all.size))
        left = self.left
        if count > left:
            self.fail(f"{what}: {count} numbers are expected, {left} are left", self.all.size)
        self.position += count
        return self.all[self.position - count : self.position]

    def word(self) -> str | None:
        """Consume and return the next word if it is not a number; otherwise, or at the end of the file, return None."""
        if self.next_word() != self.position or self.position == self.all.size:
            return None
        _, first, last = self._unconverted[self._words_taken].tolist()
        self._words_taken += 1
        self.position += 1
        return self._source.data[first:last].decode("utf-8", "replace")

    def fail(self, message: str, number: int) -> NoReturn:
        """Raise the error for the line of a number; ``number`` is its index in ``all``."""
        offset = word_offset(self._source.data, self._begin, number)
        raise self._source.error(min(offset, len(self._source.data.rstrip())), message)

    def refusal(self, message: str, number: int) -> Unavailable:
        """Return the error that something is not supported, for the line of a number by its index."""
        return self._source.refusal(word_offset(self._source.data, self._begin, number), message)

    def next_word(self) -> int:
        """Return the index of the next word that is not a number; the number of words if there is none."""
        return (
            int(self._unconverted[self._words_taken, 0])
            if self._words_taken < len(self._unconverted)
            else self.all.size
        )

    def _check_words(self, end: int) -> None:
        """Fail if a word before index ``end`` is not a number."""
        if self.next_word() >= end:
            return
        _, first, last = self._unconverted[self._words_taken].tolist()
        word = self._source.data[first:last]
        shown = f"{word[:40].decode('latin-1')!a}"
        reason = "more than 63 bits; scale the costs down" if _INTEGER.fullmatch(word) else "is not a whole number"
        raise self._source.error(first, f"{shown}: {reason}" if _INTEGER.fullmatch(word) else f"{shown} {reason}")
