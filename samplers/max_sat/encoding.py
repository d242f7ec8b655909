"""Encode a cost problem as a weighted formula.

Each value of a variable has a literal. A hard table over two variables becomes the supports of each value; other
tables become clauses over their tuples, with a literal per level of cost. Automata have a literal per state. Global
constraints are given by the loads of their cells (``dmcmc.inference.constraints.cell_loads``) and become counters; the
number of runs of cells is encoded as in Bofill et al. (JAIR 74, 2022), with the same implied constraints.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.external import problem_arrays
from dmcmc.samplers.external.described_loads import codes_by_scope, implied_limits, never_shared
from dmcmc.samplers.external.problem_arrays import Arrays, AutomatonLayer
from dmcmc.samplers.max_sat.formula import WeightedFormula

_Ints = NDArray[np.int64]


class Encoding:
    """The formula of a cost problem, and the literals of its variables.

    Parameters
    ----------
    arrays : dict of ndarray
        The arrays of ``CostProblem.save``.

    Attributes
    ----------
    formula : WeightedFormula
        The formula.
    literals : list of list of int
        For each variable, the literals of its values; that of a forbidden value is false.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.formula, self._top = WeightedFormula(), int(arrays["top"])
        self._domains = arrays["domains"]
        # Sets of literals with a literal that any of them is true, and with the largest number that may be true.
        self._groups: dict[frozenset[int], int] = {}
        self._limits: list[tuple[frozenset[int], int]] = []
        tables = problem_arrays.tables(arrays)
        allowed = [np.ones(size, dtype=np.bool_) for size in self._domains.tolist()]
        for scope, cost in tables:
            if len(scope) == 1:
                allowed[scope[0]] &= cost < self._top
        self.literals = [self._variable(values) for values in allowed]
        for scope, cost in tables:
            self._add_table(scope, cost)
        for scope, tuples, cost in problem_arrays.listed(arrays):
            self._add_listed(scope, tuples, cost)
        for terms, minimum in problem_arrays.linear(arrays):
            self._add_linear(terms, minimum)
        for scope, layers in problem_arrays.automata(arrays):
            self._add_automaton(scope, layers)
        constraints = problem_arrays.constraints(arrays)
        self._codes = codes_by_scope(constraints)
        for given in constraints:
            self._add_loads(given)
        for groups, most in implied_limits(self._groups, self._limits):
            self.formula.at_most([self._groups[group] for group in groups], most)

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

    def _add_table(self, scope: list[int], cost: _Ints) -> None:
        """Add a cost function given by all its costs."""
        allowed = cost < self._top
        if not allowed.any():
            self.formula.add()
            return
        least = int(cost[allowed].min())
        self.formula.constant += least
        if len(scope) == 1:
            for literal, extra in zip(self.literals[scope[0]], (cost - least).tolist(), strict=True):
                if literal != self.formula.false:
                    self.formula.charge(literal, extra)
            return
        shape = tuple(self._domains[scope])
        if len(scope) == 2 and (cost[allowed] == least).all():
            self._add_supports(scope, allowed.reshape(shape))
            return
        dearer = cost > least
        tuples = np.stack(np.unravel_index(np.flatnonzero(dearer), shape), axis=1)
        self._add_levels(scope, tuples, np.where(allowed, cost - least, self._top)[dearer])

    def _add_supports(self, scope: list[int], allowed: NDArray[np.bool_]) -> None:
        """Add for each value of two variables that the other variable has a value that is allowed with it."""
        first, second = (self.literals[v] for v in scope)
        for own, others, rows in ((first, second, allowed), (second, first, allowed.T)):
            for literal, row in zip(own, rows, strict=True):
                if literal != self.formula.false and not row.all():
                    self.formula.add(-literal, *(others[b] for b in np.flatnonzero(row).tolist()))

    def _add_listed(self, scope: list[int], tuples: _Ints, cost: _Ints) -> None:
        """Add a cost function given by tuples, and the cost of all others at the end of ``cost``."""
        default, listed = int(cost[-1]), cost[:-1]
        allowed = listed < self._top
        if default >= self._top:
            selected = [self._tuple(scope, values) for values in tuples[allowed].tolist()]
            self.formula.add(*selected)
            for literal, own in zip(selected, listed[allowed].tolist(), strict=True):
                self.formula.charge(literal, own)
            return
        self.formula.constant += default
        higher = listed > default
        self._add_levels(scope, tuples[higher], np.where(allowed, listed - default, self._top)[higher])
        lower = listed < default
        for values, saved in zip(tuples[lower].tolist(), (listed - default)[lower].tolist(), strict=True):
            self.formula.charge(self._tuple(scope, values), saved)

    def _tuple(self, scope: list[int], values: list[int]) -> int:
        """Return a literal that is true if and only if some variables have the given values."""
        return self.formula.all_of([self.literals[v][a] for v, a in zip(scope, values, strict=True)])

    def _add_levels(self, scope: list[int], tuples: _Ints, extra: _Ints) -> None:
        """Add extra costs of some tuples: one literal per level of cost, implied by each tuple of the level."""
        literals = [self.literals[v] for v in scope]
        clauses = [[-literals[i][a] for i, a in enumerate(values)] for values in tuples.tolist()]
        self._add_costs(clauses, extra.tolist())

    def _add_costs(self, clauses: list[list[int]], extra: list[int]) -> None:
        """Add clauses of which at most one is violated, for the cost of its violation."""
        levels: dict[int, int] = {}
        for clause, cost in zip(clauses, extra, strict=True):
            if cost < self._top:
                if cost not in levels:
                    levels[cost] = self.formula.new()
                clause = [*clause, levels[cost]]
            self.formula.add(*clause)
        for cost, literal in levels.items():
            self.formula.charge(literal, cost)

    def _add_linear(self, terms: _Ints, minimum: int) -> None:
        """Add the constraint that the sum of equal weights of selected values is at least a minimum."""
        weight = int(terms[0, 2])
        selected = [self.literals[v][a] for v, a, _ in terms.tolist()]
        if weight > 0:
            self.formula.at_least(selected, -(-minimum // weight))
        else:
            self.formula.at_most(selected, -minimum // -weight)

    def _add_automaton(self, scope: list[int], layers: list[AutomatonLayer]) -> None:
        """Add an automaton: a literal per state before each variable, and a clause per transition."""
        formula, states = self.formula, [self.formula.true]
        for position, (v, (following, cost)) in enumerate(zip(scope, layers, strict=True)):
            last = position == len(layers) - 1
            following_states = [] if last else [formula.new() for _ in range(len(layers[position + 1].cost))]
            reached: list[list[int]] = [[] for _ in following_states]
            clauses, extra = [], []
            for s, a in np.ndindex(*cost.shape):
                if self.literals[v][a] == formula.false:
                    continue
                transition, own = [-states[s], -self.literals[v][a]], int(cost[s, a])
                if own:
                    clauses.append(transition)
                    extra.append(own)
                if own < self._top and not last:
                    formula.add(*transition, following_states[int(following[s, a])])
                    reached[int(following[s, a])].append(states[s])
            self._add_costs(clauses, extra)
            for state, before in zip(following_states, reached, strict=True):
                formula.add(-state, *sorted(set(before)))
            if following_states:
                formula.exactly_one(following_states)
            states = following_states

    def _add_loads(self, given: dict[str, Any]) -> None:
        """Add a constraint that is a function of the loads of cells."""
        covering: list[list[tuple[int, int]]] = [[] for _ in range(given["cells"])]  # literal and weight
        for item in given["items"]:
            here: dict[int, list[int]] = {}
            for first, literal in self._placed(given["scope"], item):
                for cell in range(first, first + item["length"]):
                    here.setdefault(cell, []).append(literal)
            for cell, present in here.items():
                covering[cell].append((self.formula.any_of(present), item["weight"]))
        if given["counts_runs"]:
            self._add_runs([[literal for literal, _ in cell] for cell in covering], given)
            return
        for load in covering:
            self._add_penalty([x for x, weight in load for _ in range(weight)], given["penalty"], given["cost"])

    def _placed(self, scope: list[int], item: dict[str, Any]) -> list[tuple[int, int]]:
        """Return the first cell of an item's range with the literal of the values that give it."""
        if len(item["positions"]) == 1:
            own = self.literals[scope[item["positions"][0]]]
            pairs = list(zip(item["first"], own, strict=True))
        else:
            u, v = (self.literals[scope[position]] for position in item["positions"])
            pairs = [
                (first, self.formula.all_of([x, y]))
                for x, row in zip(u, item["first"], strict=True)
                for y, first in zip(v, row, strict=True)
            ]
        return [(first, literal) for first, literal in pairs if first >= 0 and literal != self.formula.false]

    def _add_penalty(self, literals: list[int], penalty: list[int], cost: int | None) -> None:
        """Add the penalty of the number of true literals: counters if it is hard, otherwise a cost per increment."""
        formula, penalty = self.formula, penalty[: len(literals) + 1]
        increments = [after - before for before, after in pairwise(penalty)]
        if cost is None:
            self._add_limits(literals, [number for number, degree in enumerate(penalty) if degree <= 0])
            return
        formula.constant += cost * penalty[0]
        if len(set(increments)) <= 1:  # the penalty may end below the number of literals, of which not all can be true
            for literal in literals:
                formula.charge(literal, cost * sum(increments[:1]))
            return
        largest = max(i + 1 for i, increment in enumerate(increments) if increment)
        for literal, increment in zip(formula.counts(literals, largest), increments, strict=False):
            formula.charge(literal, cost * increment)

    def _add_limits(self, literals: list[int], allowed: list[int]) -> None:
        """Allow only some numbers of true literals."""
        if not allowed:
            self.formula.add()
            return
        low, high = allowed[0], allowed[-1]
        self.formula.at_least(literals, low)
        self.formula.at_most(literals, high)
        if high - low + 1 > len(allowed):
            counts = [self.formula.true, *self.formula.counts(literals, high + 1), self.formula.false]
            for number in range(low, high):
                if number not in allowed:
                    self.formula.add(-counts[number], counts[number + 1])
        if not low and high < len(literals):
            self._limits.append((frozenset(literals), high))

    def _add_runs(self, cells: list[list[int]], given: dict[str, Any]) -> None:
        """Add the penalty of the number of maximal runs of cells with a positive load.

        A cell ends a break if its load is positive, that of the cell before is 0, and that of an earlier one is
        positive. There is a run for each break, and one more if any load is positive.
        """
        formula = self.formula
        occupied = [formula.any_of(literals) for literals in cells]
        for literals, literal in zip(cells, occupied, strict=True):
            if literals:
                self._groups[frozenset(literals)] = literal
        before = occupied[:1]
        for literal in occupied[1:]:
            before.append(formula.any_of([before[-1], literal]))
        ends = [
            formula.all_of([occupied[cell], -occupied[cell - 1], before[cell - 2]]) for cell in range(2, len(occupied))
        ]
        if never_shared(self._codes, given):  # implied
            self._add_limits(occupied, [len(given["items"])])
        penalty = given["penalty"]
        if len(penalty) > 1 and penalty[0] == penalty[1]:
            self._add_penalty(ends, penalty[1:], given["cost"])
        else:
            self._add_penalty([*ends, before[-1]], penalty, given["cost"])
