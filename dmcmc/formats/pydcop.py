"""The YAML format of pyDCOP: reading and writing.

Read pyDCOP's YAML: extensional and intentional constraints, costs of variables, agents and their variables.

Intentional constraints are expressions, evaluated for every assignment (:mod:`dmcmc.formats.expressions.expression`).
:mod:`dmcmc.formats.pydcop_hosting` assigns variables to agents. External variables keep their initial value: they are
constants of the constraints, and no variables of the problem. The ``initial_value`` of other variables is where a
search starts (``Problem.initial_values``). ``noise_level``, capacities and routes do not affect the problem and are
ignored. Functions in other files are refused by name.

The sections of a pyDCOP file, and errors that name the line of an entry.

The domains and variables of a pyDCOP file, and its external variables.

Write pyDCOP's YAML: extensional constraints, agents, and owners as ``distribution_hints``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dmcmc.files.document import FLOATS, Document, Key, SectionReader, read_data, show, suggestion
from dmcmc.files.text import SourceFile
from dmcmc.formats.common.factor_entries import (
    Cost,
    FactorEntries,
    Inexpressible,
    TableBudget,
    clipped_error,
    entries,
    labels_of,
    named_factor_entries,
    number,
)
from dmcmc.formats.expressions.expression import Expression, StepBudget, parse_python, parse_terms
from dmcmc.formats.expressions.functions import ExpressionError
from dmcmc.formats.pydcop_hosting import assign_owners, read_distribution
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import suggest_name
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.runtime.errors import DmcmcError, FileError, ProblemError, Unavailable
from dmcmc.tuning import run as tuning

_SECTIONS = (
    *("name", "description", "objective", "domains", "variables", "external_variables", "constraints", "agents"),
    *("distribution_hints", "distribution", "routes", "hosting_costs", "inputs", "cost", "hosting_cost"),
    *("communication_cost", "duration", "status"),
)


class PydcopSections(SectionReader):
    """The sections of a pyDCOP file.

    Attributes
    ----------
    sense : str
        ``min`` or ``max``.
    """

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        for name in document.data:
            if name not in _SECTIONS:
                self.fail((name,), f"unknown section; {suggestion(name, _SECTIONS)}")
        self.sense = str(document.data.get("objective"))
        if self.sense not in ("min", "max"):
            self.fail(("objective",), f"expected min or max, got {show(document.data.get('objective'))}")


_MAX_VALUES = 1 << 22  # limit for the values of all domains together
_RANGE = re.compile(r"\s*\[?\s*([+-]?[0-9]{1,18})\s*\.\.\s*([+-]?[0-9]{1,18})\s*\]?\s*")


class PydcopVariables:
    """The variables of a pyDCOP file.

    Parameters
    ----------
    sections : PydcopSections
        The file.
    set_values : mapping
        Values that replace those of external variables.

    Attributes
    ----------
    values, value_index : dict
        By the name of a domain: its values, and the index of each value by the words that stand for it.
    index : dict of str to int
        Index of each variable by its name.
    domain_of : list of str
        Name of each variable's domain.
    external : dict of str to (str, int)
        The domain of each external variable, and the index of the value that it keeps.
    """

    def __init__(self, sections: PydcopSections, set_values: Mapping[str, Any]) -> None:
        self._sections, self._set_values, self._values_left = sections, set_values, _MAX_VALUES
        self.values: dict[str, list[Any]] = {name: self._domain(name) for name in sections.section("domains")}
        self.value_index = {name: _index_by_word(values) for name, values in self.values.items()}
        self.index: dict[str, int] = {}
        self.domain_of: list[str] = []
        for name, entry in sections.section("variables").items():
            self.domain_of.append(self._given_domain(("variables", name), entry))
            self.index[name] = len(self.index)
        external = sections.section("external_variables")
        for name in set_values.keys() - external.keys():
            raise FileError(f"external variable {name!r} does not exist{suggest_name(name, list(external))}")
        self.external = {name: self._external_variable(name, entry) for name, entry in external.items()}

    @property
    def sizes(self) -> list[int]:
        """The domain size of each variable."""
        return [len(self.values[domain]) for domain in self.domain_of]

    @property
    def labels(self) -> tuple[tuple[Label, ...] | None, ...]:
        """The labels of each variable's values; None for 0, 1, ..."""
        return tuple(_labels(self.values[domain]) for domain in self.domain_of)

    def initial_values(self) -> dict[str, Label]:
        """Return the initial values of the variables that have one."""
        values: dict[str, Label] = {}
        for name, entry in self._sections.section("variables").items():
            if entry.get("initial_value") is not None:
                domain, index = self._initial_value(("variables", name), entry)
                values[name] = (_labels(self.values[domain]) or range(len(self.values[domain])))[index]
        return values

    def size(self, v: int) -> int:
        """Return the domain size of a variable by its index."""
        return len(self.values[self.domain_of[v]])

    def domain_name(self, name: str) -> str:
        """Return the name of the domain of a variable or an external variable."""
        return self.external[name][0] if name in self.external else self.domain_of[self.index[name]]

    def values_of(self, name: str, key: Key) -> list[Any]:
        """Return the values of a variable, or the value of an external variable; fail for an unknown name."""
        if name in self.external:
            domain, index = self.external[name]
            return [self.values[domain][index]]
        if name not in self.index:
            self._sections.fail(
                key, f"{name} is not a variable; {suggestion(name, list(self.index)[:50], 'variables')}"
            )
        return self.values[self.domain_of[self.index[name]]]

    def _domain(self, name: str) -> list[Any]:
        """Return the values of a domain."""
        key, entry = ("domains", name), self._sections.section("domains")[name]
        values = entry.get("values") if isinstance(entry, dict) else None
        values = [values] if isinstance(values, str) else values
        if not isinstance(values, list) or not values:
            if isinstance(entry, dict) and "values" in entry:
                self._sections.fail(
                    (*key, "values"), f"expected 'values' with a list such as [R, G] or [0..9], got {show(values)}"
                )
            self._sections.fail(key, f"expected 'values' with a list such as [R, G] or [0..9], got {show(entry)}")
        if len(values) == 1 and isinstance(values[0], str) and ".." in values[0]:
            span = _RANGE.fullmatch(values[0])
            if span is None or int(span[2]) < int(span[1]):
                self._sections.fail((*key, "values"), f"expected a range such as 0..9, got {show(values[0])}")
            self._count_values(int(span[2]) - int(span[1]) + 1, key)
            return list(range(int(span[1]), int(span[2]) + 1))
        self._count_values(len(values), key)
        for value in values:
            if not isinstance(value, str | int | float) or value != value:
                self._sections.fail((*key, "values"), f"a value must be a word or a number, not {show(value)}")
        if len(set(values)) < len(values):
            self._sections.fail((*key, "values"), "a value occurs twice")
        return values

    def _count_values(self, count: int, key: Key) -> None:
        """Count the values of a domain towards the limit."""
        self._values_left -= count
        if self._values_left < 0:
            self._sections.fail(key, f"domains have at most {_MAX_VALUES:,} values together")

    def _external_variable(self, name: str, entry: Any) -> tuple[str, int]:
        """Return the domain of an external variable, and the index of its initial value."""
        key = ("external_variables", name)
        if name in self.index:
            self._sections.fail(key, f"{name} is a variable, too; give one of them another name")
        self._given_domain(key, entry)
        if name in self._set_values:
            entry = {**entry, "initial_value": self._set_values[name]}
        if entry.get("initial_value") is None:
            self._sections.fail(key, "expected 'initial_value', the value that the external variable keeps")
        return self._initial_value(key, entry)

    def _initial_value(self, key: Key, entry: Any) -> tuple[str, int]:
        """Return the domain of a variable, and the index of its initial value."""
        domain, value = self._given_domain(key, entry), entry["initial_value"]
        index = self.value_index[domain].get(str(value))
        if index is None:
            self._sections.fail((*key, "initial_value"), f"{show(value)} is not in the domain {show(domain)}")
        return domain, index

    def _given_domain(self, key: Key, entry: Any) -> str:
        """Return the name of the domain that the entry of a variable gives."""
        domain = entry.get("domain") if isinstance(entry, dict) else None
        if str(domain) not in self.values:
            what = f"{show(domain)}; {suggestion(str(domain), self.values, 'domains')}"
            self._sections.fail(key, f"expected 'domain' with the name of a domain, got {what}")
        return str(domain)


