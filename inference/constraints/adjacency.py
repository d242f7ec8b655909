"""The adjacency constraint: no interval of time starts at the end of another one."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.cell_loads import CellItem, CellLoads, time_cells
from dmcmc.inference.constraints.global_constraint import LoadConstraint, int_arrays
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.python_number import whole_numbers
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES


class AdjacencyConstraint(LoadConstraint):
    """No interval starts when another one ends: there is a break between intervals that follow each other.

    The degree of violation is the number of ordered pairs of intervals of which the second starts at the end of the
    first.

    Attributes
    ----------
    times : tuple of ndarray of int64, shape (values,)
        For each start, the time of each of its values.
    durations : tuple of int
        The duration of each interval, at least 1.
    """

    kind = "adjacency"
    summary = "no interval starts at the end of another one"
    times: tuple[NDArray[np.int64], ...]
    durations: tuple[int, ...]

    @classmethod
    def from_parameters(
        cls, scope: Sequence[int], shape: Sequence[int], cost: int | float | None, name: str, given: Mapping[str, Any]
    ) -> Self:
        """Return a constraint from the form that ``parameters`` returns."""
        what = f"constraint {name or cls.kind}"
        durations = tuple(whole_numbers(given["durations"], f"{what}: durations", 1))
        if len(durations) != len(scope):
            raise ProblemError(f"{what}: needs a duration of at least 1 per start")
        times = int_arrays(given["times"], shape, what)
        return cls(scope, shape, {"times": times, "durations": durations}, cost, name)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {"times": list(self.times), "durations": list(self.durations)}

    @cached_property
    def loads(self) -> CellLoads:
        """One cell per start or end. Its load is the number of ends, plus (intervals + 1) · the number of starts."""
        width, firsts, ends = time_cells(self.times, self.durations)
        base = len(self.scope) + 1
        items = []
        for i, (first, end) in enumerate(zip(firsts, ends, strict=True)):
            items += [CellItem.of_cells((i,), first, base), CellItem.of_cells((i,), end, 1)]
        load = np.arange(base * base, dtype=np.int64)
        return CellLoads(tuple(items), np.ones(width.size + 1, dtype=np.int64), (load % base) * (load // base))

    def with_values(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables."""
        times = tuple(t[values] for t, values in zip(self.times, remaining, strict=True))
        given = {"times": times, "durations": self.durations}
        return type(self)(self.scope, [len(values) for values in remaining], given, self.cost, self.name)

    def parts(self) -> list[Factor] | None:
        """Return a table per pair of intervals; None if they would be too large."""
        sizes = [t.size for t in self.times]
        if sum(a * b for a, b in combinations(sizes, 2)) > MAX_ENUMERATED_ENTRIES:
            return None
        found = []
        for i, j in combinations(range(len(sizes)), 2):
            first, second = self.times[i][:, None], self.times[j]
            touch = (first + self.durations[i] == second).astype(np.int64) + (second + self.durations[j] == first)
            if touch.any():
                found.append(self.table_part((i, j), touch))
        return found
