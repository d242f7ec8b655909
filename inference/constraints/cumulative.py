"""Tasks that share a resource: the cumulative constraint, breaks between intervals, and timetable reasoning.

An interval certainly occupies the times between its latest start and its earliest end (its compulsory part; Beldiceanu
and Carlsson, CP 2002). What is certainly occupied excludes starts of other intervals.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import (
    CellItem,
    CellLoads,
    Domains,
    GlobalConstraint,
    LoadConstraint,
    check_degree,
    excess_penalty,
    int_arrays,
    time_cells,
)
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import whole_number, whole_numbers
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES, MAX_EXAMINED_ENTRIES


def filter_starts(
    times: Sequence[NDArray[np.int64]],
    durations: Sequence[int],
    demands: Sequence[int],
    capacity: int,
    members: Sequence[int],
    domains: Domains,
    only: Sequence[int] | None = None,
) -> Domains | None:
    """Remove starts at which an interval exceeds the capacity that certainly occupied time leaves.

    Parameters
    ----------
    times : sequence of ndarray of int64, shape (values,)
        For each start, the time of each of its values.
    durations, demands : sequence of int
        The duration and the demand of each interval.
    capacity : int
        The capacity.
    members : sequence of int
        The intervals that use the resource.
    domains : sequence of ndarray of bool
        The remaining values of the starts; further entries are not read.
    only : sequence of int or None
        The intervals whose starts are examined, and which count as occupying nothing; None for all members.

    Returns
    -------
    sequence of ndarray of bool, or None
        The remaining values; None if no start of some interval is left or the capacity is certainly exceeded.
    """
    result = list(domains)
    if not members:
        return result
    width, firsts, ends = time_cells([times[i] for i in members], [durations[i] for i in members])
    compulsory = [np.zeros(0, dtype=np.int64)] * len(members)
    usage = np.zeros(width.size, dtype=np.int64)

    def occupied(k: int) -> NDArray[np.int64]:
        """Return the cells of time that a member certainly occupies."""
        kept = result[members[k]]
        return np.arange(firsts[k][kept].max(), ends[k][kept].min()) if kept.any() else np.zeros(0, np.int64)

    for k, i in enumerate(members):
        if only is None or i not in only:
            compulsory[k] = occupied(k)
            usage[compulsory[k]] += demands[i]
    if (usage > capacity).any():
        return None
    changed = True
    while changed:
        changed = False
        for k, i in enumerate(members):
            if (only is not None and i not in only) or np.count_nonzero(result[i]) == 0:
                continue
            usage[compulsory[k]] -= demands[i]
            full = np.concatenate([[0], np.cumsum(usage + demands[i] > capacity)])
            fits = full[ends[k]] == full[firsts[k]]
            kept = result[i] & fits
            if not kept.any():
                return None
            if np.count_nonzero(kept) < np.count_nonzero(result[i]):
                result[i], changed = kept, only is None
            if only is None:
                compulsory[k] = occupied(k)
                usage[compulsory[k]] += demands[i]
                if (usage > capacity).any():
                    return None
    return result


def overload(
    constraint: GlobalConstraint,
    times: Sequence[NDArray[np.int64]],
    durations: Sequence[int],
    demands: Sequence[int],
    capacity: int,
) -> list[Factor] | None:
    """Return an automaton per cell of time that adds the demands of running intervals; None if they are too large."""
    width, firsts, ends = time_cells(times, durations)
    members, unit = [i for i in range(len(times)) if durations[i] and demands[i]], gcd(*demands) or 1
    if (width.size + 1) * len(members) > MAX_EXAMINED_ENTRIES:
        return None
    weights, penalty = [demand // unit for demand in demands], excess_penalty(capacity, sum(demands) // unit, unit)
    possible = np.zeros((width.size + 1, len(members)), dtype=np.int64)  # whether each member can run in each cell
    for k, i in enumerate(members):
        np.add.at(possible[:, k], firsts[i], 1)
        np.add.at(possible[:, k], ends[i], -1)
    can_run = np.cumsum(possible[:-1], axis=0) > 0
    states = np.minimum(can_run @ np.array([weights[i] for i in members], dtype=np.int64), capacity // unit + 1) + 1
    sizes = can_run @ np.array([firsts[i].size for i in members], dtype=np.int64)
    if int((sizes * states * np.minimum(states, 2)).sum()) > MAX_ENUMERATED_ENTRIES:
        return None
    found = []
    for now, duration in enumerate(width.tolist()):
        positions = [i for k, i in enumerate(members) if can_run[now, k]]
        running = [np.where((firsts[i] <= now) & (now < ends[i]), weights[i], 0) for i in positions]
        found.append(constraint.sum_part(positions, running, duration * penalty))
    return [part for part in found if part is not None]


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
    per_value = ("times",)
    times: tuple[NDArray[np.int64], ...]
    durations: tuple[int, ...]
    demands: tuple[int, ...]
    capacity: int

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters from the form that ``parameters`` returns; see ``GlobalConstraint``."""
        durations = tuple(whole_numbers(given["durations"], f"{what}: durations", 0))
        demands = tuple(whole_numbers(given["demands"], f"{what}: demands", 0))
        if not len(shape) == len(durations) == len(demands):
            raise ProblemError(f"{what}: needs one duration and one demand per start")
        capacity = whole_number(given["capacity"], f"{what}: the capacity", 0)
        check_degree(sum(d * demand for d, demand in zip(durations, demands, strict=True)), what)
        if sum(demands) // (gcd(*demands) or 1) > MAX_ENUMERATED_ENTRIES:
            raise ProblemError(f"{what}: the demands add up to {sum(demands)}, which is too fine; use a coarser unit")
        times = int_arrays(given["times"], shape, what)
        return {"times": times, "durations": durations, "demands": demands, "capacity": capacity}

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

    def propagate(self, domains: Domains) -> Domains | None:
        """Remove starts at which an interval exceeds the capacity left by what is certainly occupied (timetable)."""
        if not all(domain.any() for domain in domains):
            return None
        members = [i for i in range(len(self.scope)) if self.durations[i] and self.demands[i]]
        return filter_starts(self.times, self.durations, self.demands, self.capacity, members, domains)

    def parts(self) -> list[Factor] | None:
        """Return an automaton per cell of time that adds the demands."""
        return overload(self, self.times, self.durations, self.demands, self.capacity)


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
    per_value = ("times",)
    times: tuple[NDArray[np.int64], ...]
    durations: tuple[int, ...]
    high: int

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters from the form that ``parameters`` returns; see ``GlobalConstraint``."""
        durations = tuple(whole_numbers(given["durations"], f"{what}: durations", 1))
        high = whole_number(given["high"], f"{what}: the largest number of breaks", 0)
        if len(durations) != len(shape):
            raise ProblemError(f"{what}: needs a duration of at least 1 per start")
        times = int_arrays(given["times"], shape, what)
        return {"times": times, "durations": durations, "high": high}

    @cached_property
    def loads(self) -> CellLoads:
        """Cells of time between starts and ends; the penalty is that of the number of runs of occupied cells."""
        width, firsts, ends = time_cells(self.times, self.durations)
        items = [
            CellItem((i,), first.astype(np.int32), end.astype(np.int32), 1)
            for i, (first, end) in enumerate(zip(firsts, ends, strict=True))
        ]
        return CellLoads(tuple(items), width, excess_penalty(1 + self.high, len(self.scope)), counts_runs=True)

    def parts(self) -> list[Factor] | None:
        """Return nothing if there can be no violation, a table for two intervals, and None for more."""
        if len(self.scope) - 1 <= self.high:
            return []
        if len(self.scope) != 2:
            return None
        first, second = self.times[0][:, None], self.times[1]
        gap = np.maximum(first - second - self.durations[1], second - first - self.durations[0])
        return [self.table_part((0, 1), (gap > 0).astype(np.int64))]
