"""Read ``.cfn`` files: cost function networks in toulbar2's relaxed JSON.

Quotes, commas, colons and the names of fields may be omitted. ``mustbe`` gives the sense and the number of decimals of
all costs; like toulbar2, the reader truncates further decimals. ``mustbe`` also bounds the objective: an entry is
forbidden if no assignment that contains it can satisfy the bound.
"""

import re
from collections.abc import Collection
from typing import Any, Literal, NamedTuple

import numpy as np

from dmcmc.files.text import SourceFile
from dmcmc.formats.cfn.functions import NESTED, CfnFunction, CfnNetwork, decode, factors_of
from dmcmc.formats.common.tokens import Tokens, shown
from dmcmc.formats.global_functions.nested import NestedNetwork
from dmcmc.formats.global_functions.signatures import ANY_SENSE, SIGNATURES
from dmcmc.inference.model.problem import Label, Problem

_TOKEN = re.compile(rb'(?:[\s,]++|(?m:^)#[^\n]*+)|"([^"]*+)"|([{}\[\]:])|((?:(?!")[^\s{}\[\]:,])++)')
_PUNCTUATION = b"{}[]:"
_NUMBER = re.compile(rb"([+-]?)(?=\.?\d)(\d{0,40})(?:\.(\d{0,40}))?")
_BOUND = re.compile(rb"([<>])([+-]?(?=\.?\d)\d{0,40}(?:\.(\d{0,18}))?)")
_INDEX = re.compile(rb"\d{1,18}")
_INTEGER = re.compile(rb"[+-]?\d{1,18}")
_MAX_COST = 2**62  # limit for the absolute value of a cost, in units of the last decimal; headroom in int64
_MAX_BRACKET_DEPTH = 8  # levels of brackets in the parameters of a global cost function
_MAX_NESTING = 4  # levels of networks nested in networks


def read(source: SourceFile) -> Problem:
    """Read a problem; one agent, ``all``, owns every variable.

    Raises
    ------
    FileError
        If the text is malformed; the message names the line and the function.
    Unavailable
        For unsupported global cost functions, and for interval variables.
    """
    return _CfnReader(Tokens(source, _TOKEN)).problem()


class _CfnDomain(NamedTuple):
    """A variable's domain size, and the index of each value by its name (empty if the values have no names)."""

    size: int
    names: dict[str, int]