def _index_by_word(values: list[Any]) -> dict[str, int]:
    """Return the index of each value by the words that assignments may use for it."""
    index_of = {str(value).lower(): i for i, value in enumerate(values) if isinstance(value, bool)}
    return index_of | {str(value): i for i, value in enumerate(values)}


def _labels(values: list[Any]) -> tuple[Label, ...] | None:
    """Return values as labels: None for 0, 1, ...; booleans as words."""
    if all(type(value) is int for value in values) and values == list(range(len(values))):
        return None
    return tuple(str(value).lower() if isinstance(value, bool) else value for value in values)


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
        sections = PydcopSections(read_data(source.data, source.name))
        return _problem(sections, StepBudget.of(source.data), external or {}, read_distribution(source, distribution))
    except DmcmcError as error:
        raise clipped_error(error) from None


def _problem(
    sections: PydcopSections, budget: StepBudget, set_values: Mapping[str, Any], distribution: Document | None
) -> Problem:
    """Read all sections and return the problem."""
    variables = PydcopVariables(sections, set_values)
    factors = tuple(_PydcopConstraints(sections, variables, budget).factors())
    others = {*sections.section("constraints"), *variables.external}
    scopes = [factor.scope for factor in factors]
    agents, owner = assign_owners(sections.document, distribution, list(variables.index), others, scopes)
    return Problem(
        tuple(variables.index),
        np.array(variables.sizes, dtype=np.int64),
        agents,
        np.array(owner, dtype=np.int64),
        factors,
        variables.labels,
        sections.sense,
        str(sections.document.data.get("name") or ""),
        variables.initial_values() or None,
    )


