"""Results of calendars: the meetings in words of the calendar, and conflicts of an impossible one."""

import msgspec

from dmcmc.inference.runtime.types import Number
from dmcmc.results.questions import ConstraintConflict
from dmcmc.results.result import Result


class HeldMeeting(msgspec.Struct, frozen=True, kw_only=True):
    """A meeting that takes place.

    Attributes
    ----------
    name : str
        Name of the meeting.
    start, end : str
        When it begins and ends, as ``2027-03-01T10:00+01:00``; without the offset if the calendar has no time zone.
    room : str or None
        Name of the room.
    people : tuple of str
        The people who attend.
    optional_missing : tuple of str
        The optional attendees who do not attend.
    """

    name: str
    start: str
    end: str
    room: str | None
    people: tuple[str, ...]
    optional_missing: tuple[str, ...] = ()


class DroppedMeeting(msgspec.Struct, frozen=True, kw_only=True):
    """A meeting that does not take place, and why.

    Attributes
    ----------
    name : str
        Name of the meeting.
    reason : str
        The reason in words.
    """

    name: str
    reason: str


class MovedBooking(msgspec.Struct, frozen=True, kw_only=True):
    """A booked meeting that moves, or is not held any more, and why.

    Attributes
    ----------
    name : str
        Name of the meeting.
    booked, now : str
        The booked and the new time and room in words.
    cost : int or float
        Cost of the move, in units of the objective.
    reason : str
        The reason in words.
    """

    name: str
    booked: str
    now: str
    cost: Number
    reason: str


class YieldingAppointment(msgspec.Struct, frozen=True, kw_only=True):
    """An appointment that gives way to a meeting.

    Attributes
    ----------
    person : str
        Name of the person.
    appointment : str
        The appointment as the calendar names it.
    meeting : str
        Name of the meeting.
    cost : int or float
        Its cost, in units of the objective.
    """

    person: str
    appointment: str
    meeting: str
    cost: Number


class CalendarConflict(ConstraintConflict, frozen=True, kw_only=True):
    """Rules of a calendar that cannot hold together, in the calendar's own words.

    Attributes
    ----------
    summary : str
        The conflict in one sentence.
    meetings : tuple of str
        Required meetings that cannot all take place.
    status, constraints, minimal, relaxations, time, provenance
        As in :class:`dmcmc.results.conflict.ConstraintConflict`; the constraints are the rules, and the relaxations are
        in the order of their objectives, the best first.
    """

    summary: str
    meetings: tuple[str, ...] = ()


class CalendarResult(Result, frozen=True, kw_only=True):
    """The result of a calendar: a result with its meetings.

    Attributes
    ----------
    meetings : tuple of HeldMeeting
        The meetings that take place, by time.
    not_held : tuple of DroppedMeeting
        The meetings that do not take place.
    moved : tuple of MovedBooking
        Booked meetings that move. The objective includes their costs.
    gives_way : tuple of YieldingAppointment
        Appointments that give way to meetings. The objective includes their costs.
    conflict : CalendarConflict or None
        Why the calendar is impossible, if that is proven.
    """

    meetings: tuple[HeldMeeting, ...] = ()
    not_held: tuple[DroppedMeeting, ...] = ()
    moved: tuple[MovedBooking, ...] = ()
    gives_way: tuple[YieldingAppointment, ...] = ()
    conflict: CalendarConflict | None = None
