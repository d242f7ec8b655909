"""Global constraints in a weighted formula.

They are given by the loads of their cells (``dmcmc.inference.constraints.cell_loads``) and become counters; the number
of runs of cells is encoded as in Bofill et al. (JAIR 74, 2022), with the same implied constraints.
"""

from itertools import pairwise
from typing import Any

from dmcmc.samplers.external.described_loads import codes_by_scope, implied_limits, never_shared
from dmcmc.samplers.max_sat.encoded_variables import EncodedVariables


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
