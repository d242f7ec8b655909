"""Turn an assignment into a calendar: when and where meetings take place, and why others do not.

The table in the terminal, the web page, the JSON text and the iCalendar files (RFC 5545) show this answer. There is one
iCalendar file with all meetings, or one per person.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote
from zoneinfo import ZoneInfo

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dmcmc.calendars.file.plan import NOT_ATTENDING, Calendar, Meeting, MeetingChoice
from dmcmc.calendars.pages import reasons
from dmcmc.files.write import replace_file
from dmcmc.inference.model.problem import Label
from dmcmc.report.summary import headlines, overview, table_of_changes
from dmcmc.results import calendar_result
from dmcmc.results.result import Alternative


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
class CalendarAnswer:
    """A solved calendar.

    Attributes
    ----------
    calendar : Calendar
        The calendar file.
    scheduled : tuple of ScheduledMeeting
        Meetings that take place, by time.
    missing : tuple of DroppedMeeting
        Meetings that do not take place.
    moved : tuple of MovedBooking
        Booked meetings that move.
    gives_way : tuple of YieldingAppointment
        Appointments that give way to meetings.
    """

    calendar: Calendar
    scheduled: tuple[ScheduledMeeting, ...]
    missing: tuple[calendar_result.DroppedMeeting, ...]
    moved: tuple[calendar_result.MovedBooking, ...]
    gives_way: tuple[calendar_result.YieldingAppointment, ...]

    def sections(self) -> dict[str, list[list[str]]]:
        """Return what is not as asked for, as rows of words by the titles of tables."""
        absences = [(x.meeting.name, *absence) for x in self.scheduled for absence in x.optional_missing.items()]
        return {
            "booked meetings that move": [[x.name, f"from {x.booked} to {x.now}", x.reason] for x in self.moved],
            "appointments that give way": [
                [x.person, f"{x.appointment}, to {x.meeting}", f"costs {x.cost}"] for x in self.gives_way
            ],
            "meetings that do not take place": [[x.name, x.reason] for x in self.missing],
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
        tuple(
            calendar_result.DroppedMeeting(
                name=calendar.meetings[m].name, reason=reasons.reason_of(calendar, m, chosen)
            )
            for m in missing
        ),
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


def _moves(calendar: Calendar, chosen: Mapping[int, MeetingChoice]) -> tuple[calendar_result.MovedBooking, ...]:
    """Return the booked meetings that do not take place as booked."""
    found = []
    for m, meeting in enumerate(calendar.meetings):
        booked, now = meeting.booked, chosen.get(m)
        if booked is None:
            continue
        stays = now is not None and now.start == booked.start and booked.room in (None, now.room)
        if not stays:
            label = "not held" if now is None else calendar.label(now)
            words = {
                "booked": calendar.label(booked),
                "now": label,
                "reason": reasons.reason_of_move(calendar, m, chosen),
            }
            found.append(calendar_result.MovedBooking(name=meeting.name, cost=meeting.move_cost, **words))
    return tuple(found)


def _lost_appointments(
    calendar: Calendar, chosen: Mapping[int, MeetingChoice], absent: Mapping[int, list[int]]
) -> tuple[calendar_result.YieldingAppointment, ...]:
    """Return the appointments that the meetings of their people overlap, meeting by meeting."""
    found = []
    for m, choice in chosen.items():
        meeting = calendar.meetings[m]
        attending = [*meeting.people, *(p for p, _ in meeting.optional if p not in absent[m])]
        span = slice(choice.start, choice.start + meeting.length)
        for person in (calendar.people[p] for p in attending):
            found += [
                calendar_result.YieldingAppointment(
                    person=person.name, appointment=x.text, meeting=meeting.name, cost=x.cost
                )
                for x in person.appointments
                if x.mask[span].any()
            ]
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
        {calendar.people[p].name: reasons.reason_of_absence(calendar, m, p, chosen, absent) for p in absent[m]},
    )


def summary(result: calendar_result.CalendarResult, calendar: Calendar, written: str | None = None) -> RenderableType:
    """Return the status, the calendar, what moves, and the meetings that do not take place with their reasons."""
    rows = [*headlines(result), ("solved in", f"{result.time:.3f} s")]
    rows += [] if result.note is None else [("note", result.note)]
    rows += [] if written is None else [("written to", written)]
    parts: list[RenderableType] = [overview(rows)]
    if result.conflict is not None:
        return Group(*parts, Text(), *(Text(line) for line in reasons.lines_of_conflict(result.conflict)))
    if reason := reasons.reason_without_answer(result):
        return Group(*parts, Text(), Text(reason))
    assert result.assignment is not None
    answer = answer_of(calendar, result.assignment)
    parts += [Text(), table(answer)]
    for title, rows_of_section in answer.sections().items():
        if rows_of_section:
            lines = [f" {name}: {'; '.join(words)}" for name, *words in rows_of_section]
            parts += [Text(), Text(title, style="bold"), *map(Text, lines)]
    if len(result.alternatives) > 1:
        parts += [Text(), table_of_alternatives(calendar, result.alternatives)]
    return Group(*parts)


def summary_of_conflict(conflict: calendar_result.CalendarConflict, written: str | None = None) -> RenderableType:
    """Return the status and the time of the search for a conflict, and the conflict in words."""
    rows = [("status", conflict.status), ("time", f"{conflict.time:.3f} s")]
    rows += [] if written is None else [("written to", written)]
    return Group(overview(rows), Text(), *(Text(line) for line in reasons.lines_of_conflict(conflict)))


def table(answer: CalendarAnswer) -> Table:
    """Return the meetings as a table, ordered by time."""
    rooms = any(item.room for item in answer.scheduled)
    grid = Table(box=None, header_style="bold", padding=(0, 1))
    for name in ("day", "time"):
        grid.add_column(name, no_wrap=True)
    grid.add_column("meeting", overflow="fold")
    if rooms:
        grid.add_column("room", overflow="fold")
    grid.add_column("people", overflow="fold")
    last = None
    for item in answer.scheduled:
        day = item.begin.date()
        day_text = f"{day:%a} {day.day} {day:%b}" if day != last else ""
        cells = [day_text, item.times, item.meeting.name]
        cells += [item.room] if rooms else []
        grid.add_row(*map(Text, [*cells, ", ".join(item.people)]))
        last = day
    return grid


def table_of_alternatives(calendar: Calendar, alternatives: Sequence[Alternative]) -> Table:
    """Return the alternatives as a table for the terminal."""
    return table_of_changes(alternatives, reasons.moved_meetings(calendar, alternatives))


_MAX_LINE_BYTES = 75  # RFC 5545, section 3.1


def write_ics(answer: CalendarAnswer, path: str) -> str:
    """Write ``NAME.ics`` with all meetings, or a folder with ``all.ics`` and one file per person.

    Returns the path, with the number of files for a folder, as a message shows it.

    Raises
    ------
    FileError
        If a file cannot be written.
    """
    if path.lower().endswith(".ics"):
        replace_file(path, [text_of(answer)])
        return path
    people: list[str | None] = [person.name for person in answer.calendar.people]
    taken = set[str]()
    for person in [None, *people]:
        stem = plain = "all" if person is None else _plain(person)
        number = 1
        while stem.casefold() in taken:
            stem, number = f"{plain}-{number + 1}", number + 1
        taken.add(stem.casefold())
        replace_file(Path(path) / f"{stem}.ics", [text_of(answer, person)])
    return f"{path} ({len(taken)} files)"


def text_of(answer: CalendarAnswer, person: str | None = None, stamp: datetime | None = None) -> str:
    """Return the text of an iCalendar file with all meetings, or with those of one person.

    Times are in UTC if the calendar has a time zone. Otherwise they are floating: local time wherever the file is read.
    """
    stamp = stamp or datetime.now(UTC)
    name = answer.calendar.name if person is None else f"{answer.calendar.name}: {person}"
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//dmcmc//calendar//EN", f"X-WR-CALNAME:{_escaped(name)}"]
    for meeting in answer.scheduled:
        if person is None or person in meeting.people:
            lines += _event(answer, meeting, stamp)
    return "".join(f"{piece}\r\n" for line in [*lines, "END:VCALENDAR"] for piece in _folded(line))


def _event(answer: CalendarAnswer, meeting: ScheduledMeeting, stamp: datetime) -> Iterator[str]:
    """Yield the lines of one meeting."""
    zone = answer.calendar.grid.timezone
    identity = f"{answer.calendar.name}\n{meeting.meeting.name}".encode()
    yield "BEGIN:VEVENT"
    yield f"UID:{hashlib.sha256(identity).hexdigest()[:32]}@dmcmc"  # importing the file again updates the meeting
    yield f"DTSTAMP:{stamp.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    yield f"DTSTART:{_moment(meeting.begin, zone)}"
    yield f"DTEND:{_moment(meeting.end, zone)}"
    yield f"SUMMARY:{_escaped(meeting.meeting.name)}"
    if meeting.room:
        yield f"LOCATION:{_escaped(meeting.room)}"
    yield f"DESCRIPTION:{_escaped(', '.join(meeting.people))}"
    for name in (*meeting.people, *meeting.optional_missing):
        is_optional = name in meeting.optional or name in meeting.optional_missing
        role = "OPT-PARTICIPANT" if is_optional else "REQ-PARTICIPANT"
        state = "DECLINED" if name in meeting.optional_missing else "ACCEPTED"
        yield f'ATTENDEE;CN="{_quoted(name)}";ROLE={role};PARTSTAT={state}:{_address(name)}'
    yield "END:VEVENT"


def _moment(local: datetime, zone: str) -> str:
    """Return a date and time in iCalendar form: in UTC, or floating without a time zone."""
    if not zone:
        return f"{local:%Y%m%dT%H%M%S}"
    return f"{local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _escaped(text: str) -> str:
    r"""Return text as an iCalendar value: without control characters, with escaped punctuation.

    >>> _escaped("a, b; c")
    'a\\, b\\; c'
    """
    text = re.sub(r"([\\,;])", r"\\\1", " ".join(text.split()))
    return "".join(c for c in text if c.isprintable())


def _quoted(name: str) -> str:
    """Return a name as the quoted value of a parameter, which has no quotation marks (RFC 5545, section 3.2)."""
    return "".join(c for c in " ".join(name.replace('"', "'").split()) if c.isprintable())


def _address(name: str) -> str:
    """Return the address of an attendee: the name itself if it is an e-mail address, otherwise an invalid one."""
    if re.fullmatch(r"[\w.+-]+@[\w.-]+", name):
        return f"mailto:{name}"
    return f"mailto:{quote(_plain(name), safe='')}@example.invalid"


def _folded(line: str) -> Iterator[str]:
    """Yield a line folded into pieces of at most 75 bytes; each continuation starts with a blank."""
    piece, size = "", 0
    for c in line:
        more = len(c.encode())
        if size + more > _MAX_LINE_BYTES:
            yield piece
            piece, size = " ", 1
        piece, size = piece + c, size + more
    yield piece


def _plain(name: str) -> str:
    """Return a person's name as a file name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "person"
