"""Read XCSP 2.1 in FRODO's dialect: agents and their variables, soft and hard relations, predicates and functions.

Variants are accepted: relations without semantics, domains without values, a missing list of agents, and the tuples of
XDisCSP 1.0, which may count from 0 where domains count from 1. Global constraints other than ``allDifferent``, random
variables and probability spaces are refused by name.
"""

import re
from collections.abc import Sequence
from itertools import combinations
from math import inf
from typing import NoReturn

import numpy as np

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.entries import TableBudget, clipped_error, number
from dmcmc.formats.common.xml_tree import Element, parse
from dmcmc.formats.expressions.expression import StepBudget
from dmcmc.formats.xcsp.all_different import MAX_OPERANDS, all_different, operands_of
from dmcmc.formats.xcsp.relations import Formula, Relation, ValueIndex
from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor, tabulate
from dmcmc.inference.runtime.errors import DmcmcError, FileError
from dmcmc.inference.runtime.types import Number

_MAX_VALUES = 1 << 22  # limit for the values of all domains together
_RANGE = re.compile(r"([+-]?[0-9]{1,18})\.\.([+-]?[0-9]{1,18})")


def read(source: SourceFile) -> Problem:
    """Read an XCSP file; see :func:`dmcmc.formats.registry.load`."""
    try:
        return _XcspReader(source).problem()
    except DmcmcError as error:
        raise clipped_error(error) from None


