"""Variables of a calendar's problem: one for each person and each meeting of this person."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.calendars.file.plan import NOT_ATTENDING, NOT_HELD, Calendar, MeetingChoice
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.types import Array, Number


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
