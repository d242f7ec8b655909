"""Constraints of meeting schedules: breaks between intervals, no idle slots, and few changes of place."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import CellItem, CellLoads, LoadConstraint, int_arrays, time_cells
from dmcmc.inference.model.automaton import AutomatonFactor, Layer
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import whole_number, whole_numbers
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array
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
    per_value = ("times",)
    times: tuple[NDArray[np.int64], ...]
    durations: tuple[int, ...]

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters from the form that ``parameters`` returns; see ``GlobalConstraint``."""
        durations = tuple(whole_numbers(given["durations"], f"{what}: durations", 1))
        if len(durations) != len(shape):
            raise ProblemError(f"{what}: needs a duration of at least 1 per start")
        times = int_arrays(given["times"], shape, what)
        return {"times": times, "durations": durations}

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


BEFORE, TAKEN, AFTER = 0, 1, 2
"""The sides of a slot on which an interval can be; −1 is for an interval that does not count."""
_BIT = np.array([1, 4, 2, 0], dtype=np.int64)  # of a side in the set of sides; the last is for −1


class IdleSlotConstraint(LoadConstraint):
    """If an interval is before a slot and another one after it, some interval takes the slot.

    The degree of violation is 1 if the slot is idle: free between intervals. The sum of these constraints over the
    slots of a day counts the free slots between the first and the last interval.

    Attributes
    ----------
    sides : tuple of ndarray of int64, shape (values,)
        For each variable, the side of the slot on which each of its values is: :data:`BEFORE`, :data:`TAKEN` or
        :data:`AFTER`; −1 for values that do not count.
    """

    kind = "idle_slot"
    summary = "a slot is not free between intervals before and after it"
    per_value = ("sides",)
    sides: tuple[NDArray[np.int64], ...]

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters from the form that ``parameters`` returns; see ``GlobalConstraint``."""
        sides = int_arrays(given["sides"], shape, what)
        if any(side.size and (side.min() < -1 or side.max() > AFTER) for side in sides):
            raise ProblemError(f"{what}: a side is a number from -1 to {AFTER}")
        return {"sides": sides}

    @cached_property
    def loads(self) -> CellLoads:
        """One cell per side; there are two runs of cells if the slot is idle."""
        items = (CellItem.of_cells((i,), side, 1) for i, side in enumerate(self.sides))
        penalty = np.array([0, 0, 1], dtype=np.int64)
        return CellLoads(tuple(items), np.ones(3, dtype=np.int64), penalty, counts_runs=True)

    @property
    def table(self) -> Array:
        """The dense table of all entries."""
        parts = self.parts()
        return parts[0].table if parts else np.zeros(self.shape, dtype=np.int32)

    def parts(self) -> list[Factor]:
        """Return an automaton whose state is the set of sides so far; all sets with a taken slot are one state."""
        layers: list[Layer] = []
        states = sets = np.zeros(1, dtype=np.int64)
        for side in self.sides:
            sets = states[:, None] | _BIT[side]
            sets = np.where(sets & _BIT[TAKEN], _BIT[TAKEN], sets)
            states = np.unique(sets)
            following = np.searchsorted(states, sets).astype(np.int32)
            layers.append(Layer(following, normalise(np.zeros(sets.shape, dtype=np.int64))))
        idle = (sets == _BIT[BEFORE] | _BIT[AFTER]).astype(np.int64)
        if not idle.any():
            return []
        layers[-1] = Layer(np.zeros(sets.shape, dtype=np.int32), normalise(self.utilities(idle)))
        return [AutomatonFactor(self.scope, layers, self.name)]


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
    per_value = ("times", "places")
    times: tuple[NDArray[np.int64], ...]
    durations: tuple[int, ...]
    places: tuple[NDArray[np.int64], ...]
    gap: int

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters from the form that ``parameters`` returns; see ``GlobalConstraint``."""
        durations = tuple(whole_numbers(given["durations"], f"{what}: durations", 1))
        n, gap = len(durations), whole_number(given["gap"], f"{what}: the gap", 0)
        if len(shape) != 2 * n:
            raise ProblemError(f"{what}: needs a place and a duration of at least 1 per start, and a gap of at least 0")
        times, places = int_arrays(given["times"], shape[:n], what), int_arrays(given["places"], shape[n:], what)
        return {"times": times, "durations": durations, "places": places, "gap": gap}

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
