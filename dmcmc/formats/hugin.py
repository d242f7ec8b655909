"""Hugin's NET language: Bayesian networks of discrete chance nodes, read and written.

A potential's ``data`` list the child's numbers for each assignment of the parents; the first parent changes slowest.
They may be counts: each distribution is normalised, as Hugin does. Attributes other than states and data are skipped.
"""

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.formats.common import belief_network
from dmcmc.formats.common.tokens import Tokens
from dmcmc.inference.model.problem import Problem

_TOKEN = re.compile(
    rb"(?:\s++|%[^\n]*+|//[^\n]*+|/\*(?s:.*?)\*/)"
    rb'|"((?:[^"\\]|\\(?s:.))*+)"|([{}()=;|])|((?:(?!//|/\*)[^\s{}()=;|"%])++)'
)
_ESCAPE = re.compile(r'\\(["\\])')
_PUNCTUATION = b"{}()=;|"
_KINDS = {b"node", b"decision", b"utility", b"function"}


def read(source: SourceFile) -> Problem:
    """Read a Bayesian network.

    One agent, ``all``, owns every variable, and each factor has the name of its child variable.

    Raises
    ------
    FileError
        If the text is malformed; the message names the line.
    Unavailable
        For decision, utility, function and continuous nodes, instances of classes, and tables given as expressions.
    """
    return _HuginReader(source).problem()


