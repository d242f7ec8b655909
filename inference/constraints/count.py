"""Count values, and accept sequences of values by an automaton.

The counting constraint bounds how many variables take one of some values (``among`` in the Global Constraint Catalog).
The regular constraint lets an automaton, whose transitions may have costs, read the values of some variables.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import CellItem, CellLoads, Domains, LoadConstraint, int_arrays
from dmcmc.inference.model.automaton import AutomatonFactor, unroll
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import cost_per_unit, python_number, whole_number
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Label


class CountConstraint(LoadConstraint):
    """``low`` ≤ number of variables that take one of some values ≤ ``high``.

    The degree of violation is the distance of the number from the interval.

    Attributes
    ----------
    counted : tuple of ndarray of int64, shape (values,)
        For each variable, 1 for each value that counts, and 0 for the others.
    low, high : int
        The smallest and the largest number.
    """

    kind = "count"
    summary = "bound the number of variables that take one of some values"
    per_value = ("counted",)
    counted: tuple[NDArray[np.int64], ...]
    low: int
    high: int

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters from the form that ``parameters`` returns; see ``GlobalConstraint``."""
        counted = int_arrays(given["counted"], shape, what)
        least, most = whole_number(given["low"], f"{what}: a number"), whole_number(given["high"], f"{what}: a number")
        low, high = max(0, least), min(len(shape), most)
        if low > most:
            raise ProblemError(f"{what}: the smallest number {low} is above {most}")
        if any(c.min(initial=0) < 0 or c.max(initial=0) > 1 for c in counted):
            raise ProblemError(f"{what}: 'counted' holds 0 and 1")
        return {"counted": counted, "low": low, "high": high}

    @cached_property
    def loads(self) -> CellLoads:
        """One cell, whose load is the number."""
        items = [CellItem.of_cells((i,), np.where(c > 0, 0, -1), 1) for i, c in enumerate(self.counted) if c.any()]
        return CellLoads(tuple(items), np.ones(1, dtype=np.int64), self._penalty)

    @property
    def _penalty(self) -> NDArray[np.int64]:
        """The degree for each number, shape (variables + 1,)."""
        number = np.arange(len(self.scope) + 1, dtype=np.int64)
        return np.maximum(0, np.maximum(self.low - number, number - self.high))

    def propagate(self, domains: Domains) -> Domains | None:
        """Remove all unsupported values: those that count if the maximum is reached, or those that do not."""
        counted = [c[domain] for c, domain in zip(self.counted, domains, strict=True)]
        if any(not c.size for c in counted):
            return None
        certain, possible = sum(bool(c.all()) for c in counted), sum(bool(c.any()) for c in counted)
        if certain > self.high or possible < self.low:
            return None
        result = list(domains)
        for i, c in enumerate(counted):
            if c.all() or not c.any():
                continue
            if certain == self.high:
                result[i] = domains[i] & (self.counted[i] == 0)
            elif possible == self.low:
                result[i] = domains[i] & (self.counted[i] == 1)
        return result

    def parts(self) -> list[Factor]:
        """Return one automaton that counts."""
        part = self.sum_part(range(len(self.scope)), self.counted, self._penalty)
        return [] if part is None else [part]


def count_variable(
    scope: Sequence[int], counted: Sequence[Sequence[int]], cost: int | float | None, name: str
) -> AutomatonFactor:
    """Return an automaton: the number of variables that take one of some values equals the number of the last one.

    Parameters
    ----------
    scope : sequence of int
        Variable indices; the last variable is the number.
    counted : sequence of sequence of int
        For each variable but the last one, 1 for each value that counts, and 0 for the others; for the last one the
        number of each value.
    cost : int, float or None
        Cost per unit of difference; None for a hard constraint.
    name : str
        Name of the factor.
    """
    cost = cost_per_unit(cost, f"constraint {name}")

    def step(position: int, number: Any, value: int) -> tuple[int, int | float | None]:
        entry = counted[position][value]
        if position < len(scope) - 1:
            return number + entry, 0
        difference = abs(number - entry)
        return 0, (-cost * difference if cost is not None else None if difference else 0)

    return unroll(scope, [len(c) for c in counted], 0, step, name=name)


State = Hashable
Cost = int | float


class Automaton(NamedTuple):
    """A deterministic finite automaton over the labels of variables.

    Attributes
    ----------
    start : hashable
        The initial state.
    transitions : mapping from (state, label) to state or (state, cost)
        The next state, with the cost (or utility, if the problem is maximised) of the transition; 0 if it is left out.
        All other transitions are forbidden. A state must not be a pair (tuple of two entries).
    accepting : collection of states, mapping from state to cost, or None
        The states in which a sequence may end, with their costs; None for all states.
    """

    start: State
    transitions: Mapping[tuple[State, Label], State | tuple[State, Cost]]
    accepting: Sequence[State] | frozenset[State] | Mapping[State, Cost] | None = None

    def factor(
        self, scope: Sequence[int], domains: Sequence[Sequence[Label]], sense: str, name: str = ""
    ) -> AutomatonFactor:
        """Return the factor of a sequence of variables.

        Parameters
        ----------
        scope : sequence of int
            Variable indices in the order in which the automaton reads them; at least one.
        domains : sequence of sequence of label
            The labels of the values of each variable.
        sense : {"max", "min"}
            Whether the costs of transitions are utilities ("max") or costs ("min").
        name : str
            Name of the factor.

        Raises
        ------
        ProblemError
            If the scope is empty.
        ResourceError
            If there are too many states.
        """
        if not scope:
            raise ProblemError(f"constraint {name or 'regular'}: needs at least one variable")

        def step(position: int, state: State, value: int) -> tuple[State, Cost | None]:
            found = self.transitions.get((state, domains[position][value]))
            if found is None:
                return None, None
            following, cost = found if isinstance(found, tuple) and len(found) == 2 else (found, 0)
            cost = python_number(cost, f"constraint {name or 'regular'}: the cost of a transition")
            if position < len(scope) - 1:
                return following, cost
            if self.accepting is None:
                return 0, cost
            if following not in self.accepting:
                return None, None
            end = self.accepting[following] if isinstance(self.accepting, Mapping) else 0
            return 0, cost + python_number(end, f"constraint {name or 'regular'}: the cost of a state")

        return unroll(scope, [len(domain) for domain in domains], self.start, step, sense, name)
