"""Read pyDCOP's YAML: extensional and intentional constraints, costs of variables, agents and who hosts what.

Intentional constraints are expressions, evaluated by :mod:`dmcmc.formats.expressions.parse` for every assignment.
Ownership comes from :mod:`dmcmc.formats.pydcop.hosting`. ``noise_level``, ``initial_value``, capacities and routes are
of no consequence here and are passed over; external variables and functions in other files are refused by name.
"""

import re
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dmcmc.config.document import Document, Key, show
from dmcmc.config.validate import suggestion
from dmcmc.config.yaml_lines import read_data
from dmcmc.files.text import Source
from dmcmc.formats.common.entries import Space, clipped, entries, number
from dmcmc.formats.expressions.expression import Expression, Meter
from dmcmc.formats.expressions.functions import ExpressionError
from dmcmc.formats.expressions.parse import parse_python, parse_terms
from dmcmc.formats.pydcop.hosting import distribution_beside, owners
from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.runtime.errors import DmcmcError, FileError, ProblemError, Unavailable

_MOST_VALUES = 1 << 22  # of all domains together
_WHOLE_TABLE = 1 << 20  # a sum with more entries becomes a factor for each term
_RANGE = re.compile(r"\s*\[?\s*([+-]?[0-9]{1,18})\s*\.\.\s*([+-]?[0-9]{1,18})\s*\]?\s*")
_SECTIONS = (
    *("name", "description", "objective", "domains", "variables", "external_variables", "constraints", "agents"),
    *("distribution_hints", "distribution", "routes", "hosting_costs", "inputs", "cost", "hosting_cost"),
    *("communication_cost", "duration", "status"),
)
_CONSTRAINT = ("type", "function", "variables", "values", "default", "source")


def read(source: Source, distribution: Path | None = None) -> Problem:
    """Read a pyDCOP file; see :func:`dmcmc.formats.load`.

    ``distribution`` is the file that says which agent hosts which variables; None takes ``NAME_dist.yaml`` beside
    ``NAME.yaml`` where there is one, as ``pydcop generate meetings`` writes it.
    """
    try:
        reader = _Reader(read_data(source.data, source.name), Meter.of(source.data))
        return reader.problem(distribution_beside(source, distribution))
    except DmcmcError as error:
        raise clipped(error) from None


