"""Read ``.bif`` files: Bayesian networks in the Bayesian Interchange Format.

The rows of a conditional probability table are labelled by the parents' values, in any order; a ``default`` fills the
missing rows. JavaBayes' files have no bar between a child and its parents. Names of values may have blanks: commas
separate them.

A table with ``property function max`` may be a noisy-max: each cause alone determines a value of the child, and the
child is the largest of them. The first value of every variable stands for its absence. The row in which no parent is
present is the *leak*; a row in which one parent is present is the distribution of that parent's effect. With parent
values u, leak L and effects E_i

    P(X ≤ x | u) = P(L ≤ x) · Π P(E_i ≤ x | u_i)     over the parents i that are present.

These are the parameters of Díez, "Parameter adjustment in Bayes networks. The generalized noisy OR-gate" (1993), as
GeNIe and Microsoft's MSBN have them.
"""

import math
import re
from array import array
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.belief_network import NetworkBuilder, take_probability
from dmcmc.formats.common.tokens import Tokens
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ProblemError

_TOKEN = re.compile(
    rb'(?:\s++|//[^\n]*+|/\*(?s:.*?)\*/)|"([^"]*+)"|([{}\[\]();,|])|((?:(?!//|/\*)[^\s{}\[\]();,|"])++)'
)
_NOISY_MAX = {"function max", "function noisy-max", "noisy-max"}  # properties of a table, without "="
_MAX_SIZE_DIGITS = 9  # digits of a variable's number of values
_MAX_ENTRIES_PER_NUMBER = 64  # entries of a table with a default row per number given; guards against huge tables
_ALWAYS_ALLOWED_ENTRIES = 4096  # entries that a table with a default row may always have
_MAX_NOISY_MAX_ENTRIES = 1 << 22  # entries of a table; 32 MiB


def read(source: SourceFile) -> Problem:
    """Read a Bayesian network.

    One agent, ``all``, owns every variable, and each factor has the name of its child variable.

    Raises
    ------
    FileError
        If the text is malformed; the message names the line.
    """
    return _BifReader(source).problem()


