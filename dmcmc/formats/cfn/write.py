"""Write ``.cfn``, toulbar2's JSON: both senses, decimals, names and labels; no agents."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import NamedTuple

from dmcmc.formats.common.factor_entries import Cost, Listing, keep, labels_of, listings
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ProblemError

_WORD = re.compile(r"[^\W\d][^\"\\\x00-\x1f\x7f\s]*")  # a number would be taken for an index
_LABEL = re.compile(r"[^\"\\\x00-\x1f\x7f]+")
_MOST = 2**62  # of costs times the power of ten that makes them whole


class _Scale(NamedTuple):
    """Decimals of every cost, the bound that no assignment reaches, and the cost of a forbidden entry."""

    decimals: int
    bound: str
    hard: str


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem.

    Raises
    ------
    ProblemError
        For agents (``--drop agents`` leaves them out), names that JSON or toulbar2 would take for something else, and
        costs of more digits than 62 bits hold.
    """
    keep(problem, "labels", "names")
    for name in problem.variables:
        if not _WORD.fullmatch(name):
            raise ProblemError(f"the name {name!r}: a letter, then no quotes and no blanks, or --drop names")
    functions = list(listings(problem))
    scale = _scale(problem, functions)
    sign = "<" if problem.sense == "min" else ">"
    yield f'{{"problem": {{"name": {_quoted(_name(problem))}, "mustbe": "{sign}{scale.bound}"}},\n"variables": {{'
    for i, name in enumerate(problem.variables):
        yield f"{',' if i else ''}\n{_quoted(name)}: {_domain(problem, i)}"
    yield '},\n"functions": {'
    for i, (_, listing) in enumerate(functions):
        yield f"{',' if i else ''}\n" + _function(f"f{i}", listing, problem, scale)
    yield "}}\n"


def _name(problem: Problem) -> str:
    """Return the problem's name as a word that toulbar2 reads."""
    return re.sub(r"[\"\\\x00-\x20\x7f]+", "_", problem.name) or "problem"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _domain(problem: Problem, variable: int) -> str:
    if problem.labels[variable] is None:
        return str(problem.domains[variable])
    words = [_label(label) for label in labels_of(problem, variable)]
    return f"[{', '.join(words)}]"


def _label(label: Label) -> str:
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise ProblemError(f"the label {label!r}: only text without quotes is written; --drop labels leaves them out")
    return _quoted(label)


def _function(name: str, listing: Listing, problem: Problem, scale: _Scale) -> str:
    scope = ", ".join(_quoted(problem.variables[v]) for v in listing.scope)
    if not listing.scope:
        return f'"{name}": {{"scope": [], "costs": [{_cost(listing.default, scale)}]}}'
    words: list[str] = []
    for row, cost in zip(listing.rows, listing.costs, strict=True):
        words += [*map(str, row), _cost(cost, scale)]
    default = f'"defaultcost": {_cost(listing.default, scale)}'
    return f'"{name}": {{"scope": [{scope}], {default}, "costs": [{", ".join(words)}]}}'


def _cost(cost: Cost, scale: _Scale) -> str:
    return scale.hard if cost is None else _fixed(_decimal(cost), scale.decimals)


def _decimal(cost: int | float) -> Decimal:
    return Decimal(repr(cost)) if isinstance(cost, float) else Decimal(cost)


def _fixed(value: Decimal, decimals: int) -> str:
    """Return a number without an exponent, with exactly so many decimals (it has no more)."""
    text = f"{value:f}"
    whole, _, after = text.partition(".")
    after = after[:decimals].ljust(decimals, "0")
    return f"{whole}.{after}" if decimals else whole


def _scale(problem: Problem, functions: list[tuple[str, Listing]]) -> _Scale:
    """Return what every assignment stays below (above, in a maximisation), and what stays above it whatever is added.

    toulbar2 shifts each function to start at 0, and the bound with it: a forbidden entry must lie beyond the bound by
    as much as all functions together are shifted.
    """
    decimals = 0
    with localcontext() as context:
        context.prec = 1000
        reach = shift = Decimal(0)
        for _, listing in functions:
            costs = [_decimal(c) for c in listing.all_costs if c is not None]
            if problem.sense == "max":
                costs = [-c for c in costs]
            reach += max([Decimal(0), *costs])
            shift -= min([Decimal(0), *costs])
            decimals = max([decimals, *(-int(c.normalize().as_tuple().exponent) for c in costs)])
        if (reach + shift + 1) * 10**decimals >= _MOST:
            what = f"the costs need {decimals} decimals and add up to {reach + shift:.3g}: more than 62 bits"
            raise ProblemError(f"{what}; --drop digits rounds them to six decimals")
        bound, hard = reach + 1, reach + shift + 1
        if problem.sense == "max":
            bound, hard = -bound, -hard
    return _Scale(decimals, _fixed(bound, decimals), _fixed(hard, decimals))
