"""Read pyDCOP's YAML: extensional and intentional constraints, costs of variables, agents and their variables.

Intentional constraints are expressions; :mod:`dmcmc.formats.expressions.parse` evaluates them for every assignment.
:mod:`dmcmc.formats.pydcop.hosting` assigns variables to agents. External variables keep their initial value: they are
constants of the constraints, and no variables of the problem. The ``initial_value`` of other variables is where a
search starts (``Problem.initial_values``). ``noise_level``, capacities and routes do not affect the problem and are
ignored. Functions in other files are refused by name.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

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
from dmcmc.formats.pydcop.sections import PydcopSections
from dmcmc.formats.pydcop.variables import PydcopVariables
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.runtime.errors import DmcmcError, ProblemError, Unavailable
from dmcmc.tuning import formats as tuning

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
        str(sections.data.get("name") or ""),
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
        for word in entry:
            if word not in _CONSTRAINT:
                self.sections.fail((*key, word), f"unknown key; {suggestion(word, _CONSTRAINT)}")
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
