"""The cumulative constraint: at each time, the demands of all running intervals are at most a capacity."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import gcd
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.cell_loads import CellItem, CellLoads, excess_penalty, time_cells
from dmcmc.inference.constraints.global_constraint import Domains, LoadConstraint, check_degree, int_arrays
from dmcmc.inference.constraints.timetable import filter_starts, overload
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.python_number import whole_number, whole_numbers
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES


class CumulativeConstraint(LoadConstraint):
    """At each time, the demands of the intervals that contain it sum to at most a capacity.

    The degree of violation is the integral over time of the demand above the capacity.

    Attributes
    ----------
    times : tuple of ndarray of int64, shape (values,)
        For each start, the time of each of its values.
    durations, demands : tuple of int
        The duration and the demand of each interval, at least 0.
    capacity : int
        The capacity, at least 0.
    """

    kind = "cumulative"
    summary = "at each time, the demands of intervals are at most a capacity"
    times: tuple[NDArray[np.int64], ...]
    durations: tuple[int, ...]
    demands: tuple[int, ...]
    capacity: int

    @classmethod
    def from_parameters(
        cls, scope: Sequence[int], shape: Sequence[int], cost: int | float | None, name: str, given: Mapping[str, Any]
    ) -> Self:
        """Return a constraint from the form that ``parameters`` returns."""
        what = f"constraint {name or cls.kind}"
        durations = tuple(whole_numbers(given["durations"], f"{what}: durations", 0))
        demands = tuple(whole_numbers(given["demands"], f"{what}: demands", 0))
        if not len(scope) == len(durations) == len(demands):
            raise ProblemError(f"{what}: needs one duration and one demand per start")
        capacity = whole_number(given["capacity"], f"{what}: the capacity", 0)
        check_degree(sum(d * demand for d, demand in zip(durations, demands, strict=True)), what)
        if sum(demands) // (gcd(*demands) or 1) > MAX_ENUMERATED_ENTRIES:
            raise ProblemError(f"{what}: the demands add up to {sum(demands)}, which is too fine; use a coarser unit")
        times = int_arrays(given["times"], shape, what)
        found = {"times": times, "durations": durations, "demands": demands, "capacity": capacity}
        return cls(scope, shape, found, cost, name)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        lists = {"times": list(self.times), "durations": list(self.durations), "demands": list(self.demands)}
        return {**lists, "capacity": self.capacity}

    @cached_property
    def loads(self) -> CellLoads:
        """Cells of time between starts and ends; loads are in the largest common unit of the demands."""
        width, firsts, ends = time_cells(self.times, self.durations)
        unit = gcd(*self.demands) or 1
        items = [
            CellItem((i,), firsts[i].astype(np.int32), ends[i].astype(np.int32), self.demands[i] // unit)
            for i in range(len(self.scope))
            if self.durations[i] and self.demands[i]
        ]
        return CellLoads(tuple(items), width, excess_penalty(self.capacity, sum(self.demands) // unit, unit))

    def with_values(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables."""
        times = tuple(t[values] for t, values in zip(self.times, remaining, strict=True))
        given = {"times": times, "durations": self.durations, "demands": self.demands, "capacity": self.capacity}
        return type(self)(self.scope, [len(values) for values in remaining], given, self.cost, self.name)

    def propagate(self, domains: Domains) -> Domains | None:
        """Remove starts at which an interval exceeds the capacity left by what is certainly occupied (timetable)."""
        if not all(domain.any() for domain in domains):
            return None
        members = [i for i in range(len(self.scope)) if self.durations[i] and self.demands[i]]
        return filter_starts(self.times, self.durations, self.demands, self.capacity, members, domains)

    def parts(self) -> list[Factor] | None:
        """Return an automaton per cell of time that adds the demands."""
        return overload(self, self.times, self.durations, self.demands, self.capacity)
