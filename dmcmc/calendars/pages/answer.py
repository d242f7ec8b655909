"""Turn an assignment into a calendar: when and where meetings take place, and why others do not.

The terminal table, the web page, the JSON text and the iCalendar files show this answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dmcmc.calendars.file.plan import NOT_ATTENDING, Calendar, Meeting, MeetingChoice
from dmcmc.calendars.pages.reasons import reason_of, reason_of_absence, reason_of_move
from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.types import Number


@dataclass(frozen=True)
class ScheduledMeeting:
    """A meeting that takes place.

    Attributes
    ----------
    meeting : Meeting
        The meeting as the calendar file describes it.
    choice : MeetingChoice
        Its first time slot and its room.
    begin, end : datetime
        When it begins and ends, in the calendar's local time.
    times : str
        Both in words.
    room : str
        Name of the room; empty without one.
    people : tuple of str
        Names of the people who attend.
    optional : tuple of str
        Names of the optional attendees among them.
    optional_missing : dict of str to str
        The optional attendees who do not attend, each with the reason.
    """

    meeting: Meeting
    choice: MeetingChoice
    begin: datetime
    end: datetime
    times: str
    room: str
    people: tuple[str, ...]
    optional: tuple[str, ...]
    optional_missing: Mapping[str, str]


@dataclass(frozen=True)
class MissingMeeting:
    """A meeting that does not take place.

    Attributes
    ----------
    meeting : Meeting
        The meeting as the calendar file describes it.
    reason : str
        Why it does not take place, for people.
    """

    meeting: Meeting
    reason: str


@dataclass(frozen=True)
class MovedMeeting:
    """A booked meeting that moves, or is not held any more.

    Attributes
    ----------
    meeting : Meeting
        The meeting as the calendar file describes it.
    booked, now : str
        Labels of the booked and of the new time and room.
    reason : str
        Why it moves, for people.
    """

    meeting: Meeting
    booked: str
    now: str
    reason: str


@dataclass(frozen=True)
class LostAppointment:
    """An appointment that gives way to a meeting.

    Attributes
    ----------
    person : str
        Name of the person.
    appointment : str
        The appointment as the file names it.
    meeting : str
        Name of the meeting.
    cost : int or float
        The cost that the file gives.
    """

    person: str
    appointment: str
    meeting: str
    cost: Number


@dataclass(frozen=True)
class CalendarAnswer:
    """A solved calendar.

    Attributes
    ----------
    calendar : Calendar
        The calendar file.
    scheduled : tuple of ScheduledMeeting
        Meetings that take place, by time.
    missing : tuple of MissingMeeting
        Meetings that do not take place.
    moved : tuple of MovedMeeting
        Booked meetings that move.
    gives_way : tuple of LostAppointment
        Appointments that give way to meetings.
    """

    calendar: Calendar
    scheduled: tuple[ScheduledMeeting, ...]
    missing: tuple[MissingMeeting, ...]
    moved: tuple[MovedMeeting, ...]
    gives_way: tuple[LostAppointment, ...]

    def sections(self) -> dict[str, list[list[str]]]:
        """Return what is not as asked for, as rows of words by the titles of tables."""
        absences = [(x.meeting.name, *absence) for x in self.scheduled for absence in x.optional_missing.items()]
        return {
            "booked meetings that move": [
                [x.meeting.name, f"from {x.booked} to {x.now}", x.reason] for x in self.moved
            ],
            "appointments that give way": [
                [x.person, f"{x.appointment}, to {x.meeting}", f"costs {x.cost}"] for x in self.gives_way
            ],
            "meetings that do not take place": [[x.meeting.name, x.reason] for x in self.missing],
            "optional attendees who are missing": [[*absence] for absence in absences],
        }


def answer_of(calendar: Calendar, assignment: Mapping[str, Label]) -> CalendarAnswer:
    """Return the calendar of an assignment that breaks no hard constraint."""
    chosen: dict[int, MeetingChoice] = {}
    for m, meeting in enumerate(calendar.meetings):
        label = assignment[calendar.variable(m, meeting.people[0])]
        match = next((choice for choice in calendar.choices[m] if calendar.label(choice) == label), None)
        if match is not None:
            chosen[m] = match
    by_time = sorted((choice.start, m) for m, choice in chosen.items())
    missing = [m for m in range(len(calendar.meetings)) if m not in chosen]
    absent = {
        m: [p for p, _ in calendar.meetings[m].optional if assignment[calendar.variable(m, p)] == NOT_ATTENDING]
        for m in chosen
    }
    rooms = _named_rooms(calendar, chosen)
    return CalendarAnswer(
        calendar,
        tuple(_scheduled(calendar, m, chosen, absent, rooms.get(m, "")) for _, m in by_time),
        tuple(MissingMeeting(calendar.meetings[m], reason_of(calendar, m, chosen)) for m in missing),
        _moves(calendar, chosen),
        _lost_appointments(calendar, chosen, absent),
    )


def _named_rooms(calendar: Calendar, chosen: Mapping[int, MeetingChoice]) -> dict[int, str]:
    """Return the name of the room of each meeting that has one; identical rooms are numbered, as ``Table 3``.

    Meetings are intervals, so rooms assigned from left to right are enough if at most ``count`` meetings take place at
    any time.

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


