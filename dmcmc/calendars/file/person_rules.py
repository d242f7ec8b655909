"""The factors of people's rules: meetings apart, limits per day and in a row, lunch breaks, gaps, and fairness.

The problem of a calendar has one variable for each person and each meeting of this person. Bounded sums and free runs
over many variables are automata. The satisfaction of the least satisfied person, and its spread, are level variables.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.calendars.file.clashes import gap_between
from dmcmc.calendars.file.plan import NOT_ATTENDING, NOT_HELD, Calendar, MeetingChoice, union
from dmcmc.inference.constraints.all_different import AllDifferentConstraint
from dmcmc.inference.constraints.count import CountConstraint
from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.constraints.no_overlap import NoOverlapConstraint
from dmcmc.inference.constraints.schedules import AFTER, BEFORE, TAKEN, IdleSlotConstraint
from dmcmc.inference.model.automaton import AutomatonFactor, Layer, SumBounds
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Array, Ints, Number
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES
from dmcmc.samplers.contract import tuning


class Participation(NamedTuple):
    """A person's variable for a meeting.

    Attributes
    ----------
    variable : int
        Number of the variable.
    person, meeting : int
        The person and the meeting.
    starts, rooms : (times,) int64
        First slot and room (−1 for none) of each value that is a time. For an optional attendee the rooms only count
        if there is travel between rooms.
    labels : tuple of str
        Labels of all values: the times, then :data:`NOT_HELD` or :data:`NOT_ATTENDING` if that is possible.
    weight : number or None
        Utility of attendance of an optional attendee; None for the others.
    """

    variable: int
    person: int
    meeting: int
    starts: NDArray[np.int64]
    rooms: NDArray[np.int64]
    labels: tuple[str, ...]
    weight: Number | None

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.labels)

    def padded(self, utilities: Array, otherwise: Number = 0) -> Array:
        """Return an array over all values from one over the times; other values have the entry ``otherwise``."""
        return np.append(utilities, np.full(self.size - len(self.starts), otherwise))


def participations(calendar: Calendar, copies: bool = True) -> tuple[Participation, ...]:
    """Return the variables of a calendar, meeting by meeting: the participants first, then the optional attendees.

    Parameters
    ----------
    calendar
        The calendar.
    copies
        Whether each participant has a variable for a meeting. Otherwise all share that of the first participant.
    """
    found: list[Participation] = []
    variable = 0
    for m, meeting in enumerate(calendar.meetings):
        starts, rooms = calendar.starts_and_rooms[m]
        labels = domain_of(calendar, m)
        for i, p in enumerate(meeting.people):
            found.append(Participation(variable, p, m, starts, rooms, labels, None))
            variable += copies or i == len(meeting.people) - 1
        for p, weight in meeting.optional:
            found.append(_optional(calendar, variable, m, p, weight))
            variable += 1
    return tuple(found)


def domain_of(calendar: Calendar, m: int) -> tuple[str, ...]:
    """Return the labels of a meeting's values: its times and rooms, and :data:`NOT_HELD` if it may be dropped."""
    labels = tuple(calendar.label(choice) for choice in calendar.choices[m])
    has_not_held = calendar.meetings[m].weight is not None or not labels
    return (*labels, NOT_HELD) if has_not_held else labels


def _optional(calendar: Calendar, variable: int, m: int, p: int, weight: Number) -> Participation:
    """Return the variable of an optional attendee: the meeting's times at which the person is free."""
    starts, rooms = calendar.starts_and_rooms[m]
    possible = calendar.start_mask(calendar.meetings[m], (p,))[starts]
    starts, rooms = starts[possible], rooms[possible]
    if not calendar.travel:
        starts = np.unique(starts)
        rooms = np.full(len(starts), -1, dtype=np.int64)
    pairs = zip(starts.tolist(), rooms.tolist(), strict=True)
    labels = (calendar.label(MeetingChoice(start, None if room < 0 else room)) for start, room in pairs)
    return Participation(variable, p, m, starts, rooms, (*labels, NOT_ATTENDING), weight)


