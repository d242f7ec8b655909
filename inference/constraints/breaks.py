"""The breaks constraint: how often the time between the first and the last interval is interrupted."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.cell_loads import CellItem, CellLoads, excess_penalty, time_cells
from dmcmc.inference.constraints.global_constraint import LoadConstraint, int_arrays
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.python_number import whole_number, whole_numbers
from dmcmc.inference.runtime.errors import ProblemError


class BreaksConstraint(LoadConstraint):
    """The number of breaks between intervals of time is at most ``high``.

    The intervals occupy steps of time; a break is a gap between two maximal runs of occupied steps. The degree of
    violation is the number of breaks above ``high``.

    Attributes
    ----------
    times : tuple of ndarray of int64, shape (values,)
        For each start, the time of each of its values.
    durations : tuple of int
        The duration of each interval, at least 1.
    high : int
        The largest number of breaks without a violation.
    """

    kind = "breaks"
    summary = "bound the number of breaks between intervals"
    times: tuple[NDArray[np.int64], ...]
    durations: tuple[int, ...]
    high: int

    @classmethod
    def from_parameters(
        cls, scope: Sequence[int], shape: Sequence[int], cost: int | float | None, name: str, given: Mapping[str, Any]
    ) -> Self:
        """Return a constraint from the form that ``parameters`` returns."""
        what = f"constraint {name or cls.kind}"
        durations = tuple(whole_numbers(given["durations"], f"{what}: durations", 1))
        high = whole_number(given["high"], f"{what}: the largest number of breaks", 0)
        if len(durations) != len(scope):
            raise ProblemError(f"{what}: needs a duration of at least 1 per start")
        times = int_arrays(given["times"], shape, what)
        return cls(scope, shape, {"times": times, "durations": durations, "high": high}, cost, name)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {"times": list(self.times), "durations": list(self.durations), "high": self.high}

    @cached_property
    def loads(self) -> CellLoads:
        """Cells of time between starts and ends; the penalty is that of the number of runs of occupied cells."""
        width, firsts, ends = time_cells(self.times, self.durations)
        items = [
            CellItem((i,), first.astype(np.int32), end.astype(np.int32), 1)
            for i, (first, end) in enumerate(zip(firsts, ends, strict=True))
        ]
        return CellLoads(tuple(items), width, excess_penalty(1 + self.high, len(self.scope)), counts_runs=True)

    def with_values(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables."""
        times = tuple(t[values] for t, values in zip(self.times, remaining, strict=True))
        given = {"times": times, "durations": self.durations, "high": self.high}
        return type(self)(self.scope, [len(values) for values in remaining], given, self.cost, self.name)

    def parts(self) -> list[Factor] | None:
        """Return nothing if there can be no violation, a table for two intervals, and None for more."""
        if len(self.scope) - 1 <= self.high:
            return []
        if len(self.scope) != 2:
            return None
        first, second = self.times[0][:, None], self.times[1]
        gap = np.maximum(first - second - self.durations[1], second - first - self.durations[0])
        return [self.table_part((0, 1), (gap > 0).astype(np.int64))]
