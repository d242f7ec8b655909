"""Which choices of two meetings of a calendar exclude each other."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.calendars.file.plan import DAY_MINUTES, Calendar, Mask, SeriesRule


class Places(NamedTuple):
    """Possible places of a meeting in the calendar.

    Attributes
    ----------
    starts, rooms : (places,) int64
        The first slots, and the rooms (−1 for none).
    length : int
        The length of the meeting in slots.
    """

    starts: NDArray[np.int64]
    rooms: NDArray[np.int64]
    length: int


def clashes(calendar: Calendar, first: int, second: int) -> Mask:
    """Return which choices of two meetings exclude each other.

    Two choices clash if they use one room at the same time, if a common participant would have to be in two places
    at once, or if the break between them is shorter than the travel or the buffer that the participant needs. A
    meeting that comes after another one clashes with each earlier time, and the occurrences of a series clash if
    they do not have the time or the room in common that the series demands.

    Returns
    -------
    ndarray of bool, shape (choices of the first, choices of the second)
    """
    a, b = calendar.meetings[first], calendar.meetings[second]
    common = {*a.people} & {*b.people}
    in_order = out_of_order(calendar, first, second) | different_in_series(calendar, first, second)
    if common:
        gap = max(gap_between(calendar, first, second, p) for p in common)
        places = [Places(*calendar.starts_and_rooms[m], calendar.meetings[m].length) for m in (first, second)]
        return in_order | close_pairs(calendar, places[0], places[1], gap)
    return in_order | in_one_room(calendar, first, second)


def close_pairs(calendar: Calendar, first: Places, second: Places, gap: int) -> Mask:
    """Return which pairs of meeting times overlap, or leave a break shorter than travel or ``gap`` minutes.

    Returns
    -------
    ndarray of bool, shape (places of the first, places of the second)
    """
    starts_a, starts_b = first.starts[:, None], second.starts[None, :]
    (rooms_a, length_a), (rooms_b, length_b) = first[1:], second[1:]
    needed: NDArray[np.int64] | int = calendar.grid.slots_of(gap)
    if calendar.travel and (rooms_a >= 0).all() and (rooms_b >= 0).all():
        slots = np.zeros((len(calendar.rooms), len(calendar.rooms)), dtype=np.int64)
        for pair, minutes in calendar.travel.items():
            slots[pair] = calendar.grid.slots_of(minutes)
        needed = np.maximum(slots[rooms_a[:, None], rooms_b[None, :]], needed)
    overlap = (starts_a < starts_b + length_b) & (starts_b < starts_a + length_a)
    near = (starts_a < starts_b + length_b + needed) & (starts_b < starts_a + length_a + needed)
    same_day = starts_a // calendar.grid.slots == starts_b // calendar.grid.slots
    return np.asarray(overlap | (near & same_day))


def gap_between(calendar: Calendar, first: int, second: int, person: int) -> int:
    """Return the minutes that a person needs between two meetings, without travel."""
    return max(calendar.meetings[first].buffer, calendar.meetings[second].buffer, calendar.people[person].buffer)


def in_one_room(calendar: Calendar, first: int, second: int) -> Mask:
    """Return which choices of two meetings use a single room at the same time; (choices, choices) bool."""
    a, b = calendar.meetings[first], calendar.meetings[second]
    (starts_a, rooms_a), (starts_b, rooms_b) = calendar.starts_and_rooms[first], calendar.starts_and_rooms[second]
    starts_a, rooms_a = starts_a[:, None], rooms_a[:, None]
    single = np.array([*(room.count == 1 for room in calendar.rooms), False])  # the last is for "no room" (−1)
    overlap = (starts_a < starts_b + b.length) & (starts_b < starts_a + a.length)
    return np.asarray(overlap & (rooms_a == rooms_b) & single[rooms_a])


def out_of_order(calendar: Calendar, first: int, second: int) -> Mask:
    """Return which choices of two meetings contradict their order; (choices, choices) bool."""
    found = np.zeros((len(calendar.choices[first]), len(calendar.choices[second])), dtype=bool)
    for m, n in ((first, second), (second, first)):
        for earlier, gap in calendar.meetings[m].after:
            if earlier == n:
                begins = calendar.grid.starts[calendar.starts_and_rooms[m][0]]
                earlier_begins = calendar.grid.starts[calendar.starts_and_rooms[n][0]]
                minutes = calendar.meetings[n].length * calendar.grid.minutes + gap
                wrong = begins[:, None] < earlier_begins + 60 * minutes
                found |= wrong if m == first else wrong.T
    return found


def different_in_series(calendar: Calendar, first: int, second: int) -> Mask:
    """Return which choices of two occurrences of a series differ in what they share; (choices, choices) bool."""
    a, b = calendar.meetings[first].series, calendar.meetings[second].series
    (starts_a, rooms_a), (starts_b, rooms_b) = calendar.starts_and_rooms[first], calendar.starts_and_rooms[second]
    found = np.zeros((len(starts_a), len(starts_b)), dtype=bool)
    if a is None or a != b:
        return found
    if a.same_time:
        found |= _time_in_period(calendar, starts_a, a)[:, None] != _time_in_period(calendar, starts_b, a)
    if a.same_room:
        found |= rooms_a[:, None] != rooms_b
    return found


def _time_in_period(calendar: Calendar, starts: NDArray[np.int64], series: SeriesRule) -> NDArray[np.int64]:
    """Return the local time within the week, or within the day, at which each start lies, in minutes."""
    local = calendar.grid.local_times()
    first = np.searchsorted(local.slot, starts)
    weekdays = (local.day[first] - 1) % 7
    return local.begin[first] + weekdays * DAY_MINUTES if series.day_counts else local.begin[first]