def common_times(meeting: Participation, attendee: Participation) -> Array:
    """Return which values of a meeting and of an attendee agree, as a table of 0 and −∞.

    A participant's value equals the meeting's. An optional attendee may also have :data:`NOT_ATTENDING`.

    Returns
    -------
    ndarray, shape (values of the meeting, values of the attendee)
    """
    if attendee.weight is None:
        return normalise(np.where(np.eye(meeting.size, dtype=bool), 0, -np.inf))
    agree = np.zeros((meeting.size, attendee.size), dtype=bool)
    same = meeting.starts[:, None] == attendee.starts
    if len(attendee.rooms) and attendee.rooms[0] >= 0:
        same &= meeting.rooms[:, None] == attendee.rooms
    agree[: len(meeting.starts), : len(attendee.starts)] = same
    agree[:, len(attendee.starts) :] = True
    return normalise(np.where(agree, 0, -np.inf))


LEAST_SATISFIED = "points of the least satisfied person"
MOST_SATISFIED = "points of the most satisfied person"
_MAX_LEVELS = 10_000


def meetings_apart(calendar: Calendar, p: int, attended: Sequence[Participation]) -> GlobalConstraint | None:
    """Return one constraint that keeps a person's meetings apart, or None where tables over pairs of them are better.

    The tables are better if elimination can join all of them, or if the meetings take a small part of the person's
    time: counting them then excludes nothing. They are needed if breaks between meetings depend on the pair, or if the
    constraint has no small decomposition.

    Parameters
    ----------
    calendar
        The calendar.
    p
        Number of the person.
    attended
        The meetings that the person attends or may attend.
    """
    # The size of a table over all meetings of a person, as elimination needs it, is limited like a decomposition's.
    if len(attended) < 3 or prod(x.size for x in attended) <= MAX_ENUMERATED_ENTRIES:
        return None
    gap = _common_gap(calendar, p, attended)
    if gap is None or not _is_busy(calendar, attended, gap):
        return None
    lengths = [calendar.meetings[x.meeting].length + gap for x in attended]
    scope, shape = [x.variable for x in attended], [x.size for x in attended]
    names = [calendar.meetings[x.meeting].name for x in attended]
    name = f"{', '.join(names[:-1])} and {names[-1]} of {calendar.people[p].name}"
    constraint: GlobalConstraint
    if max(lengths) == 1:
        codes = tuple(x.padded(x.starts, -1) for x in attended)
        constraint = AllDifferentConstraint(scope, shape, {"codes": codes}, None, name)
    else:
        times = tuple(_times_with_gap(calendar, attended, lengths, gap))
        given = {"times": times, "durations": tuple(lengths), "places": None}
        constraint = NoOverlapConstraint(scope, shape, given, None, name)
    return constraint if constraint.decomposition is not None else None


def _common_gap(calendar: Calendar, p: int, attended: Sequence[Participation]) -> int | None:
    """Return the slots that a person needs between any two meetings of a day; None if they depend on the meetings."""
    pairs = combinations(attended, 2)
    gaps = {calendar.grid.slots_of(gap_between(calendar, x.meeting, y.meeting, p)) for x, y in pairs}
    travels = calendar.travel and sum((x.rooms >= 0).all() for x in attended) > 1
    return None if travels or len(gaps) > 1 else gaps.pop()


def _is_busy(calendar: Calendar, attended: Sequence[Participation], gap: int) -> bool:
    """Return whether meetings with the gaps after them take a large part of the slots that are open to them."""
    is_open = np.zeros(calendar.grid.size + 1, dtype=np.int64)
    for x in attended:
        np.add.at(is_open, x.starts, 1)
        np.add.at(is_open, x.starts + calendar.meetings[x.meeting].length, -1)
    taken = sum(calendar.meetings[x.meeting].length + gap for x in attended)
    return taken >= tuning.MAJORITY_SHARE * int(np.count_nonzero(np.cumsum(is_open) > 0))


