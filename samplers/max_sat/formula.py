"""The MaxSAT formula, and variables in it.

A weighted formula in conjunctive normal form under construction: clauses, definitions, counters and costs.

The variables of a cost problem in a weighted formula: a literal for each value.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.contract import tuning
from dmcmc.samplers.external import problem_arrays
from dmcmc.samplers.external.problem_arrays import Arrays


class WeightedFormula:
    """Hard clauses, and a cost for each literal that is true.

    Literals are integers, as in the DIMACS format: −x is the negation of x.

    Attributes
    ----------
    clauses : list of list of int
        The hard clauses.
    variables : int
        Number of variables; the first one is always true.
    constant : int
        Cost of all assignments.
    true, false : int
        The literals of the first variable.
    """

    true, false = 1, -1

    def __init__(self) -> None:
        self.clauses: list[list[int]] = [[1]]
        self.variables, self.constant = 1, 0
        self._cost = defaultdict[int, int](int)  # by variable: what it costs if it is true, less what it costs if false
        self._any: dict[tuple[int, ...], int] = {}

    def new(self) -> int:
        """Return a new variable."""
        self.variables += 1
        return self.variables

    def add(self, *literals: int) -> None:
        """Add a hard clause."""
        if self.true not in literals:
            self.clauses.append([literal for literal in literals if literal != self.false])

    def charge(self, literal: int, cost: int) -> None:
        """Add a cost, which may be negative, for a true literal."""
        if literal < 0:
            self.constant += cost
            self._cost[-literal] -= cost
        else:
            self._cost[literal] += cost

    def soft(self) -> list[tuple[int, int]]:
        """Return the literals that cost something if they are false, with their positive costs; move the constants."""
        costs = {x: cost for x, cost in self._cost.items() if cost}
        self._cost.clear()
        self.constant += costs.pop(self.true, 0) + sum(cost for cost in costs.values() if cost < 0)
        return [(-x if cost > 0 else x, abs(cost)) for x, cost in costs.items()]

    def any_of(self, literals: Sequence[int]) -> int:
        """Return a literal that is true if and only if one of some literals is; it is made once."""
        key = tuple(sorted({literal for literal in literals if literal != self.false}))
        if self.true in key:
            return self.true
        if len(key) <= 1:
            return key[0] if key else self.false
        found = self._any.get(key)
        if found is None:
            found = self._any[key] = self.new()
            self.add(-found, *key)
            for literal in key:
                self.add(-literal, found)
        return found

    def all_of(self, literals: Sequence[int]) -> int:
        """Return a literal that is true if and only if all of some literals are; it is made once."""
        return -self.any_of([-literal for literal in literals])

    def exactly_one(self, literals: Sequence[int]) -> None:
        """Let exactly one of some literals be true."""
        self.add(*literals)
        self.at_most(literals, 1)

    def at_most(self, literals: Sequence[int], limit: int) -> None:
        """Let at most ``limit`` of some literals be true; a literal that is given twice counts twice.

        Small limits on few literals become clauses, others a sequential counter (Sinz, CP 2005).
        """
        given = [literal for literal in literals if literal != self.false]
        if limit >= len(given):
            return
        if limit < 0:
            self.add()
        elif limit == 0:
            for literal in given:
                self.add(-literal)
        elif limit == 1 and len(given) <= tuning.MAX_CLAUSE_LITERALS:
            for first, second in combinations(given, 2):
                self.add(-first, -second)
        else:
            from pysat.card import CardEnc, EncType

            encoded = CardEnc.atmost(given, limit, top_id=self.variables, encoding=EncType.seqcounter)
            self.variables = max(self.variables, encoded.nv)
            self.clauses += encoded.clauses

    def at_least(self, literals: Sequence[int], limit: int) -> None:
        """Let at least ``limit`` of some literals be true; a literal that is given twice counts twice."""
        if limit == 1:
            self.add(*literals)
        elif limit > 1:
            self.at_most([-literal for literal in literals], len(literals) - limit)

    def counts(self, literals: Sequence[int], largest: int) -> list[int]:
        """Return literals of which the i-th is true if and only if more than i of the given ones are.

        They are the outputs of a totalizer (Bailleux and Boufkhad, CP 2003).

        Parameters
        ----------
        literals : sequence of int
            The literals; one that is given twice counts twice.
        largest : int
            The largest count that matters: as many literals are returned, or fewer if there are fewer.
        """
        if len(literals) <= 1:
            return list(literals)[:largest]
        half = len(literals) // 2
        first, second = self.counts(literals[:half], largest), self.counts(literals[half:], largest)
        outputs = [self.new() for _ in range(min(largest, len(first) + len(second)))]
        for i in range(len(first) + 1):
            for j in range(len(second) + 1):
                if 0 < i + j <= len(outputs):  # i and j true ones: at least i + j
                    self.add(outputs[i + j - 1], *(-x for x in (*first[i - 1 : i], *second[j - 1 : j])))
                if i + j < len(outputs):  # no more than i and j: no more than i + j
                    self.add(-outputs[i + j], *first[i : i + 1], *second[j : j + 1])
        return outputs


class EncodedVariables:
    """A formula with the literals of a problem's variables.

    Parameters
    ----------
    arrays : dict of ndarray
        The arrays of ``CostProblem.save``.

    Attributes
    ----------
    formula : WeightedFormula
        The formula.
    top : int
        The cost from which on an assignment is forbidden.
    literals : list of list of int
        For each variable, the literals of its values; that of a forbidden value is false.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.formula, self.top = WeightedFormula(), int(arrays["top"])
        allowed = [np.ones(size, dtype=np.bool_) for size in arrays["domains"].tolist()]
        for scope, cost in problem_arrays.tables(arrays):
            if len(scope) == 1:
                allowed[scope[0]] &= cost < self.top
        self.literals = [self._variable(values) for values in allowed]

    def values(self, true: set[int]) -> list[int]:
        """Return the value of each variable, given the literals that are true in a model."""
        return [next(a for a, x in enumerate(own) if -x not in true) for own in self.literals]

    def _variable(self, allowed: NDArray[np.bool_]) -> list[int]:
        """Return the literals of a variable's values."""
        formula, values = self.formula, np.flatnonzero(allowed).tolist()
        literals = [formula.false] * allowed.size
        if not values:
            formula.add()
            literals[0] = formula.true
        elif len(values) == 1:
            literals[values[0]] = formula.true
        elif len(values) == 2:
            literals[values[0]] = formula.new()
            literals[values[1]] = -literals[values[0]]
        else:
            for a in values:
                literals[a] = formula.new()
            formula.exactly_one([literals[a] for a in values])
        return literals
