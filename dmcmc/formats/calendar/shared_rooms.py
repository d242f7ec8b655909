"""Factors of rooms: a room, or several identical rooms, hold a limited number of meetings at a time.

Each meeting keeps its room. Meetings are intervals, so ``count`` identical rooms are enough for any set of meetings of
which at most ``count`` take place at any time (:func:`named_rooms` assigns them from left to right).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from dmcmc.formats.calendar.data.plan import Calendar, MeetingChoice
from dmcmc.formats.calendar.participations import Participation
from dmcmc.formats.calendar.sums import bounded_sum
from dmcmc.inference.model.problem import Factor

_MAX_PAIR_ENTRIES = 2**22  # entries of the tables over pairs of meetings that share a single room


def uses_pairs(calendar: Calendar) -> bool:
    """Return whether single rooms are tables over pairs of meetings; otherwise they are limits for each slot."""
    entries = 0
    for a, b in combinations(range(len(calendar.meetings)), 2):
        first, second = calendar.meetings[a], calendar.meetings[b]
        if {*first.rooms} & {*second.rooms} and not {*first.people} & {*second.people}:
            entries += len(calendar.choices[a]) * len(calendar.choices[b])
    return entries <= _MAX_PAIR_ENTRIES


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
        if room.count == 1 and pairs:
            continue
        users = [x for x in meetings if r in calendar.meetings[x.meeting].rooms]
        if len(users) <= room.count:
            continue
        covers = _covers(calendar, users, r)
        for t in range(calendar.grid.size):
            if any(_is_implied(covers, t, other, calendar.grid.slots) for other in (t - 1, t + 1)):
                continue
            taken = [(x.variable, x.padded(cover[t].astype(np.int64))) for x, cover in covers if cover[t].any()]
            moment = calendar.grid.moment(t)
            name = f"{room.name} at {moment:%a} {moment.day} {moment:%b %H:%M}"
            if len(taken) > room.count:
                factor = bounded_sum([v for v, _ in taken], [w for _, w in taken], None, room.count, name)
                yield from [] if factor is None else [factor]


def _covers(calendar: Calendar, users: Sequence[Participation], r: int) -> list[tuple[Participation, np.ndarray]]:
    """Return for each meeting which of its times take a room in which slots, as (slots, times) bool."""
    slots = np.arange(calendar.grid.size)[:, None]
    return [
        (x, (x.rooms == r) & (x.starts <= slots) & (slots < x.starts + calendar.meetings[x.meeting].length))
        for x in users
    ]


def _is_implied(covers: list[tuple[Participation, np.ndarray]], t: int, other: int, slots_per_day: int) -> bool:
    """Return whether the limit of another slot implies that of slot ``t``; of equal limits the last one is kept."""
    size = covers[0][1].shape[0]
    if not 0 <= other < size or other // slots_per_day != t // slots_per_day:
        return False
    contained = all((cover[t] <= cover[other]).all() for _, cover in covers)
    return contained and (other > t or not all((cover[t] == cover[other]).all() for _, cover in covers))


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
