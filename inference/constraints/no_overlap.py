"""Intervals of time that do not overlap, or not in the same place (unary resources), and variables in order."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.all_different import supported_values
from dmcmc.inference.constraints.cumulative import filter_starts, overload
from dmcmc.inference.constraints.global_constraint import (
    CellItem,
    CellLoads,
    Domains,
    GlobalConstraint,
    LoadConstraint,
    check_degree,
    int_arrays,
    time_cells,
)
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import whole_number, whole_numbers
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES


class NoOverlapConstraint(LoadConstraint):
    """Intervals do not overlap; with places, intervals in the same place do not overlap.

    The degree of violation is the time for which two intervals overlap, summed over all pairs of intervals. The scope
    holds the starts, followed by the places if there are any.

    Attributes
    ----------
    times : tuple of ndarray of int64, shape (values,)
        For each start, the time of each of its values.
    durations : tuple of int
        The duration of each interval, at least 0.
    places : tuple of ndarray of int64, shape (values,), or None
        For each place variable, a number of each of its values: places are the same if their numbers are.
    """

    kind = "no_overlap"
    summary = "intervals do not overlap, or not in the same place"
    per_value = ("times", "places")
    times: tuple[NDArray[np.int64], ...]
    durations: tuple[int, ...]
    places: tuple[NDArray[np.int64], ...] | None

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters from the form that ``parameters`` returns; see ``GlobalConstraint``."""
        durations = tuple(whole_numbers(given["durations"], f"{what}: durations", 0))
        n = len(durations)
        check_degree(n * sum(durations), what)
        if len(shape) != (n if given.get("places") is None else 2 * n):
            raise ProblemError(f"{what}: needs one duration, and one place or none, per start")
        times = int_arrays(given["times"], shape[:n], what)
        places = None if given.get("places") is None else int_arrays(given["places"], shape[n:], what)
        return {"times": times, "durations": durations, "places": places}

    @property
    def intervals(self) -> int:
        """The number of intervals."""
        return len(self.durations)

    @cached_property
    def loads(self) -> CellLoads:
        """Cells of time between starts and ends, for each place; the penalty of a load is its number of pairs."""
        width, firsts, ends = time_cells(self.times, self.durations)
        items = list[CellItem]()
        distinct = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *(self.places or ())]))
        for i in [i for i, duration in enumerate(self.durations) if duration]:
            first, end, positions = firsts[i], ends[i], [i]
            if self.places is not None:
                offsets = np.searchsorted(distinct, self.places[i]) * width.size
                first, end, positions = first[:, None] + offsets, end[:, None] + offsets, [i, self.intervals + i]
            items.append(CellItem(tuple(positions), first.astype(np.int32), end.astype(np.int32), 1))
        load = np.arange(self.intervals + 1, dtype=np.int64)
        return CellLoads(tuple(items), np.tile(width, max(1, distinct.size)), load * (load - 1) // 2)

    def propagate(self, domains: Domains) -> Domains | None:
        """Remove starts that overlap what other intervals certainly occupy; all unsupported values for equal durations.

        Without places, intervals of equal durations that start on a grid of this duration are all-different. With
        places, an interval is considered where its place is fixed.
        """
        if not all(domain.any() for domain in domains):
            return None
        if self.places is None:
            return self._propagate_group(range(self.intervals), domains)
        result: Domains = list(domains)
        n, by_place = self.intervals, dict[int, list[int]]()
        for i, numbers in enumerate(self.places):
            values = np.flatnonzero(domains[n + i])
            if np.unique(numbers[values]).size == 1:
                by_place.setdefault(int(numbers[values[0]]), []).append(i)
        for place, fixed in sorted(by_place.items()):
            filtered = self._propagate_group(fixed, result)
            if filtered is None:
                return None
            result = self._remove_places(place, fixed, filtered)
        return result if all(domain.any() for domain in result) else None

    def _propagate_group(self, group: Sequence[int], domains: Domains) -> Domains | None:
        """Filter the starts of intervals that are in the same place."""
        members = [i for i in group if self.durations[i]]
        if len({self.durations[i] for i in members}) == 1 and members:
            duration, origin = self.durations[members[0]], int(self.times[members[0]][0])
            if all(not ((self.times[i] - origin) % duration).any() for i in members):
                lists = [self.times[i][domains[i]].tolist() for i in members]
                supported = supported_values([list(dict.fromkeys(times)) for times in lists])
                if supported is None:
                    return None
                result = list(domains)
                for i, times, flags in zip(members, lists, supported, strict=True):
                    distinct = list(dict.fromkeys(times))
                    allowed = [t for t, flag in zip(distinct, flags, strict=True) if flag]
                    result[i] = domains[i] & np.isin(self.times[i], np.array(allowed, dtype=np.int64))
                return result
        return filter_starts(self.times, self.durations, [1] * self.intervals, 1, members, domains)

    def _remove_places(self, place: int, fixed: Sequence[int], domains: Domains) -> Domains:
        """Remove a place from intervals for which every start overlaps what is certainly occupied there."""
        assert self.places is not None
        result, n = list(domains), self.intervals
        for i, numbers in enumerate(self.places):
            here = domains[n + i] & (numbers == place)
            if i in fixed or not self.durations[i] or not here.any():
                continue
            if filter_starts(self.times, self.durations, [1] * n, 1, [*fixed, i], domains, [i]) is None:
                result[n + i] = domains[n + i] & ~here
        return result

    def parts(self) -> list[Factor] | None:
        """Return a table per pair of intervals, or automata that count per cell of time, whichever are smaller."""
        pairs = list(combinations([i for i in range(self.intervals) if self.durations[i]], 2))
        sizes = [
            self.times[i].size * (1 if self.places is None else self.places[i].size) for i in range(self.intervals)
        ]
        pair_entries = sum(sizes[i] * sizes[j] for i, j in pairs)
        chain_entries = 4 * sum(size for size in sizes) * self.loads.cells
        if self.places is not None or pair_entries <= chain_entries or self.cost is not None:
            if pair_entries > MAX_ENUMERATED_ENTRIES:
                return None
            return [part for i, j in pairs if (part := self._pair_table(i, j)) is not None]
        return overload(self, self.times, self.durations, [1] * self.intervals, 1)

    def _pair_table(self, i: int, j: int) -> Factor | None:
        """Return the table of the overlap of two intervals; None if they never overlap."""
        first, second = self.times[i][:, None], self.times[j]
        ends = np.minimum(first + self.durations[i], second + self.durations[j])
        overlap = np.maximum(0, ends - np.maximum(first, second))
        if self.places is None:
            return self.table_part((i, j), overlap) if overlap.any() else None
        same = self.places[i][:, None] == self.places[j]
        if not (overlap.any() and same.any()):
            return None
        n = self.intervals
        return self.table_part((i, n + i, j, n + j), overlap[:, None, :, None] * same[None, :, None, :])

    def relaxed_parts(self) -> list[Factor]:
        """Return automata that allow at each time at most as many intervals as there are places; none if soft."""
        if self.cost is not None:
            return []
        places = 1 if self.places is None else np.unique(np.concatenate(self.places)).size
        return overload(self, self.times, self.durations, [1] * self.intervals, places) or []


class PrecedenceConstraint(GlobalConstraint):
    """number of the first variable + ``distance`` ≤ number of the second variable.

    The degree of violation is the difference of the two sides.

    Attributes
    ----------
    numbers : tuple of two ndarray of int64, shape (values,)
        For both variables, the number (for instance the time) of each value.
    distance : int
        The least difference; it may be negative.
    """

    kind = "precedence"
    summary = "one variable is at least another one plus a distance"
    per_value = ("numbers",)
    numbers: tuple[NDArray[np.int64], ...]
    distance: int

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters from the form that ``parameters`` returns; see ``GlobalConstraint``."""
        if len(shape) != 2:
            raise ProblemError(f"{what}: needs two variables, not {len(shape)}")
        numbers = int_arrays(given["numbers"], shape, what)
        distance = whole_number(given["distance"], f"{what}: the distance")
        return {"numbers": numbers, "distance": distance}

    def degree(self, values: Sequence[int]) -> int:
        """Return the degree of violation of one pair of values."""
        first, second = (int(numbers[value]) for numbers, value in zip(self.numbers, values, strict=True))
        return max(0, first + self.distance - second)

    def propagate(self, domains: Domains) -> Domains | None:
        """Remove all unsupported values: first values that are too late, second values that are too early."""
        if not all(domain.any() for domain in domains):
            return None
        first, second = self.numbers
        kept = (
            domains[0] & (first + self.distance <= second[domains[1]].max()),
            domains[1] & (second >= first[domains[0]].min() + self.distance),
        )
        return kept if all(domain.any() for domain in kept) else None

    def parts(self) -> list[Factor]:
        """Return the table of both variables."""
        first, second = self.numbers
        degrees = np.maximum(0, first[:, None] + self.distance - second)
        return [self.table_part((0, 1), degrees)] if degrees.any() else []