class _PydcopConstraints:
    """Reader of the constraints of a pyDCOP file; each method reads and checks one kind of entry.

    A ``key`` is the path of an entry in the file, such as ``("domains", "colours")``; error messages name it and its
    line.

    Attributes
    ----------
    sections : PydcopSections
        The file.
    variables : PydcopVariables
        Its variables.
    table_budget, budget : TableBudget, StepBudget
        Memory that is left for tables, and evaluation steps that are left for expressions.
    """

    def __init__(self, sections: PydcopSections, variables: PydcopVariables, budget: StepBudget) -> None:
        self.sections, self.sense, self.variables = sections, sections.sense, variables
        self.table_budget, self.budget = TableBudget(), budget

    def factors(self) -> Iterator[Factor]:
        """Yield the factors of the costs of variables and of all constraints."""
        for name, entry in self.sections.section("variables").items():
            if "cost_function" in entry:
                yield from self.cost_function(name, entry["cost_function"])
        for name, entry in self.sections.section("constraints").items():
            yield from self.constraint(name, entry)

    def cost_function(self, name: str, function: Any) -> list[Factor]:
        """Return the factors for the cost of one variable."""
        key = ("variables", name, "cost_function")
        factors = self.intentional(key, function, f"{name}.cost_function")
        if any(factor.scope != (self.variables.index[name],) for factor in factors if factor.scope):
            self.sections.fail(key, f"the cost of a variable must depend on that variable only ({name})")
        return factors

    def constraint(self, name: str, entry: Any) -> list[Factor]:
        """Return the factors of one constraint."""
        key = ("constraints", name)
        if not isinstance(entry, dict):
            self.sections.fail(key, f"expected 'type' and its parameters, got {show(entry)}")
        self.sections.check_keys(key, entry, _CONSTRAINT)
        if entry.get("type") == "extensional":
            return [self.extensional(key, entry)]
        if entry.get("type") != "intention":
            self.sections.fail((*key, "type"), f"expected intention or extensional, got {show(entry.get('type'))}")
        if "source" in entry:
            place = self.sections.document.at((*key, "source"))
            raise Unavailable(
                f"{place}: functions in other files are not available in this version; write the function here"
            )
        return self.intentional((*key, "function"), entry.get("function"), name)

    def intentional(self, key: Key, function: Any, name: str) -> list[Factor]:
        """Return the factor of an expression, or one factor per term for a sum that is too large for one table."""
        if isinstance(function, bool) or not isinstance(function, str | int | float):
            self.sections.fail(key, f"expected an expression, got {show(function)}")
        try:
            expression = parse_python(str(function), self.budget)
            if prod(len(self.variables.values_of(v, key)) for v in expression.names) <= tuning.EXPANDED_ENTRIES:
                return [self.evaluated(key, expression, name)]
            terms = parse_terms(str(function), self.budget)
            return [self.evaluated(key, t, name if len(terms) == 1 else f"{name}.{i}") for i, t in enumerate(terms)]
        except (ExpressionError, OverflowError) as error:
            self.sections.fail(key, f"the expression {error}")

    def evaluated(self, key: Key, expression: Expression, name: str) -> Factor:
        """Return the factor of an expression, evaluated for all assignments."""
        values = [self.variables.values_of(v, key) for v in expression.names]
        shape = [len(v) for v in values]
        count = self.table_budget.reserve(shape, lambda: self.sections.document.at(key))
        if count * expression.size > self.budget.steps:
            self.sections.fail(key, f"evaluating {count:,} entries takes too long; divide it into several constraints")
        costs = entries(expression.evaluate_all(values), self.sense)
        scope = [self.variables.index[v] for v in expression.names if v in self.variables.index]
        shape = [self.variables.size(v) for v in scope]  # an external variable has one value
        return self.checked(key, lambda: Factor.of(scope, costs.reshape(shape), self.sense, name))

    def extensional(self, key: Key, entry: dict[str, Any]) -> Factor:
        """Return the factor of a constraint that lists costs with their assignments."""
        given = entry.get("variables")
        names = [given.strip()] if isinstance(given, str) else given
        if not isinstance(names, list) or not names:
            self.sections.fail((*key, "variables"), f"expected a list of variables, got {show(given)}")
        for name in names:
            self.variables.values_of(str(name), (*key, "variables"))
        names = [str(name) for name in names]
        if len(set(names)) < len(names):
            self.sections.fail((*key, "variables"), "a variable occurs twice")
        domains = [self.variables.domain_name(name) for name in names]
        rows, costs = self.rows(key, [self.variables.value_index[d] for d in domains], entry.get("values"))
        default = _cost(entry.get("default"))
        if default is None:
            if entry.get("default") is not None:
                self.sections.fail((*key, "default"), f"expected a number, got {show(entry['default'])}")
            if len({tuple(row) for row in rows}) < prod(len(self.variables.values[d]) for d in domains):
                self.sections.fail(key, "not every assignment has a value and there is no 'default'")
            default = 0
        external = self.variables.external
        fixed = [(i, external[name][1]) for i, name in enumerate(names) if name in external]
        kept = [i for i, row in enumerate(rows) if all(row[position] == index for position, index in fixed)]
        positions = [i for i, name in enumerate(names) if name in self.variables.index]
        rows, costs = [[rows[i][p] for p in positions] for i in kept], [costs[i] for i in kept]
        scope = [self.variables.index[names[p]] for p in positions]
        shape = [len(self.variables.values[domains[p]]) for p in positions]
        try:
            numbers = entries([*costs, default], self.sense)
        except OverflowError as error:
            self.sections.fail((*key, "values"), str(error))
        # ``tabulate`` builds a dense table only if it is small or has at most 16 entries per row.
        self.table_budget.reserve((16 * len(rows),), lambda: self.sections.document.at(key))
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
            self.sections.fail((*key, "values"), f"expected costs with their assignments, got {show(listed)}")
        rows: list[list[int]] = []
        costs: list[int | float] = []
        for word, assignments in listed.items():
            place, cost = (*key, "values", word), _cost(word)
            if cost is None:
                self.sections.fail(place, "a cost must be a number")
            if assignments is None or isinstance(assignments, list | dict):
                self.sections.fail(place, f"expected assignments such as R G | G R, got {show(assignments)}")
            for part in str(assignments).split("|"):
                rows.append(self.row(part, index, place))
                costs.append(cost)
        return rows, costs

    def row(self, text: str, index: Sequence[dict[str, int]], key: Key) -> list[int]:
        """Return the value indices of an assignment such as ``R G B``."""
        words = text.split()
        if len(words) != len(index):
            self.sections.fail(
                key, f"the assignment {show(text.strip())} has {len(words)} values for {len(index)} variables"
            )
        try:
            return [index_of[word] for index_of, word in zip(index, words, strict=True)]
        except KeyError as error:
            self.sections.fail(
                key, f"the assignment {show(text.strip())}: {show(error.args[0])} is not in the domain of its variable"
            )

    def checked(self, key: Key, make: Any) -> Factor:
        """Return the factor that ``make`` builds; a ``ProblemError`` becomes an error with its place in the file."""
        try:
            factor: Factor = make()
        except ProblemError as error:
            self.sections.fail(key, str(error))
        return factor


