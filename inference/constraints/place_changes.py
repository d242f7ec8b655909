"""The place-changes constraint: intervals that start soon after each other are in the same place."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.cell_loads import CellItem, CellLoads
from dmcmc.inference.constraints.global_constraint import LoadConstraint, int_arrays
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.python_number import whole_number, whole_numbers
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES


class PlaceChangesConstraint(LoadConstraint):
    """Two intervals are in the same place if one starts after the other has started, and soon after its end.

    "Soon" means at most ``gap`` units of time after the end. The degree of violation is the number of pairs of
    intervals for which this does not hold. The scope holds the starts, followed by the places.

    Attributes
    ----------
    times : tuple of ndarray of int64, shape (values,)
        For each start, the time of each of its values.
    durations : tuple of int
        The duration of each interval, at least 1.
    places : tuple of ndarray of int64, shape (values,)
        For each place variable, a number of each of its values: places are the same if their numbers are.
    gap : int
        The longest time between the end of an interval and the start of one that follows soon, at least 0.
    """

    kind = "place_changes"
    summary = "intervals that follow each other soon are in the same place"
    times: tuple[NDArray[np.int64], ...]
    durations: tuple[int, ...]
    places: tuple[NDArray[np.int64], ...]
    gap: int

    @classmethod
    def from_parameters(
        cls, scope: Sequence[int], shape: Sequence[int], cost: int | float | None, name: str, given: Mapping[str, Any]
    ) -> Self:
        """Return a constraint from the form that ``parameters`` returns."""
        what = f"constraint {name or cls.kind}"
        durations = tuple(whole_numbers(given["durations"], f"{what}: durations", 1))
        n, gap = len(durations), whole_number(given["gap"], f"{what}: the gap", 0)
        if len(scope) != 2 * n:
            raise ProblemError(f"{what}: needs a place and a duration of at least 1 per start, and a gap of at least 0")
        times, places = int_arrays(given["times"], shape[:n], what), int_arrays(given["places"], shape[n:], what)
        return cls(scope, shape, {"times": times, "durations": durations, "places": places, "gap": gap}, cost, name)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        lists = {"times": list(self.times), "durations": list(self.durations), "places": list(self.places)}
        return {**lists, "gap": self.gap}

    @cached_property
    def loads(self) -> CellLoads:
        """Cells per time of a start, and per place and time.

        Let b be the number of intervals plus 1. In each cell, a start adds b, and an interval that another one may
        follow soon adds 1. So the pairs of a cell of load l are ⌊l / b⌋ · (l mod b). A constant item adds b² to all
        cells of places, whose pairs count negatively: those in the same place are no violation.
        """
        n = len(self.durations)
        moments = np.unique(np.concatenate([*self.times, np.zeros(0, dtype=np.int64)]))
        distinct = np.unique(np.concatenate([*self.places, np.zeros(0, dtype=np.int64)]))
        cells, base = (1 + distinct.size) * moments.size, n + 1
        items, everywhere = list[CellItem](), np.zeros(self.times[0].size if n else 0, dtype=np.int32)
        if n:
            items.append(CellItem((0,), everywhere + moments.size, everywhere + cells, base**2))
        for i, numbers in enumerate(self.places):
            start = np.searchsorted(moments, self.times[i])
            end = np.searchsorted(moments, self.times[i] + (self.durations[i] + self.gap), "right")
            there = (1 + np.searchsorted(distinct, numbers)) * moments.size
            places = (((i,), start, end), ((i, n + i), start[:, None] + there, end[:, None] + there))
            for positions, first, until in places:
                items.append(CellItem.of_cells(positions, first, base))
                items.append(CellItem(positions, (first + 1).astype(np.int32), until.astype(np.int32), 1))
        load = np.arange(base**2, dtype=np.int64)
        pairs = (load // base) * (load % base)
        return CellLoads(tuple(items), np.ones(max(1, cells), dtype=np.int64), np.concatenate([pairs, -pairs]))

    def with_values(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables."""
        n = len(self.durations)
        times = tuple(t[values] for t, values in zip(self.times, remaining[:n], strict=True))
        places = tuple(p[values] for p, values in zip(self.places, remaining[n:], strict=True))
        given = {"times": times, "durations": self.durations, "places": places, "gap": self.gap}
        return type(self)(self.scope, [len(values) for values in remaining], given, self.cost, self.name)

    def parts(self) -> list[Factor] | None:
        """Return a table per pair of intervals; None if they would be too large."""
        n = len(self.durations)
        sizes = [self.times[i].size * self.places[i].size for i in range(n)]
        if sum(a * b for a, b in combinations(sizes, 2)) > MAX_ENUMERATED_ENTRIES:
            return None
        found = []
        for i, j in combinations(range(n), 2):
            first, second = self.times[i][:, None], self.times[j]
            soon = (first < second) & (second <= first + self.durations[i] + self.gap)
            soon |= (second < first) & (first <= second + self.durations[j] + self.gap)
            differ = self.places[i][:, None] != self.places[j]
            degrees = soon[:, None, :, None] & differ[None, :, None, :]
            if degrees.any():
                found.append(self.table_part((i, n + i, j, n + j), degrees.astype(np.int64)))
        return found
