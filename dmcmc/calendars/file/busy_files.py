"""Read busy times from iCalendar files (RFC 5545), with recurrences, exceptions and daylight saving.

The libraries ``icalendar`` and ``recurring-ical-events`` (extra ``calendar``) parse events and list their occurrences.
Here a file is divided into components first, so that one that cannot be read is named and the others are read. Nothing
that could make a person busy is ignored in silence: a warning names it with its line.
"""

import hashlib
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from dmcmc.calendars.file.plan import TimeGrid, TimeRule
from dmcmc.inference.runtime.errors import FileWarning

_TIMES = ("DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID")
_BUSY_STATUS = "X-MICROSOFT-CDO-BUSYSTATUS"
_READ = (*_TIMES, "UID", "SEQUENCE", "STATUS", "TRANSP", "SUMMARY", "ATTENDEE", _BUSY_STATUS)  # properties of an event
_NEVER_BUSY = ("VTIMEZONE", "VJOURNAL")  # components
_ZONE = re.compile(r';TZID=("[^"]*"|.*?)(?=[;:](?:[A-Z-]+=|[0-9]{8}))', re.IGNORECASE)  # perhaps with ":" in its name
_OFFSET = re.compile(r"(?:UTC|GMT)(?:\)|\s*([+-][0-9]{1,2})(?::?([0-9]{2}))?(?![0-9]))")
_MAX_NAMED = 5  # parts of a file that a warning names


class BusyEvent(NamedTuple):
    """An occurrence of an event: its summary, and its begin and end, local times if the file gives no time zone."""

    summary: str
    begin: datetime
    end: datetime


class _Component(NamedTuple):
    """A component of a file.

    Attributes
    ----------
    name : str
        Its name.
    number : int
        The number of its first line.
    lines : list of (int, str)
        Its own unfolded lines with their numbers.
    nested : list of str
        The lines of the components in it.
    """

    name: str
    number: int
    lines: list[tuple[int, str]]
    nested: list[str]

    def value(self, name: str) -> str:
        """Return the text of a property without its parameters; empty if there is none."""
        lines = (line.partition(":") for _, line in self.lines)
        return next((text for head, _, text in lines if head.partition(";")[0].upper() == name), "")


def busy_rules(content: bytes, name: str, grid: TimeGrid, zone: str = "", person: str = "") -> tuple[TimeRule, ...]:
    """Return the busy times of an iCalendar file on a time grid by time, one rule per occurrence.

    Parameters
    ----------
    content
        The file.
    name
        Its name, for texts and errors.
    grid
        Days and slots.
    zone
        The time zone of local times and of whole days in the file; empty for the grid's.
    person
        The person who has the events; see :func:`busy_events`.

    Raises
    ------
    ValueError
        If the file cannot be parsed, or has times with a time zone although the grid has none.
    """
    rules = []
    first, last = grid.days[0] - timedelta(days=1), grid.days[-1] + timedelta(days=2)
    for event in busy_events(content, name, first, last, person):
        if event.begin.tzinfo is not None and not grid.timezone:
            raise ValueError(f"{name}: its times have a time zone; the calendar needs one too, such as Europe/Berlin")
        mask = grid.within(event.begin, event.end, zone)
        if mask.any():
            begin = grid.local(event.begin)
            rules.append(TimeRule(mask, f"{event.summary}, {begin:%a} {begin.day} {begin:%b %H:%M}, in {name}"))
    return tuple(sorted(rules, key=lambda rule: int(rule.mask.argmax())))


def busy_events(content: bytes, name: str, first: date, last: date, person: str = "") -> list[BusyEvent]:
    """Return the occurrences between two days that make a person busy, in the order of their begin.

    Events that are transparent, cancelled, free by Microsoft's status, or declined by ``person`` (the name or address
    of an attendee) do not count. Events of whole days last from midnight to midnight. A :class:`FileWarning` names what
    could make the person busy but cannot be read.

    Raises
    ------
    ValueError
        If the file is no iCalendar file or has an unknown time zone, or if the libraries are missing.
    """
    try:
        import icalendar  # noqa: F401
        import recurring_ical_events  # noqa: F401
    except ImportError:
        raise ValueError(f"{name}: iCalendar files need the extra 'calendar' (pip install 'dmcmc[calendar]')") from None
    found, notes = list[BusyEvent](), list[str]()
    try:
        for components in _calendars(_text(content)):
            found += _CalendarReader(components, notes, person).events(first, last)
    except ValueError as error:
        raise ValueError(f"{name}: is not a valid iCalendar file: {error}") from None
    if notes:
        more = f"; {len(notes) - _MAX_NAMED} more" if len(notes) > _MAX_NAMED else ""
        warnings.warn(f"{name}: {'; '.join(notes[:_MAX_NAMED])}{more}", FileWarning, stacklevel=2)
    return sorted(found, key=lambda event: (event.begin.replace(tzinfo=None), event.summary))