def _cost(word: Any) -> int | float | None:
    """Return the number that a YAML key or value stands for, including ``.inf``; None if it is not a number."""
    if isinstance(word, int | float) and not isinstance(word, bool):
        return word if word == word else None
    return number(word.replace(".inf", "inf").replace(".Inf", "inf")) if isinstance(word, str) else None


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """YAML dumper, the fast one if PyYAML has it; it quotes names that a YAML 1.2 reader would take for numbers."""


_Dumper.add_implicit_resolver(*FLOATS)


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem; a constant becomes a constant cost of the first variable.

    Raises
    ------
    ProblemError
        For labels that an assignment cannot name: empty ones, those with blanks or ``|``, or two with the same text.
    """
    domains: dict[tuple[tuple[type, Label], ...], str] = {}
    domain_of: list[str] = []
    for v, name in enumerate(problem.variables):
        labels = tuple(labels_of(problem, v))
        _check(name, labels)
        domain_of.append(domains.setdefault(tuple((type(x), x) for x in labels), f"d{len(domains)}"))
    variables_of_agent: dict[str, list[str]] = {}
    for v, name in enumerate(problem.variables):
        variables_of_agent.setdefault(problem.agents[problem.owner[v]], []).append(name)
    yield _dump({"name": problem.name, "objective": problem.sense})
    yield _dump({"domains": {name: {"values": [x for _, x in values]} for values, name in domains.items()}})
    yield _dump({"variables": {name: {"domain": domain_of[v]} for v, name in enumerate(problem.variables)}})
    yield "constraints:\n" if problem.factors else "constraints: {}\n"
    for name, listing in named_factor_entries(problem, constants=False):
        yield _indented(_dump({name: _constraint(listing, problem)}))
    yield _dump({"agents": {name: {} for name in problem.agents}})
    yield _dump({"distribution_hints": {"must_host": variables_of_agent}})


def _constraint(entries: FactorEntries, problem: Problem) -> dict[str, Any]:
    """Return the YAML mapping of one constraint: a default cost, and the value tuples of each other cost."""
    labels = [[str(label) for label in labels_of(problem, v)] for v in entries.scope]
    values: dict[int | float, list[str]] = {}
    for row, cost in zip(entries.rows, entries.costs, strict=True):
        value_names = " ".join(labels_of_variable[x] for labels_of_variable, x in zip(labels, row, strict=True))
        values.setdefault(_written_cost(cost, problem.sense), []).append(value_names)
    return {
        "type": "extensional",
        "variables": [problem.variables[v] for v in entries.scope],
        "default": _written_cost(entries.default, problem.sense),
        "values": {cost: " | ".join(tuples) for cost, tuples in values.items()},
    }


def _written_cost(cost: Cost, sense: str) -> int | float:
    """Return a cost as a number; the cost None of a forbidden entry becomes infinite, with the sign of the sense."""
    if cost is None:
        return inf if sense == "min" else -inf
    return cost


def _check(name: str, labels: tuple[Label, ...]) -> None:
    """Raise ``Inexpressible`` for labels that would not be read back as the same labels.

    Labels are separated by blanks and tuples of labels by ``|``. A domain with a single text that contains ``..`` would
    be read as a range, and booleans would become words.
    """
    words = [str(label) for label in labels]
    for word, label in zip(words, labels, strict=True):
        is_range = len(labels) == 1 and isinstance(label, str) and ".." in label
        if word.split() != [word] or "|" in word or is_range or isinstance(label, bool):
            message = f"variable {name!r}: pyDCOP cannot name the value {label!r}; --drop labels numbers them"
            raise Inexpressible(message, ["labels"])
    if len(set(words)) < len(words):
        message = f"variable {name!r}: two of its values read the same; --drop labels numbers them"
        raise Inexpressible(message, ["labels"])


def _dump(data: dict[str, Any]) -> str:
    """Return the YAML text of a mapping."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=2**31 - 1)
    return text


def _indented(text: str) -> str:
    """Indent all lines by two blanks."""
    return "".join(f"  {line}\n" for line in text.splitlines())
