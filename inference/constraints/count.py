"""The counting constraint: how many variables take one of some values (``among`` in the Global Constraint Catalog)."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.cell_loads import CellItem, CellLoads
from dmcmc.inference.constraints.global_constraint import Domains, LoadConstraint, int_arrays
from dmcmc.inference.model.automaton import AutomatonFactor, unroll
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.python_number import cost_per_unit, whole_number
from dmcmc.inference.runtime.errors import ProblemError


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
    counted: tuple[NDArray[np.int64], ...]
    low: int
    high: int

    @classmethod
    def from_parameters(
        cls, scope: Sequence[int], shape: Sequence[int], cost: int | float | None, name: str, given: Mapping[str, Any]
    ) -> Self:
        """Return a constraint from the form that ``parameters`` returns."""
        what = f"constraint {name or cls.kind}"
        counted = int_arrays(given["counted"], shape, what)
        least, most = whole_number(given["low"], f"{what}: a number"), whole_number(given["high"], f"{what}: a number")
        low, high = max(0, least), min(len(scope), most)
        if low > most:
            raise ProblemError(f"{what}: the smallest number {low} is above {most}")
        if any(c.min(initial=0) < 0 or c.max(initial=0) > 1 for c in counted):
            raise ProblemError(f"{what}: 'counted' holds 0 and 1")
        return cls(scope, shape, {"counted": counted, "low": low, "high": high}, cost, name)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {"counted": list(self.counted), "low": self.low, "high": self.high}

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

    def with_values(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables."""
        counted = tuple(c[values] for c, values in zip(self.counted, remaining, strict=True))
        given = {"counted": counted, "low": self.low, "high": self.high}
        return type(self)(self.scope, [len(values) for values in remaining], given, self.cost, self.name)

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
