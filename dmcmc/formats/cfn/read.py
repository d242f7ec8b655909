"""Read ``.cfn`` files: cost function networks in toulbar2's relaxed JSON.

Quotes, commas, colons and the names of fields may be omitted. ``mustbe`` gives the sense and the number of decimals of
all costs; like toulbar2, the reader truncates further decimals. ``mustbe`` also bounds the objective: an entry is
forbidden if no assignment that contains it can satisfy the bound.
"""

import re
from typing import Any, Literal

import numpy as np

from dmcmc.files.text import SourceFile
from dmcmc.formats.cfn.functions import NESTED, CfnFunction, CfnNetwork, decode, factors_of
from dmcmc.formats.cfn.tokens import PUNCTUATION, CfnTokens
from dmcmc.formats.cfn.variables import CfnVariables
from dmcmc.formats.global_functions.nested import NestedNetwork
from dmcmc.formats.global_functions.signatures import ANY_SENSE, SIGNATURES
from dmcmc.inference.model.problem import Problem

_BOUND = re.compile(rb"([<>])([+-]?(?=\.?\d)\d{0,40}(?:\.(\d{0,18}))?)")
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
    return _CfnReader(CfnTokens(source)).problem()


class _CfnReader:
    """Parser that consumes the three sections of a network (problem, variables, functions) token by token.

    Attributes
    ----------
    tokens : CfnTokens
        The tokens of the file.
    depth : int
        Number of networks around this one.
    variables : CfnVariables
        The variables of the network.
    decimals : int
        Number of decimals of all costs.
    """

    def __init__(self, tokens: CfnTokens, depth: int = 0) -> None:
        """Start a network at the next token; ``depth`` counts the networks around it."""
        self.tokens, self.depth = tokens, depth
        self.variables = CfnVariables(tokens)
        self.decimals = 0

    def problem(self) -> Problem:
        """Read the whole file and return the problem."""
        name, sense, functions, network = self._network()
        tokens = self.tokens
        if tokens.peek():
            tokens.expected("the end of the file", tokens.take())
        return Problem(
            variables=tuple(self.variables.index),
            domains=np.array(network.domains, dtype=np.int64),
            agents=("all",),
            owner=np.zeros(len(network.domains), dtype=np.int64),
            factors=factors_of(functions, network, tokens.source),
            labels=self.variables.labels,
            sense=sense,
            name=name,
        )

    def _network(self) -> tuple[str, Literal["min", "max"], list[CfnFunction], CfnNetwork]:
        """Read a network: its name, its sense, its functions and their shared properties."""
        tokens = self.tokens
        tokens.open()
        tokens.section(b"problem")
        tokens.skip_field(b"name")
        tokens.skip(b":")
        name = tokens.word("the problem's name", PUNCTUATION)
        tokens.skip_field(b"mustbe")
        tokens.skip(b":")
        sense, top = self._bound()
        tokens.close("the problem's properties")
        tokens.section(b"variables")
        while not tokens.closed():
            self.variables.read()
        tokens.section(b"functions")
        functions: list[CfnFunction] = []
        while not tokens.closed():
            functions.append(self._function(len(functions), sense))
        tokens.close("the network" if self.depth else "the file")
        return name, sense, functions, CfnNetwork(self.variables.sizes, sense, top, 10**self.decimals)

    def _bound(self) -> tuple[Literal["min", "max"], int]:
        """Read ``<10.00`` or ``>-5.0``: the sense, and the bound as a cost in units of the last decimal."""
        tokens = self.tokens
        token = tokens.take()
        match = _BOUND.fullmatch(token)
        if match is None:
            tokens.expected("mustbe: a bound such as <10.00 (minimise) or >-5.0 (maximise)", token)
        self.decimals = len(match[3] or b"")
        bound = tokens.scaled(match[2], self.decimals, "the bound", limit=None)
        return ("min", bound) if match[1] == b"<" else ("max", -bound)

    def _function(self, index: int, sense: str) -> CfnFunction:
        """Read a function: its name, if any, its scope, and its costs or its type and parameters."""
        tokens = self.tokens
        name = f"f{index}"
        if not tokens.opens():
            name = tokens.word("a function", PUNCTUATION)
            tokens.skip(b":")
        tokens.open()
        offset = tokens.offset
        tokens.field(b"scope")
        tokens.open()
        scope: list[int] = []
        while not tokens.closed():
            v = self._variable_index(name)
            if v in scope:
                tokens.fail(f"function {name!r}: variable {self.variables.name(v)!r} occurs twice in its scope")
            scope.append(v)
        if tokens.field(b"type"):
            function = self._typed(name, offset, scope, sense)
        else:
            function = self._table(name, offset, scope)
        tokens.close(f"function {name!r}")
        return function

    def _variable_index(self, function: str) -> int:
        """Read a variable in a function's scope and return its index."""
        what = f"function {function!r}"
        return self.variables.index_of(what, self.tokens.word(f"{what}: a variable", PUNCTUATION))

    def _table(self, name: str, offset: int, scope: list[int]) -> CfnFunction:
        """Read costs: all of them, or a default and tuples, or the name of a function with the same costs."""
        tokens = self.tokens
        what = f"function {name!r}"
        default: int | None = None
        if tokens.field(b"defaultcost") or tokens.is_number():
            default = tokens.scaled(tokens.take(), self.decimals, f"{what}: its default cost")
        tokens.field(b"costs")
        if not tokens.opens():
            like = tokens.word(f"{what}: its costs", PUNCTUATION)
            return CfnFunction(name, offset, tuple(scope), like=like)
        tokens.open()
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
                costs.append(tokens.scaled(token, self.decimals, f"{what}: a cost"))
            else:
                tuples.append(self.variables.value(scope[len(tuples) % len(scope)], token, what))
        if len(tuples) > len(scope) * len(costs):
            tokens.fail(f"{what}: the last tuple has no cost")
        return CfnFunction(name, offset, tuple(scope), default, tuples, costs)

    def _typed(self, name: str, offset: int, scope: list[int], sense: str) -> CfnFunction:
        """Read a global cost function."""
        tokens = self.tokens
        what = f"function {name!r}"
        keyword = tokens.word(f"{what}: its type", PUNCTUATION)
        if keyword == NESTED:
            return CfnFunction(
                name, offset, tuple(scope), keyword=NESTED, arguments={NESTED: self._nested(what, offset)}
            )
        if keyword not in SIGNATURES:
            raise tokens.source.refusal(offset, f"{what}: global cost function {keyword!r} is")
        if sense == "max" and keyword not in ANY_SENSE:
            raise tokens.source.refusal(offset, f"{what}: {keyword!r} where the objective is maximised is")
        tokens.field(b"params", b"parameters")
        tokens.open()
        items = tokens.items(1, [parameter.name.encode() for parameter in SIGNATURES[keyword]])
        return CfnFunction(name, offset, tuple(scope), keyword=keyword, arguments=self._arguments(what, keyword, items))

    def _nested(self, what: str, offset: int) -> NestedNetwork:
        """Read a nested network with the bounds of its cost and its options."""
        tokens = self.tokens
        if self.depth == _MAX_NESTING:
            raise tokens.source.error(offset, f"{what}: networks more than {_MAX_NESTING} deep")
        tokens.field(b"params", b"parameters")
        tokens.open()
        tokens.field(b"cfn")
        inner = _CfnReader(tokens, self.depth + 1)
        _, sense, functions, network = inner._network()
        if sense == "max":
            raise tokens.source.refusal(offset, f"{what}: {NESTED!r} of a network that is maximised is")
        bounds = []
        for field in (b"lb", b"ub"):
            tokens.field(field)
            bounds.append(tokens.scaled(tokens.take(), inner.decimals, f"{what}: {field.decode()}"))
        for field in (b"duplicatehard", b"strongduality"):
            tokens.field(field)
            if tokens.take() not in ((b"0", b"1") if field == b"duplicatehard" else (b"0",)):
                raise tokens.source.refusal(offset, f"{what}: {NESTED!r} with such a {field.decode()} is")
        tokens.close(f"{what}: its parameters")
        if bounds[0] >= bounds[1]:
            raise tokens.source.error(offset, f"{what}: lb is not below ub, so that no cost is allowed")
        low, high = bounds[0], min(bounds[1], network.top)  # the network's own bound holds, too
        return NestedNetwork(network.domains, factors_of(functions, network, tokens.source), network.unit, low, high)

    def _arguments(self, what: str, keyword: str, items: list[Any]) -> dict[str, Any]:
        """Return the parameters of a global cost function by name, converted as the signature demands."""

        def scaled(token: bytes) -> int:
            return self.tokens.scaled(token, self.decimals, f"{what}: a cost")

        def variable(token: bytes) -> int:
            return self.variables.index_of(what, token.decode("utf-8", "replace"))

        message, arguments = decode(keyword, items, scaled, variable)
        if message:
            self.tokens.fail(f"{what}: {keyword}: {message}")
        return arguments