def _moves(calendar: Calendar, chosen: Mapping[int, MeetingChoice]) -> tuple[MovedMeeting, ...]:
    """Return the booked meetings that do not take place as booked."""
    found = []
    for m, meeting in enumerate(calendar.meetings):
        booked, now = meeting.booked, chosen.get(m)
        if booked is None:
            continue
        stays = now is not None and now.start == booked.start and booked.room in (None, now.room)
        if not stays:
            label = "not held" if now is None else calendar.label(now)
            found.append(MovedMeeting(meeting, calendar.label(booked), label, reason_of_move(calendar, m, chosen)))
    return tuple(found)


def _lost_appointments(
    calendar: Calendar, chosen: Mapping[int, MeetingChoice], absent: Mapping[int, list[int]]
) -> tuple[LostAppointment, ...]:
    """Return the appointments that the meetings of their people overlap, meeting by meeting."""
    found = []
    for m, choice in chosen.items():
        meeting = calendar.meetings[m]
        attending = [*meeting.people, *(p for p, _ in meeting.optional if p not in absent[m])]
        span = slice(choice.start, choice.start + meeting.length)
        for person in (calendar.people[p] for p in attending):
            lost = (x for x in person.appointments if x.mask[span].any())
            found += [LostAppointment(person.name, x.text, meeting.name, x.cost) for x in lost]
    return tuple(found)


def _scheduled(
    calendar: Calendar, m: int, chosen: Mapping[int, MeetingChoice], absent: Mapping[int, list[int]], room: str
) -> ScheduledMeeting:
    """Return a meeting with its time, room and people.

    Parameters
    ----------
    calendar
        The calendar.
    m
        Number of the meeting.
    chosen
        Times and rooms of all meetings that take place, by their numbers.
    absent
        For each of these, the optional attendees who do not attend.
    room
        Name of the meeting's room; empty without one.
    """
    meeting, grid = calendar.meetings[m], calendar.grid
    optional = [p for p, _ in meeting.optional if p not in absent[m]]
    begin, end = grid.moment(chosen[m].start), grid.moment(chosen[m].start, meeting.length)
    return ScheduledMeeting(
        meeting,
        chosen[m],
        begin,
        end,
        f"{grid.clock(begin)}-{grid.clock(end)}",
        room,
        tuple(calendar.people[p].name for p in (*meeting.people, *optional)),
        tuple(calendar.people[p].name for p in optional),
        {calendar.people[p].name: reason_of_absence(calendar, m, p, chosen, absent) for p in absent[m]},
    )
