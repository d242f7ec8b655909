"""Write ``.cfn``, toulbar2's JSON.

The format has both senses, decimals, names and labels, but no agents.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import NamedTuple

from dmcmc.formats.common.factor_entries import (
    Cost,
    FactorEntries,
    check_missing,
    labels_of,
    missing_features,
    named_factor_entries,
)
from dmcmc.inference.model.problem import Problem

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
    missing = missing_features(problem, "labels", "names")
    for name in problem.variables:
        if not _NAME.fullmatch(name):
            missing["names"] = f"no names such as {name!r} (only a letter, then no quotes and no blanks)"
            break
    for label in (x for labels in problem.labels if labels is not None for x in labels):
        if not isinstance(label, str) or not _LABEL.fullmatch(label):
            missing["labels"] = f"no labels such as {label!r} (only text without quotes)"
            break
    functions = list(named_factor_entries(problem))
    scale, besides = _cost_format(problem, functions), ""
    if scale.needed:
        besides = f"the costs {scale.needed}: more than 62 bits"
        if scale.decimals > _KEPT_DECIMALS:
            missing["digits"] = f"fewer digits than needed (the costs {scale.needed}: more than 62 bits)"
            besides = ""
    check_missing(missing, besides)
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
    words = [_quoted(str(label)) for label in labels_of(problem, variable)]
    return f"[{', '.join(words)}]"


def _function(name: str, listing: FactorEntries, problem: Problem, scale: _CostFormat) -> str:
    """Return the text of one function: a default cost and the tuples that differ from it."""
    scope = ", ".join(_quoted(problem.variables[v]) for v in listing.scope)
    if not listing.scope:
        return f'"{name}": {{"scope": [], "costs": [{_cost(listing.default, scale)}]}}'
    words: list[str] = []
    for row, cost in zip(listing.rows, listing.costs, strict=True):
        words += [*map(str, row), _cost(cost, scale)]
    default = f'"defaultcost": {_cost(listing.default, scale)}'
    return f'"{name}": {{"scope": [{scope}], {default}, "costs": [{", ".join(words)}]}}'


def _cost(cost: Cost, scale: _CostFormat) -> str:
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


def _cost_format(problem: Problem, functions: list[tuple[str, FactorEntries]]) -> _CostFormat:
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
