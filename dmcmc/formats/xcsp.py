"""XCSP 2.1 in FRODO's dialect: agents and their variables, soft and hard relations, predicates and functions.

Variants are accepted: relations without semantics, domains without values, a missing list of agents, and the tuples of
XDisCSP 1.0, which may count from 0 where domains count from 1. Global constraints other than ``allDifferent``, random
variables and probability spaces are refused by name. Problems are written as FRODO reads them, with soft relations.
"""

import re
from collections.abc import Container, Iterator, Sequence
from itertools import combinations, groupby
from math import inf, isfinite
from typing import NoReturn
from xml.sax.saxutils import quoteattr

import numpy as np

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.factor_entries import (
    Cost,
    FactorEntries,
    TableBudget,
    check_missing,
    clipped_error,
    labels_of,
    named_factor_entries,
    number,
)
from dmcmc.formats.common.xml_tree import Element, parse
from dmcmc.formats.expressions.expression import StepBudget
from dmcmc.formats.xcsp_relations import MAX_OPERANDS, Formula, Relation, ValueIndex, all_different, operands_of
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor, tabulate
from dmcmc.inference.runtime.errors import DmcmcError, FileError, ProblemError
from dmcmc.inference.runtime.types import Number


class XcspSections:
    """The sections of an XCSP file.

    Parameters
    ----------
    source : SourceFile
        The file.

    Attributes
    ----------
    root : Element
        The element ``<instance>``.
    name : str
        Name of the problem.
    sense : {"min", "max"}
        Whether the objective is minimised or maximised.
    is_xdiscsp : bool
        Whether the file says that its format is XDisCSP.
    """

    def __init__(self, source: SourceFile) -> None:
        self.source, self.root = source, parse(source)
        if self.root.tag != "instance":
            raise source.error(self.root.offset, f"expected <instance>, not <{self.root.tag[:40]}>")
        presentation = self.root.first("presentation")
        attributes = {} if presentation is None else presentation.attributes
        self.sense = "max" if attributes.get("maximize", "").strip().lower() == "true" else "min"
        self.name = attributes.get("name", "")
        self.is_xdiscsp = attributes.get("format", "").strip().upper().startswith("XDISCSP")

    def elements(self, tag: str, inner: str) -> list[Element]:
        """Return the elements of a section; a missing section is empty."""
        elements: list[Element] = []
        for section in self.root.all(tag):
            for element in section.children:
                if element.tag != inner:
                    self.fail(element, f"<{element.tag[:40]}> in <{tag}>; expected <{inner}>")
                elements.append(element)
        return elements

    def new(self, name: str, known: Container[str], element: Element) -> str:
        """Return a name after a check that it is not taken."""
        if not name:
            self.fail(element, f"<{element.tag}> has no name")
        if name in known:
            self.fail(element, f"{element.tag} {name!r} occurs twice")
        return name

    def fail(self, element: Element, message: str) -> NoReturn:
        """Raise the error that names the line of an element."""
        error: FileError = self.source.error(element.offset, message)
        raise error


_MAX_VALUES = 1 << 22  # limit for the values of all domains together
_RANGE = re.compile(r"([+-]?[0-9]{1,18})\.\.([+-]?[0-9]{1,18})")


