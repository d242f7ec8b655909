"""Timetable reasoning about intervals of time: what is certainly occupied, and automata per cell of time.

An interval certainly occupies the times between its latest start and its earliest end (its compulsory part; Beldiceanu
and Carlsson, CP 2002).
"""

from collections.abc import Sequence
from math import gcd

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.cell_loads import excess_penalty, time_cells
from dmcmc.inference.constraints.global_constraint import Domains, GlobalConstraint
from dmcmc.inference.model.factor import Factor
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
