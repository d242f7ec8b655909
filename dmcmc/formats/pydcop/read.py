"""Read pyDCOP's YAML: extensional and intentional constraints, costs of variables, agents and their variables.

Intentional constraints are expressions; :mod:`dmcmc.formats.expressions.parse` evaluates them for every assignment.
:mod:`dmcmc.formats.pydcop.hosting` assigns variables to agents. External variables keep their initial value: they are
constants of the constraints, and no variables of the problem. The ``initial_value`` of other variables is where a
search starts (``Problem.initial_values``). ``noise_level``, capacities and routes do not affect the problem and are
ignored. Functions in other files are refused by name.
"""

import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dmcmc.config.document import Document, Key, show
from dmcmc.config.validate import suggestion
from dmcmc.config.yaml_lines import read_data
from dmcmc.files.text import SourceFile
from dmcmc.formats.common.entries import TableBudget, clipped_error, entries, number
from dmcmc.formats.expressions.expression import Expression, StepBudget
from dmcmc.formats.expressions.functions import ExpressionError
from dmcmc.formats.expressions.parse import parse_python, parse_terms
from dmcmc.formats.pydcop.hosting import assign_owners, read_distribution
from dmcmc.inference.model.building.unknown_names import suggest_name
from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.runtime.errors import DmcmcError, FileError, ProblemError, Unavailable

_MAX_VALUES = 1 << 22  # limit for the values of all domains together
_MAX_TABLE_ENTRIES = 1 << 20  # a sum with more entries becomes one factor per term
_RANGE = re.compile(r"\s*\[?\s*([+-]?[0-9]{1,18})\s*\.\.\s*([+-]?[0-9]{1,18})\s*\]?\s*")
_SECTIONS = (
    *("name", "description", "objective", "domains", "variables", "external_variables", "constraints", "agents"),
    *("distribution_hints", "distribution", "routes", "hosting_costs", "inputs", "cost", "hosting_cost"),
    *("communication_cost", "duration", "status"),
)
_CONSTRAINT = ("type", "function", "variables", "values", "default", "source")


def read(source: SourceFile, distribution: Path | None = None, external: Mapping[str, Any] | None = None) -> Problem:
    """Read a pyDCOP file.

    Parameters
    ----------
    source
        The problem file.
    distribution
        The file that assigns variables to agents, as ``pydcop generate meetings`` writes it; None takes
        ``NAME_dist.yaml`` next to ``NAME.yaml`` if it exists.
    external
        Values of external variables in place of their initial values.
    """
    try:
        reader = _PydcopReader(read_data(source.data, source.name), StepBudget.of(source.data), external or {})
        return reader.problem(read_distribution(source, distribution))
    except DmcmcError as error:
        raise clipped_error(error) from None