class _Reader:
    def __init__(self, document: Document, meter: Meter) -> None:
        self.document, self.data = document, document.data
        self.space, self.meter = Space(), meter
        for name in self.data:
            if name not in _SECTIONS:
                self.fail((name,), f"unknown section; {suggestion(name, _SECTIONS)}")
        self.sense = str(self.data.get("objective"))
        if self.sense not in ("min", "max"):
            self.fail(("objective",), f"expected min or max, got {show(self.data.get('objective'))}")
        for name in self.section("external_variables"):
            place = self.document.at(("external_variables", name))
            raise Unavailable(f"{place}: external variables are not available in this version; make it a constant")

    def problem(self, distribution: Document | None) -> Problem:
        """Read everything."""
        self.room = _MOST_VALUES
        self.values: dict[str, list[Any]] = {name: self.domain(name) for name in self.section("domains")}
        self.index = {name: _index(values) for name, values in self.values.items()}
        self.variables: dict[str, int] = {}
        self.domain_of: list[str] = []
        factors: list[Factor] = []
        for name, about in self.section("variables").items():
            self.variable(name, about)
        for name, about in self.section("variables").items():
            if "cost_function" in about:
                factors += self.cost_function(name, about["cost_function"])
        constraints = self.section("constraints")
        for name, about in constraints.items():
            factors += self.constraint(name, about)
        scopes = [factor.scope for factor in factors]
        agents, owner = owners(self.document, distribution, list(self.variables), set(constraints), scopes)
        return Problem(
            tuple(self.variables),
            np.array([len(self.values[d]) for d in self.domain_of], dtype=np.int64),
            agents,
            np.array(owner, dtype=np.int64),
            tuple(factors),
            tuple(_labels(self.values[d]) for d in self.domain_of),
            self.sense,
            str(self.data.get("name") or ""),
        )

    def section(self, name: str) -> dict[str, Any]:
        """Return a section of named things."""
        found = self.data.get(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            self.fail((name,), f"expected names with their descriptions, got {show(found)}")
        return found

    def domain(self, name: str) -> list[Any]:
        """Return the values of a domain."""
        key, about = ("domains", name), self.data["domains"][name]
        values = about.get("values") if isinstance(about, dict) else None
        values = [values] if isinstance(values, str) else values
        if not isinstance(values, list) or not values:
            self.fail(key, f"expected 'values' with a list such as [R, G] or [0..9], got {show(about)}")
        if len(values) == 1 and isinstance(values[0], str) and ".." in values[0]:
            span = _RANGE.fullmatch(values[0])
            if span is None or int(span[2]) < int(span[1]):
                self.fail((*key, "values"), f"expected a range such as 0..9, got {show(values[0])}")
            self.take(int(span[2]) - int(span[1]) + 1, key)
            return list(range(int(span[1]), int(span[2]) + 1))
        self.take(len(values), key)
        for value in values:
            if not isinstance(value, str | int | float) or value != value:
                self.fail((*key, "values"), f"a value is a word or a number, not {show(value)}")
        if len(set(values)) < len(values):
            self.fail((*key, "values"), "a value stands twice")
        return values

    def take(self, count: int, key: Key) -> None:
        self.room -= count
        if self.room < 0:
            self.fail(key, f"domains have at most {_MOST_VALUES:,} values together")

    def variable(self, name: str, about: Any) -> None:
        domain = about.get("domain") if isinstance(about, dict) else None
        if str(domain) not in self.values:
            what = f"{show(domain)}; {suggestion(str(domain), self.values, 'domains')}"
            self.fail(("variables", name), f"expected 'domain' with the name of a domain, got {what}")
        self.variables[name] = len(self.variables)
        self.domain_of.append(str(domain))

    def cost_function(self, name: str, function: Any) -> list[Factor]:
        key = ("variables", name, "cost_function")
        found = self.intentional(key, function, f"{name}.cost_function")
        if any(factor.scope != (self.variables[name],) for factor in found if factor.scope):
            self.fail(key, f"the cost of a variable depends on that variable, {name}, alone")
        return found

    def constraint(self, name: str, about: Any) -> list[Factor]:
        key = ("constraints", name)
        if not isinstance(about, dict):
            self.fail(key, f"expected 'type' and what belongs to it, got {show(about)}")
        for word in about:
            if word not in _CONSTRAINT:
                self.fail((*key, word), f"unknown key; {suggestion(word, _CONSTRAINT)}")
        if about.get("type") == "extensional":
            return [self.extensional(key, about)]
        if about.get("type") != "intention":
            self.fail((*key, "type"), f"expected intention or extensional, got {show(about.get('type'))}")
        if "source" in about:
            place = self.document.at((*key, "source"))
            raise Unavailable(f"{place}: functions in other files are not available in this version; put it here")
        return self.intentional((*key, "function"), about.get("function"), name)

    def intentional(self, key: Key, function: Any, name: str) -> list[Factor]:
        """Return the factor of an expression: several where it is a sum too large for one table."""
        if isinstance(function, bool) or not isinstance(function, str | int | float):
            self.fail(key, f"expected an expression, got {show(function)}")
        try:
            expression = parse_python(str(function), self.meter)
            if prod(len(self.values_of(v, key)) for v in expression.names) <= _WHOLE_TABLE:
                return [self.evaluated(key, expression, name)]
            terms = parse_terms(str(function), self.meter)
            return [self.evaluated(key, t, name if len(terms) == 1 else f"{name}.{i}") for i, t in enumerate(terms)]
        except (ExpressionError, OverflowError) as error:
            self.fail(key, f"the expression {error}")

    def evaluated(self, key: Key, expression: Expression, name: str) -> Factor:
        values = [self.values_of(v, key) for v in expression.names]
        shape = [len(v) for v in values]
        cells = self.space.take(shape, lambda: self.document.at(key))
        if cells * expression.size > self.meter.steps:
            self.fail(key, f"evaluating {cells:,} entries takes too long; divide it into several constraints")
        costs = entries(expression.over(values), self.sense)
        scope = [self.variables[v] for v in expression.names]
        return self.checked(key, lambda: Factor.of(scope, costs.reshape(shape), self.sense, name))

    def values_of(self, name: str, key: Key) -> list[Any]:
        if name not in self.variables:
            self.fail(key, f"{name} is no variable; {suggestion(name, list(self.variables)[:50], 'variables')}")
        return self.values[self.domain_of[self.variables[name]]]

    def extensional(self, key: Key, about: dict[str, Any]) -> Factor:
        given, listed = about.get("variables"), about.get("values")
        names = [given.strip()] if isinstance(given, str) else given
        if not isinstance(names, list) or not names:
            self.fail((*key, "variables"), f"expected a list of variables, got {show(given)}")
        for name in names:
            self.values_of(str(name), (*key, "variables"))
        scope = [self.variables[str(name)] for name in names]
        if len(set(scope)) < len(scope):
            self.fail((*key, "variables"), "a variable stands twice")
        if not isinstance(listed, dict):
            self.fail((*key, "values"), f"expected costs with their assignments, got {show(listed)}")
        index = [self.index[self.domain_of[v]] for v in scope]
        rows: list[list[int]] = []
        costs: list[int | float] = []
        for word, assignments in listed.items():
            cost = _cost(word)
            if cost is None:
                self.fail((*key, "values", word), "a cost must be a number")
            for part in str(assignments).split("|"):
                rows.append(self.row(part, index, (*key, "values", word)))
                costs.append(cost)
        shape = [len(self.values[self.domain_of[v]]) for v in scope]
        default = _cost(about.get("default"))
        if default is None:
            if about.get("default") is not None:
                self.fail((*key, "default"), f"expected a number, got {show(about['default'])}")
            if len({tuple(row) for row in rows}) < prod(shape):
                self.fail(key, "not every assignment has a value and there is no 'default'")
            default = 0
        try:
            numbers = entries([*costs, default], self.sense)
        except OverflowError as error:
            self.fail((*key, "values"), str(error))
        self.space.take((16 * len(rows),), lambda: self.document.at(key))  # what a table may have for each row
        return self.checked(key, lambda: tabulate(scope, shape, rows, numbers[:-1], numbers[-1], self.sense, key[-1]))

    def row(self, text: str, index: Sequence[dict[str, int]], key: Key) -> list[int]:
        words = text.split()
        if len(words) != len(index):
            self.fail(key, f"the assignment {show(text.strip())} has {len(words)} values for {len(index)} variables")
        try:
            return [place[word] for place, word in zip(index, words, strict=True)]
        except KeyError as error:
            self.fail(key, f"the assignment {show(text.strip())}: {show(error.args[0])} is in no domain there")

    def checked(self, key: Key, make: Any) -> Factor:
        """Return a factor; what is wrong with its numbers is said with its place."""
        try:
            factor: Factor = make()
        except ProblemError as error:
            self.fail(key, str(error))
        return factor

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise the error that names the line and the key."""
        raise FileError(f"{self.document.at(key)}: {message}")


def _cost(word: Any) -> int | float | None:
    """Return the number that a key or a value of YAML stands for, ``.inf`` among them."""
    if isinstance(word, int | float) and not isinstance(word, bool):
        return word if word == word else None
    return number(word.replace(".inf", "inf").replace(".Inf", "inf")) if isinstance(word, str) else None


def _index(values: list[Any]) -> dict[str, int]:
    """Return where each value stands, by the words that assignments may use for it."""
    found = {str(value).lower(): i for i, value in enumerate(values) if isinstance(value, bool)}
    return found | {str(value): i for i, value in enumerate(values)}


def _labels(values: list[Any]) -> tuple[Label, ...] | None:
    """Return values as labels: none needed for 0, 1, ...; booleans as words."""
    if all(type(value) is int for value in values) and values == list(range(len(values))):
        return None
    return tuple(str(value).lower() if isinstance(value, bool) else value for value in values)
