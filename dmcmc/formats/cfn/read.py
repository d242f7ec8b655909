"""Read ``.cfn`` files: toulbar2's relaxed JSON. Quotes, commas, colons and the names of fields may be left out.

``mustbe`` gives the sense and how many decimals costs have; like toulbar2, further ones are cut off. It also bounds
the objective: an entry is forbidden where no assignment with it can keep the bound.
"""

import re
from typing import Any, Literal, NamedTuple

import numpy as np

from dmcmc.files.text import Source
from dmcmc.formats.cfn.functions import NESTED, Function, Network, decode, factors_of
from dmcmc.formats.common.tokens import Tokens, shown
from dmcmc.formats.global_functions.nested import Nested
from dmcmc.formats.global_functions.signatures import ANY_SENSE, SIGNATURES
from dmcmc.inference.model.problem import Label, Problem

_TOKEN = re.compile(rb'(?:[\s,]++|(?m:^)#[^\n]*+)|"([^"]*+)"|([{}\[\]:])|((?:(?!")[^\s{}\[\]:,])++)')
_PUNCTUATION = b"{}[]:"
_NUMBER = re.compile(rb"([+-]?)(?=\.?\d)(\d{0,40})(?:\.(\d{0,40}))?")
_BOUND = re.compile(rb"([<>])([+-]?(?=\.?\d)\d{0,40}(?:\.(\d{0,18}))?)")
_INDEX = re.compile(rb"\d{1,18}")
_INTEGER = re.compile(rb"[+-]?\d{1,18}")
_LARGEST = 2**62  # no cost is beyond it, in units of its last decimal
_DEEPEST, _NESTED = 8, 4  # brackets inside brackets, networks inside networks


def read(source: Source) -> Problem:
    """Read a problem; one agent, ``all``, owns every variable.

    Raises
    ------
    FileError
        If the text is not well formed; names the line and the function.
    Unavailable
        For cost functions that are not known here, and interval variables.
    """
    return _Reader(Tokens(source, _TOKEN)).problem()


class _Values(NamedTuple):
    """A variable's size, and the index of each value that has a name."""

    size: int
    names: dict[str, int]


