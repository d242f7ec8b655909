"""Factors of fairness: the satisfaction of the least satisfied person, and its spread, as level variables."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmcmc.formats.calendar.data.plan import Calendar
from dmcmc.formats.calendar.participations import Participation
from dmcmc.formats.calendar.sums import bounded_sum
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Ints, Number

LEAST_SATISFIED = "points of the least satisfied person"
MOST_SATISFIED = "points of the most satisfied person"
_MAX_LEVELS = 10_000


class PointsLevel(NamedTuple):
    """A variable whose values are numbers of points, with its factors.

    Attributes
    ----------
    name : str
        Name of the variable.
    points : (levels,) int64
        The number of points of each value.
    factors : list of Factor
        Its utility, and for each person the bound on the person's points.
    """

    name: str
    points: Ints
    factors: list[Factor]


def levels_of(calendar: Calendar, by_person: Sequence[Sequence[Participation]], first: int) -> list[PointsLevel]:
    """Return the level variables of the calendar's fairness, numbered from ``first`` on.

    Parameters
    ----------
    calendar
        The calendar.
    by_person
        For each person the meetings that the person attends or may attend.
    first
        Number of the first level variable.

    Raises
    ------
    FileError
        If the points have a larger range than level variables can have.
    """
    weights = calendar.fairness
    counted = [
        (calendar.people[p].name, attended, [_points(calendar, x) for x in attended])
        for p, attended in enumerate(by_person)
        if attended and calendar.people[p].preferences
    ]
    if not counted or not any(weights):
        return []
    lows = [sum(int(w.min()) for w in points) for _, _, points in counted]
    highs = [sum(int(w.max()) for w in points) for _, _, points in counted]
    if max(highs) - min(lows) > _MAX_LEVELS:
        raise FileError(f"{calendar.name}: fairness: points range over more than {_MAX_LEVELS}; use smaller ones")
    wanted: list[tuple[str, bool, Number, Ints]] = [
        (LEAST_SATISFIED, True, weights.least_worst + weights.spread, np.arange(min(lows), min(highs) + 1)),
    ]
    if weights.spread:
        wanted.append((MOST_SATISFIED, False, -weights.spread, np.arange(max(lows), max(highs) + 1)))
    levels = []
    for variable, (name, is_least, weight, numbers) in enumerate(wanted, first):
        factors = [Factor.of((variable,), weight * numbers, name=name)]
        for person, attended, points in counted:
            scope = [*(x.variable for x in attended), variable]
            low, high = (0, None) if is_least else (None, 0)
            factor = bounded_sum(scope, [*points, -numbers], low, high, f"{name}: {person}")
            factors += [] if factor is None else [factor]
        levels.append(PointsLevel(name, numbers, factors))
    return levels


def _points(calendar: Calendar, x: Participation) -> Ints:
    """Return the points of a person's own preferences for each value of a meeting, as (values,) int64."""
    preferences, length = calendar.people[x.person].preferences, calendar.meetings[x.meeting].length
    return np.asarray(x.padded(calendar.points(preferences, x.starts, length)), dtype=np.int64)
