"""Read ``.bif`` files: Bayesian networks in the Bayesian Interchange Format.

A probability p becomes the utility ln p, and p = 0 is forbidden, so the best assignment is the most probable
explanation. The rows of a conditional probability table are labelled by the parents' values, in any order; a
``default`` fills the missing rows.
"""

import math
import re
from array import array
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.tokens import Tokens, shown
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.errors import ProblemError

_TOKEN = re.compile(
    rb'(?:\s++|//[^\n]*+|/\*(?s:.*?)\*/)|"([^"]*+)"|([{}\[\]();,|])|((?:(?!//|/\*)[^\s{}\[\]();,|"])++)'
)
_NUMBER = re.compile(rb"\d{1,400}(?:\.\d{0,400})?(?:[eE][+-]?\d{1,9})?|\.\d{1,400}(?:[eE][+-]?\d{1,9})?")
_MAX_ENTRIES_PER_NUMBER = 64  # entries of a table with a default row per number given; guards against huge tables
_ALWAYS_ALLOWED_ENTRIES = 4096  # entries that a table with a default row may always have


class _BifVariable(NamedTuple):
    """A variable: its index in the problem, and the index of each of its values by label."""

    position: int
    values: dict[str, int]


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
    variables : dict of str to _BifVariable
        The variables by name, in the order of the file.
    names : list of str
        Names of the variables, by index.
    factors : list of Factor
        One factor per ``probability`` block read so far.
    """

    def __init__(self, source: SourceFile) -> None:
        """Start at the first token of a file."""
        self.tokens = Tokens(source, _TOKEN)
        self.name = ""
        self.variables: dict[str, _BifVariable] = {}
        self.names: list[str] = []
        self.factors: list[Factor] = []

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
        if not self.variables:
            self.tokens.fail("expected a variable, but the file ends")
        known = list(self.variables.values())
        return Problem(
            variables=tuple(self.variables),
            domains=np.array([len(v.values) for v in known], dtype=np.int64),
            agents=("all",),
            owner=np.zeros(len(known), dtype=np.int64),
            factors=tuple(self.factors),
            labels=tuple(tuple(v.values) for v in known),
            sense="max",
            name=self.name,
        )

    def _network(self) -> None:
        """Read a ``network`` block: its name; properties are skipped."""
        if self.tokens.peek() != b"{":
            self.name = self.tokens.word("the network's name")
        self.tokens.expect(b"{")
        while not self.tokens.skip(b"}"):
            self._property()

    def _property(self) -> None:
        """Skip a property up to its semicolon."""
        self.tokens.expect(b"property")
        while (token := self.tokens.take()) != b";":
            if not token and not self.tokens.quoted:
                self.tokens.expected("';'", token)

    def _variable(self) -> None:
        """Read a ``variable`` block: the name and the labels of the values."""
        name = self.tokens.word("a variable's name")
        if name in self.variables:
            self.tokens.fail(f"variable {name!r} is declared twice")
        self.tokens.expect(b"{")
        values: dict[str, int] | None = None
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
            values = {}
            for label in self._names(b"}", "a value"):
                if label in values:
                    self.tokens.fail(f"variable {name!r}: value {label!r} occurs twice")
                values[label] = len(values)
            if not values or size != str(len(values)):
                self.tokens.fail(f"variable {name!r}: {size} values are declared, {len(values)} are named")
            self.tokens.expect(b";")
        if values is None:
            self.tokens.fail(f"variable {name!r}: expected its type")
        self.variables[name] = _BifVariable(len(self.variables), values)
        self.names.append(name)

    def _names(self, end: bytes, what: str) -> list[str]:
        """Read names, optionally separated by commas, up to a closing bracket."""
        names: list[str] = []
        while not self.tokens.skip(end):
            if names:
                self.tokens.skip(b",")
            names.append(self.tokens.word(what))
        return names

    def _probability(self) -> None:
        """Read a ``probability`` block: the whole table, or one row per assignment of the parents."""
        self.tokens.expect(b"(")
        child = self._known(self.tokens.word("a variable"))
        parents = []
        if self.tokens.expect(b"|", b",", b")") != b")":
            parents = [self._known(name) for name in self._names(b")", "a parent")]
        name = self.names[child.position]
        scope = [*(p.position for p in parents), child.position]
        if len(set(scope)) < len(scope):
            self.tokens.fail("a variable occurs twice in this table")
        self.tokens.expect(b"{")
        rows = _ProbabilityRows([len(p.values) for p in parents], len(child.values))
        while not self.tokens.skip(b"}"):
            token = self.tokens.peek()
            if token == b"property":
                self._property()
                continue
            self.tokens.take()
            if token == b"(":
                labels = self._names(b")", "a parent's value")
                if len(labels) != len(parents):
                    self.tokens.fail(f"{len(labels)} values for {len(parents)} parents")
                key = tuple(self._value(p, label) for p, label in zip(parents, labels, strict=True))
                if key in rows.given:
                    self.tokens.fail(f"the row of ({', '.join(labels)}) occurs twice")
                rows.given[key] = self._numbers(len(child.values))
            elif token == b"default":
                rows.default = self._numbers(len(child.values))
            elif token == b"table":
                rows.whole = self._numbers(math.prod(rows.shape) * rows.width)
            else:
                self.tokens.expected("table, default or a row '(values) numbers;'", token)
        try:
            table = rows.table()
        except ProblemError as error:
            self.tokens.fail(str(error))
        with np.errstate(divide="ignore"):
            self.factors.append(Factor.of(scope, np.log(table), name=name))

    def _known(self, name: str) -> _BifVariable:
        """Return a declared variable, or fail with its name."""
        if name not in self.variables:
            self.tokens.fail(f"variable {name!r} is not declared")
        return self.variables[name]

    def _value(self, variable: _BifVariable, label: str) -> int:
        """Return the index of a variable's value, or fail with its label."""
        if label not in variable.values:
            self.tokens.fail(f"{label!r} is not a value of variable {self.names[variable.position]!r}")
        return variable.values[label]

    def _numbers(self, count: int) -> "array[float]":
        """Read exactly ``count`` probabilities up to the semicolon, optionally separated by commas."""
        numbers = array("d")
        while not self.tokens.skip(b";"):
            if numbers:
                self.tokens.skip(b",")
            token = self.tokens.take()
            if not _NUMBER.fullmatch(token):
                self.tokens.expected("a probability or ';'", token)
            number = float(token)
            if number == math.inf:
                self.tokens.fail(f"{shown(token)} is too large")
            numbers.append(number)
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
    """

    def __init__(self, shape: Sequence[int], width: int) -> None:
        """Start without rows."""
        self.shape, self.width = tuple(shape), width
        self.given: dict[tuple[int, ...], array[float]] = {}
        self.default: array[float] | None = None
        self.whole: array[float] | None = None  # over (child, parents)

    def table(self) -> NDArray[np.float64]:
        """Return the table over (parents, child), or raise ``ProblemError`` that names a missing row."""
        if self.whole is not None:
            if self.given or self.default is not None:
                raise ProblemError("a table and rows; give one of the two")
            return np.moveaxis(np.array(self.whole).reshape(self.width, *self.shape), 0, -1)
        rows = math.prod(self.shape)
        if len(self.given) < rows and self.default is None:
            missing = next(key for key in product(*map(range, self.shape)) if key not in self.given)
            raise ProblemError(f"{len(self.given)} of {rows} rows; the one of values {list(missing)} is missing")
        entries, numbers = rows * self.width, (len(self.given) + 1) * self.width
        if entries > max(_ALWAYS_ALLOWED_ENTRIES, _MAX_ENTRIES_PER_NUMBER * numbers) or len(self.shape) >= 64:
            raise ProblemError(f"a table of {rows} rows, of which {len(self.given)} are given")
        table = np.empty((*self.shape, self.width))
        if self.default is not None:
            table[...] = self.default
        for key, row in self.given.items():
            table[key] = row
        return table