def _text(content: bytes) -> str:
    """Return a file as text: UTF-16 with a byte order mark, UTF-8 or Latin-1."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _calendars(text: str) -> list[list[_Component]]:
    """Return for each calendar of a file itself and its components, without those nested in them (such as alarms)."""
    lines = list[tuple[int, str]]()
    for number, line in enumerate(re.split("\r\n|\n|\r", text), 1):
        if line[:1] in (" ", "\t") and lines:  # a folded line goes on
            lines[-1] = lines[-1][0], lines[-1][1] + line[1:]
        elif line.strip():
            lines.append((number, line))
    found, inside = list[list[_Component]](), list[_Component]()
    for number, line in lines:
        word, _, name = line.strip().upper().partition(":")
        if len(inside) > 2 or (len(inside) == 2 and word == "BEGIN"):
            inside[1].nested.append(line)
        if word == "BEGIN":
            inside.append(_Component(name, number, [], []))
            if len(inside) == 1:
                found.append([])
            if len(inside) < 3:
                found[-1].append(inside[-1])
        elif word == "END" and inside and inside[-1].name == name:
            inside.pop()
        elif not inside or word == "END":
            raise ValueError(f"line {number}: unexpected {line[:40]!r}")
        else:
            inside[-1].lines.append((number, line))
    if inside:
        raise ValueError(f"it ends within {inside[-1].name}, which begins in line {inside[-1].number}")
    if any(components[0].name != "VCALENDAR" for components in found) or not found:
        raise ValueError("expected BEGIN:VCALENDAR")
    return found


class _CalendarReader:
    """Reader of one calendar of a file.

    Attributes
    ----------
    calendar : _Component
        The calendar with its own properties.
    components : list of _Component
        Its components.
    notes : list of str
        What cannot be read, or is read by a guess; for the warning.
    names : set of str
        Names and addresses of the person who has the calendar.
    zones : dict of str to str
        Names of time zones in the file, with the names under which ``icalendar`` finds them.
    definitions : list of str
        The definitions of time zones that ``icalendar`` does not know.
    local_zone : str
        The time zone of local times (``X-WR-TIMEZONE``); empty for the reader's.
    """

    def __init__(self, components: Sequence[_Component], notes: list[str], person: str) -> None:
        self.calendar, *self.components = components
        self.notes = notes
        self.names = {x.strip().casefold() for x in (person, self.calendar.value("X-WR-CALNAME"))} - {""}
        self.zones: dict[str, str] = {}
        self.definitions: list[str] = []
        zone = self.calendar.value("X-WR-TIMEZONE").strip()
        self.local_zone = known_zone(zone) if zone else ""
        if zone and not self.local_zone:
            self.notes.append(f"the time zone {zone!r} of X-WR-TIMEZONE is not known; local times are the calendar's")

    def events(self, first: date, last: date) -> Iterator[BusyEvent]:
        """Yield the occurrences between two days that make the person busy."""
        readable: list[tuple[_Component, Any]] = []
        events = [x for x in self.components if x.name == "VEVENT"]
        for component, event in zip(events, self._parsed(events), strict=True):
            if problem := _problem(component, event):
                self._unread(component, problem)
            else:
                readable.append((component, event))
        for event in self._occurrences(readable, first, last):
            if not self._is_free(event):
                given = (event["DTSTART"].dt, event["DTEND"].dt)
                begin, end = (x if isinstance(x, datetime) else datetime.combine(x, time()) for x in given)
                yield BusyEvent(" ".join(str(event.get("SUMMARY", "")).split()) or "busy", begin, end)
        for component in (x for x in self.components if x.name != "VEVENT"):
            if component.name == "VFREEBUSY":
                yield from self._periods(component)
            elif component.name not in _NEVER_BUSY and (component.name != "VTODO" or component.value("DTSTART")):
                self._unread(component, "is not understood")

    def _unread(self, component: _Component, problem: str) -> None:
        """Note that a component is not counted as busy time."""
        title = component.value("SUMMARY") or component.value("UID")
        called = f" {title[:40]!r}" if title else ""
        self.notes.append(f"line {component.number}: {component.name}{called} {problem} and is not counted as busy")

    def _parsed(self, events: Iterable[_Component]) -> list[Any]:
        """Return the events as objects of ``icalendar``, with those of their properties that matter."""
        import icalendar

        lines = []
        for event in events:
            named = ((x, re.split("[;:]", x[1], maxsplit=1)[0].upper()) for x in event.lines)
            own = [_ZONE.sub(partial(self._zone, n), line) for (n, line), name in named if name in _READ]
            lines += ["BEGIN:VEVENT", *own, "END:VEVENT"]
        text = "\r\n".join(["BEGIN:VCALENDAR", *self.definitions, *lines, "END:VCALENDAR", ""])
        try:
            return [x for x in icalendar.Calendar.from_ical(text).subcomponents if x.name == "VEVENT"]
        except Exception as error:  # the library raises many types
            raise ValueError(" ".join(str(error).split())[:200] or type(error).__name__) from None

    def _zone(self, number: int, match: re.Match[str]) -> str:
        """Return the parameter ``TZID`` with the name under which ``icalendar`` finds the time zone."""
        zone = match[1].strip('"')
        if zone not in self.zones:
            self.zones[zone] = known_zone(zone) or self._defined(zone, number)
        return f";TZID={self.zones[zone]}"

    def _defined(self, zone: str, number: int) -> str:
        """Return a name for a time zone that the file defines, or whose name has an offset.

        The name is unique, since ``icalendar`` keeps the definitions of all files under their names.
        """
        named = {x.value("TZID").replace("\\", ""): x for x in self.components if x.name == "VTIMEZONE"}
        offset = _OFFSET.search(zone)
        if zone in named:
            lines = [line for _, line in named[zone].lines if not line.upper().startswith("TZID")] + named[zone].nested
        elif offset is not None:
            hours = f"{int(offset[1] or 0):+03d}{offset[2] or '00'}"
            self.notes.append(f"line {number}: the time zone {zone!r} is read as UTC{hours}, without daylight saving")
            lines = ["BEGIN:STANDARD", "DTSTART:19700101T000000", f"TZOFFSETFROM:{hours}", f"TZOFFSETTO:{hours}"]
            lines += ["END:STANDARD"]
        else:
            raise ValueError(f"line {number}: the time zone {zone!r} is not known, and the file does not define it")
        name = f"dmcmc-{hashlib.sha256(repr(lines).encode()).hexdigest()[:32]}"
        self.definitions += ["BEGIN:VTIMEZONE", f"TZID:{name}", *lines, "END:VTIMEZONE"]
        return name

    def _occurrences(self, events: Sequence[tuple[_Component, Any]], first: date, last: date) -> list[Any]:
        """Return the occurrences of events between two days; a series that cannot be expanded is noted."""
        import icalendar
        import recurring_ical_events

        calendar = icalendar.Calendar()
        calendar.subcomponents = [event for _, event in events]
        if self.local_zone:
            calendar.add("X-WR-TIMEZONE", self.local_zone)
        try:
            return [*recurring_ical_events.of(calendar).between(first, last)]
        except Exception as error:  # the library raises many types
            series: dict[str, list[tuple[_Component, Any]]] = {}
            for i, (component, event) in enumerate(events):
                series.setdefault(component.value("UID") or str(i), []).append((component, event))
            if len(series) > 1:
                return [x for some in series.values() for x in self._occurrences(some, first, last)]
            self._unread(events[0][0], f"cannot be repeated ({' '.join(str(error).split())[:100]})")
            return []

    def _is_free(self, event: Any) -> bool:
        """Return whether an event leaves the person free: transparent, cancelled, marked as free, or declined."""
        marks = {"TRANSP": "TRANSPARENT", "STATUS": "CANCELLED", _BUSY_STATUS: "FREE"}
        if any(str(event.get(name, "")).strip().upper() == mark for name, mark in marks.items()):
            return True
        given = event.get("ATTENDEE", [])
        for attendee in given if isinstance(given, list) else [given]:
            address = str(attendee).casefold().removeprefix("mailto:")
            called = {str(attendee.params.get("CN", "")).strip('" ').casefold(), address, address.partition("@")[0]}
            if called & self.names and str(attendee.params.get("PARTSTAT", "")).upper() == "DECLINED":
                return True
        return False

    def _periods(self, component: _Component) -> Iterator[BusyEvent]:
        """Yield the busy periods of a component ``VFREEBUSY``."""
        import icalendar

        periods: Any = icalendar.vPeriod
        for number, line in component.lines:
            head, _, text = line.partition(":")
            name, *parameters = head.upper().split(";")
            for period in text.split(",") if name == "FREEBUSY" and "FBTYPE=FREE" not in parameters else ():
                try:
                    begin, end = periods.from_ical(period.strip())
                    yield BusyEvent("busy", begin, end if isinstance(end, datetime) else begin + end)
                except Exception:  # the library raises many types
                    self.notes.append(f"line {number}: {period[:40]!r} of VFREEBUSY is not counted as busy")


def _problem(component: _Component, event: Any) -> str:
    """Return why an event cannot be read; empty if it can."""
    for name in _TIMES:
        if any(wrong == name for wrong, _ in event.errors):
            return f"has the invalid line {name}:{component.value(name)[:60]}"
        if isinstance(event.get(name), list) and not name.endswith(("RULE", "DATE")):
            return f"has {name} twice"
    if "DTSTART" not in event:
        return "has no DTSTART"
    with suppress(TypeError):  # a date and a time, or times with and without a time zone
        if "DTEND" in event and event["DTEND"].dt < event["DTSTART"].dt:
            return "ends before it begins"
    return ""


def known_zone(name: str) -> str:
    """Return the IANA name of a time zone from that of a file; empty if it is not known.

    A file may have Windows' names, a prefix as in ``/example.org/2027/Europe/Berlin``, or other capitals.
    """
    from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

    name = WINDOWS_TO_OLSON.get(name, name)
    try:
        return ZoneInfo(name).key
    except (OSError, ValueError, KeyError):
        parts = name.casefold().split("/")
        names = {zone.casefold(): zone for zone in available_timezones()}
        return next((names[x] for i in range(len(parts)) if (x := "/".join(parts[i:])) in names), "")