class _PydcopReader:
    """Reader of the sections of a pyDCOP file; each method reads and checks one kind of entry.

    A ``key`` is the path of an entry in the file, such as ``("domains", "colours")``; error messages name it and its
    line.

    Attributes
    ----------
    document, data : Document, dict
        The file with the lines of its entries, and its content.
    sense : str
        ``min`` or ``max``.
    table_budget, budget : TableBudget, StepBudget
        Memory that is left for tables, and evaluation steps that are left for expressions.
    values_left : int
        Number of values that further domains may have.
    values, index : dict
        By the name of a domain: its values, and the index of each value by the words that stand for it.
    variables : dict of str to int
        Index of each variable by its name.
    domain_of : list of str
        Name of each variable's domain.
    external : dict of str to (str, int)
        The domain of each external variable, and the index of the value that it keeps.
    """

    def __init__(self, document: Document, budget: StepBudget, set_values: Mapping[str, Any]) -> None:
        """Check the sections and read the objective; ``set_values`` replace those of external variables."""
        self.document, self.data, self.set_values = document, document.data, set_values
        self.table_budget, self.budget = TableBudget(), budget
        for name in self.data:
            if name not in _SECTIONS:
                self.fail((name,), f"unknown section; {suggestion(name, _SECTIONS)}")
        self.sense = str(self.data.get("objective"))
        if self.sense not in ("min", "max"):
            self.fail(("objective",), f"expected min or max, got {show(self.data.get('objective'))}")

    def problem(self, distribution: Document | None) -> Problem:
        """Read all sections and return the problem."""
        self.values_left = _MAX_VALUES
        self.values: dict[str, list[Any]] = {name: self.domain(name) for name in self.section("domains")}
        self.index = {name: _index_by_word(values) for name, values in self.values.items()}
        self.variables: dict[str, int] = {}
        self.domain_of: list[str] = []
        factors: list[Factor] = []
        for name, entry in self.section("variables").items():
            self.variable(name, entry)
        external = self.section("external_variables")
        for name in self.set_values.keys() - external.keys():
            raise FileError(f"external variable {name!r} does not exist{suggest_name(name, list(external))}")
        self.external = {name: self.external_variable(name, entry) for name, entry in external.items()}
        for name, entry in self.section("variables").items():
            if "cost_function" in entry:
                factors += self.cost_function(name, entry["cost_function"])
        constraints = self.section("constraints")
        for name, entry in constraints.items():
            factors += self.constraint(name, entry)
        scopes = [factor.scope for factor in factors]
        others = {*constraints, *self.external}
        agents, owner = assign_owners(self.document, distribution, list(self.variables), others, scopes)
        return Problem(
            tuple(self.variables),
            np.array([len(self.values[d]) for d in self.domain_of], dtype=np.int64),
            agents,
            np.array(owner, dtype=np.int64),
            tuple(factors),
            tuple(_labels(self.values[d]) for d in self.domain_of),
            self.sense,
            str(self.data.get("name") or ""),
            self.initial_values() or None,
        )

    def initial_values(self) -> dict[str, Label]:
        """Return the initial values of the variables that have one."""
        values: dict[str, Label] = {}
        for name, entry in self.section("variables").items():
            if entry.get("initial_value") is not None:
                domain, index = self.initial_value(("variables", name), entry)
                values[name] = (_labels(self.values[domain]) or range(len(self.values[domain])))[index]
        return values

    def section(self, name: str) -> dict[str, Any]:
        """Return a section with named entries; a missing section is empty."""
        entries_ = self.data.get(name)
        if entries_ is None:
            return {}
        if not isinstance(entries_, dict):
            self.fail((name,), f"expected names with their descriptions, got {show(entries_)}")
        return entries_

    def domain(self, name: str) -> list[Any]:
        """Return the values of a domain."""
        key, entry = ("domains", name), self.data["domains"][name]
        values = entry.get("values") if isinstance(entry, dict) else None
        values = [values] if isinstance(values, str) else values
        if not isinstance(values, list) or not values:
            if isinstance(entry, dict) and "values" in entry:
                self.fail(
                    (*key, "values"), f"expected 'values' with a list such as [R, G] or [0..9], got {show(values)}"
                )
            self.fail(key, f"expected 'values' with a list such as [R, G] or [0..9], got {show(entry)}")
        if len(values) == 1 and isinstance(values[0], str) and ".." in values[0]:
            span = _RANGE.fullmatch(values[0])
            if span is None or int(span[2]) < int(span[1]):
                self.fail((*key, "values"), f"expected a range such as 0..9, got {show(values[0])}")
            self.count_values(int(span[2]) - int(span[1]) + 1, key)
            return list(range(int(span[1]), int(span[2]) + 1))
        self.count_values(len(values), key)
        for value in values:
            if not isinstance(value, str | int | float) or value != value:
                self.fail((*key, "values"), f"a value must be a word or a number, not {show(value)}")
        if len(set(values)) < len(values):
            self.fail((*key, "values"), "a value occurs twice")
        return values

    def count_values(self, count: int, key: Key) -> None:
        """Count the values of a domain towards the limit."""
        self.values_left -= count
        if self.values_left < 0:
            self.fail(key, f"domains have at most {_MAX_VALUES:,} values together")

    def variable(self, name: str, entry: Any) -> None:
        """Read one variable and its domain."""
        self.domain_of.append(self.domain_name(("variables", name), entry))
        self.variables[name] = len(self.variables)

    def external_variable(self, name: str, entry: Any) -> tuple[str, int]:
        """Return the domain of an external variable, and the index of its initial value."""
        key = ("external_variables", name)
        if name in self.variables:
            self.fail(key, f"{name} is a variable, too; give one of them another name")
        self.domain_name(key, entry)
        if name in self.set_values:
            entry = {**entry, "initial_value": self.set_values[name]}
        if entry.get("initial_value") is None:
            self.fail(key, "expected 'initial_value', the value that the external variable keeps")
        return self.initial_value(key, entry)

    def initial_value(self, key: Key, entry: Any) -> tuple[str, int]:
        """Return the domain of a variable, and the index of its initial value."""
        domain, value = self.domain_name(key, entry), entry["initial_value"]
        index = self.index[domain].get(str(value))
        if index is None:
            self.fail((*key, "initial_value"), f"{show(value)} is not in the domain {show(domain)}")
        return domain, index

    def domain_name(self, key: Key, entry: Any) -> str:
        """Return the name of a variable's domain."""
        domain = entry.get("domain") if isinstance(entry, dict) else None
        if str(domain) not in self.values:
            what = f"{show(domain)}; {suggestion(str(domain), self.values, 'domains')}"
            self.fail(key, f"expected 'domain' with the name of a domain, got {what}")
        return str(domain)

    def cost_function(self, name: str, function: Any) -> list[Factor]:
        """Return the factors for the cost of one variable."""
        key = ("variables", name, "cost_function")
        factors = self.intentional(key, function, f"{name}.cost_function")
        if any(factor.scope != (self.variables[name],) for factor in factors if factor.scope):
            self.fail(key, f"the cost of a variable must depend on that variable only ({name})")
        return factors

    def constraint(self, name: str, entry: Any) -> list[Factor]:
        """Return the factors of one constraint."""
        key = ("constraints", name)
        if not isinstance(entry, dict):
            self.fail(key, f"expected 'type' and its parameters, got {show(entry)}")
        for word in entry:
            if word not in _CONSTRAINT:
                self.fail((*key, word), f"unknown key; {suggestion(word, _CONSTRAINT)}")
        if entry.get("type") == "extensional":
            return [self.extensional(key, entry)]
        if entry.get("type") != "intention":
            self.fail((*key, "type"), f"expected intention or extensional, got {show(entry.get('type'))}")
        if "source" in entry:
            place = self.document.at((*key, "source"))
            raise Unavailable(
                f"{place}: functions in other files are not available in this version; write the function here"
            )
        return self.intentional((*key, "function"), entry.get("function"), name)

    def intentional(self, key: Key, function: Any, name: str) -> list[Factor]:
        """Return the factor of an expression, or one factor per term for a sum that is too large for one table."""
        if isinstance(function, bool) or not isinstance(function, str | int | float):
            self.fail(key, f"expected an expression, got {show(function)}")
        try:
            expression = parse_python(str(function), self.budget)
            if prod(len(self.values_of(v, key)) for v in expression.names) <= _MAX_TABLE_ENTRIES:
                return [self.evaluated(key, expression, name)]
            terms = parse_terms(str(function), self.budget)
            return [self.evaluated(key, t, name if len(terms) == 1 else f"{name}.{i}") for i, t in enumerate(terms)]
        except (ExpressionError, OverflowError) as error:
            self.fail(key, f"the expression {error}")

    def evaluated(self, key: Key, expression: Expression, name: str) -> Factor:
        """Return the factor of an expression, evaluated for all assignments."""
        values = [self.values_of(v, key) for v in expression.names]
        shape = [len(v) for v in values]
        count = self.table_budget.reserve(shape, lambda: self.document.at(key))
        if count * expression.size > self.budget.steps:
            self.fail(key, f"evaluating {count:,} entries takes too long; divide it into several constraints")
        costs = entries(expression.evaluate_all(values), self.sense)
        scope = [self.variables[v] for v in expression.names if v in self.variables]
        shape = [len(self.values[self.domain_of[v]]) for v in scope]  # an external variable has one value
        return self.checked(key, lambda: Factor.of(scope, costs.reshape(shape), self.sense, name))

    def values_of(self, name: str, key: Key) -> list[Any]:
        """Return the values of a variable, or the value of an external variable; fail for an unknown name."""
        if name in self.external:
            domain, index = self.external[name]
            return [self.values[domain][index]]
        if name not in self.variables:
            self.fail(key, f"{name} is not a variable; {suggestion(name, list(self.variables)[:50], 'variables')}")
        return self.values[self.domain_of[self.variables[name]]]

    def extensional(self, key: Key, entry: dict[str, Any]) -> Factor:
        """Return the factor of a constraint that lists costs with their assignments."""
        given = entry.get("variables")
        names = [given.strip()] if isinstance(given, str) else given
        if not isinstance(names, list) or not names:
            self.fail((*key, "variables"), f"expected a list of variables, got {show(given)}")
        for name in names:
            self.values_of(str(name), (*key, "variables"))
        names = [str(name) for name in names]
        if len(set(names)) < len(names):
            self.fail((*key, "variables"), "a variable occurs twice")
        domains = [self.external[name][0] if name in self.external else self.domain_of_variable(name) for name in names]
        rows, costs = self.rows(key, [self.index[d] for d in domains], entry.get("values"))
        default = _cost(entry.get("default"))
        if default is None:
            if entry.get("default") is not None:
                self.fail((*key, "default"), f"expected a number, got {show(entry['default'])}")
            if len({tuple(row) for row in rows}) < prod(len(self.values[d]) for d in domains):
                self.fail(key, "not every assignment has a value and there is no 'default'")
            default = 0
        fixed = [(i, self.external[name][1]) for i, name in enumerate(names) if name in self.external]
        kept = [i for i, row in enumerate(rows) if all(row[position] == index for position, index in fixed)]
        positions = [i for i, name in enumerate(names) if name in self.variables]
        rows, costs = [[rows[i][p] for p in positions] for i in kept], [costs[i] for i in kept]
        scope = [self.variables[names[p]] for p in positions]
        shape = [len(self.values[domains[p]]) for p in positions]
        try:
            numbers = entries([*costs, default], self.sense)
        except OverflowError as error:
            self.fail((*key, "values"), str(error))
        # ``tabulate`` builds a dense table only if it is small or has at most 16 entries per row.
        self.table_budget.reserve((16 * len(rows),), lambda: self.document.at(key))
        return self.checked(key, lambda: tabulate(scope, shape, rows, numbers[:-1], numbers[-1], self.sense, key[-1]))

    def rows(self, key: Key, index: Sequence[dict[str, int]], listed: Any) -> tuple[list[list[int]], list[int | float]]:
        """Return the listed assignments as value indices, and their costs.

        Parameters
        ----------
        key
            The constraint.
        index
            For each variable, the index of each value by its words.
        listed
            The mapping from costs to assignments, from the file.
        """
        if not isinstance(listed, dict):
            self.fail((*key, "values"), f"expected costs with their assignments, got {show(listed)}")
        rows: list[list[int]] = []
        costs: list[int | float] = []
        for word, assignments in listed.items():
            place, cost = (*key, "values", word), _cost(word)
            if cost is None:
                self.fail(place, "a cost must be a number")
            if assignments is None or isinstance(assignments, list | dict):
                self.fail(place, f"expected assignments such as R G | G R, got {show(assignments)}")
            for part in str(assignments).split("|"):
                rows.append(self.row(part, index, place))
                costs.append(cost)
        return rows, costs

    def domain_of_variable(self, name: str) -> str:
        """Return the name of a variable's domain."""
        return self.domain_of[self.variables[name]]

    def row(self, text: str, index: Sequence[dict[str, int]], key: Key) -> list[int]:
        """Return the value indices of an assignment such as ``R G B``."""
        words = text.split()
        if len(words) != len(index):
            self.fail(key, f"the assignment {show(text.strip())} has {len(words)} values for {len(index)} variables")
        try:
            return [index_of[word] for index_of, word in zip(index, words, strict=True)]
        except KeyError as error:
            self.fail(
                key, f"the assignment {show(text.strip())}: {show(error.args[0])} is not in the domain of its variable"
            )

    def checked(self, key: Key, make: Any) -> Factor:
        """Return the factor that ``make`` builds; a ``ProblemError`` becomes an error with its place in the file."""
        try:
            factor: Factor = make()
        except ProblemError as error:
            self.fail(key, str(error))
        return factor

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise the error that names the line and the key."""
        raise FileError(f"{self.document.at(key)}: {message}")


def _cost(word: Any) -> int | float | None:
    """Return the number that a YAML key or value stands for, including ``.inf``; None if it is not a number."""
    if isinstance(word, int | float) and not isinstance(word, bool):
        return word if word == word else None
    return number(word.replace(".inf", "inf").replace(".Inf", "inf")) if isinstance(word, str) else None


def _index_by_word(values: list[Any]) -> dict[str, int]:
    """Return the index of each value by the words that assignments may use for it."""
    index_of = {str(value).lower(): i for i, value in enumerate(values) if isinstance(value, bool)}
    return index_of | {str(value): i for i, value in enumerate(values)}


def _labels(values: list[Any]) -> tuple[Label, ...] | None:
    """Return values as labels: None for 0, 1, ...; booleans as words."""
    if all(type(value) is int for value in values) and values == list(range(len(values))):
        return None
    return tuple(str(value).lower() if isinstance(value, bool) else value for value in values)