class XcspVariables:
    """The variables of an XCSP file.

    Parameters
    ----------
    sections : XcspSections
        The file.

    Attributes
    ----------
    domains, labels : dict
        By the name of a domain: the index of each value, and the labels (None for 0, 1, ...).
    agents, index : dict of str to int
        Index of each agent and of each variable by name.
    domain_of : list of str
        Name of each variable's domain.
    owner : list of int
        Agent of each variable.
    """

    def __init__(self, sections: XcspSections) -> None:
        self.domains: dict[str, ValueIndex] = {}
        self.labels: dict[str, tuple[Label, ...] | None] = {}
        self.agents: dict[str, int] = {}
        self.index: dict[str, int] = {}
        self.domain_of: list[str] = []
        self.owner: list[int] = []
        self._values_left = _MAX_VALUES
        self._read_domains(sections)
        self._read_variables(sections)

    def _read_domains(self, sections: XcspSections) -> None:
        """Read all domains."""
        for element in sections.elements("domains", "domain"):
            name = sections.new(element.attributes.get("name", ""), self.domains, element)
            values = self._values(sections, element)
            self.domains[name] = {value: i for i, value in enumerate(values)}
            if len(self.domains[name]) < len(values):
                sections.fail(element, f"domain {name!r}: a value occurs twice")
            self.labels[name] = None if values == list(range(len(values))) else tuple(values)

    def _values(self, sections: XcspSections, element: Element) -> list[Number]:
        """Return the values of a domain: words such as ``3`` and ``1..5``, or 1 to nbValues if there are none."""
        what = f"domain {element.attributes.get('name')!r}"
        declared = element.attributes.get("nbValues")
        if declared is not None and not re.fullmatch("[0-9]{1,18}", declared):
            sections.fail(element, f"{what}: nbValues is {declared[:40]!r}; a whole number is needed")
        words = element.text.split() or ([f"1..{declared}"] if declared is not None else [])
        values: list[Number] = []
        for word in words:
            span = _RANGE.fullmatch(word)
            value = number(word)
            if span is None and (value is None or abs(value) == inf):
                sections.fail(element, f"{what}: {word[:40]!r} is neither a value nor a range such as 1..5")
            first, last = (int(span[1]), int(span[2])) if span else (0, 0)
            self._values_left -= last - first + 1 if span else 1
            if last < first or self._values_left < 0:
                reason = "the range must ascend" if last < first else f"domains have at most {_MAX_VALUES:,} values"
                sections.fail(element, f"{what}: {word}: {reason}")
            values += range(first, last + 1) if span else [value]  # type: ignore[list-item]
        if not values or (declared is not None and int(declared) != len(values)):
            sections.fail(element, f"{what}: nbValues is {declared}, but {len(values)} values are listed")
        return values

    def _read_variables(self, sections: XcspSections) -> None:
        """Read the agents and the variables."""
        names = [sections.new(e.attributes.get("name", ""), (), e) for e in sections.elements("agents", "agent")]
        listed = bool(names) or sections.root.first("agents") is not None
        for element, name in zip(sections.elements("agents", "agent"), names, strict=True):
            self.agents[sections.new(name, self.agents, element)] = len(self.agents)
        for element in sections.elements("variables", "variable"):
            given = element.attributes
            name = sections.new(given.get("name", ""), self.index, element)
            if given.get("type", "decision") != "decision":
                raise sections.source.refusal(element.offset, f"variable {name!r}: the type {given['type'][:40]!r} is")
            if given.get("domain", "") not in self.domains:
                sections.fail(element, f"variable {name!r}: domain {given.get('domain', '')[:40]!r} is not defined")
            agent = given.get("agent", "")
            if not agent and listed:
                sections.fail(
                    element, f"variable {name!r}: has no agent; agent=... is needed where <agents> are listed"
                )
            if listed and agent not in self.agents:
                sections.fail(element, f"variable {name!r}: agent {agent[:40]!r} is not listed in <agents>")
            self.index[name] = len(self.index)
            self.domain_of.append(given["domain"])
            self.owner.append(self.agents.setdefault(agent or "all", len(self.agents)))
        if not self.agents:
            self.agents["all"] = 0


def read(source: SourceFile) -> Problem:
    """Read an XCSP file; see :func:`dmcmc.formats.registry.load`."""
    try:
        return _problem(XcspSections(source))
    except DmcmcError as error:
        raise clipped_error(error) from None


def _problem(sections: XcspSections) -> Problem:
    """Read all sections and return the problem."""
    for child in sections.root.children:
        if child.tag == "probabilities":
            raise sections.source.refusal(child.offset, "<probabilities> (stochastic problems) are")
    reader = _XcspConstraints(sections)
    factors, variables = reader.factors(), reader.variables
    domains = np.array([len(variables.domains[d]) for d in variables.domain_of], dtype=np.int64)
    labels = tuple(variables.labels[d] for d in variables.domain_of)
    owner = np.array(variables.owner, dtype=np.int64)
    names, agents = tuple(variables.index), tuple(variables.agents)
    return Problem(names, domains, agents, owner, factors, labels, sections.sense, sections.name)


