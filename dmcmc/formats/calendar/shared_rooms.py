"""Factors of rooms: a room, or several identical rooms, hold a limited number of meetings at a time.

Each meeting keeps its room. Meetings are intervals, so ``count`` identical rooms are enough for any set of meetings of
which at most ``count`` take place at any time (:func:`named_rooms` assigns them from left to right).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from dmcmc.formats.calendar.data.plan import Calendar, MeetingChoice
from dmcmc.formats.calendar.participations import Participation
from dmcmc.inference.constraints.cumulative import CumulativeConstraint
from dmcmc.inference.model.problem import Factor
from dmcmc.samplers.tuning import common


def uses_pairs(calendar: Calendar) -> bool:
    """Return whether single rooms are tables over pairs of meetings; otherwise they are cumulative constraints."""
    entries = 0
    for a, b in combinations(range(len(calendar.meetings)), 2):
        first, second = calendar.meetings[a], calendar.meetings[b]
        if {*first.rooms} & {*second.rooms} and not {*first.people} & {*second.people}:
            entries += len(calendar.choices[a]) * len(calendar.choices[b])
    return entries <= common.LARGE_ENTRIES


def factors_of_rooms(calendar: Calendar, meetings: Sequence[Participation], pairs: bool) -> Iterator[Factor]:
    """Yield the limits on meetings at the same time: of identical rooms, and of single rooms without pair tables.

    Parameters
    ----------
    calendar
        The calendar.
    meetings
        The variable of each meeting's first participant.
    pairs
        Whether tables over pairs of meetings limit single rooms.
    """
    for r, room in enumerate(calendar.rooms):
        users = [x for x in meetings if (x.rooms == r).any()]
        if len(users) > room.count and (room.count > 1 or not pairs):
            yield _cumulative(calendar, users, r)


def _cumulative(calendar: Calendar, users: Sequence[Participation], r: int) -> CumulativeConstraint:
    """Return the constraint that at most ``count`` of the meetings that may use a room use it at any time.

    A value with another room, or without a time, has a time after the calendar's last slot, at which no other meeting
    takes place.
    """
    times, lengths, after = [], [], calendar.grid.size
    for x in users:
        times.append(x.padded(np.where(x.rooms == r, x.starts, after), after))
        lengths.append(calendar.meetings[x.meeting].length)
        after += lengths[-1]
    given = {"times": tuple(times), "durations": tuple(lengths), "demands": (1,) * len(users)}
    room = calendar.rooms[r]
    name = f"{room.name}: {room.count} meeting{'s' if room.count > 1 else ''} at a time"
    scope, shape = [x.variable for x in users], [x.size for x in users]
    return CumulativeConstraint(scope, shape, {**given, "capacity": room.count}, None, name)


def named_rooms(calendar: Calendar, chosen: Mapping[int, MeetingChoice]) -> dict[int, str]:
    """Return the name of the room of each meeting that has one; identical rooms are numbered, as ``Table 3``.

    Parameters
    ----------
    calendar
        The calendar.
    chosen
        Times and rooms of the meetings that take place, by their numbers.
    """
    names: dict[int, str] = {}
    free_from = [[0] * room.count for room in calendar.rooms]  # the slot from which each room is free
    for m, choice in sorted(chosen.items(), key=lambda item: (item[1].start, item[0])):
        if choice.room is None:
            continue
        room, ends = calendar.rooms[choice.room], free_from[choice.room]
        number = next((i for i, end in enumerate(ends) if end <= choice.start), 0)
        ends[number] = choice.start + calendar.meetings[m].length
        names[m] = room.name if room.count == 1 else f"{room.name} {number + 1}"
    return names
