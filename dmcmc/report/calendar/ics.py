"""iCalendar files (RFC 5545): one of all meetings, or one a person."""

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from dmcmc.files.write import replace_file
from dmcmc.report.calendar.answer import Answer, Held

_WIDTH = 75  # bytes of a line


def write(answer: Answer, path: str) -> str:
    """Write ``NAME.ics`` with all meetings; or, in a folder, ``all.ics`` and a file a person. Return what to call it.

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


def text_of(answer: Answer, person: str | None = None, stamp: datetime | None = None) -> str:
    """Return a file of all meetings, or of one person's.

    Times are in UTC where the calendar has a time zone; else they are local wherever the file is read.
    """
    stamp = stamp or datetime.now(UTC)
    name = answer.calendar.name if person is None else f"{answer.calendar.name}: {person}"
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//dmcmc//calendar//EN", f"X-WR-CALNAME:{_escaped(name)}"]
    for held in answer.held:
        if person is None or person in held.people:
            lines += _event(answer, held, stamp)
    return "".join(f"{piece}\r\n" for line in [*lines, "END:VCALENDAR"] for piece in _folded(line))


def _event(answer: Answer, held: Held, stamp: datetime) -> Iterator[str]:
    zone = answer.calendar.timezone
    word = f"{answer.calendar.name}\n{held.meeting.name}".encode()
    yield "BEGIN:VEVENT"
    yield f"UID:{hashlib.sha256(word).hexdigest()[:32]}@dmcmc"  # the same meeting again replaces the one before
    yield f"DTSTAMP:{stamp.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    yield f"DTSTART:{_moment(held.begin, zone)}"
    yield f"DTEND:{_moment(held.end, zone)}"
    yield f"SUMMARY:{_escaped(held.meeting.name)}"
    if held.room:
        yield f"LOCATION:{_escaped(held.room)}"
    yield f"DESCRIPTION:{_escaped(', '.join(held.people))}"
    yield "END:VEVENT"


def _moment(local: datetime, zone: str) -> str:
    if not zone:
        return f"{local:%Y%m%dT%H%M%S}"
    return f"{local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _escaped(text: str) -> str:
    """Return text as a value: without control characters, commas and the like marked.

    >>> _escaped("a, b; c")
    'a\\\\, b\\\\; c'
    """
    text = re.sub(r"([\\,;])", r"\\\1", " ".join(text.split()))
    return "".join(c for c in text if c.isprintable())


def _folded(line: str) -> Iterator[str]:
    """Yield a line in pieces of at most 75 bytes, those after the first with a blank in front."""
    piece, size = "", 0
    for c in line:
        more = len(c.encode())
        if size + more > _WIDTH:
            yield piece
            piece, size = " ", 1
        piece, size = piece + c, size + more
    yield piece


def _plain(name: str) -> str:
    """Return a name as a file may have it."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "person"
