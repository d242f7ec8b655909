"""Read XCSP 2.1 in FRODO's dialect: agents and their variables, soft and hard relations, predicates and functions.

Variants are accepted: relations without semantics, domains without values, a missing list of agents, and the tuples of
XDisCSP 1.0, which may count from 0 where domains count from 1. Global constraints other than ``allDifferent``, random
variables and probability spaces are refused by name.
"""

from collections.abc import Sequence
from itertools import combinations
from math import inf

import numpy as np

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.entries import TableBudget, clipped_error, number
from dmcmc.formats.common.xml_tree import Element
from dmcmc.formats.expressions.expression import StepBudget
from dmcmc.formats.xcsp.all_different import MAX_OPERANDS, all_different, operands_of
from dmcmc.formats.xcsp.relations import Formula, Relation
from dmcmc.formats.xcsp.sections import XcspSections
from dmcmc.formats.xcsp.variables import XcspVariables
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor, tabulate
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.runtime.types import Number


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