class _XcspConstraints:
    """Reader of the constraints of an XCSP file.

    Attributes
    ----------
    sections, variables : XcspSections, XcspVariables
        The file and its variables.
    sense : {"min", "max"}
        Whether the objective is minimised or maximised.
    table_budget, budget : TableBudget, StepBudget
        Memory that is left for tables, and evaluation steps that are left for expressions.
    top : number
        Costs from here on are forbidden (``maximalCost``).
    initial : number
        Cost of every assignment (``initialCost``).
    relations, formulas : dict
        Relations, and predicates and functions, by name.
    tables : dict
        Factors already built, by the relation's name, the domains' names, and for each position of the scope the axis
        of its variable. Constraints with equal keys share one table.
    tuple_domains : dict
        By the name of a domain: the index of each number that tuples of relations may have. These are the values of the
        domain, or the indices themselves (see ``counts_from_zero``).
    """

    def __init__(self, sections: XcspSections) -> None:
        """Read all sections but the constraints."""
        self.sections, self.sense = sections, sections.sense
        self.table_budget, self.budget = TableBudget(), StepBudget.of(sections.source.data)
        self.relations: dict[str, Relation] = {}
        self.formulas: dict[str, Formula] = {}
        self.tables: dict[tuple[str, tuple[str, ...], tuple[int, ...]], Factor] = {}
        for element in sections.elements("relations", "relation"):
            relation = Relation(sections.source, element, self.sense)
            self.relations[sections.new(relation.name, self.relations, element)] = relation
        for tag in ("predicate", "function"):
            for element in sections.elements(f"{tag}s", tag):
                formula = Formula(sections.source, element, self.budget)
                self.formulas[sections.new(formula.name, self.formulas, element)] = formula
        self.variables = XcspVariables(sections)
        self.tuple_domains = dict(self.variables.domains)
        self.top: Number = inf
        self.initial: Number = 0

    def factors(self) -> tuple[Factor, ...]:
        """Read all constraints and return their factors."""
        constraints = self.sections.elements("constraints", "constraint")
        self.top, self.initial = _cost_limits(self.sections)
        if self.counts_from_zero(constraints):
            self.tuple_domains = {name: {i: i for i in range(len(d))} for name, d in self.variables.domains.items()}
        factors = tuple(factor for e in constraints for factor in self.constraint(e))
        return (*factors, Factor.of((), self.initial, self.sense, "initialCost")) if self.initial else factors

    def counts_from_zero(self, constraints: Sequence[Element]) -> bool:
        """Return whether the tuples of an XDisCSP file are value indices, from 0 on, and not values.

        Generators of XDisCSP 1.0 write tuples of 0 to n − 1 for domains 1..n. This is so if some tuple has a 0 where
        the domain is 1..n, and all numbers of all tuples are indices of their domains.
        """
        if not self.sections.is_xdiscsp:
            return False
        found, checked = False, set[tuple[str, tuple[str, ...]]]()
        from_one = {
            name for name, index in self.variables.domains.items() if list(index) == list(range(1, len(index) + 1))
        }
        for element in constraints:
            relation = self.relations.get(element.attributes.get("reference", ""))
            scope = [self.variables.index.get(word, -1) for word in element.attributes.get("scope", "").split()]
            if relation is None or -1 in scope:
                continue
            names = tuple(self.variables.domain_of[v] for v in scope)
            if (relation.name, names) in checked:
                continue
            checked.add((relation.name, names))
            for values in relation.tuples:
                for value, name in zip(values, names, strict=False):
                    if not isinstance(value, int) or not 0 <= value < len(self.variables.domains[name]):
                        return False
                    found = found or (value == 0 and name in from_one)
        return found

    def constraint(self, element: Element) -> list[Factor]:
        """Return the factors of one constraint."""
        given = element.attributes
        name, reference = given.get("name", ""), given.get("reference", "")
        what = f"constraint {name!r}"
        is_global, is_all_different = reference.startswith("global:"), reference.lower() == "global:alldifferent"
        if is_global and not is_all_different:
            raise self.sections.source.refusal(element.offset, f"{what}: the global constraint {reference[7:47]!r} is")
        scope: list[int] = []  # a variable may occur twice in a scope; both positions then have the same value
        for word in given.get("scope", "").split():
            if word not in self.variables.index:
                self.sections.fail(element, f"{what}: variable {word[:40]!r} is not defined")
            scope.append(self.variables.index[word])
        if given.get("arity", str(len(scope))).strip() != str(len(scope)) or not scope:
            self.sections.fail(
                element, f"{what}: arity is {given.get('arity', '?')[:20]}, but the scope has {len(scope)} variables"
            )
        if is_all_different:
            return self.all_different(scope, name, element)
        if reference in self.relations:
            return [self.extensional(self.relations[reference], scope, name, element)]
        if reference in self.formulas:
            return [self.intensional(self.formulas[reference], scope, name, element)]
        self.sections.fail(
            element, f"{what}: its reference {reference[:40]!r} is not a relation, predicate or function"
        )

    def extensional(self, relation: Relation, scope: list[int], name: str, element: Element) -> Factor:
        """Return the factor of a constraint that refers to a relation.

        If a variable occurs twice in the scope, only the tuples with equal values at both positions are used.
        """
        if relation.arity not in (None, len(scope)):
            self.sections.fail(
                element, f"constraint {name!r}: {len(scope)} variables, but {relation.what} has {relation.arity}"
            )
        distinct = list(dict.fromkeys(scope))
        domains, axes = tuple(self.variables.domain_of[v] for v in scope), tuple(distinct.index(v) for v in scope)
        factor = self.tables.get((relation.name, domains, axes))
        if factor is None:
            rows, costs = relation.indexed_tuples([self.tuple_domains[d] for d in domains], self.top)
            first_positions = [scope.index(v) for v in distinct]
            consistent = [
                i
                for i, row in enumerate(rows)
                if all(row[first_positions[a]] == x for a, x in zip(axes, row, strict=True))
            ]
            tuples = [[rows[i][position] for position in first_positions] for i in consistent]
            shape = [len(self.variables.domains[domains[position]]) for position in first_positions]
            factor = tabulate(distinct, shape, tuples, costs[:-1][consistent], costs[-1], self.sense, name)
            self.tables[relation.name, domains, axes] = factor
        if isinstance(factor, SparseFactor):
            self.count_entries((len(factor.tuples),), name, element)
            return SparseFactor(distinct, factor.shape, factor.tuples, factor.utilities, name)
        self.count_entries(factor.shape, name, element)
        return Factor(tuple(distinct), factor.table, name)

    def intensional(self, formula: Formula, listed: list[int], name: str, element: Element) -> Factor:
        """Return the factor of a constraint that refers to a predicate or a function."""
        what, scope = f"constraint {name!r}", list(dict.fromkeys(listed))
        given = element.first("parameters")
        words = element.attributes["scope"].split() if given is None else given.text.split()
        if len(words) != len(formula.parameters):
            self.sections.fail(
                element, f"{what}: {len(words)} parameters; {formula.name!r} has {len(formula.parameters)}"
            )
        arguments: list[tuple[int] | Number] = []
        for word in words:
            value = number(word)
            if self.variables.index.get(word, -1) in scope:
                arguments.append((scope.index(self.variables.index[word]),))
            elif value is not None:
                arguments.append(value)
            else:
                self.sections.fail(
                    element, f"{what}: parameter {word[:40]!r} is neither a variable of its scope nor a number"
                )
        values = [list(self.variables.domains[self.variables.domain_of[v]]) for v in scope]
        shape = [len(v) for v in values]
        entries = self.count_entries(shape, name, element)
        if entries * formula.expression.size > self.budget.steps:
            self.sections.fail(
                element, f"{what}: evaluating {entries:,} entries takes too long; list its tuples instead"
            )
        return Factor.of(scope, formula.costs(arguments, values, self.sense, self.top).reshape(shape), self.sense, name)

    def all_different(self, scope: list[int], name: str, element: Element) -> list[Factor]:
        """Return the factors of the global constraint ``allDifferent``."""
        what, given = f"constraint {name!r}", element.first("parameters")
        try:
            operands = operands_of("" if given is None else given.text, scope, self.variables.index, number)
        except ValueError as error:
            self.sections.fail(element, f"{what}: {error}")
        if len(operands) > MAX_OPERANDS:
            self.sections.fail(
                element, f"{what}: allDifferent of {len(operands)} operands; at most {MAX_OPERANDS} are read"
            )
        variables = [operand[0] for operand in operands if isinstance(operand, tuple)]
        for domains in {
            (self.variables.domain_of[u], self.variables.domain_of[v]) for u, v in combinations(variables, 2)
        }:
            self.count_entries([len(self.variables.domains[d]) for d in domains], name, element)
        return all_different(operands, self.variables.domain_of, self.variables.domains, name)

    def count_entries(self, shape: Sequence[int], name: str, element: Element) -> int:
        """Return the number of entries of a table after a check that it fits the memory."""
        error_at = self.sections.source.error
        return self.table_budget.reserve(shape, lambda: str(error_at(element.offset, f"constraint {name!r}")))