class _CfnReader:
    """Parser that consumes the three sections of a network (problem, variables, functions) token by token.

    Attributes
    ----------
    tokens : Tokens
        The tokens of the file.
    depth : int
        Number of networks around this one.
    variables : dict of str to int
        Index of each variable by its name.
    values : list of _CfnDomain
        Domain of each variable.
    decimals : int
        Number of decimals of all costs.
    """

    def __init__(self, tokens: Tokens, depth: int = 0) -> None:
        """Start a network at the next token; ``depth`` counts the networks around it."""
        self.tokens, self.depth = tokens, depth
        self.variables: dict[str, int] = {}
        self.values: list[_CfnDomain] = []
        self.decimals = 0

    def problem(self) -> Problem:
        """Read the whole file and return the problem."""
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

    def _network(self) -> tuple[str, Literal["min", "max"], list[CfnFunction], CfnNetwork]:
        """Read a network: its name, its sense, its functions and their shared properties."""
        tokens = self.tokens
        self._open()
        self._section(b"problem")
        self._skip_field(b"name")
        tokens.skip(b":")
        name = tokens.word("the problem's name", _PUNCTUATION)
        self._skip_field(b"mustbe")
        tokens.skip(b":")
        sense, top = self._bound()
        self._close("the problem's properties")
        self._section(b"variables")
        while not self._closed():
            self._variable()
        self._section(b"functions")
        functions: list[CfnFunction] = []
        while not self._closed():
            functions.append(self._function(len(functions), sense))
        self._close("the network" if self.depth else "the file")
        return name, sense, functions, CfnNetwork([v.size for v in self.values], sense, top, 10**self.decimals)

    def _open(self) -> None:
        """Consume an opening bracket."""
        self.tokens.expect(b"{", b"[")

    def _closed(self) -> bool:
        """Consume a closing bracket if it comes next, and return whether it did."""
        return self.tokens.skip(b"}", b"]")

    def _close(self, what: str) -> None:
        """Consume a closing bracket, or fail with the name of what it should close."""
        if not self._closed():
            self.tokens.expected(f"a bracket that closes {what}", self.tokens.take())

    def _section(self, name: bytes) -> None:
        """Consume the beginning of a section; its name may be omitted."""
        if self._skip_field(name):
            self.tokens.skip(b":")
        elif self.tokens.peek() not in (b"{", b"["):
            self.tokens.expected(f"'{name.decode()}'", self.tokens.take())
        self._open()

    def _skip_field(self, *names: bytes) -> bool:
        """Consume the name of a field, in quotes or not, if it comes next; return whether it did."""
        if self.tokens.peek() in names:
            self.tokens.take()
            return True
        return False

    def _bound(self) -> tuple[Literal["min", "max"], int]:
        """Read ``<10.00`` or ``>-5.0``: the sense, and the bound as a cost in units of the last decimal."""
        token = self.tokens.take()
        match = _BOUND.fullmatch(token)
        if match is None:
            self.tokens.expected("mustbe: a bound such as <10.00 (minimise) or >-5.0 (maximise)", token)
        self.decimals = len(match[3] or b"")
        bound = self._scaled(match[2], "the bound", limit=None)
        return ("min", bound) if match[1] == b"<" else ("max", -bound)

    def _scaled(self, token: bytes, what: str, limit: int | None = _MAX_COST) -> int:
        """Return a decimal number as an integer in units of the last decimal; further decimals are truncated."""
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
                    tokens.fail(f"variable {name!r}: value {label!r} occurs twice")
                names[label] = len(names)
            if not names:
                tokens.fail(f"variable {name!r}: has no values")
            self.values.append(_CfnDomain(len(names), names))
            return
        token = tokens.take()
        if not _INTEGER.fullmatch(token) or int(token) == 0:
            tokens.expected(f"variable {name!r}: its values or their number", token)
        if int(token) < 0:
            raise tokens.source.refusal(tokens.offset, f"variable {name!r}: interval variables are")
        self.values.append(_CfnDomain(int(token), {}))

    @staticmethod
    def _labels(values: _CfnDomain) -> tuple[Label, ...] | None:
        """Return the labels of a variable's values, or None if they have no names."""
        return tuple(values.names) or None

    def _function(self, index: int, sense: str) -> CfnFunction:
        """Read a function: its name, if any, its scope, and its costs or its type and parameters."""
        tokens = self.tokens
        name = f"f{index}"
        if tokens.peek() not in (b"{", b"["):
            name = tokens.word("a function", _PUNCTUATION)
            tokens.skip(b":")
        self._open()
        offset = tokens.offset
        if self._skip_field(b"scope"):
            tokens.skip(b":")
        self._open()
        scope: list[int] = []
        while not self._closed():
            v = self._variable_index(name)
            if v in scope:
                tokens.fail(f"function {name!r}: variable {list(self.variables)[v]!r} occurs twice in its scope")
            scope.append(v)
        if self._skip_field(b"type"):
            tokens.skip(b":")
            function = self._typed(name, offset, scope, sense)
        else:
            function = self._table(name, offset, scope)
        self._close(f"function {name!r}")
        return function

    def _variable_index(self, function: str) -> int:
        """Read a variable in a function's scope and return its index."""
        what = f"function {function!r}"
        return self._index_of(what, self.tokens.word(f"{what}: a variable", _PUNCTUATION))

    def _index_of(self, what: str, name: str) -> int:
        """Return the index of a variable given by its name or its index."""
        v = self.variables.get(name)
        if v is None and _INDEX.fullmatch(name.encode()):
            v = int(name)
        if v is None or v >= len(self.values):
            self.tokens.fail(f"{what}: variable {name!r} is not declared")
        return v

    def _table(self, name: str, offset: int, scope: list[int]) -> CfnFunction:
        """Read costs: all of them, or a default and tuples, or the name of a function with the same costs."""
        tokens = self.tokens
        what = f"function {name!r}"
        default: int | None = None
        if self._skip_field(b"defaultcost"):
            tokens.skip(b":")
            default = self._scaled(tokens.take(), f"{what}: its default cost")
        elif _NUMBER.fullmatch(tokens.peek()):
            default = self._scaled(tokens.take(), f"{what}: its default cost")
        if self._skip_field(b"costs"):
            tokens.skip(b":")
        if tokens.peek() not in (b"{", b"["):
            like = tokens.word(f"{what}: its costs", _PUNCTUATION)
            return CfnFunction(name, offset, tuple(scope), like=like)
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
        return CfnFunction(name, offset, tuple(scope), default, tuples, costs)

    def _value(self, v: int, token: bytes, what: str) -> int:
        """Return the index of a value given by its name or its index."""
        values = self.values[v]
        index = values.names.get(token.decode("utf-8", "replace"))
        if index is None and _INDEX.fullmatch(token):
            index = int(token)
        if index is None or index >= values.size:
            self.tokens.fail(f"{what}: {shown(token)} is not a value of variable {list(self.variables)[v]!r}")
        return index

    def _typed(self, name: str, offset: int, scope: list[int], sense: str) -> CfnFunction:
        """Read a global cost function."""
        tokens = self.tokens
        what = f"function {name!r}"
        keyword = tokens.word(f"{what}: its type", _PUNCTUATION)
        if keyword == NESTED:
            return CfnFunction(
                name, offset, tuple(scope), keyword=NESTED, arguments={NESTED: self._nested(what, offset)}
            )
        if keyword not in SIGNATURES:
            raise tokens.source.refusal(offset, f"{what}: global cost function {keyword!r} is")
        if sense == "max" and keyword not in ANY_SENSE:
            raise tokens.source.refusal(offset, f"{what}: {keyword!r} where the objective is maximised is")
        if self._skip_field(b"params", b"parameters"):
            tokens.skip(b":")
        self._open()
        items = self._items(1, [parameter.name.encode() for parameter in SIGNATURES[keyword]])
        return CfnFunction(name, offset, tuple(scope), keyword=keyword, arguments=self._arguments(what, keyword, items))

    def _nested(self, what: str, offset: int) -> NestedNetwork:
        """Read a nested network with the bounds of its cost and its options."""
        tokens = self.tokens
        if self.depth == _MAX_NESTING:
            raise tokens.source.error(offset, f"{what}: networks more than {_MAX_NESTING} deep")
        if self._skip_field(b"params", b"parameters"):
            tokens.skip(b":")
        self._open()
        if self._skip_field(b"cfn"):
            tokens.skip(b":")
        inner = _CfnReader(tokens, self.depth + 1)
        _, sense, functions, network = inner._network()
        if sense == "max":
            raise tokens.source.refusal(offset, f"{what}: {NESTED!r} of a network that is maximised is")
        bounds = []
        for field in (b"lb", b"ub"):
            if self._skip_field(field):
                tokens.skip(b":")
            bounds.append(inner._scaled(tokens.take(), f"{what}: {field.decode()}"))
        for field in (b"duplicatehard", b"strongduality"):
            if self._skip_field(field):
                tokens.skip(b":")
            if tokens.take() not in ((b"0", b"1") if field == b"duplicatehard" else (b"0",)):
                raise tokens.source.refusal(offset, f"{what}: {NESTED!r} with such a {field.decode()} is")
        self._close(f"{what}: its parameters")
        if bounds[0] >= bounds[1]:
            raise tokens.source.error(offset, f"{what}: lb is not below ub, so that no cost is allowed")
        low, high = bounds[0], min(bounds[1], network.top)  # the network's own bound holds, too
        return NestedNetwork(network.domains, factors_of(functions, network, tokens.source), network.unit, low, high)

    def _items(self, depth: int, names: Collection[bytes] = ()) -> list[Any]:
        """Return the items up to the closing bracket: words, and lists for brackets.

        ``names`` are those that a colon may follow, and stay in the list; in inner brackets they are left out.
        """
        tokens = self.tokens
        if depth > _MAX_BRACKET_DEPTH:
            tokens.fail(f"brackets more than {_MAX_BRACKET_DEPTH} deep")
        items: list[Any] = []
        while not self._closed():
            if tokens.skip(b":"):
                if not items or isinstance(items[-1], list):
                    tokens.fail("a colon without a name before it")
                if depth > 1:
                    items.pop()
                elif items[-1] not in names:
                    known = ", ".join(name.decode() for name in names)
                    tokens.fail(f"a colon after {shown(items[-1])}, which is no parameter; there are {known or 'none'}")
            elif tokens.skip(b"{", b"["):
                items.append(self._items(depth + 1))
            else:
                token = tokens.take()
                if not token and not tokens.quoted:
                    tokens.expected("a closing bracket", token)
                items.append(token)
        return items

    def _arguments(self, what: str, keyword: str, items: list[Any]) -> dict[str, Any]:
        """Return the parameters of a global cost function by name, converted as the signature demands."""

        def scaled(token: bytes) -> int:
            return self._scaled(token, f"{what}: a cost")

        def variable(token: bytes) -> int:
            return self._index_of(what, token.decode("utf-8", "replace"))

        message, arguments = decode(keyword, items, scaled, variable)
        if message:
            self.tokens.fail(f"{what}: {keyword}: {message}")
        return arguments
