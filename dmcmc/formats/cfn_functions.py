"""Convert the cost functions of a ``.cfn`` file to factors.

:mod:`dmcmc.formats.cfn` parses the file, which has brackets, optional names of fields and decimal numbers, to
``CfnFunction`` objects. ``decode`` converts the parameters of a global cost function (a function that the file gives by
a keyword and parameters instead of costs), and ``factors_of`` builds the factors of all functions.

Costs are integers in units of the last decimal place: the cost 1.25 of a file with two decimals is 125. Utilities of
factors are negated costs in units of 1.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.tokens import Tokens, shown
from dmcmc.formats.global_functions import builder
from dmcmc.formats.global_functions.factors import build
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.inference.runtime.types import Array

_INTEGER = re.compile(rb"[+-]?\d{1,18}")
_FORBIDDEN = np.iinfo(np.int64).min  # utility of a forbidden entry in int64
NESTED = "cfnconstraint"  # keyword of the function whose only argument is a nested network


@dataclass(frozen=True)
class CfnFunction:
    """A function as the file gives it: costs, a reference to another function's costs, or a global cost function.

    Costs are integers in units of the last decimal place. They have the file's sense (costs to be minimised, or
    utilities to be maximised) until ``_resolved`` negates those of a maximisation problem.

    Attributes
    ----------
    name : str
        Name of the function.
    offset : int
        Byte offset in the file, for error messages.
    scope : tuple of int
        Indices of the variables.
    default : int or None
        Cost of the tuples that are not listed; None if ``costs`` has the costs of all tuples.
    tuples : list of int
        Value indices of the listed tuples, concatenated: one index per variable of the scope for each tuple.
    costs : list of int
        Costs of the listed tuples, in the same order; or of all tuples, the last variable fastest.
    like : str
        Name of the function that has the same costs; empty if the costs are given here.
    keyword : str
        Name of the global cost function; empty for a function with costs.
    arguments : mapping
        Parameters of the global cost function by name. For the keyword ``cfnconstraint`` the only one is the
        ``NestedNetwork`` under the same name.
    """

    name: str
    offset: int
    scope: tuple[int, ...]
    default: int | None = None
    tuples: Sequence[int] = ()
    costs: Sequence[int] = ()
    like: str = ""
    keyword: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)


class CfnNetwork(NamedTuple):
    """Properties that all functions of a network share.

    Attributes
    ----------
    domains : sequence of int
        Domain size of each variable.
    sense : {"min", "max"}
        Whether the objective is minimised or maximised.
    top : int
        Upper bound on the objective as an integer cost, negated if the objective is maximised. Assignments of this cost
        or more are forbidden.
    unit : int
        Integer that represents the cost 1, a power of ten: 100 if the file has two decimals.
    """

    domains: Sequence[int]
    sense: str
    top: int
    unit: int


def factors_of(functions: Sequence[CfnFunction], network: CfnNetwork, source: SourceFile) -> tuple[Factor, ...]:
    """Return all functions as factors.

    An entry is forbidden if the whole assignment reaches the network's bound even when all other functions have their
    lowest cost. Function f therefore has its own limit, ``network.top`` − Σ lower bounds of the other functions, and
    its entries of this cost or more are forbidden.

    Parameters
    ----------
    functions
        The functions of the file.
    network
        Domains, sense, upper bound and cost unit of the network.
    source
        The file, for the line in error messages.

    Raises
    ------
    FileError
        If a function is inconsistent or too large; names the line of the function.
    """
    resolved = _resolved(functions, network, source)
    lower_bounds = [_lower_bound(function, network) for function in resolved]
    total = (
        None
        if any(bound is None for bound in lower_bounds)
        else sum(bound for bound in lower_bounds if bound is not None)
    )
    factors: list[Factor] = []
    for function, bound in zip(resolved, lower_bounds, strict=True):
        # An assignment with an entry of this cost reaches the network's bound, whatever the other functions cost.
        top = None if total is None or bound is None else network.top - (total - bound)
        try:
            factors += _factors(function, network, top)
        except (ProblemError, ResourceError) as error:
            raise source.error(function.offset, f"function {function.name!r}: {error}") from None
    return tuple(factors)


def _resolved(functions: Sequence[CfnFunction], network: CfnNetwork, source: SourceFile) -> list[CfnFunction]:
    """Return the functions with costs in place of references (``like``), signed so that all are minimised.

    The signs of a global cost function's parameters are left as they are in the file.

    Raises
    ------
    FileError
        If a reference has no target with costs and the same domain sizes, or if the number of costs is wrong.
    """
    named = {function.name: function for function in functions}
    resolved = []
    for function in functions:
        what, target = f"function {function.name!r}", function
        for _ in functions:
            if not target.like:
                break
            if target.like not in named:
                raise source.error(function.offset, f"{what}: there is no function {target.like!r}")
            target = named[target.like]
        if target.like or (function.like and target.keyword):
            raise source.error(function.offset, f"{what}: function {function.like!r} has no costs itself")
        shapes = [[network.domains[v] for v in f.scope] for f in (function, target)]
        if shapes[0] != shapes[1]:
            raise source.error(function.offset, f"{what}: domains {shapes[0]}, but {target.name!r} has {shapes[1]}")
        entries = prod(shapes[0])
        if not target.keyword and target.default is None and len(target.costs) != entries:
            raise source.error(function.offset, f"{what}: {len(target.costs)} costs for {entries} tuples")
        sign = 1 if network.sense == "min" else -1
        resolved.append(
            CfnFunction(
                function.name,
                function.offset,
                function.scope,
                None if target.default is None else sign * target.default,
                target.tuples,
                [sign * cost for cost in target.costs],
                keyword=function.keyword,
                arguments=function.arguments,
            )
        )
    return resolved


def _lower_bound(function: CfnFunction, network: CfnNetwork) -> int | None:
    """Return a lower bound on a function's costs; None if no bound is cheap to compute.

    The bound of a table is its lowest cost. The bound of a global cost function without negative costs in its
    parameters, and of a nested network, which only forbids, is 0.
    """
    if not function.keyword:
        complete = len(function.costs) >= prod(network.domains[v] for v in function.scope)
        return min([*function.costs, *([] if function.default is None or complete else [function.default])])
    if function.keyword == NESTED:
        return 0
    return 0 if min(builder.costs_in(function.keyword, function.arguments), default=0) >= 0 else None


def _factors(function: CfnFunction, network: CfnNetwork, top: int | None) -> list[Factor]:
    """Return the factors of one resolved function.

    Parameters
    ----------
    function
        The function, with costs to be minimised.
    network
        The network of the function.
    top
        Entries of this cost or more are forbidden; None forbids none.
    """
    shape = [network.domains[v] for v in function.scope]
    if function.keyword == NESTED:
        return [builder.nested_constraint(function.arguments[NESTED], function.scope, shape, function.name)]
    if function.keyword:
        costs = builder.CostScale(top, network.unit)
        return build(function.keyword, function.scope, shape, function.arguments, costs, function.name)
    listed = [*function.costs, *([] if function.default is None else [function.default])]
    utilities = _utilities(np.array(listed, dtype=np.int64), network.unit, top)
    if function.default is None:
        return [Factor.of(function.scope, utilities.reshape(shape), name=function.name)]
    tuples = np.array(function.tuples, dtype=np.int64).reshape(len(function.costs), len(shape))
    return [tabulate(function.scope, shape, tuples, utilities[:-1], utilities[-1].item(), name=function.name)]


def _utilities(costs: NDArray[np.int64], unit: int, top: int | None) -> Array:
    """Return integer costs as utilities −cost / ``unit``; forbidden ones as the smallest int64 or −∞.

    The dtype is int64 if all allowed costs are multiples of ``unit``, else float64. Costs of ``top`` or more are
    forbidden; None means that there is no limit.
    """
    is_forbidden = costs >= top if top is not None else np.zeros(costs.shape, dtype=bool)
    if unit == 1 or not (costs[~is_forbidden] % unit).any():
        return np.where(is_forbidden, _FORBIDDEN, -(costs // unit))
    return np.where(is_forbidden, -np.inf, 0.0 - costs / unit)


def decode(
    keyword: str, items: Sequence[Any], scaled: Callable[[bytes], int], variable: Callable[[bytes], int]
) -> tuple[str, dict[str, Any]]:
    """Return an error message and the parameters of a global cost function by name.

    The message is empty if there is no error; otherwise the parameters before the error are returned.

    Parameters
    ----------
    keyword
        Name of the global cost function.
    items
        Words, and nested lists of words, in the order of the signature.
    scaled
        Converts a word to an integer cost in units of the last decimal place.
    variable
        Converts a word to the index of a variable.
    """
    reader = _ParameterReader(scaled, variable)
    arguments: dict[str, Any] = {}
    remaining = list(items)
    for spec in builder.SIGNATURES[keyword]:
        if remaining and remaining[0] == spec.name.encode() and len(remaining) > 1:
            remaining.pop(0)  # the name of the parameter, without a colon
        if not remaining:
            return f"{spec.name}: is missing", arguments
        try:
            arguments[spec.name] = reader.parameter(spec, remaining.pop(0), arguments)
        except ValueError as error:
            return f"{spec.name}: {error}", arguments
    return (f"{len(remaining)} parameters too many" if remaining else ""), arguments


class _ParameterReader(NamedTuple):
    """Converter of one parameter at a time, from words to numbers and indices.

    Attributes
    ----------
    scaled : callable
        Converts a word to an integer cost in units of the last decimal place.
    variable : callable
        Converts a word (a name or a number) to the index of a variable.
    """

    scaled: Callable[[bytes], int]
    variable: Callable[[bytes], int]

    def parameter(self, spec: builder.ParameterSpec, item: Any, earlier: Mapping[str, Any]) -> Any:
        """Return the value of one parameter; a ``ValueError`` says what was expected.

        Parameters
        ----------
        spec
            The parameter's entry in the signature. ``spec.kind`` is ``word`` (one of the words in ``spec.layout``),
            ``cost``, ``whole`` (an integer), ``each`` (integers), ``variables``, ``lists`` or ``groups`` (lists of
            records), or ``list`` or ``rules`` (one list of records).
        item
            A word, or a nested list of words.
        earlier
            Parameters that precede this one; some change the layout of the records.
        """
        if spec.kind in ("word", "cost", "whole"):
            if isinstance(item, list):
                raise ValueError("expected one word")
            if spec.kind == "cost":
                return self.scaled(item)
            if spec.kind == "whole":
                return _integer(item)
            word = item.decode("utf-8", "replace")
            if word not in spec.layout.split("|"):
                raise ValueError(f"expected {' or '.join(spec.layout.split('|'))}, got {shown(item)}")
            return word
        if not isinstance(item, list):
            raise ValueError("expected a list")
        if spec.kind == "each":
            return [_integer(word) for word in _flat(item)]
        if spec.kind == "variables":
            return [self.variable(word) for word in _flat(item)]
        if spec.kind in ("lists", "groups"):
            return [self.records(part if isinstance(part, list) else [part], spec.layout) for part in item]
        return self.records(item, builder.record_layout(spec, earlier))

    def records(self, item: Sequence[Any], kinds: str) -> list[list[int]]:
        """Return the records of a list of words.

        Parameters
        ----------
        item
            Words, also in nested lists, whose nesting is ignored.
        kinds
            One letter per number of a record: c for a cost, v for a variable, i for an integer. A record becomes a list
            with these numbers.
        """
        words = _flat(item)
        if len(words) % len(kinds):
            raise ValueError(f"expected {len(kinds)} numbers per entry")
        converters = {"c": self.scaled, "v": self.variable, "i": _integer}
        numbers = [converters[kinds[i % len(kinds)]](word) for i, word in enumerate(words)]
        return [numbers[i : i + len(kinds)] for i in range(0, len(numbers), len(kinds))]


def _flat(item: Sequence[Any]) -> list[bytes]:
    """Return the words of nested lists in order."""
    return [word for part in item for word in (_flat(part) if isinstance(part, list) else [part])]


def _integer(word: bytes) -> int:
    """Return the integer that a word stands for, or raise ``ValueError``."""
    if not _INTEGER.fullmatch(word):
        raise ValueError(f"expected a whole number, got {shown(word)}")
    return int(word)


PUNCTUATION = b"{}[]:"
_TOKEN = re.compile(rb'(?:[\s,]++|(?m:^)#[^\n]*+)|"([^"]*+)"|([{}\[\]:])|((?:(?!")[^\s{}\[\]:,])++)')
_NUMBER = re.compile(rb"([+-]?)(?=\.?\d)(\d{0,40})(?:\.(\d{0,40}))?")
_MAX_COST = 2**62  # limit for the absolute value of a cost, in units of the last decimal; headroom in int64
_MAX_BRACKET_DEPTH = 8  # levels of brackets in the parameters of a global cost function


class CfnTokens(Tokens):
    """The tokens of a ``.cfn`` file; square and curly brackets are the same."""

    def __init__(self, source: SourceFile) -> None:
        super().__init__(source, _TOKEN)

    def opens(self) -> bool:
        """Return whether an opening bracket comes next."""
        return self.peek() in (b"{", b"[")

    def is_number(self) -> bool:
        """Return whether a decimal number comes next."""
        return _NUMBER.fullmatch(self.peek()) is not None

    def open(self) -> None:
        """Consume an opening bracket."""
        self.expect(b"{", b"[")

    def closed(self) -> bool:
        """Consume a closing bracket if it comes next, and return whether it did."""
        return self.skip(b"}", b"]")

    def close(self, what: str) -> None:
        """Consume a closing bracket, or fail with the name of what it should close."""
        if not self.closed():
            self.expected(f"a bracket that closes {what}", self.take())

    def section(self, name: bytes) -> None:
        """Consume the beginning of a section; its name may be omitted."""
        if not self.field(name) and not self.opens():
            self.expected(f"'{name.decode()}'", self.take())
        self.open()

    def skip_field(self, *names: bytes) -> bool:
        """Consume the name of a field, in quotes or not, if it comes next; return whether it did."""
        if self.peek() in names:
            self.take()
            return True
        return False

    def field(self, *names: bytes) -> bool:
        """Consume the name of a field and its colon, if the name comes next; return whether it did."""
        if not self.skip_field(*names):
            return False
        self.skip(b":")
        return True

    def scaled(self, token: bytes, decimals: int, what: str, limit: int | None = _MAX_COST) -> int:
        """Return a decimal number as an integer in units of the last decimal; further decimals are truncated."""
        match = _NUMBER.fullmatch(token)
        if match is None:
            self.expected(f"{what}: a decimal number", token)
        digits = match[2] + (match[3] or b"")[:decimals].ljust(decimals, b"0")
        number = int(digits or b"0") * (-1 if match[1] == b"-" else 1)
        if limit is not None and abs(number) > limit:
            self.fail(f"{what}: {shown(token)} with {decimals} decimals needs more than 62 bits")
        return number

    def items(self, depth: int, names: Collection[bytes] = ()) -> list[Any]:
        """Return the items up to the closing bracket: words, and lists for brackets.

        ``names`` are those that a colon may follow, and stay in the list; in inner brackets they are left out.
        """
        if depth > _MAX_BRACKET_DEPTH:
            self.fail(f"brackets more than {_MAX_BRACKET_DEPTH} deep")
        items: list[Any] = []
        while not self.closed():
            if self.skip(b":"):
                if not items or isinstance(items[-1], list):
                    self.fail("a colon without a name before it")
                if depth > 1:
                    items.pop()
                elif items[-1] not in names:
                    known = ", ".join(name.decode() for name in names)
                    self.fail(f"a colon after {shown(items[-1])}, which is no parameter; there are {known or 'none'}")
            elif self.skip(b"{", b"["):
                items.append(self.items(depth + 1))
            else:
                token = self.take()
                if not token and not self.quoted:
                    self.expected("a closing bracket", token)
                items.append(token)
        return items
