"""The model of a problem for CP-SAT: variables, expressions and costs.

A CP-SAT model of a cost problem: its variables, expressions of them, and the cost.

Literals and integers of a CP-SAT model that are defined by variables, each made once.

The variables of a problem in a CP-SAT model: as integers, and as literals of their values.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.contract import tuning


class ModelVariables:
    """The variables of a problem in a CP-SAT model, each in the forms that its constraints use.

    Parameters
    ----------
    cp_model : module
        ``ortools.sat.python.cp_model``.
    sizes : list of int
        The domain size of each variable.

    Attributes
    ----------
    cp : CpModel
        The model.
    sizes : list of int
        The domain size of each variable.
    allowed : list of list of int
        The values of each variable that no cost function of one variable forbids.
    literals_of : list
        For each variable, the literals [x_v = a] of its values once they are needed; None before.
    never : constant
        The literal that is false.
    """

    def __init__(self, cp_model: Any, sizes: list[int]) -> None:
        self.cp, self.sizes, self._domain = cp_model.CpModel(), sizes, cp_model.Domain
        self.literals_of: list[list[Any] | None] = [None] * len(sizes)
        self.allowed = [list(range(size)) for size in sizes]
        self.never = self.cp.new_constant(0)
        self._integers: list[Any] = [None] * len(sizes)

    def domain(self, values: list[int]) -> Any:
        """Return a domain of CP-SAT with some values."""
        return self._domain.from_values(values)

    def x(self, v: int) -> Any:
        """Return a variable as an integer; it is made at the first use."""
        known = self._integers[v]
        if known is None:
            known = self._integers[v] = self.cp.new_int_var_from_domain(self.domain(self.allowed[v]), "")
            self._link(v)
        return known

    def literals(self, v: int) -> list[Any]:
        """Return the literals [x_v = a] of a variable's values; they are made at the first use."""
        known = self.literals_of[v]
        if known is None:
            known = [self.never] * self.sizes[v]
            if len(self.allowed[v]) == 2:
                one, other = self.allowed[v]
                known[other] = self.cp.new_bool_var("")
                known[one] = known[other].negated()
            else:
                for a in self.allowed[v]:
                    known[a] = self.cp.new_bool_var("")
                self.cp.add_exactly_one(known[a] for a in self.allowed[v])
            self.literals_of[v] = known
            self._link(v)
        return known

    def _link(self, v: int) -> None:
        """Connect a variable's integer and literals if there are both."""
        x, literals = self._integers[v], self.literals_of[v]
        if x is None or literals is None:
            return
        for a in self.allowed[v]:
            self.cp.add(x == a).only_enforce_if(literals[a])
            self.cp.add(x != a).only_enforce_if(literals[a].negated())

    def values(self, value_of: Callable[[Any], int]) -> list[int]:
        """Return the value of each variable in a solution, given the value of each literal and integer."""
        return [self._value(v, value_of) for v in range(len(self.sizes))]

    def _value(self, v: int, value_of: Callable[[Any], int]) -> int:
        """Return the value of a variable in a solution."""
        if self._integers[v] is not None:
            return value_of(self._integers[v])
        literals = self.literals_of[v]
        if literals is None:
            return self.allowed[v][0]
        return next(a for a in self.allowed[v] if value_of(literals[a]))

    def allow(self, v: int, allowed: NDArray[np.bool_]) -> None:
        """Remove the values of a variable that are not allowed; to be called before all other methods."""
        self.allowed[v] = [a for a in self.allowed[v] if allowed[a]]
        if not self.allowed[v]:
            self.allowed[v] = [0]
            self.cp.add_bool_or([])

    def hint(self, values: list[int]) -> None:
        """Set the assignment from which the search starts; an empty one is none."""
        self.cp.clear_hints()
        for v, value in enumerate(values):
            if self._integers[v] is not None:
                self.cp.add_hint(self._integers[v], value)
            for a, literal in enumerate(self.literals_of[v] or ()):
                if a in self.allowed[v] and not (len(self.allowed[v]) == 2 and a == self.allowed[v][0]):
                    self.cp.add_hint(literal, value == a)