def _cost_limits(sections: XcspSections) -> tuple[Number, Number]:
    """Return ``maximalCost`` and ``initialCost`` of a weighted CSP."""
    limits: tuple[Number, Number] = inf, 0
    for section in sections.root.all("constraints"):
        word = section.attributes.get("maximalCost", "infinity")
        top = number(word)
        if top is None or (sections.sense == "max" and top != inf):
            sections.fail(section, f"maximalCost is {word[:40]!r}; a number is needed, and a minimisation")
        word = section.attributes.get("initialCost", "0")
        initial = number(word)
        if initial is None or abs(initial) == inf:
            sections.fail(section, f"initialCost is {word[:40]!r}; a number is needed")
        limits = top, initial
    return limits


_TEXT = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")  # characters that XML allows
_MAX_VALUE_IN_RANGE = 10**18  # larger values are listed one by one


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem; a constant becomes a constant cost of the first variable.

    Raises
    ------
    ProblemError
        For labels that are not numbers, names with blanks, and text that XML cannot hold.
    """
    check_missing(_missing(problem))
    domains: dict[tuple[Label, ...], int] = {}
    domain_of = [domains.setdefault(tuple(labels_of(problem, v)), len(domains)) for v in range(problem.n_variables)]
    functions = list(named_factor_entries(problem, constants=False))
    arity = max((len(f.scope) for _, f in functions), default=0)
    attrs = f'maxConstraintArity="{arity}" maximize="{str(problem.sense == "max").lower()}" format="XCSP 2.1_FRODO"'
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<instance>\n<presentation name={_quoted(problem.name)} {attrs}/>\n'
    yield f'<agents nbAgents="{problem.n_agents}">\n'
    yield from (f"<agent name={_quoted(agent)}/>\n" for agent in problem.agents)
    yield f'</agents>\n<domains nbDomains="{len(domains)}">\n'
    yield from (f'<domain name="d{i}" nbValues="{len(v)}">{_values(v)}</domain>\n' for v, i in domains.items())
    yield f'</domains>\n<variables nbVariables="{problem.n_variables}">\n'
    for v, name in enumerate(problem.variables):
        agent = problem.agents[problem.owner[v]]
        yield f'<variable name={_quoted(name)} domain="d{domain_of[v]}" agent={_quoted(agent)}/>\n'
    yield f'</variables>\n<relations nbRelations="{len(functions)}">\n'
    for i, (_, listing) in enumerate(functions):
        yield _relation(i, listing, problem)
    yield f'</relations>\n<constraints nbConstraints="{len(functions)}">\n'
    for i, (name, listing) in enumerate(functions):
        scope = " ".join(problem.variables[v] for v in listing.scope)
        arity = len(listing.scope)
        yield f'<constraint name={_quoted(name)} arity="{arity}" scope={_quoted(scope)} reference="r{i}"/>\n'
    yield "</constraints>\n</instance>\n"


def _missing(problem: Problem) -> dict[str, str]:
    """Return the features of the problem that the format cannot express, with their descriptions."""
    missing: dict[str, str] = {}
    if "" in problem.agents:
        missing["agents"] = "no agents without a name"
    for label in (x for labels in problem.labels if labels is not None for x in labels):
        if isinstance(label, bool | str) or not isfinite(label):
            missing["labels"] = f"no labels that are not numbers, such as {label!r}"
            break
    for name in problem.variables:
        if name.split() != [name]:
            missing["names"] = f"no names that are empty or have blanks, such as {name!r}"
            break
    return missing


def _relation(number: int, listing: FactorEntries, problem: Problem) -> str:
    """Return a relation; tuples of equal cost are adjacent, and only the first of them has the cost written."""
    labels = [labels_of(problem, v) for v in listing.scope]
    rows = sorted(zip(listing.costs, listing.rows, strict=True), key=lambda entry: (entry[0] is None, entry[0] or 0))
    groups = []
    for cost, group in groupby(rows, key=lambda entry: entry[0]):
        tuples = (" ".join(str(words_of[x]) for words_of, x in zip(labels, row, strict=True)) for _, row in group)
        groups.append(f"{_cost(cost, problem.sense)}:{'|'.join(tuples)}")
    attrs = f'name="r{number}" arity="{len(listing.scope)}" nbTuples="{len(rows)}" semantics="soft"'
    return f'<relation {attrs} defaultCost="{_cost(listing.default, problem.sense)}">{"|".join(groups)}</relation>\n'


def _cost(cost: Cost, sense: str) -> str:
    """Return the text of a cost."""
    if cost is None:
        return "infinity" if sense == "min" else "-infinity"
    return repr(cost)


def _values(values: tuple[Label, ...]) -> str:
    """Return the text of a domain's values: a range if possible, else a list."""
    integers = [v for v in values if type(v) is int and abs(v) < _MAX_VALUE_IN_RANGE]
    if len(integers) == len(values) > 1 and integers == list(range(integers[0], integers[0] + len(integers))):
        return f"{integers[0]}..{integers[-1]}"
    return " ".join(map(repr, values))


def _quoted(text: str) -> str:
    """Return a text as a quoted XML attribute, or raise ``ProblemError``."""
    if not _TEXT.fullmatch(text):
        raise ProblemError(f"the name {text!a} has characters that XML cannot hold")
    return quoteattr(text)
