"""Read extensional ``.wcsp`` files: weighted CSPs as toulbar2 writes them, plain or compressed.

Costs are minimised; a cost of at least the header's upper bound (top) is forbidden. Shared and global cost functions
are refused. Nothing is allocated that a file merely declares: its text, its numbers and each table are held against
:func:`dmcmc.memory.memory_limit` first.
"""

import bz2
import gzip
import lzma
import math
import os
import re
import zlib
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.errors import FileError, ProblemError, Unavailable
from dmcmc.inference.problem import Factor, Problem
from dmcmc.memory import memory_limit, readable

SUFFIXES = (".wcsp", ".wcsp.gz", ".wcsp.xz", ".wcsp.bz2")
_PIECE = 1 << 20  # bytes of text read or converted at once
_TEXT_SHARE = 8  # of the memory: numbers take four times their text, and the text is there twice for a moment
_COPIES = 4  # of a table while its factor is built
_MOST_AXES = 64
_LOWEST = -(2**62)  # no cost is below it
_HEADER = re.compile(rb"\s*(\S+)\s+(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s+(\d{1,100})(?=\s|$)")
_NUMBER = re.compile(rb"[+-]?\d{1,19}")


def is_wcsp(path: str | os.PathLike[str]) -> bool:
    """Return whether a file's name says that it is a ``.wcsp`` file, compressed or not.

    >>> is_wcsp("a/b.wcsp.xz"), is_wcsp("b.npz")
    (True, False)
    """
    return os.fspath(path).lower().endswith(SUFFIXES)


def load(path: str | os.PathLike[str]) -> Problem:
    """Read a ``.wcsp`` file (also ``.gz``, ``.xz``, ``.bz2``); one agent, ``all``, owns every variable.

    Variables are ``x0``, ``x1``, ..., factors ``c0``, ``c1``, ... in the order of the file. Of tuples that are listed
    twice the last counts.

    Raises
    ------
    FileError
        If the file cannot be read, is not well formed or does not fit the memory; names the line and the constraint.
    Unavailable
        For shared and global cost functions.
    """
    try:
        return _Reader(path, _text(path)).problem()
    except ProblemError as error:
        raise FileError(f"{path}: {' '.join(str(error).split())}") from None
    except MemoryError:
        raise FileError(f"{path}: does not fit the memory") from None