class Expressions:
    """Literals and integers that several constraints share, by what they mean.

    Parameters
    ----------
    variables : ModelVariables
        The variables of the model.
    """

    def __init__(self, variables: ModelVariables) -> None:
        self._variables, self._cp = variables, variables.cp
        self._products: dict[tuple[int, int], list[list[Any]]] = {}
        # Comparisons of two variables, whether two variables have the same number, the number of a variable, and
        # whether one of some literals is true.
        self._comparisons: dict[tuple[Any, ...], Any] = {}
        self._same: dict[tuple[Any, ...], Any] = {}
        self._numbers: dict[tuple[Any, ...], Any] = {}
        self._any: dict[tuple[int, ...], Any] = {}

    def products(self, u: int, v: int) -> list[list[Any]]:
        """Return the literals [x_u = a and x_v = b]."""
        known = self._products.get((u, v))
        if known is None:
            first, second = self._variables.literals(u), self._variables.literals(v)
            known = [[self._cp.new_bool_var("") for _ in second] for _ in first]
            for literal, row in zip(first, known, strict=True):
                self._cp.add(sum(row) == literal)
            for literal, column in zip(second, zip(*known, strict=True), strict=True):
                self._cp.add(sum(column) == literal)
            self._products[u, v] = known
        return known

    def number(self, v: int, numbers: list[int]) -> Any:
        """Return the number of a variable's value as an affine expression of one variable."""
        increment = numbers[1] - numbers[0] if len(numbers) > 1 else 0
        if all(number == numbers[0] + increment * a for a, number in enumerate(numbers)):
            return increment * self._variables.x(v) + numbers[0]
        key = (v, tuple(numbers))
        if key not in self._numbers:
            number = self._cp.new_int_var_from_domain(self._variables.domain(sorted(set(numbers))), "")
            self._cp.add(
                number == sum(n * literal for n, literal in zip(numbers, self._variables.literals(v), strict=True))
            )
            self._numbers[key] = number
        return self._numbers[key]

    def at_most(self, variables: tuple[int, int], numbers: tuple[list[int], list[int]], distance: int) -> Any:
        """Return a literal that implies that the first number + ``distance`` ≤ the second number."""
        key = (variables, tuple(map(tuple, numbers)), distance)
        if key not in self._comparisons:
            literal = self._cp.new_bool_var("")
            first, second = (self.number(v, n) for v, n in zip(variables, numbers, strict=True))
            self._cp.add(first + distance <= second).only_enforce_if(literal)
            self._comparisons[key] = literal
        return self._comparisons[key]

    def same_number(self, variables: tuple[int, int], numbers: tuple[list[int], list[int]]) -> Any:
        """Return a literal that implies that the values of two variables have the same number."""
        key = (variables, tuple(map(tuple, numbers)))
        if key in self._same:
            return self._same[key]
        same = self._same[key] = self._cp.new_bool_var("")
        if max(map(len, numbers)) > tuning.MAX_CLAUSE_LITERALS:
            first, second = (self.number(v, own) for v, own in zip(variables, numbers, strict=True))
            self._cp.add(first == second).only_enforce_if(same)
            return same
        literals = [defaultdict[int, list[Any]](list), defaultdict[int, list[Any]](list)]
        for v, own, by_number in zip(variables, numbers, literals, strict=True):
            for number, literal in zip(own, self._variables.literals(v), strict=True):
                by_number[number].append(literal)
        for one, other in (literals, literals[::-1]):
            for number, present in one.items():
                for literal in present:
                    self._cp.add_bool_or(same.negated(), literal.negated(), *other.get(number, []))
        return same

    def overlap(self, one: tuple[int, list[int], int], other: tuple[int, list[int], int]) -> Any:
        """Return a variable that is at least the time for which two intervals overlap; it is made once.

        An interval is given by the variable of its start, the times of this variable's values, and its duration. If the
        overlap is less than both durations, it is the time from the start of one to the end of the other.
        """
        key = tuple((v, tuple(times), duration) for v, times, duration in (one, other))
        if key not in self._numbers:
            most = min(one[2], other[2])
            found = self._numbers[key] = self._cp.new_int_var(0, most, "")
            ways = [self._cp.new_bool_var("") for _ in range(3)]
            for way, (first, second) in zip(ways, ((one, other), (other, one)), strict=False):
                end = self.number(first[0], first[1]) + first[2]
                self._cp.add(found >= end - self.number(second[0], second[1])).only_enforce_if(way)
            self._cp.add(found >= most).only_enforce_if(ways[2])
            self._cp.add_bool_or(ways)
        return self._numbers[key]

    def any_of(self, literals: list[Any]) -> Any:
        """Return a literal that is true if and only if one of some literals is; it is made once."""
        key = tuple(sorted({literal.index for literal in literals}))
        if len(key) <= 1:
            return literals[0] if literals else self._variables.never
        if key not in self._any:
            found = self._any[key] = self._cp.new_bool_var("")
            self._cp.add_bool_or(found.negated(), *literals)
            for literal in literals:
                self._cp.add_implication(literal, found)
        return self._any[key]

    def all_of(self, literals: list[Any]) -> Any:
        """Return a literal that is true if and only if all of some literals are; it is made once."""
        return self.any_of([literal.negated() for literal in literals]).negated()

    def restrict(self, expression: Any, values: list[int]) -> None:
        """Allow only some values of a linear expression."""
        if isinstance(expression, int):
            if expression not in values:
                self._cp.add_bool_or([])
        else:
            self._cp.add_linear_expression_in_domain(expression, self._variables.domain(values))


