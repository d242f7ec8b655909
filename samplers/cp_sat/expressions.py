"""Literals and integers of a CP-SAT model that are defined by variables, each made once."""

from collections import defaultdict
from typing import Any

from dmcmc.samplers.cp_sat.variables import ModelVariables
from dmcmc.samplers.tuning import engines as tuning


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
