"""Tables and loads as clauses.

Cost functions given by tables, sums or automata, in a weighted formula.

A hard table over two variables becomes the supports of each value; other tables become clauses over their tuples, with
a literal per level of cost. Automata have a literal per state.

Global constraints in a weighted formula.

They are given by the loads of their cells (:mod:`dmcmc.inference.constraints.global_constraint`) and become counters;
the number of runs of cells is encoded as in Bofill et al. (JAIR 74, 2022), with the same implied constraints.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.external import problem_arrays
from dmcmc.samplers.external.problem_arrays import Arrays, AutomatonLayer, codes_by_scope, implied_limits, never_shared
from dmcmc.samplers.max_sat.formula import EncodedVariables

_Ints = NDArray[np.int64]


def add_cost_functions(encoded: EncodedVariables, arrays: Arrays) -> None:
    """Add all cost functions of a problem but its global constraints.

    Parameters
    ----------
    encoded : EncodedVariables
        The variables, in a formula without cost functions.
    arrays : dict of ndarray
        The arrays of ``CostProblem.save``.
    """
    for scope, cost in problem_arrays.tables(arrays):
        _add_table(encoded, scope, cost)
    for scope, tuples, cost in problem_arrays.listed(arrays):
        _add_listed(encoded, scope, tuples, cost)
    for terms, minimum in problem_arrays.linear(arrays):
        _add_linear(encoded, terms, minimum)
    for scope, layers in problem_arrays.automata(arrays):
        _add_automaton(encoded, scope, layers)


def _add_table(encoded: EncodedVariables, scope: list[int], cost: _Ints) -> None:
    """Add a cost function given by all its costs."""
    allowed = cost < encoded.top
    if not allowed.any():
        encoded.formula.add()
        return
    least = int(cost[allowed].min())
    encoded.formula.constant += least
    if len(scope) == 1:
        for literal, extra in zip(encoded.literals[scope[0]], (cost - least).tolist(), strict=True):
            if literal != encoded.formula.false:
                encoded.formula.charge(literal, extra)
        return
    shape = tuple(len(encoded.literals[v]) for v in scope)
    if len(scope) == 2 and (cost[allowed] == least).all():
        _add_supports(encoded, scope, allowed.reshape(shape))
        return
    dearer = cost > least
    tuples = np.stack(np.unravel_index(np.flatnonzero(dearer), shape), axis=1)
    _add_levels(encoded, scope, tuples, np.where(allowed, cost - least, encoded.top)[dearer])


def _add_supports(encoded: EncodedVariables, scope: list[int], allowed: NDArray[np.bool_]) -> None:
    """Add for each value of two variables that the other variable has a value that is allowed with it."""
    first, second = (encoded.literals[v] for v in scope)
    for own, others, rows in ((first, second, allowed), (second, first, allowed.T)):
        for literal, row in zip(own, rows, strict=True):
            if literal != encoded.formula.false and not row.all():
                encoded.formula.add(-literal, *(others[b] for b in np.flatnonzero(row).tolist()))


def _add_listed(encoded: EncodedVariables, scope: list[int], tuples: _Ints, cost: _Ints) -> None:
    """Add a cost function given by tuples, and the cost of all others at the end of ``cost``."""
    default, listed = int(cost[-1]), cost[:-1]
    allowed = listed < encoded.top
    if default >= encoded.top:
        selected = [_tuple(encoded, scope, values) for values in tuples[allowed].tolist()]
        encoded.formula.add(*selected)
        for literal, own in zip(selected, listed[allowed].tolist(), strict=True):
            encoded.formula.charge(literal, own)
        return
    encoded.formula.constant += default
    higher = listed > default
    _add_levels(encoded, scope, tuples[higher], np.where(allowed, listed - default, encoded.top)[higher])
    lower = listed < default
    for values, saved in zip(tuples[lower].tolist(), (listed - default)[lower].tolist(), strict=True):
        encoded.formula.charge(_tuple(encoded, scope, values), saved)


def _tuple(encoded: EncodedVariables, scope: list[int], values: list[int]) -> int:
    """Return a literal that is true if and only if some variables have the given values."""
    return encoded.formula.all_of([encoded.literals[v][a] for v, a in zip(scope, values, strict=True)])


def _add_levels(encoded: EncodedVariables, scope: list[int], tuples: _Ints, extra: _Ints) -> None:
    """Add extra costs of some tuples: one literal per level of cost, implied by each tuple of the level."""
    literals = [encoded.literals[v] for v in scope]
    clauses = [[-literals[i][a] for i, a in enumerate(values)] for values in tuples.tolist()]
    _add_costs(encoded, clauses, extra.tolist())


def _add_costs(encoded: EncodedVariables, clauses: list[list[int]], extra: list[int]) -> None:
    """Add clauses of which at most one is violated, for the cost of its violation."""
    levels: dict[int, int] = {}
    for clause, cost in zip(clauses, extra, strict=True):
        if cost < encoded.top:
            if cost not in levels:
                levels[cost] = encoded.formula.new()
            clause = [*clause, levels[cost]]
        encoded.formula.add(*clause)
    for cost, literal in levels.items():
        encoded.formula.charge(literal, cost)


def _add_linear(encoded: EncodedVariables, terms: _Ints, minimum: int) -> None:
    """Add the constraint that the sum of equal weights of selected values is at least a minimum."""
    weight = int(terms[0, 2])
    selected = [encoded.literals[v][a] for v, a, _ in terms.tolist()]
    if weight > 0:
        encoded.formula.at_least(selected, -(-minimum // weight))
    else:
        encoded.formula.at_most(selected, -minimum // -weight)


def _add_automaton(encoded: EncodedVariables, scope: list[int], layers: list[AutomatonLayer]) -> None:
    """Add an automaton: a literal per state before each variable, and a clause per transition."""
    formula, states = encoded.formula, [encoded.formula.true]
    for position, (v, (following, cost)) in enumerate(zip(scope, layers, strict=True)):
        last = position == len(layers) - 1
        following_states = [] if last else [formula.new() for _ in range(len(layers[position + 1].cost))]
        reached: list[list[int]] = [[] for _ in following_states]
        clauses, extra = [], []
        for s, a in np.ndindex(*cost.shape):
            if encoded.literals[v][a] == formula.false:
                continue
            transition, own = [-states[s], -encoded.literals[v][a]], int(cost[s, a])
            if own:
                clauses.append(transition)
                extra.append(own)
            if own < encoded.top and not last:
                formula.add(*transition, following_states[int(following[s, a])])
                reached[int(following[s, a])].append(states[s])
        _add_costs(encoded, clauses, extra)
        for state, before in zip(following_states, reached, strict=True):
            formula.add(-state, *sorted(set(before)))
        if following_states:
            formula.exactly_one(following_states)
        states = following_states


class LoadConstraints:
    """The global constraints of a problem; several of them together can imply limits.

    Parameters
    ----------
    encoded : EncodedVariables
        The variables, in the formula to which the constraints are added.
    constraints : list of dict
        The constraints as ``problem_arrays.constraints`` reads them.
    """

    def __init__(self, encoded: EncodedVariables, constraints: list[dict[str, Any]]) -> None:
        self._formula, self._literals, self._constraints = encoded.formula, encoded.literals, constraints
        self._codes = codes_by_scope(constraints)
        # Sets of literals with a literal that any of them is true, and with the largest number that may be true.
        self._groups: dict[frozenset[int], int] = {}
        self._limits: list[tuple[frozenset[int], int]] = []

    def add(self) -> None:
        """Add all constraints and the limits that they imply."""
        for given in self._constraints:
            self._add_loads(given)
        for groups, most in implied_limits(self._groups, self._limits):
            self._formula.at_most([self._groups[group] for group in groups], most)

    def _add_loads(self, given: dict[str, Any]) -> None:
        """Add a constraint that is a function of the loads of cells."""
        covering: list[list[tuple[int, int]]] = [[] for _ in given["width"]]  # literal and weight
        for item in given["items"]:
            here: dict[int, list[int]] = {}
            for first, end, literal in self._placed(given["scope"], item):
                for cell in range(first, end):
                    here.setdefault(cell, []).append(literal)
            for cell, present in here.items():
                covering[cell].append((self._formula.any_of(present), item["weight"]))
        if given["counts_runs"]:
            self._add_runs([[literal for literal, _ in cell] for cell in covering], given)
            return
        for load, width in zip(covering, given["width"], strict=True):
            cost = None if given["cost"] is None else width * given["cost"]
            self._add_penalty([x for x, weight in load for _ in range(weight)], given["penalty"], cost)

    def _placed(self, scope: list[int], item: dict[str, Any]) -> list[tuple[int, int, int]]:
        """Return the first cell and the end of an item's range with the literal of the values that give it."""
        if len(item["positions"]) == 1:
            own = self._literals[scope[item["positions"][0]]]
            found = list(zip(item["first"], item["end"], own, strict=True))
        else:
            u, v = (self._literals[scope[position]] for position in item["positions"])
            found = [
                (first, end, self._formula.all_of([x, y]))
                for x, firsts, ends in zip(u, item["first"], item["end"], strict=True)
                for y, first, end in zip(v, firsts, ends, strict=True)
            ]
        return [one for one in found if one[0] >= 0 and one[2] != self._formula.false]

    def _add_penalty(self, literals: list[int], penalty: list[int], cost: int | None) -> None:
        """Add the penalty of the number of true literals: counters if it is hard, otherwise a cost per increment."""
        formula, penalty = self._formula, penalty[: len(literals) + 1]
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
            self._formula.add()
            return
        low, high = allowed[0], allowed[-1]
        self._formula.at_least(literals, low)
        self._formula.at_most(literals, high)
        if high - low + 1 > len(allowed):
            counts = [self._formula.true, *self._formula.counts(literals, high + 1), self._formula.false]
            for number in range(low, high):
                if number not in allowed:
                    self._formula.add(-counts[number], counts[number + 1])
        if not low and high < len(literals):
            self._limits.append((frozenset(literals), high))

    def _add_runs(self, cells: list[list[int]], given: dict[str, Any]) -> None:
        """Add the penalty of the number of maximal runs of cells with a positive load.

        A cell ends a break if its load is positive, that of the cell before is 0, and that of an earlier one is
        positive. There is a run for each break, and one more if any load is positive.
        """
        formula = self._formula
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
