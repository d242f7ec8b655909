"""The functions of a ``.cfn`` file as factors."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import Source
from dmcmc.formats.common.tokens import shown
from dmcmc.formats.global_functions.costs import Costs
from dmcmc.formats.global_functions.factors import build
from dmcmc.formats.global_functions.nested import between
from dmcmc.formats.global_functions.signatures import SIGNATURES, Field, costs_in, record
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.inference.runtime.types import Array

_INTEGER = re.compile(rb"[+-]?\d{1,18}")
_HARD = np.iinfo(np.int64).min
NESTED = "cfnconstraint"  # whose only argument is a network


@dataclass(frozen=True)
class Function:
    """A function as the file has it; costs are whole numbers of the last decimal, in the file's sense.

    Attributes
    ----------
    name : str
    offset : int
        Where it stands in the file.
    scope : tuple of int
    default : int or None
        The cost of tuples that are not listed; None where all costs are.
    tuples : list of int
        Value indices of the listed tuples, one tuple after the other.
    costs : list of int
    like : str
        The name of the function with the same costs.
    keyword, arguments
        Of a global cost function.
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


class Network(NamedTuple):
    """What all functions share: domain sizes, sense, the bound as a cost, and how many units make 1."""

    domains: Sequence[int]
    sense: str
    top: int
    unit: int


def factors_of(functions: Sequence[Function], network: Network, source: Source) -> tuple[Factor, ...]:
    """Return all functions as factors.

    Raises
    ------
    FileError
        Naming the line of the function.
    """
    resolved = _resolved(functions, network, source)
    least = [_least(function, network) for function in resolved]
    total = None if any(low is None for low in least) else sum(low for low in least if low is not None)
    factors: list[Factor] = []
    for function, low in zip(resolved, least, strict=True):
        # No assignment with an entry of this cost can be below the bound, whatever the other functions give.
        top = None if total is None or low is None else network.top - (total - low)
        try:
            factors += _factors(function, network, top)
        except (ProblemError, ResourceError) as error:
            raise source.error(function.offset, f"function {function.name!r}: {error}") from None
    return tuple(factors)


def _resolved(functions: Sequence[Function], network: Network, source: Source) -> list[Function]:
    """Return the functions with their own costs; all costs are such as to be minimised."""
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
            raise source.error(function.offset, f"{what}: function {function.like!r} has no costs of its own")
        shapes = [[network.domains[v] for v in f.scope] for f in (function, target)]
        if shapes[0] != shapes[1]:
            raise source.error(function.offset, f"{what}: domains {shapes[0]}, but {target.name!r} has {shapes[1]}")
        cells = prod(shapes[0])
        if not target.keyword and target.default is None and len(target.costs) != cells:
            raise source.error(function.offset, f"{what}: {len(target.costs)} costs for {cells} tuples")
        sign = 1 if network.sense == "min" else -1
        resolved.append(
            Function(
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


def _least(function: Function, network: Network) -> int | None:
    """Return a lower bound on a function's costs; None where that would take some thought."""
    if not function.keyword:
        complete = len(function.costs) >= prod(network.domains[v] for v in function.scope)
        return min([*function.costs, *([] if function.default is None or complete else [function.default])])
    if function.keyword == NESTED:
        return 0
    return 0 if min(costs_in(function.keyword, function.arguments), default=0) >= 0 else None


def _factors(function: Function, network: Network, top: int | None) -> list[Factor]:
    """Return the factors of one function."""
    shape = [network.domains[v] for v in function.scope]
    if function.keyword == NESTED:
        return [between(function.arguments[NESTED], function.scope, shape, function.name)]
    if function.keyword:
        costs = Costs(top, network.unit)
        return build(function.keyword, function.scope, shape, function.arguments, costs, function.name)
    listed = [*function.costs, *([] if function.default is None else [function.default])]
    utilities = _utilities(np.array(listed, dtype=np.int64), network.unit, top)
    if function.default is None:
        return [Factor.of(function.scope, utilities.reshape(shape), name=function.name)]
    tuples = np.array(function.tuples, dtype=np.int64).reshape(len(function.costs), len(shape))
    return [tabulate(function.scope, shape, tuples, utilities[:-1], utilities[-1].item(), name=function.name)]


def _utilities(costs: NDArray[np.int64], unit: int, top: int | None) -> Array:
    """Return costs as utilities: integers where all are whole, else floats."""
    bad = costs >= top if top is not None else np.zeros(costs.shape, dtype=bool)
    if unit == 1 or not (costs[~bad] % unit).any():
        return np.where(bad, _HARD, -(costs // unit))
    return np.where(bad, -np.inf, 0.0 - costs / unit)


def decode(
    keyword: str, items: Sequence[Any], scaled: Callable[[bytes], int], variable: Callable[[bytes], int]
) -> tuple[str, dict[str, Any]]:
    """Return the parameters of a global cost function by name, or first what is wrong.

    Parameters
    ----------
    items
        Words, and lists of them, in the order of the signature.
    scaled
        Turns a word into a cost.
    variable
        Turns a word into a variable.
    """
    read = _Words(scaled, variable)
    arguments: dict[str, Any] = {}
    waiting = list(items)
    for kind in SIGNATURES[keyword]:
        if waiting and waiting[0] == kind.name.encode() and len(waiting) > 1:
            waiting.pop(0)  # the name of the field, without a colon
        if not waiting:
            return f"{kind.name}: is missing", arguments
        try:
            arguments[kind.name] = read.parameter(kind, waiting.pop(0), arguments)
        except ValueError as error:
            return f"{kind.name}: {error}", arguments
    return (f"{len(waiting)} parameters too many" if waiting else ""), arguments


class _Words(NamedTuple):
    """How words are read: as costs, and as variables."""

    scaled: Callable[[bytes], int]
    variable: Callable[[bytes], int]

    def parameter(self, kind: Field, item: Any, earlier: Mapping[str, Any]) -> Any:
        """Return one parameter; ValueError says what was expected."""
        if kind.kind in ("word", "cost", "whole"):
            if isinstance(item, list):
                raise ValueError("expected one word")
            if kind.kind == "cost":
                return self.scaled(item)
            if kind.kind == "whole":
                return _whole(item)
            word = item.decode("utf-8", "replace")
            if word not in kind.of.split("|"):
                raise ValueError(f"expected {' or '.join(kind.of.split('|'))}, got {shown(item)}")
            return word
        if not isinstance(item, list):
            raise ValueError("expected a list")
        if kind.kind == "each":
            return [_whole(word) for word in _flat(item)]
        if kind.kind == "variables":
            return [self.variable(word) for word in _flat(item)]
        if kind.kind in ("lists", "groups"):
            return [self.records(part if isinstance(part, list) else [part], kind.of) for part in item]
        return self.records(item, record(kind, earlier))

    def records(self, item: Sequence[Any], kinds: str) -> list[list[int]]:
        """Return the entries of a list."""
        words = _flat(item)
        if len(words) % len(kinds):
            raise ValueError(f"expected {len(kinds)} numbers an entry")
        how = {"c": self.scaled, "v": self.variable, "i": _whole}
        read = [how[kinds[i % len(kinds)]](word) for i, word in enumerate(words)]
        return [read[i : i + len(kinds)] for i in range(0, len(read), len(kinds))]


def _flat(item: Sequence[Any]) -> list[bytes]:
    """Return the words of nested lists."""
    return [word for part in item for word in (_flat(part) if isinstance(part, list) else [part])]


def _whole(word: bytes) -> int:
    if not _INTEGER.fullmatch(word):
        raise ValueError(f"expected a whole number, got {shown(word)}")
    return int(word)