def _times_with_gap(
    calendar: Calendar, attended: Sequence[Participation], lengths: Sequence[int], gap: int
) -> Iterator[Ints]:
    """Yield the time of each value of each meeting, with a gap after each day, as no meeting needs one at its end.

    Values without a time have one after the last day, another one for each meeting.
    """
    slots, days = calendar.grid.slots, len(calendar.grid.days)
    after = days * (slots + gap)
    for x, length in zip(attended, lengths, strict=True):
        yield x.padded(x.starts + x.starts // slots * gap, after)
        after += length


def factors_of_person(calendar: Calendar, p: int, attended: Sequence[Participation]) -> Iterator[Factor]:
    """Yield the factors of a person's rules over the meetings that the person attends or may attend."""
    if attended:
        yield from _meetings_per_day(calendar, p, attended)
        yield from _slots_in_a_row(calendar, p, attended)
        yield from _lunch(calendar, p, attended)
        yield from _gaps(calendar, p, attended)


def _meetings_per_day(calendar: Calendar, p: int, attended: Sequence[Participation]) -> Iterator[Factor]:
    """Yield for each day the limit on the number of meetings."""
    person, grid = calendar.people[p], calendar.grid
    if person.max_per_day is None:
        return
    for d, day in enumerate(grid.days):
        weights = [x.padded((x.starts // grid.slots == d).astype(np.int64)) for x in attended]
        name = f"{person.name}: at most {person.max_per_day} meetings on {day:%a} {day.day} {day:%b}"
        yield from _limit(attended, weights, person.max_per_day, name)


def _slots_in_a_row(calendar: Calendar, p: int, attended: Sequence[Participation]) -> Iterator[Factor]:
    """Yield the limits on consecutive slots in meetings: a free slot among each limit + 1 consecutive slots."""
    person, grid = calendar.people[p], calendar.grid
    if person.max_in_a_row is None:
        return
    limit = person.max_in_a_row // grid.minutes
    for d, day in enumerate(grid.days):
        for first in range(d * grid.slots, (d + 1) * grid.slots - limit):
            weights = [x.padded(_overlaps(calendar, x, first, first + limit + 1)) for x in attended]
            name = f"{person.name}: at most {person.max_in_a_row} minutes in a row on {day:%a} {day.day} {day:%b}"
            yield from _limit(attended, weights, limit, name)


def _overlaps(calendar: Calendar, x: Participation, begin: int, end: int) -> Ints:
    """Return how many slots from ``begin`` to before ``end`` each time of a meeting takes, as (times,) int64."""
    length = calendar.meetings[x.meeting].length
    overlaps: Ints = np.maximum(0, np.minimum(x.starts + length, end) - np.maximum(x.starts, begin))
    return overlaps


def _limit(attended: Sequence[Participation], weights: Sequence[Ints], limit: int, name: str) -> Iterator[Factor]:
    """Yield the constraint that a sum over the meetings with a positive weight is at most ``limit``."""
    counted = [(x.variable, w) for x, w in zip(attended, weights, strict=True) if w.any()]
    if counted:
        factor = bounded_sum([v for v, _ in counted], [w for _, w in counted], None, limit, name)
        yield from [] if factor is None else [factor]


def _lunch(calendar: Calendar, p: int, attended: Sequence[Participation]) -> Iterator[Factor]:
    """Yield for each day the constraint that a lunch break stays free, unless busy times take it already."""
    person = calendar.people[p]
    if person.lunch is None:
        return
    busy = union((*person.busy_times, *person.away_times), calendar.grid)
    for window in person.lunch.windows:
        first, count = window[0], len(window)
        busy_bits = sum(1 << s for s in range(count) if busy[first + s])
        if not _has_free_run(busy_bits, count, person.lunch.slots):
            continue
        day = calendar.grid.days[first // calendar.grid.slots]
        name = f"{person.name}: lunch within {person.lunch.text} on {day:%a} {day.day} {day:%b}"
        if person.lunch.slots == 1:  # any free slot will do, and meetings of a person do not overlap
            weights = [x.padded(_overlaps(calendar, x, first, first + count)) for x in attended]
            yield from _limit(attended, weights, count - busy_bits.bit_count() - 1, name)
            continue
        taken = []
        for x in attended:
            low = np.clip(x.starts - first, 0, count)
            high = np.clip(x.starts + calendar.meetings[x.meeting].length - first, 0, count)
            taken.append((x.variable, x.padded((1 << high) - (1 << low))))
        taken = [(variable, bits) for variable, bits in taken if bits.any()]
        if taken:
            bits = [b | busy_bits for _, b in taken]
            factor = free_run([v for v, _ in taken], bits, count, person.lunch.slots, name)
            yield from [] if factor is None else [factor]


def _has_free_run(taken: int, slots: int, run: int) -> bool:
    """Return whether ``run`` consecutive slots are free; bit s of ``taken`` stands for slot s."""
    return any(not taken >> s & ((1 << run) - 1) for s in range(slots - run + 1))


def _gaps(calendar: Calendar, p: int, attended: Sequence[Participation]) -> Iterator[Factor]:
    """Yield for each slot of each day the cost of being free between meetings of the day."""
    person, grid = calendar.people[p], calendar.grid
    if not person.no_gaps:
        return
    for d, day in enumerate(grid.days):
        on_day = [x for x in attended if (x.starts // grid.slots == d).any()]
        scope, shape = [x.variable for x in on_day], [x.size for x in on_day]
        name = f"{person.name}: no gaps on {day:%a} {day.day} {day:%b}"
        for slot in range(d * grid.slots + 1, (d + 1) * grid.slots - 1) if len(on_day) > 1 else ():
            sides = tuple(_sides(calendar, x, d, slot) for x in on_day)
            if all(any((side == one).any() for side in sides) for one in (BEFORE, AFTER)):
                yield IdleSlotConstraint(scope, shape, {"sides": sides}, person.no_gaps, name)


def _sides(calendar: Calendar, x: Participation, d: int, slot: int) -> Ints:
    """Return the side of a slot on which each value of a meeting is; −1 for other days and values without a time."""
    length = calendar.meetings[x.meeting].length
    sides = np.where(x.starts > slot, AFTER, np.where(x.starts + length > slot, TAKEN, BEFORE))
    return x.padded(np.where(x.starts // calendar.grid.slots == d, sides, -1), -1)


def bounded_sum(
    scope: Sequence[int], weights: Sequence[Ints], low: int | None, high: int | None, name: str
) -> Factor | None:
    """Return the hard constraint ``low`` ≤ Σ_i ``weights[i][x_i]`` ≤ ``high``; None if it always holds.

    The states are partial sums. Sums from which the constraint holds whatever follows are one state; sums from which
    it cannot hold any more are left out. An upper bound on a number of values is a counting constraint.

    Parameters
    ----------
    scope : sequence of int
        The variables, at least one.
    weights : sequence of (values,) int64
        For each variable the weight of each value.
    low, high : int or None
        The bounds; None if there is no such bound.
    name : str
        Name of the factor.
    """
    if low is None and high is not None and all(w.min() >= 0 and w.max() <= 1 for w in weights):
        return _at_most(scope, weights, high, name)
    infinite = int(sum(np.abs(w).max(initial=0) for w in weights)) + 1
    lower, upper = -infinite if low is None else low, infinite if high is None else high
    least = np.cumsum([0, *(int(w.min()) for w in reversed(weights))])[::-1]  # of the sum over the variables from i on
    most = np.cumsum([0, *(int(w.max()) for w in reversed(weights))])[::-1]
    if least[0] >= lower and most[0] <= upper:
        return None
    layers: list[Layer] = []
    states: Ints = np.zeros(1, dtype=np.int64)
    for i, w in enumerate(weights, 1):
        sums = states[:, None] + w
        allowed = (sums + least[i] <= upper) & (sums + most[i] >= lower)
        if low is None:
            sums = np.maximum(sums, upper - most[i])  # any smaller sum is as safe as this one
        elif high is None:
            sums = np.minimum(sums, lower - least[i])
        states = np.unique(sums[allowed])
        states = states if states.size else np.zeros(1, dtype=np.int64)
        following = np.minimum(np.searchsorted(states, sums), states.size - 1)
        layers.append(_layer(following, np.where(allowed, 0, -np.inf)))
    return AutomatonFactor(scope, _with_one_end(layers), name, SumBounds(tuple(weights), low, high))


def _at_most(scope: Sequence[int], counted: Sequence[Ints], high: int, name: str) -> CountConstraint | None:
    """Return the constraint that at most ``high`` variables have a value that counts; None if it always holds."""
    if sum(int(w.max()) for w in counted) <= high:
        return None
    given = {"counted": tuple(counted), "low": 0, "high": max(0, high)}
    return CountConstraint(scope, [len(w) for w in counted], given, None, name)


def free_run(scope: Sequence[int], taken: Sequence[Ints], slots: int, run: int, name: str) -> AutomatonFactor | None:
    """Return the hard constraint that ``run`` consecutive slots stay free; None if it always holds.

    The state is the set of runs that a taken slot has ended: it has all that the rest of the scope depends on.

    Parameters
    ----------
    scope : sequence of int
        The variables, at least one.
    taken : sequence of (values,) int64
        For each variable the slots that each value takes: bit s for slot s.
    slots : int
        Number of slots, at most 62.
    run : int
        Number of consecutive slots that stay free.
    name : str
        Name of the factor.
    """
    runs = np.array([((1 << run) - 1) << s for s in range(slots - run + 1)], dtype=np.int64)
    layers: list[Layer] = []
    states: Ints = np.zeros(1, dtype=np.int64)
    is_limiting = False
    for bits in taken:
        ended = ((bits[:, None] & runs) != 0) @ (1 << np.arange(runs.size))
        sets = states[:, None] | ended
        allowed = sets != (1 << runs.size) - 1
        is_limiting |= not allowed.all()
        states = np.unique(sets[allowed])
        states = states if states.size else np.zeros(1, dtype=np.int64)
        following = np.minimum(np.searchsorted(states, sets), states.size - 1)
        layers.append(_layer(following, np.where(allowed, 0, -np.inf)))
    return AutomatonFactor(scope, _with_one_end(layers), name) if is_limiting else None


def _with_one_end(layers: list[Layer]) -> list[Layer]:
    """Return the layers of an automaton with one state after the last variable."""
    return [*layers[:-1], layers[-1]._replace(following=np.zeros_like(layers[-1].following))]


def _layer(following: NDArray[np.int64], utility: Array) -> Layer:
    """Return a layer of an automaton from the next states and the utilities (−∞: forbidden)."""
    return Layer(np.ascontiguousarray(following, dtype=np.int32), normalise(np.asarray(utility)))


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
        (calendar.people[p].name, attended, [_points_of_values(calendar, x) for x in attended])
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
        (LEAST_SATISFIED, True, weights.least_worst + weights.spread, np.arange(min(lows), min(highs) + 1))
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


def _points_of_values(calendar: Calendar, x: Participation) -> Ints:
    """Return the points of a person's own preferences for each value of a meeting, as (values,) int64."""
    preferences, length = calendar.people[x.person].preferences, calendar.meetings[x.meeting].length
    return np.asarray(x.padded(calendar.points(preferences, x.starts, length)), dtype=np.int64)