class _BifReader:
    """Parser that consumes the blocks of a file token by token.

    Attributes
    ----------
    tokens : Tokens
        The tokens of the file.
    name : str
        Name of the network.
    network : NetworkBuilder
        The variables and tables read so far.
    """

    def __init__(self, source: SourceFile) -> None:
        """Start at the first token of a file."""
        self.tokens = Tokens(source, _TOKEN)
        self.name = ""
        self.network = NetworkBuilder(source)

    def problem(self) -> Problem:
        """Read all blocks and return the problem."""
        while block := self.tokens.take():
            match block:
                case b"network":
                    self._network()
                case b"variable":
                    self._variable()
                case b"probability":
                    self._probability()
                case _:
                    self.tokens.expected("network, variable or probability", block)
        return self.network.problem(self.name)

    def _network(self) -> None:
        """Read a ``network`` block: its name, which may have blanks; properties are skipped."""
        words = []
        while not self.tokens.skip(b"{"):
            words.append(self.tokens.word("the network's name or '{'"))
        self.name = " ".join(words)
        while not self.tokens.skip(b"}"):
            self._property()

    def _property(self) -> str:
        """Read a property up to its semicolon and return it, with single blanks and without ``=``."""
        self.tokens.expect(b"property")
        words = []
        while not self.tokens.skip(b";"):
            token = self.tokens.take()
            if not token and not self.tokens.quoted:
                self.tokens.expected("';'", token)
            words += token.decode("utf-8", "replace").replace("=", " ").split()
        return " ".join(words)

    def _variable(self) -> None:
        """Read a ``variable`` block: the name and the labels of the values."""
        name, at = self.tokens.word("a variable's name"), self.tokens.offset
        if name in self.network.variables:
            self.tokens.fail(f"variable {name!r} is declared twice")
        self.tokens.expect(b"{")
        labels: list[str] | None = None
        while not self.tokens.skip(b"}"):
            if self.tokens.peek() != b"type":
                self._property()
                continue
            self.tokens.take()
            self.tokens.expect(b"discrete")
            self.tokens.expect(b"[")
            size = self.tokens.word("the number of values")
            self.tokens.expect(b"]")
            self.tokens.expect(b"{")
            if not size.isdecimal() or len(size) > _MAX_SIZE_DIGITS:
                self.tokens.fail(f"variable {name!r}: {size[:40]!r} is not a number of values")
            labels = self._labels(b"}", int(size), "a value")
            if not labels or int(size) != len(labels):
                self.tokens.fail(f"variable {name!r}: {size} values are declared, {len(labels)} are named")
            self.tokens.expect(b";")
        if labels is None:
            self.tokens.fail(f"variable {name!r}: expected its type")
        self.network.declare(name, labels, at)

    def _labels(self, end: bytes, count: int, what: str) -> list[str]:
        """Read ``count`` labels up to a closing bracket.

        Commas separate labels, which may have blanks. If that does not give ``count`` labels, each word is a label.
        """
        parts: list[list[str]] = [[]]
        while not self.tokens.skip(end):
            if parts[-1] and self.tokens.skip(b","):
                parts.append([])
            parts[-1].append(self.tokens.word(what))
        words = [word for part in parts for word in part]
        return words if len(words) == count or not words else [" ".join(part) for part in parts]

    def _parents(self) -> list[str]:
        """Read the names of a table's parents: all after its child, with or without a bar and commas."""
        parents: list[str] = []
        self.tokens.skip(b"|", b",")
        while not self.tokens.skip(b")"):
            if parents:
                self.tokens.skip(b",")
            parents.append(self.tokens.word("a parent"))
        return parents

    def _probability(self) -> None:
        """Read a ``probability`` block: the whole table, or one row per assignment of the parents."""
        self.tokens.expect(b"(")
        child, at = self.tokens.word("a variable"), self.tokens.offset
        width = len(self.network.find(child, at).values)
        parents = self._parents()
        known = [self.network.find(parent, self.tokens.offset) for parent in parents]
        scope = self.network.scope(child, parents, at)
        self.tokens.expect(b"{")
        rows = _ProbabilityRows([len(p.values) for p in known], width)
        while not self.tokens.skip(b"}"):
            token = self.tokens.peek()
            if token == b"property":
                rows.is_noisy_max |= self._property().lower() in _NOISY_MAX
                continue
            self.tokens.take()
            if token == b"(":
                labels = self._labels(b")", len(parents), "a parent's value")
                if len(labels) != len(parents):
                    self.tokens.fail(f"{len(labels)} values for {len(parents)} parents")
                key = tuple(self._value(parent, label) for parent, label in zip(parents, labels, strict=True))
                if key in rows.given:
                    self.tokens.fail(f"the row of ({', '.join(labels)}) occurs twice")
                rows.given[key] = self._numbers(width)
            elif token == b"default":
                rows.default = self._numbers(width)
            elif token == b"table":
                rows.whole = self._numbers(math.prod(rows.shape) * width)
            else:
                self.tokens.expected("table, default or a row '(values) numbers;'", token)
        try:
            table = rows.table()
        except ProblemError as error:
            self.tokens.fail(str(error))
        self.network.add(child, scope, table)

    def _value(self, variable: str, label: str) -> int:
        """Return the index of a variable's value, or fail with its label."""
        values = self.network.variables[variable].values
        if label not in values:
            self.tokens.fail(f"{label!r} is not a value of variable {variable!r}")
        return values[label]

    def _numbers(self, count: int) -> "array[float]":
        """Read exactly ``count`` probabilities up to the semicolon, optionally separated by commas or bars."""
        numbers = array("d")
        while not self.tokens.skip(b";"):
            if numbers:
                self.tokens.skip(b",", b"|")
            numbers.append(take_probability(self.tokens, "a probability or ';'"))
            if len(numbers) > count:
                self.tokens.fail(f"more than {count} numbers")
        if len(numbers) != count:
            self.tokens.fail(f"{len(numbers)} numbers; {count} are needed")
        return numbers


