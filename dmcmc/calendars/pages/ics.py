"""Write iCalendar files (RFC 5545): one with all meetings, or one per person."""

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote
from zoneinfo import ZoneInfo

from dmcmc.calendars.pages.answer import CalendarAnswer, ScheduledMeeting
from dmcmc.files.write import replace_file

_MAX_LINE_BYTES = 75  # RFC 5545, section 3.1


def write(answer: CalendarAnswer, path: str) -> str:
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