def _text(path: str | os.PathLike[str]) -> bytes:
    """Return the unpacked file, unless it is too large."""
    file, limit = Path(path), memory_limit() // _TEXT_SHARE
    try:
        if file.is_dir():
            raise FileError(f"{path}: is a folder; a problem file (.wcsp) is needed")
        with _opened(file) as stream:
            pieces, size = [], 0
            while piece := stream.read(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise FileError(f"{path}: has more than {readable(limit)} of text, which does not fit the memory")
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise FileError(f"{path}: cannot be read: {reason}") from None
    return b"".join(pieces)


def _opened(file: Path) -> BinaryIO:
    match file.suffix.lower():
        case ".gz":
            return cast(BinaryIO, gzip.open(file))
        case ".xz":
            return cast(BinaryIO, lzma.open(file))
        case ".bz2":
            return cast(BinaryIO, bz2.open(file))
    return open(file, "rb")


class _Reader:
    """Takes numbers off the text of a file."""

    def __init__(self, path: str | os.PathLike[str], text: bytes) -> None:
        self.path, self.text = path, text
        header = _HEADER.match(text)
        if header is None:
            what = "expected 'name variables largest-domain constraints top'"
            raise FileError(f"{path}: line 1: {what}{'' if text.strip() else ', but the file is empty'}")
        self.name = header[1].decode("utf-8", "replace")
        self.n, self.count, self.top = int(header[2]), int(header[4]), int(header[5])
        self.body = header.end()
        self.numbers, self.at = self._numbers(), 0
        self.domains = np.empty(0, dtype=np.int64)
        self.cells = 0  # of the tables so far

    def problem(self) -> Problem:
        """Read domain sizes and constraints."""
        self.domains = self.take(self.n, "domain sizes")
        for i in np.flatnonzero(self.domains < 1)[:1]:
            self.fail(f"variable {i}: has {self.domains[i]} values; at least 1 is needed", int(i))
        factors = tuple(self.factor(i) for i in range(self.count))
        if self.at < self.numbers.size:
            left = self.numbers.size - self.at
            self.fail(f"{left} numbers follow the last of {self.count} constraints; check the header", self.at)
        variables = tuple(f"x{i}" for i in range(self.n))
        owner = np.zeros(self.n, dtype=np.int64)
        return Problem(variables, self.domains, ("all",), owner, factors, sense="min", name=self.name)

    def take(self, count: int, what: str) -> NDArray[np.int64]:
        """Return the next ``count`` numbers."""
        left = self.numbers.size - self.at
        if count > left:
            self.fail(f"{what}: {count} numbers are expected, {left} are left", self.numbers.size)
        self.at += count
        return self.numbers[self.at - count : self.at]

    def factor(self, index: int) -> Factor:
        """Read one constraint: arity, scope, default cost, number of tuples, tuples with their costs."""
        what, begin = f"constraint {index}", self.at
        arity = int(self.take(1, what)[0])
        if arity < 0:
            self.refuse(f"{what}: shared cost functions are", begin)
        scope = self.take(arity, f"{what}: scope").tolist()
        default, tuples = self.take(2, f"{what}: default cost and number of tuples").tolist()
        if tuples < 0:
            self.refuse(f"{what}: shared or global cost functions are", begin)
        if arity > _MOST_AXES:
            self.fail(f"{what}: {arity} variables; a table has at most {_MOST_AXES}", begin)
        for v in scope:
            if not 0 <= v < self.n:
                self.fail(f"{what}: variable {v} does not exist; there are 0 to {self.n - 1}", begin)
            if scope.count(v) > 1:
                self.fail(f"{what}: variable {v} stands twice in its scope", begin)
        shape = tuple(self.domains[scope].tolist())
        cells, limit = math.prod(shape), memory_limit()
        if 8 * (self.cells + _COPIES * cells) > limit:
            self.fail(f"{what}: a table of {cells:.3g} entries; tables may take {readable(limit)} in all", begin)
        self.cells += cells
        rows = self.take(tuples * (arity + 1), f"{what}: tuples").reshape(tuples, arity + 1)
        values, costs = rows[:, :-1], rows[:, -1]
        if ((values < 0) | (values >= shape)).any():
            bad = int(np.flatnonzero(((values < 0) | (values >= shape)).any(axis=1))[0])
            self.fail(f"{what}: a value outside its domain", self.at - (tuples - bad) * (arity + 1))
        if min(default, costs.min(initial=0)) < _LOWEST:
            self.fail(f"{what}: a cost below -2^62", begin)
        strides = np.array([math.prod(shape[i + 1 :]) for i in range(arity)], dtype=np.int64)
        table = np.full(cells, default, dtype=np.int64)
        table[values @ strides] = costs
        table[table >= self.top] = np.iinfo(np.int64).min
        return Factor.of(scope, table.reshape(shape), "min", f"c{index}")

    def fail(self, message: str, number: int) -> NoReturn:
        """Raise the error for the place of a number of the body."""
        raise FileError(f"{self.path}: line {self._line(self._start(number))}: {message}")

    def refuse(self, what: str, number: int) -> NoReturn:
        """Raise the error for what this version does not read."""
        raise Unavailable(f"{self.path}: line {self._line(self._start(number))}: {what} not available in this version")

    def _start(self, number: int) -> int:
        """Return where a number of the body starts in the text; its end if there is none."""
        word = next(islice(re.finditer(rb"\S+", self.text[self.body :]), number, None), None)
        return len(self.text.rstrip()) if word is None else self.body + word.start()

    def _line(self, place: int) -> int:
        return 1 + self.text.count(b"\n", 0, place)

    def _numbers(self) -> NDArray[np.int64]:
        """Return the numbers of the body, converted a piece at a time."""
        parts, begin, gap = [np.empty(0, dtype=np.int64)], self.body, re.compile(rb"\s")
        while begin < len(self.text):
            blank = gap.search(self.text, begin + _PIECE)
            end = blank.start() if blank else len(self.text)
            words = self.text[begin:end].split()
            try:
                if self.text[begin:end].translate(None, b"+-0123456789 \t\n\r\f\v"):
                    raise ValueError
                parts.append(np.fromiter(map(int, words), dtype=np.int64, count=len(words)))
            except (ValueError, OverflowError):
                self._refuse_word(begin, end)
            begin = end
        return np.concatenate(parts)

    def _refuse_word(self, begin: int, end: int) -> NoReturn:
        """Raise the error for the first word of a piece of text that is no 64-bit integer."""
        for match in re.finditer(rb"\S+", self.text[begin:end]):
            word, start = match[0], begin + match.start()
            place = f"{self.path}: line {self._line(start)}: {word[:40].decode('latin-1')!a}"
            if _NUMBER.fullmatch(word):
                if -(2**63) <= int(word) < 2**63:
                    continue
                break
            if re.fullmatch(rb"[+-]?\d+", word):
                break
            if re.fullmatch(rb"[A-Za-z]\w*", word) and self.text[max(0, start - 64) : start].split()[-1:] == [b"-1"]:
                raise Unavailable(f"{place}: global cost functions are not available in this version")
            raise FileError(f"{place} is not a whole number")
        raise FileError(f"{place}: more than 63 bits; scale the costs down")