class _XcspReader:
    """Reader of the sections of an XCSP file.

    Attributes
    ----------
    source : SourceFile
        The file.
    root : Element
        The element ``<instance>``.
    name : str
        Name of the problem.
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
    is_xdiscsp : bool
        Whether the file says that its format is XDisCSP.
    domains, labels : dict
        By the name of a domain: the index of each value, and the labels (None for 0, 1, ...).
    tuple_domains : dict
        By the name of a domain: the index of each number that tuples of relations may have. These are the values of the
        domain, or the indices themselves (see ``counts_from_zero``).
    values_left : int
        Number of values that further domains may have.
    agents, variables : dict of str to int
        Index of each agent and of each variable by name.
    domain_of : list of str
        Name of each variable's domain.
    owner : list of int
        Agent of each variable.
    """

    def __init__(self, source: SourceFile) -> None:
        """Parse the XML and read the presentation."""
        self.source, self.root = source, parse(source)
        if self.root.tag != "instance":
            raise source.error(self.root.offset, f"expected <instance>, not <{self.root.tag[:40]}>")
        presentation = self.root.first("presentation")
        attributes = {} if presentation is None else presentation.attributes
        self.sense = "max" if attributes.get("maximize", "").strip().lower() == "true" else "min"
        self.name = attributes.get("name", "")
        self.is_xdiscsp = attributes.get("format", "").strip().upper().startswith("XDISCSP")
        self.table_budget = TableBudget()
        self.budget = StepBudget.of(source.data)
        self.top: Number = inf
        self.initial: Number = 0
        self.tuple_domains: dict[str, ValueIndex] = {}
        self.relations: dict[str, Relation] = {}
        self.formulas: dict[str, Formula] = {}
        self.tables: dict[tuple[str, tuple[str, ...], tuple[int, ...]], Factor] = {}

    def problem(self) -> Problem:
        """Read all sections and return the problem."""
        for child in self.root.children:
            if child.tag == "probabilities":
                raise self.source.refusal(child.offset, "<probabilities> (stochastic problems) are")
        for element in self.section("relations", "relation"):
            relation = Relation(self.source, element, self.sense)
            self.relations[self.new(relation.name, self.relations, element)] = relation
        for tag in ("predicate", "function"):
            for element in self.section(f"{tag}s", tag):
                formula = Formula(self.source, element, self.budget)
                self.formulas[self.new(formula.name, self.formulas, element)] = formula
        self.read_domains()
        self.read_variables()
        constraints = self.section("constraints", "constraint")
        if self.counts_from_zero(constraints):
            self.tuple_domains = {name: {i: i for i in range(len(d))} for name, d in self.domains.items()}
        factors = tuple(factor for e in constraints for factor in self.constraint(e))
        if self.initial:
            factors = (*factors, Factor.of((), self.initial, self.sense, "initialCost"))
        domains = np.array([len(self.domains[d]) for d in self.domain_of], dtype=np.int64)
        labels = tuple(self.labels[d] for d in self.domain_of)
        owner = np.array(self.owner, dtype=np.int64)
        return Problem(
            tuple(self.variables), domains, tuple(self.agents), owner, factors, labels, self.sense, self.name
        )

    def section(self, tag: str, inner: str) -> list[Element]:
        """Return the elements of a section; a missing section is empty."""
        elements: list[Element] = []
        for section in self.root.all(tag):
            for element in section.children:
                if element.tag != inner:
                    self.fail(element, f"<{element.tag[:40]}> in <{tag}>; expected <{inner}>")
                elements.append(element)
            if tag == "constraints":
                self.read_limits(section)
        return elements

    def read_limits(self, section: Element) -> None:
        """Read ``maximalCost`` and ``initialCost`` of a weighted CSP."""
        word = section.attributes.get("maximalCost", "infinity")
        top = number(word)
        if top is None or (self.sense == "max" and top != inf):
            self.fail(section, f"maximalCost is {word[:40]!r}; a number is needed, and a minimisation")
        word = section.attributes.get("initialCost", "0")
        initial = number(word)
        if initial is None or abs(initial) == inf:
            self.fail(section, f"initialCost is {word[:40]!r}; a number is needed")
        self.top, self.initial = top, initial

    def new(self, name: str, known: object, element: Element) -> str:
        """Return a name after a check that it is not taken."""
        if not name:
            self.fail(element, f"<{element.tag}> has no name")
        if name in known:  # type: ignore[operator]
            self.fail(element, f"{element.tag} {name!r} occurs twice")
        return name

    def read_domains(self) -> None:
        """Read all domains."""
        self.domains: dict[str, ValueIndex] = {}
        self.labels: dict[str, tuple[Label, ...] | None] = {}
        self.values_left = _MAX_VALUES
        for element in self.section("domains", "domain"):
            name = self.new(element.attributes.get("name", ""), self.domains, element)
            values = self.values(element)
            self.domains[name] = {value: i for i, value in enumerate(values)}
            if len(self.domains[name]) < len(values):
                self.fail(element, f"domain {name!r}: a value occurs twice")
            self.labels[name] = None if values == list(range(len(values))) else tuple(values)
        self.tuple_domains = dict(self.domains)

    def values(self, element: Element) -> list[Number]:
        """Return the values of a domain: words such as ``3`` and ``1..5``, or 1 to nbValues if there are none."""
        what = f"domain {element.attributes.get('name')!r}"
        declared = element.attributes.get("nbValues")
        if declared is not None and not re.fullmatch("[0-9]{1,18}", declared):
            self.fail(element, f"{what}: nbValues is {declared[:40]!r}; a whole number is needed")
        words = element.text.split() or ([f"1..{declared}"] if declared is not None else [])
        values: list[Number] = []
        for word in words:
            span = _RANGE.fullmatch(word)
            value = number(word)
            if span is None and (value is None or abs(value) == inf):
                self.fail(element, f"{what}: {word[:40]!r} is neither a value nor a range such as 1..5")
            first, last = (int(span[1]), int(span[2])) if span else (0, 0)
            self.values_left -= last - first + 1 if span else 1
            if last < first or self.values_left < 0:
                reason = "the range must ascend" if last < first else f"domains have at most {_MAX_VALUES:,} values"
                self.fail(element, f"{what}: {word}: {reason}")
            values += range(first, last + 1) if span else [value]  # type: ignore[list-item]
        if not values or (declared is not None and int(declared) != len(values)):
            self.fail(element, f"{what}: nbValues is {declared}, but {len(values)} values are listed")
        return values

    def read_variables(self) -> None:
        """Read the agents and the variables."""
        names = [self.new(e.attributes.get("name", ""), (), e) for e in self.section("agents", "agent")]
        listed = bool(names) or self.root.first("agents") is not None
        self.agents: dict[str, int] = {}
        for element, name in zip(self.section("agents", "agent"), names, strict=True):
            self.agents[self.new(name, self.agents, element)] = len(self.agents)
        self.variables: dict[str, int] = {}
        self.domain_of: list[str] = []
        self.owner: list[int] = []
        for element in self.section("variables", "variable"):
            given = element.attributes
            name = self.new(given.get("name", ""), self.variables, element)
            if given.get("type", "decision") != "decision":
                raise self.source.refusal(element.offset, f"variable {name!r}: the type {given['type'][:40]!r} is")
            if given.get("domain", "") not in self.domains:
                self.fail(element, f"variable {name!r}: domain {given.get('domain', '')[:40]!r} is not defined")
            agent = given.get("agent", "")
            if not agent and listed:
                self.fail(element, f"variable {name!r}: has no agent; agent=... is needed where <agents> are listed")
            if listed and agent not in self.agents:
                self.fail(element, f"variable {name!r}: agent {agent[:40]!r} is not listed in <agents>")
            self.variables[name] = len(self.variables)
            self.domain_of.append(given["domain"])
            self.owner.append(self.agents.setdefault(agent or "all", len(self.agents)))
        if not self.agents:
            self.agents["all"] = 0

    def counts_from_zero(self, constraints: Sequence[Element]) -> bool:
        """Return whether the tuples of an XDisCSP file are value indices, from 0 on, and not values.

        Generators of XDisCSP 1.0 write tuples of 0 to n − 1 for domains 1..n. This is so if some tuple has a 0 where
        the domain is 1..n, and all numbers of all tuples are indices of their domains.
        """
        if not self.is_xdiscsp:
            return False
        found, checked = False, set[tuple[str, tuple[str, ...]]]()
        from_one = {name for name, index in self.domains.items() if list(index) == list(range(1, len(index) + 1))}
        for element in constraints:
            relation = self.relations.get(element.attributes.get("reference", ""))
            scope = [self.variables.get(word, -1) for word in element.attributes.get("scope", "").split()]
            if relation is None or -1 in scope:
                continue
            names = tuple(self.domain_of[v] for v in scope)
            if (relation.name, names) in checked:
                continue
            checked.add((relation.name, names))
            for values in relation.tuples:
                for value, name in zip(values, names, strict=False):
                    if not isinstance(value, int) or not 0 <= value < len(self.domains[name]):
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
            raise self.source.refusal(element.offset, f"{what}: the global constraint {reference[7:47]!r} is")
        scope: list[int] = []  # a variable may occur twice in a scope; both positions then have the same value
        for word in given.get("scope", "").split():
            if word not in self.variables:
                self.fail(element, f"{what}: variable {word[:40]!r} is not defined")
            scope.append(self.variables[word])
        if given.get("arity", str(len(scope))).strip() != str(len(scope)) or not scope:
            self.fail(
                element, f"{what}: arity is {given.get('arity', '?')[:20]}, but the scope has {len(scope)} variables"
            )
        if is_all_different:
            return self.all_different(scope, name, element)
        if reference in self.relations:
            return [self.extensional(self.relations[reference], scope, name, element)]
        if reference in self.formulas:
            return [self.intensional(self.formulas[reference], scope, name, element)]
        self.fail(element, f"{what}: its reference {reference[:40]!r} is not a relation, predicate or function")

    def extensional(self, relation: Relation, scope: list[int], name: str, element: Element) -> Factor:
        """Return the factor of a constraint that refers to a relation.

        If a variable occurs twice in the scope, only the tuples with equal values at both positions are used.
        """
        if relation.arity not in (None, len(scope)):
            self.fail(element, f"constraint {name!r}: {len(scope)} variables, but {relation.what} has {relation.arity}")
        distinct = list(dict.fromkeys(scope))
        domains, axes = tuple(self.domain_of[v] for v in scope), tuple(distinct.index(v) for v in scope)
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
            shape = [len(self.domains[domains[position]]) for position in first_positions]
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
            self.fail(element, f"{what}: {len(words)} parameters; {formula.name!r} has {len(formula.parameters)}")
        arguments: list[tuple[int] | Number] = []
        for word in words:
            value = number(word)
            if self.variables.get(word, -1) in scope:
                arguments.append((scope.index(self.variables[word]),))
            elif value is not None:
                arguments.append(value)
            else:
                self.fail(element, f"{what}: parameter {word[:40]!r} is neither a variable of its scope nor a number")
        values = [list(self.domains[self.domain_of[v]]) for v in scope]
        shape = [len(v) for v in values]
        entries = self.count_entries(shape, name, element)
        if entries * formula.expression.size > self.budget.steps:
            self.fail(element, f"{what}: evaluating {entries:,} entries takes too long; list its tuples instead")
        return Factor.of(scope, formula.costs(arguments, values, self.sense, self.top).reshape(shape), self.sense, name)

    def all_different(self, scope: list[int], name: str, element: Element) -> list[Factor]:
        """Return the factors of the global constraint ``allDifferent``."""
        what, given = f"constraint {name!r}", element.first("parameters")
        try:
            operands = operands_of("" if given is None else given.text, scope, self.variables, number)
        except ValueError as error:
            self.fail(element, f"{what}: {error}")
        if len(operands) > MAX_OPERANDS:
            self.fail(element, f"{what}: allDifferent of {len(operands)} operands; at most {MAX_OPERANDS} are read")
        variables = [operand[0] for operand in operands if isinstance(operand, tuple)]
        for domains in {(self.domain_of[u], self.domain_of[v]) for u, v in combinations(variables, 2)}:
            self.count_entries([len(self.domains[d]) for d in domains], name, element)
        return all_different(operands, self.domain_of, self.domains, name)

    def count_entries(self, shape: Sequence[int], name: str, element: Element) -> int:
        """Return the number of entries of a table after a check that it fits the memory."""
        error_at = self.source.error
        return self.table_budget.reserve(shape, lambda: str(error_at(element.offset, f"constraint {name!r}")))

    def fail(self, element: Element, message: str) -> NoReturn:
        """Raise the error that names the line of an element."""
        error: FileError = self.source.error(element.offset, message)
        raise error
