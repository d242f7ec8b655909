"""A weighted formula in conjunctive normal form under construction: clauses, definitions, counters and costs."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from dmcmc.samplers.tuning import engines as tuning


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