class _Reader:
    """Takes the three parts off the tokens of a file."""

    def __init__(self, tokens: Tokens, depth: int = 0) -> None:
        self.tokens, self.depth = tokens, depth
        self.variables: dict[str, int] = {}
        self.values: list[_Values] = []
        self.decimals = 0

    def problem(self) -> Problem:
        """Read all."""
        name, sense, functions, network = self._network()
        if self.tokens.peek():
            self.tokens.expected("the end of the file", self.tokens.take())
        return Problem(
            variables=tuple(self.variables),
            domains=np.array(network.domains, dtype=np.int64),
            agents=("all",),
            owner=np.zeros(len(self.values), dtype=np.int64),
            factors=factors_of(functions, network, self.tokens.source),
            labels=tuple(self._labels(v) for v in self.values),
            sense=sense,
            name=name,
        )

    def _network(self) -> tuple[str, Literal["min", "max"], list[Function], Network]:
        """Read a network: its name, its sense and what makes its factors."""
        tokens = self.tokens
        self._open()
        self._part(b"problem")
        tokens.skip(b"name")
        tokens.skip(b":")
        name = tokens.word("the problem's name", _PUNCTUATION)
        tokens.skip(b"mustbe")
        tokens.skip(b":")
        sense, top = self._bound()
        self._close("the problem's properties")
        self._part(b"variables")
        while not self._closed():
            self._variable()
        self._part(b"functions")
        functions: list[Function] = []
        while not self._closed():
            functions.append(self._function(len(functions), sense))
        self._close("the network" if self.depth else "the file")
        return name, sense, functions, Network([v.size for v in self.values], sense, top, 10**self.decimals)

    def _open(self) -> None:
        self.tokens.expect(b"{", b"[")

    def _closed(self) -> bool:
        return self.tokens.skip(b"}", b"]")

    def _close(self, what: str) -> None:
        if not self._closed():
            self.tokens.expected(f"a bracket that closes {what}", self.tokens.take())

    def _part(self, name: bytes) -> None:
        """Take the beginning of a part; its name may be left out."""
        if self.tokens.skip(name):
            self.tokens.skip(b":")
        elif self.tokens.peek() not in (b"{", b"["):
            self.tokens.expected(f"'{name.decode()}'", self.tokens.take())
        self._open()

    def _bound(self) -> tuple[Literal["min", "max"], int]:
        """Take ``<10.00`` or ``>-5.0``: the sense, and the bound in units of the last decimal, as a cost."""
        token = self.tokens.take()
        match = _BOUND.fullmatch(token)
        if match is None:
            self.tokens.expected("mustbe: a bound such as <10.00 (minimise) or >-5.0 (maximise)", token)
        self.decimals = len(match[3] or b"")
        bound = self._scaled(match[2], "the bound", limit=None)
        return ("min", bound) if match[1] == b"<" else ("max", -bound)

    def _scaled(self, token: bytes, what: str, limit: int | None = _LARGEST) -> int:
        """Return a decimal number in units of the last decimal."""
        match = _NUMBER.fullmatch(token)
        if match is None:
            self.tokens.expected(f"{what}: a decimal number", token)
        digits = match[2] + (match[3] or b"")[: self.decimals].ljust(self.decimals, b"0")
        number = int(digits or b"0") * (-1 if match[1] == b"-" else 1)
        if limit is not None and abs(number) > limit:
            self.tokens.fail(f"{what}: {shown(token)} with {self.decimals} decimals needs more than 62 bits")
        return number

    def _variable(self) -> None:
        """Read a variable: its name, if any, and its values or their number."""
        tokens, index = self.tokens, len(self.values)
        name = f"x{index}"
        if tokens.peek() not in (b"{", b"[") and not _INTEGER.fullmatch(tokens.peek()):
            name = tokens.word("a variable", _PUNCTUATION)
            tokens.skip(b":")
        if name in self.variables:
            tokens.fail(f"variable {name!r} is declared twice")
        self.variables[name] = index
        if tokens.peek() in (b"{", b"["):
            self._open()
            names: dict[str, int] = {}
            while not self._closed():
                label = tokens.word("a value", _PUNCTUATION)
                if label in names:
                    tokens.fail(f"variable {name!r}: value {label!r} stands twice")
                names[label] = len(names)
            if not names:
                tokens.fail(f"variable {name!r}: has no values")
            self.values.append(_Values(len(names), names))
            return
        token = tokens.take()
        if not _INTEGER.fullmatch(token) or int(token) == 0:
            tokens.expected(f"variable {name!r}: its values or their number", token)
        if int(token) < 0:
            raise tokens.source.refusal(tokens.offset, f"variable {name!r}: interval variables are")
        self.values.append(_Values(int(token), {}))

    @staticmethod
    def _labels(values: _Values) -> tuple[Label, ...] | None:
        return tuple(values.names) or None

    def _function(self, index: int, sense: str) -> Function:
        """Read a function: its name, if any, its scope, and its costs or its type and parameters."""
        tokens = self.tokens
        name = f"f{index}"
        if tokens.peek() not in (b"{", b"["):
            name = tokens.word("a function", _PUNCTUATION)
            tokens.skip(b":")
        self._open()
        offset = tokens.offset
        if tokens.skip(b"scope"):
            tokens.skip(b":")
        self._open()
        scope: list[int] = []
        while not self._closed():
            v = self._variable_index(name)
            if v in scope:
                tokens.fail(f"function {name!r}: variable {list(self.variables)[v]!r} stands twice in its scope")
            scope.append(v)
        if tokens.skip(b"type"):
            tokens.skip(b":")
            function = self._typed(name, offset, scope, sense)
        else:
            function = self._table(name, offset, scope)
        self._close(f"function {name!r}")
        return function

    def _variable_index(self, function: str) -> int:
        what = f"function {function!r}"
        return self._declared(what, self.tokens.word(f"{what}: a variable", _PUNCTUATION))

    def _declared(self, what: str, name: str) -> int:
        """Return the index of a variable given by its name or its index."""
        v = self.variables.get(name)
        if v is None and _INDEX.fullmatch(name.encode()):
            v = int(name)
        if v is None or v >= len(self.values):
            self.tokens.fail(f"{what}: variable {name!r} is not declared")
        return v

    def _table(self, name: str, offset: int, scope: list[int]) -> Function:
        """Read costs: all of them, or a default and tuples, or the name of a function with the same."""
        tokens = self.tokens
        what = f"function {name!r}"
        default: int | None = None
        if tokens.skip(b"defaultcost"):
            tokens.skip(b":")
            default = self._scaled(tokens.take(), f"{what}: its default cost")
        elif _NUMBER.fullmatch(tokens.peek()):
            default = self._scaled(tokens.take(), f"{what}: its default cost")
        if tokens.skip(b"costs"):
            tokens.skip(b":")
        if tokens.peek() not in (b"{", b"["):
            like = tokens.word(f"{what}: its costs", _PUNCTUATION)
            return Function(name, offset, tuple(scope), like=like)
        self._open()
        costs: list[int] = []
        tuples: list[int] = []
        depth = 1
        while depth:
            token = tokens.take()
            if token in (b"{", b"[") and not tokens.quoted:
                depth += 1
            elif token in (b"}", b"]") and not tokens.quoted:
                depth -= 1
            elif default is None or len(tuples) == len(scope) * (len(costs) + 1):
                costs.append(self._scaled(token, f"{what}: a cost"))
            else:
                tuples.append(self._value(scope[len(tuples) % len(scope)], token, what))
        if len(tuples) > len(scope) * len(costs):
            tokens.fail(f"{what}: the last tuple has no cost")
        return Function(name, offset, tuple(scope), default, tuples, costs)

    def _value(self, v: int, token: bytes, what: str) -> int:
        """Return the index of a value given by its name or its index."""
        values = self.values[v]
        found = values.names.get(token.decode("utf-8", "replace"))
        if found is None and _INDEX.fullmatch(token):
            found = int(token)
        if found is None or found >= values.size:
            self.tokens.fail(f"{what}: {shown(token)} is not a value of variable {list(self.variables)[v]!r}")
        return found

    def _typed(self, name: str, offset: int, scope: list[int], sense: str) -> Function:
        """Read a global cost function."""
        tokens = self.tokens
        what = f"function {name!r}"
        keyword = tokens.word(f"{what}: its type", _PUNCTUATION)
        if keyword == NESTED:
            return Function(name, offset, tuple(scope), keyword=NESTED, arguments={NESTED: self._nested(what, offset)})
        if keyword not in SIGNATURES:
            raise tokens.source.refusal(offset, f"{what}: global cost function {keyword!r} is")
        if sense == "max" and keyword not in ANY_SENSE:
            raise tokens.source.refusal(offset, f"{what}: {keyword!r} where the objective is maximised is")
        if tokens.skip(b"params", b"parameters"):
            tokens.skip(b":")
        self._open()
        items = self._items(1)
        return Function(name, offset, tuple(scope), keyword=keyword, arguments=self._arguments(what, keyword, items))

    def _nested(self, what: str, offset: int) -> Nested:
        """Read a network, the bounds of its cost, and whether it repeats what is forbidden outside of it."""
        tokens = self.tokens
        if self.depth == _NESTED:
            raise tokens.source.error(offset, f"{what}: networks more than {_NESTED} deep")
        if tokens.skip(b"params", b"parameters"):
            tokens.skip(b":")
        self._open()
        if tokens.skip(b"cfn"):
            tokens.skip(b":")
        inner = _Reader(tokens, self.depth + 1)
        _, sense, functions, network = inner._network()
        if sense == "max":
            raise tokens.source.refusal(offset, f"{what}: {NESTED!r} of a network that is maximised is")
        bounds = []
        for field in (b"lb", b"ub"):
            if tokens.skip(field):
                tokens.skip(b":")
            bounds.append(inner._scaled(tokens.take(), f"{what}: {field.decode()}"))
        for field in (b"duplicatehard", b"strongduality"):
            if tokens.skip(field):
                tokens.skip(b":")
            if tokens.take() not in ((b"0", b"1") if field == b"duplicatehard" else (b"0",)):
                raise tokens.source.refusal(offset, f"{what}: {NESTED!r} with such a {field.decode()} is")
        self._close(f"{what}: its parameters")
        return Nested(network.domains, factors_of(functions, network, tokens.source), network.unit, *bounds)

    def _items(self, depth: int) -> list[Any]:
        """Return what stands up to the closing bracket: words, and lists for brackets; names of fields left out."""
        tokens = self.tokens
        if depth > _DEEPEST:
            tokens.fail(f"brackets more than {_DEEPEST} deep")
        items: list[Any] = []
        while not self._closed():
            if tokens.skip(b":"):
                if not items or isinstance(items[-1], list):
                    tokens.fail("a colon without a name before it")
                items.pop()
            elif tokens.skip(b"{", b"["):
                items.append(self._items(depth + 1))
            else:
                token = tokens.take()
                if not token and not tokens.quoted:
                    tokens.expected("a closing bracket", token)
                items.append(token)
        return items

    def _arguments(self, what: str, keyword: str, items: list[Any]) -> dict[str, Any]:
        """Return parameters by name: lists of words become what the signature says."""

        def scaled(token: bytes) -> int:
            return self._scaled(token, f"{what}: a cost")

        def variable(token: bytes) -> int:
            return self._declared(what, token.decode("utf-8", "replace"))

        message, arguments = decode(keyword, items, scaled, variable)
        if message:
            self.tokens.fail(f"{what}: {keyword}: {message}")
        return arguments
