"""The breaks constraint: how often the time between the first and the last interval is interrupted."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.cell_loads import CellItem, CellLoads, excess_penalty, time_grid
from dmcmc.inference.constraints.global_constraint import LoadConstraint, int_arrays
from dmcmc.inference.model.problem import Factor
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
        durations, high = tuple(map(int, given["durations"])), int(given["high"])
        if len(durations) != len(scope) or min(durations, default=1) < 1:
            raise ProblemError(f"{what}: needs a duration of at least 1 per start")
        if high < 0:
            raise ProblemError(f"{what}: the largest number of breaks is at least 0, not {high}")
        times = int_arrays(given["times"], shape, what)
        return cls(scope, shape, {"times": times, "durations": durations, "high": high}, cost, name)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {"times": list(self.times), "durations": list(self.durations), "high": self.high}

    @cached_property
    def loads(self) -> CellLoads:
        """One cell per step of time; the penalty is that of the number of runs of occupied cells."""
        steps, _, starts, lengths = time_grid(self.times, self.durations)
        items = [
            CellItem((i,), start.astype(np.int32), length, 1)
            for i, (start, length) in enumerate(zip(starts, lengths, strict=True))
        ]
        return CellLoads(tuple(items), steps, excess_penalty(1 + self.high, len(self.scope)), counts_runs=True)

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
