"""Read busy times from iCalendar files (RFC 5545), with recurrences, exceptions and daylight saving.

The libraries ``icalendar`` and ``recurring-ical-events`` (extra ``calendar``) parse the file and list the occurrences.
"""

from datetime import date, datetime, time, timedelta
from typing import NamedTuple

from dmcmc.formats.calendar.data.grid import TimeGrid
from dmcmc.formats.calendar.data.plan import TimeRule


class BusyEvent(NamedTuple):
    """An occurrence of an event: its summary, and its begin and end, local times if the file gives no time zone."""

    summary: str
    begin: datetime
    end: datetime


def busy_rules(content: bytes, name: str, grid: TimeGrid, zone: str = "") -> tuple[TimeRule, ...]:
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

    Raises
    ------
    ValueError
        If the file cannot be parsed, or has times with a time zone although the grid has none.
    """
    rules = []
    for event in busy_events(content, name, grid.days[0] - timedelta(days=1), grid.days[-1] + timedelta(days=2)):
        if event.begin.tzinfo is not None and not grid.timezone:
            raise ValueError(f"{name}: its times have a time zone; the calendar needs one too, such as Europe/Berlin")
        mask = grid.within(event.begin, event.end, zone)
        if mask.any():
            begin = grid.local(event.begin)
            rules.append(TimeRule(mask, f"{event.summary}, {begin:%a} {begin.day} {begin:%b %H:%M}, in {name}"))
    return tuple(sorted(rules, key=lambda rule: int(rule.mask.argmax())))


def busy_events(content: bytes, name: str, first: date, last: date) -> list[BusyEvent]:
    """Return the occurrences between two days that make a person busy, in the order of their begin.

    Transparent and cancelled events do not count. Events of whole days last from midnight to midnight.

    Raises
    ------
    ValueError
        If the file cannot be parsed, or the libraries are missing.
    """
    try:
        import icalendar
        import recurring_ical_events
    except ImportError:
        raise ValueError(f"{name}: iCalendar files need the extra 'calendar' (pip install 'dmcmc[calendar]')") from None
    try:
        parsed = icalendar.Calendar.from_ical(content)
        occurrences = recurring_ical_events.of(parsed).between(first, last)
    except Exception as error:  # the libraries raise many types
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{name}: is not a valid iCalendar file: {reason or type(error).__name__}") from None
    found = []
    for event in occurrences:
        is_free = str(event.get("TRANSP", "")).upper() == "TRANSPARENT"
        if is_free or str(event.get("STATUS", "")).upper() == "CANCELLED":
            continue
        begin, end = event["DTSTART"].dt, event["DTEND"].dt
        if not isinstance(begin, datetime):
            begin, end = datetime.combine(begin, time()), datetime.combine(end, time())
        found.append(BusyEvent(" ".join(str(event.get("SUMMARY", "busy")).split()) or "busy", begin, end))
    return sorted(found, key=lambda event: (event.begin.replace(tzinfo=None), event.summary))