class _HuginReader:
    """Parser that consumes the blocks of a file token by token.

    Attributes
    ----------
    tokens : Tokens
        The tokens of the file.
    name : str
        Name of the network or class.
    is_class : bool
        Whether the blocks are inside a class.
    network : NetworkBuilder
        The variables and tables read so far.
    """

    def __init__(self, source: SourceFile) -> None:
        """Start at the first token of a file."""
        self.tokens = Tokens(source, _TOKEN)
        self.name = ""
        self.is_class = False
        self.network = belief_network.NetworkBuilder(source)

    def problem(self) -> Problem:
        """Read all blocks and return the problem."""
        while (token := self.tokens.take()) or self.tokens.quoted:
            if token == b"}" and self.is_class and not self.tokens.quoted:
                self.is_class = False
                if self.tokens.take() or self.tokens.quoted:
                    self.tokens.fail("text after the end of the class")
                break
            self._block(token)
        if self.is_class:
            self.tokens.expected("'}'", b"")
        return self.network.problem(self.name)

    def _block(self, token: bytes) -> None:
        """Read the block, or the attribute of a class, that begins with a token."""
        match token:
            case _ if self.tokens.quoted:
                self._unexpected(token)
            case b"net":
                self._net()
            case b"class" if not self.is_class:
                self.name = self.word("the class's name")
                self.tokens.expect(b"{")
                self.is_class = True
            case b"discrete" | b"continuous":
                self._node(token, self.tokens.take())
            case b"node" | b"decision" | b"utility" | b"function":
                self._node(b"discrete", token)
            case b"potential":
                self._potential()
            case b"instance":
                self._refuse("an instance of a class is")
            case _ if self.is_class and self.tokens.skip(b"="):
                self._skip_value()
            case _:
                self._unexpected(token)

    def _net(self) -> None:
        """Read the block ``net``: the network's name; other attributes are skipped."""
        self.tokens.expect(b"{")
        while not self.tokens.skip(b"}"):
            if self._attribute() == "name" and self.tokens.peek() not in (b"(", b";"):
                self.name = self.word("the network's name")
            self._skip_value()

    def _node(self, category: bytes, kind: bytes) -> None:
        """Read a node: its name and the labels of its states."""
        if kind not in _KINDS or self.tokens.quoted:
            self.tokens.expected("'node'", kind)
        name, at = self.word("a node's name"), self.tokens.offset
        if category == b"continuous":
            self._refuse(f"the continuous node {name[:40]!r} is")
        if kind != b"node":
            self._refuse(f"the {kind.decode()} node {name[:40]!r} is")
        self.tokens.expect(b"{")
        labels: list[str] | None = None
        while not self.tokens.skip(b"}"):
            if self._attribute() == "states":
                if labels is not None:
                    self.tokens.fail(f"node {name!r} has two lists of states")
                labels = self._states()
                self.tokens.expect(b";")
            else:
                self._skip_value()
        if labels is None:
            self.network.fail(f"node {name!r}: expected its states", at)
        self.network.declare(name, labels, at)

    def _states(self) -> list[str]:
        """Read the list of a node's states."""
        self.tokens.expect(b"(")
        labels = []
        while not self.tokens.skip(b")"):
            labels.append(self.word("a state or ')'"))
        return labels

    def _potential(self) -> None:
        """Read a potential: its variable, the variable's parents and the data."""
        self.tokens.expect(b"(")
        child, at = self.word("a node"), self.tokens.offset
        parents: list[str] = []
        if self.tokens.expect(b"|", b")") == b"|":
            while not self.tokens.skip(b")"):
                parents.append(self.word("a parent or ')'"))
        scope = self.network.scope(child, parents, at)
        shape = [len(self.network.find(name, at).values) for name in (*parents, child)]
        self.tokens.expect(b"{")
        table: NDArray[np.float64] | None = None
        while not self.tokens.skip(b"}"):
            if self._attribute() == "data":
                if table is not None:
                    self.tokens.fail(f"the potential of {child!r} has data twice")
                table = self._distributions(self._data(shape), shape)
                self.tokens.expect(b";")
            else:
                self._skip_value()
        if table is None:
            self._refuse(f"the potential of {child[:40]!r} without data (a uniform table or expressions) is")
        self.network.add(child, scope, table)

    def _data(self, shape: Sequence[int]) -> "array[float]":
        """Read the numbers of a table: one list, or lists nested as the domain sizes ``shape``."""
        numbers = array("d")
        counts = [0]  # entries so far of each list that is open, the outermost first
        is_nested = False
        self.tokens.expect(b"(")
        while counts:
            if self.tokens.skip(b"("):
                is_nested = True
                counts[-1] += 1
                counts.append(0)
            elif self.tokens.skip(b")"):
                count = counts.pop()
                if is_nested and count != (shape[len(counts)] if len(counts) < len(shape) else -1):
                    self.tokens.fail(f"lists of numbers that do not fit the sizes {list(shape)}")
            else:
                numbers.append(belief_network.take_probability(self.tokens, "a number or ')'"))
                counts[-1] += 1
        if len(numbers) != math.prod(shape):
            self.tokens.fail(f"{len(numbers)} numbers; {math.prod(shape)} are needed")
        return numbers

    def _distributions(self, numbers: "array[float]", shape: Sequence[int]) -> NDArray[np.float64]:
        """Return the table with each distribution normalised; a distribution of zeros stays as it is."""
        table = np.array(numbers).reshape(shape)
        with np.errstate(over="ignore"):
            sums = table.sum(axis=-1, keepdims=True)
        if not np.isfinite(sums).all():
            self.tokens.fail("the sum of a distribution is too large")
        normalised: NDArray[np.float64] = np.divide(table, sums, out=np.zeros_like(table), where=sums > 0)
        return normalised

    def _attribute(self) -> str:
        """Read the name of an attribute and its equals sign."""
        name = self.word("an attribute or '}'")
        self.tokens.expect(b"=")
        return name

    def _skip_value(self) -> None:
        """Skip the rest of an attribute's value up to its semicolon."""
        while not self.tokens.skip(b";"):
            token = self.tokens.take()
            if not self.tokens.quoted and token in (b"", b"{", b"}"):
                self.tokens.expected("';'", token)

    def word(self, what: str) -> str:
        """Consume a name or a string, or fail with ``what`` was expected."""
        word = self.tokens.word(what, _PUNCTUATION)
        return _ESCAPE.sub(r"\1", word) if self.tokens.quoted else word

    def _refuse(self, what: str) -> NoReturn:
        """Raise the error for something that is not read; ``what`` ends with "is"."""
        raise self.network.source.refusal(self.tokens.offset, what)

    def _unexpected(self, token: bytes) -> NoReturn:
        """Raise the error that a block was expected."""
        self.tokens.expected("net, class, node or potential", token)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STRING = re.compile(r'[^"\\\x00-\x1f\x7f\ud800-\udfff]*')  # text that all readers keep unchanged between quotes


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a Bayesian network; reading it back gives the same problem up to rounding.

    Raises
    ------
    ProblemError
        If the problem is not a Bayesian network (:func:`dmcmc.formats.common.belief_network.conditional_tables`), or
        has names or labels that the format does not have.
    """
    tables = belief_network.conditional_tables(
        problem, belief_network.unwritable(problem, _NAME.fullmatch, _STRING.fullmatch)
    )
    has_name = problem.name and _STRING.fullmatch(problem.name)
    yield "net\n{\n" + (f'    name = "{problem.name}";\n' if has_name else "") + "}\n"
    for v, name in enumerate(problem.variables):
        states = " ".join(f'"{label}"' for label in belief_network.label_texts(problem, v))
        yield f"node {name}\n{{\n    states = ({states});\n}}\n"
    for table in tables:
        parents = "".join(f" {problem.variables[parent]}" for parent in table.parents)
        yield f"potential ({problem.variables[table.child]}{' |' * bool(parents)}{parents})\n{{\n    data = "
        yield _nested(table.probabilities) + ";\n}\n"


def _nested(table: NDArray[np.float64]) -> str:
    """Return the numbers of a table as nested lists, with a line for each distribution."""
    if table.ndim == 1:
        return f"({' '.join(map(repr, table.tolist()))})"
    return "(" + "\n".join(map(_nested, table)) + ")"