class _ProbabilityRows:
    """Rows of a conditional probability table as they are read.

    Attributes
    ----------
    shape : tuple of int
        Domain sizes of the parents.
    width : int
        Domain size of the child.
    given : dict
        The row for each assignment of the parents (value indices).
    default : array of float or None
        The row for all other assignments.
    whole : array of float or None
        The complete table over (child, parents), if the file gives it as ``table``.
    is_noisy_max : bool
        Whether rows with several causes are left out, because they follow from the rows with one.
    """

    def __init__(self, shape: Sequence[int], width: int) -> None:
        """Start without rows."""
        self.shape, self.width = tuple(shape), width
        self.given: dict[tuple[int, ...], array[float]] = {}
        self.default: array[float] | None = None
        self.whole: array[float] | None = None  # over (child, parents)
        self.is_noisy_max = False

    def table(self) -> NDArray[np.float64]:
        """Return the table over (parents, child), or raise ``ProblemError`` that names a missing row."""
        if self.whole is not None:
            if self.given or self.default is not None:
                raise ProblemError("a table and rows; give one of the two")
            return np.moveaxis(np.array(self.whole).reshape(self.width, *self.shape), 0, -1)
        rows = math.prod(self.shape)
        if self.is_noisy_max and len(self.given) < rows:
            if self.default is not None:
                raise ProblemError("a noisy-max with a default row; give the row without causes instead")
            return _noisy_max(self.shape, self.width, self.given)
        if len(self.given) < rows and self.default is None:
            missing = next(key for key in product(*map(range, self.shape)) if key not in self.given)
            raise ProblemError(f"{len(self.given)} of {rows} rows; the one of values {list(missing)} is missing")
        entries, numbers = rows * self.width, (len(self.given) + 1) * self.width
        if entries > max(_ALWAYS_ALLOWED_ENTRIES, _MAX_ENTRIES_PER_NUMBER * numbers):
            raise ProblemError(f"a table of {rows} rows, of which {len(self.given)} are given")
        table = np.empty((*self.shape, self.width))
        if self.default is not None:
            table[...] = self.default
        for key, row in self.given.items():
            table[key] = row
        return table


def _noisy_max(
    shape: Sequence[int], width: int, given: Mapping[tuple[int, ...], Sequence[float]]
) -> NDArray[np.float64]:
    """Return the complete table of a noisy-max over (parents, child).

    Parameters
    ----------
    shape
        Domain sizes of the parents.
    width
        Domain size of the child.
    given
        The leak and the effects: the row for each assignment of the parents (value indices) in which at most one parent
        is present.

    Raises
    ------
    ProblemError
        If such a row is missing, a row has several causes, or the table is too large.
    """
    if math.prod(shape) * width > _MAX_NOISY_MAX_ENTRIES:
        raise ProblemError(
            f"a noisy-max of {math.prod(shape)} rows; at most {_MAX_NOISY_MAX_ENTRIES // width} are read"
        )
    absent = (0,) * len(shape)
    needed = {absent} | {
        (*absent[:i], value, *absent[i + 1 :]) for i, size in enumerate(shape) for value in range(1, size)
    }
    for key in given:
        if key not in needed:
            raise ProblemError(
                f"a noisy-max with the row of values {list(key)}, which has several causes; give all rows, or those"
                " with at most one cause"
            )
    for key in sorted(needed):
        if key not in given:
            raise ProblemError(f"a noisy-max needs the row of values {list(key)}")
    cumulative = np.broadcast_to(np.cumsum(given[absent]), (*shape, width)).copy()
    for i, size in enumerate(shape):
        effects = np.ones((size, width))
        for value in range(1, size):
            effects[value] = np.cumsum(given[(*absent[:i], value, *absent[i + 1 :])])
        cumulative *= effects.reshape(*(size if j == i else 1 for j in range(len(shape))), width)
    table = np.diff(cumulative, axis=-1, prepend=0.0)
    return np.maximum(table, 0.0)  # a difference of rounded sums may be slightly negative
