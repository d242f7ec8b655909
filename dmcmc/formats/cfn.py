"""The format ``.cfn`` of toulbar2: cost function networks in relaxed JSON, read and written.

Quotes, commas, colons and the names of fields may be omitted. ``mustbe`` gives the sense and the number of decimals of
all costs; like toulbar2, the reader truncates further decimals. ``mustbe`` also bounds the objective: an entry is
forbidden if no assignment that contains it can satisfy the bound. The format has both senses, decimals, names and
labels, but no agents.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Any, Literal, NamedTuple

import numpy as np

from dmcmc.files.text import SourceFile
from dmcmc.formats.cfn_functions import NESTED, PUNCTUATION, CfnFunction, CfnNetwork, CfnTokens, decode, factors_of
from dmcmc.formats.common import factor_entries
from dmcmc.formats.common.tokens import shown
from dmcmc.formats.global_functions.builder import ANY_SENSE, SIGNATURES, NestedNetwork
from dmcmc.inference.model.problem import Label, Problem

_INDEX = re.compile(rb"\d{1,18}")
_INTEGER = re.compile(rb"[+-]?\d{1,18}")


class _CfnDomain(NamedTuple):
    """A variable's domain size, and the index of each value by its name (empty if the values have no names)."""

    size: int
    names: dict[str, int]


class CfnVariables:
    """The variables of a network and their values, by name or index.

    Parameters
    ----------
    tokens : CfnTokens
        The tokens of the file.

    Attributes
    ----------
    index : dict of str to int
        Index of each variable by its name.
    """

    def __init__(self, tokens: CfnTokens) -> None:
        self._tokens = tokens
        self.index: dict[str, int] = {}
        self._domains: list[_CfnDomain] = []

    @property
    def sizes(self) -> list[int]:
        """The domain size of each variable."""
        return [domain.size for domain in self._domains]

    @property
    def labels(self) -> tuple[tuple[Label, ...] | None, ...]:
        """The labels of each variable's values; None if they have no names."""
        return tuple(tuple(domain.names) or None for domain in self._domains)

    def name(self, v: int) -> str:
        """Return the name of a variable."""
        return list(self.index)[v]

    def read(self) -> None:
        """Read a variable: its name, if any, and its values or their number."""
        tokens, index = self._tokens, len(self._domains)
        name = f"x{index}"
        if not tokens.opens() and not _INTEGER.fullmatch(tokens.peek()):
            name = tokens.word("a variable", PUNCTUATION)
            tokens.skip(b":")
        if name in self.index:
            tokens.fail(f"variable {name!r} is declared twice")
        self.index[name] = index
        if tokens.opens():
            tokens.open()
            names: dict[str, int] = {}
            while not tokens.closed():
                label = tokens.word("a value", PUNCTUATION)
                if label in names:
                    tokens.fail(f"variable {name!r}: value {label!r} occurs twice")
                names[label] = len(names)
            if not names:
                tokens.fail(f"variable {name!r}: has no values")
            self._domains.append(_CfnDomain(len(names), names))
            return
        token = tokens.take()
        if not _INTEGER.fullmatch(token) or int(token) == 0:
            tokens.expected(f"variable {name!r}: its values or their number", token)
        if int(token) < 0:
            raise tokens.source.refusal(tokens.offset, f"variable {name!r}: interval variables are")
        self._domains.append(_CfnDomain(int(token), {}))

    def index_of(self, what: str, name: str) -> int:
        """Return the index of a variable given by its name or its index."""
        v = self.index.get(name)
        if v is None and _INDEX.fullmatch(name.encode()):
            v = int(name)
        if v is None or v >= len(self._domains):
            self._tokens.fail(f"{what}: variable {name!r} is not declared")
        return v

    def value(self, v: int, token: bytes, what: str) -> int:
        """Return the index of a value given by its name or its index."""
        values = self._domains[v]
        index = values.names.get(token.decode("utf-8", "replace"))
        if index is None and _INDEX.fullmatch(token):
            index = int(token)
        if index is None or index >= values.size:
            self._tokens.fail(f"{what}: {shown(token)} is not a value of variable {self.name(v)!r}")
        return index


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


_NAME = re.compile(r"[^\W\d][^\"\\\x00-\x1f\x7f\s]*")  # a name that starts with a digit would be read as an index
_LABEL = re.compile(r"[^\"\\\x00-\x1f\x7f]+")
_MAX_TOTAL_COST = 2**62  # limit for the sum of all costs, in units of the last decimal
_KEPT_DECIMALS = 6  # decimals that --drop digits leaves