@dataclass
class Cost:
    """The cost of an assignment: a constant and a weighted sum of integers and literals.

    Attributes
    ----------
    cp : CpModel
        The model.
    constant : int
        The constant.
    terms : list of (int, expression)
        Weights and what they multiply.
    """

    cp: Any
    constant: int = 0
    terms: list[tuple[int, Any]] = field(default_factory=list)

    def charge(self, degree: Any, cost: int | None) -> None:
        """Add the cost of a degree of violation, or forbid positive degrees."""
        if cost is None:
            self.cp.add(degree <= 0)
        elif isinstance(degree, int):
            self.constant += cost * degree
        else:
            self.terms.append((cost, degree))

    def charge_terms(self, terms: list[tuple[int, Any]], cost: int) -> None:
        """Add the cost of a weighted sum of literals."""
        self.terms += [(cost * weight, literal) for weight, literal in terms]

    def minimise(self, max_cost: int) -> bool:
        """Make the cost the objective, with an upper bound.

        Returns
        -------
        bool
            Whether all weights are equal, so that the problem is an unweighted one.
        """
        cost = sum(unit * term for unit, term in self.terms) + self.constant
        if self.terms:
            self.cp.add(cost <= max_cost)
            self.cp.minimize(cost)
        elif self.constant > max_cost:
            self.cp.add_bool_or([])
        return len({unit for unit, _ in self.terms}) == 1


class CpSatModel:
    """A CP-SAT model of a cost problem.

    Attributes
    ----------
    cp : CpModel
        The model.
    variables : ModelVariables
        The variables of the problem.
    expressions : Expressions
        Literals and integers that are defined by variables.
    cost : Cost
        The cost of an assignment.
    top : int
        The cost from which on an assignment is forbidden.
    has_cliques : bool
        Whether hard tables have become sets of literals of which at most one is true.
    codes : dict
        For the scope of each hard all-different constraint, the codes of the values by variable.
    groups : dict
        Sets of literals, by their indices, with the literal that any of them is true.
    limits : list
        Sets of literals, by their indices, with the largest number of them that may be true.
    """

    def __init__(self, cp_model: Any, sizes: list[int], top: int) -> None:
        self.variables, self.top, self.has_cliques = ModelVariables(cp_model, sizes), top, False
        self.cp, self.expressions = self.variables.cp, Expressions(self.variables)
        self.cost = Cost(self.cp)
        self.codes: dict[frozenset[int], dict[int, list[int]]] = {}
        self.groups: dict[frozenset[int], Any] = {}
        self.limits: list[tuple[frozenset[int], int]] = []