class _CostFormat(NamedTuple):
    """How costs are written.

    Attributes
    ----------
    decimals : int
        Number of decimals of every cost.
    bound : str
        Bound on the objective that every allowed assignment satisfies: above all costs, or below all utilities.
    hard : str
        Cost of a forbidden entry; beyond the bound, whatever the other functions cost.
    needed : str
        Description of the digits of the costs if they need more than 62 bits; else empty.
    """

    decimals: int
    bound: str
    hard: str
    needed: str = ""


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem.

    Raises
    ------
    ProblemError
        For agents (``--drop agents`` removes them), for names and labels that JSON or toulbar2 would misread, and for
        costs that need more than 62 bits.
    """
    missing = factor_entries.missing_features(problem, "labels", "names")
    for name in problem.variables:
        if not _NAME.fullmatch(name):
            missing["names"] = f"no names such as {name!r} (only a letter, then no quotes and no blanks)"
            break
    for label in (x for labels in problem.labels if labels is not None for x in labels):
        if not isinstance(label, str) or not _LABEL.fullmatch(label):
            missing["labels"] = f"no labels such as {label!r} (only text without quotes)"
            break
    functions = list(factor_entries.named_factor_entries(problem))
    scale, besides = _cost_format(problem, functions), ""
    if scale.needed:
        besides = f"the costs {scale.needed}: more than 62 bits"
        if scale.decimals > _KEPT_DECIMALS:
            missing["digits"] = f"fewer digits than needed (the costs {scale.needed}: more than 62 bits)"
            besides = ""
    factor_entries.check_missing(missing, besides)
    sign = "<" if problem.sense == "min" else ">"
    yield f'{{"problem": {{"name": {_quoted(_name(problem))}, "mustbe": "{sign}{scale.bound}"}},\n"variables": {{'
    for i, name in enumerate(problem.variables):
        yield f"{',' if i else ''}\n{_quoted(name)}: {_domain(problem, i)}"
    yield '},\n"functions": {'
    for i, (_, listing) in enumerate(functions):
        yield f"{',' if i else ''}\n" + _function(f"f{i}", listing, problem, scale)
    yield "}}\n"


def _name(problem: Problem) -> str:
    """Return the problem's name as a word that toulbar2 can read."""
    return re.sub(r"[\"\\\x00-\x20\x7f]+", "_", problem.name) or "problem"


def _quoted(text: str) -> str:
    """Return a text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def _domain(problem: Problem, variable: int) -> str:
    """Return a variable's domain: its size, or the list of its labels."""
    if problem.labels[variable] is None:
        return str(problem.domains[variable])
    words = [_quoted(str(label)) for label in factor_entries.labels_of(problem, variable)]
    return f"[{', '.join(words)}]"


def _function(name: str, listing: factor_entries.FactorEntries, problem: Problem, scale: _CostFormat) -> str:
    """Return the text of one function: a default cost and the tuples that differ from it."""
    scope = ", ".join(_quoted(problem.variables[v]) for v in listing.scope)
    if not listing.scope:
        return f'"{name}": {{"scope": [], "costs": [{_cost(listing.default, scale)}]}}'
    words: list[str] = []
    for row, cost in zip(listing.rows, listing.costs, strict=True):
        words += [*map(str, row), _cost(cost, scale)]
    default = f'"defaultcost": {_cost(listing.default, scale)}'
    return f'"{name}": {{"scope": [{scope}], {default}, "costs": [{", ".join(words)}]}}'


def _cost(cost: factor_entries.Cost, scale: _CostFormat) -> str:
    """Return the text of a cost."""
    return scale.hard if cost is None else _fixed_point(_decimal(cost), scale.decimals)


def _decimal(cost: int | float) -> Decimal:
    """Return a cost as an exact decimal number."""
    return Decimal(repr(cost)) if isinstance(cost, float) else Decimal(cost)


def _fixed_point(value: Decimal, decimals: int) -> str:
    """Return a number in fixed-point notation with exactly ``decimals`` decimals (it has no more)."""
    text = f"{value:f}"
    whole, _, after = text.partition(".")
    after = after[:decimals].ljust(decimals, "0")
    return f"{whole}.{after}" if decimals else whole


def _cost_format(problem: Problem, functions: list[tuple[str, factor_entries.FactorEntries]]) -> _CostFormat:
    """Return the decimals, a bound above every allowed cost (below, if maximised), and a cost beyond the bound.

    toulbar2 shifts each function so that its minimum is 0, and shifts the bound with it. A forbidden entry must
    therefore exceed the bound by the sum of these shifts.
    """
    decimals = 0
    with localcontext() as context:
        context.prec = 1000
        max_total = shift = Decimal(0)
        for _, listing in functions:
            costs = [_decimal(c) for c in listing.all_costs if c is not None]
            if problem.sense == "max":
                costs = [-c for c in costs]
            max_total += max([Decimal(0), *costs])
            shift -= min([Decimal(0), *costs])
            decimals = max([decimals, *(-int(c.normalize().as_tuple().exponent) for c in costs)])
        if (max_total + shift + 1) * 10**decimals >= _MAX_TOTAL_COST:
            needed = f"need {decimals} decimals and add up to {max_total + shift:.3g}"
            return _CostFormat(decimals, "", "", needed)
        bound, hard = max_total + 1, max_total + shift + 1
        if problem.sense == "max":
            bound, hard = -bound, -hard
    return _CostFormat(decimals, _fixed_point(bound, decimals), _fixed_point(hard, decimals))
