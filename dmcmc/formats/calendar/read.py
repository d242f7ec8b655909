"""Read a calendar file: YAML by the safe loader, with errors that name the line."""

from collections.abc import Mapping
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from dmcmc.config.document import Document
from dmcmc.config.yaml_lines import read_data
from dmcmc.files.text import SourceFile
from dmcmc.formats.calendar.companions import CompanionFiles
from dmcmc.formats.calendar.data.grid import TimeGrid
from dmcmc.formats.calendar.data.plan import DEFAULT_MOVE_COST, Calendar, Fairness, MeetingRoom
from dmcmc.formats.calendar.data.rules import date_of, span_of
from dmcmc.formats.calendar.entries import EntryReader, RuleReader
from dmcmc.formats.calendar.read_meetings import move_cost_of, read_meetings
from dmcmc.formats.calendar.read_people import read_people
from dmcmc.inference.runtime.errors import DmcmcError, FileError

_SECTIONS = (
    *("calendar", "first_day", "days", "hours", "slot", "timezone", "everyone", "people", "rooms", "travel"),
    *("meetings", "fairness", "early", "move_cost", "poll"),
)
_ROOM = ("capacity", "busy", "count")
_FIRST_YEAR, _LAST_YEAR = 1970, 9000  # the first in which time zones are known everywhere
_MAX_DAYS = 366
_MAX_SLOTS = 20_000  # slots of all days together


def read_calendar(source: SourceFile, folder: Path | None = None) -> Calendar:
    """Read a calendar file.

    Parameters
    ----------
    source
        The file. Other files that it names are in its folder, unless their paths are absolute.
    folder
        If given, the calendar may name files in this folder only, and in folders below it.

    Raises
    ------
    FileError
        Names the line, the key and the expected value.
    """
    try:
        document = read_data(source.data, source.name)
        return _calendar(document, CompanionFiles(source.path.parent if source.path else None, folder))
    except FileError:
        raise
    except DmcmcError as error:
        raise FileError(str(error)) from None


def _calendar(document: Document, files: CompanionFiles) -> Calendar:
    """Read all sections and return the calendar."""
    entries = EntryReader(document)
    entries.check_keys((), document.data, _SECTIONS)
    reader = RuleReader(document, _grid(entries))
    rooms = tuple(_room(reader, name, entry) for name, entry in reader.section("rooms").items())
    people = read_people(reader, files)
    travel = _travel(reader, [room.name for room in rooms])
    defaults = {
        "early": reader.number(("early",), document.data.get("early", 0), 0),
        "move_cost": document.data.get("move_cost", DEFAULT_MOVE_COST),
    }
    move_cost_of(reader, ("move_cost",), defaults["move_cost"], 1)
    meetings = read_meetings(reader, people, rooms, files, defaults)
    fairness = _fairness(reader)
    for person in people if any(fairness) else ():
        if not all(isinstance(preference.points, int) for preference in person.preferences):
            reader.fail(("fairness",), f"needs whole numbers as points; {person.name}'s are not")
    name = str(document.data.get("calendar") or "Calendar")
    return Calendar(name, reader.grid, people, rooms, travel, meetings, fairness)


def _grid(entries: EntryReader) -> TimeGrid:
    """Read ``days``, ``hours``, ``slot`` and ``timezone``."""
    data, days = entries.document.data, _days(entries)
    hours = entries.string(("hours",), data.get("hours", ""), "09:00-17:00")
    opens, closes = entries.parsed(("hours",), span_of, hours)
    minutes = entries.integer(("slot",), data.get("slot", 30), 1, 24 * 60)
    zone = entries.time_zone(("timezone",), data.get("timezone"))
    grid = TimeGrid(tuple(days), opens, (closes - opens) // minutes, minutes, zone)
    if not 0 < grid.size <= _MAX_SLOTS:
        entries.fail(("slot",), f"{grid.slots} slots on each of {len(days)} days; 1 to {_MAX_SLOTS} in all are allowed")
    return grid


def _days(entries: EntryReader) -> list[date]:
    """Return the listed days, or the given number of weekdays from ``first_day`` on."""
    given = entries.document.data.get("days")
    if isinstance(given, list):
        days = [entries.parsed(("days",), date_of, str(day)) for day in given]
        if not 0 < len(days) <= _MAX_DAYS or any(a >= b for a, b in pairwise(days)):
            entries.fail(("days",), f"expected 1 to {_MAX_DAYS} days, each after the one before")
        _check_year(entries, "days", days)
        return days
    count = entries.integer(("days",), given, 1, _MAX_DAYS)
    day = entries.parsed(("first_day",), date_of, str(entries.document.data.get("first_day", "")))
    _check_year(entries, "first_day", [day])
    days = []
    while len(days) < count:
        if day.weekday() < 5:
            days.append(day)
        day += timedelta(days=1)
    return days


def _check_year(entries: EntryReader, key: str, days: list[date]) -> None:
    """Check that time zones and the ends of the calendar are known for some days."""
    if not _FIRST_YEAR <= days[0].year <= days[-1].year < _LAST_YEAR:
        entries.fail((key,), f"expected years from {_FIRST_YEAR} on and before {_LAST_YEAR}")


def _room(reader: RuleReader, name: str, entry: Any) -> MeetingRoom:
    """Read one room, or one kind of identical rooms."""
    key = ("rooms", name)
    entry = reader.mapping(key, entry, _ROOM)
    given = entry.get("capacity")
    capacity = None if given is None else reader.integer((*key, "capacity"), given, 1, 10**6)
    busy = reader.rules((*key, "busy"), entry.get("busy", []), touching=True)
    return MeetingRoom(name, capacity, busy, reader.integer((*key, "count"), entry.get("count", 1), 1, 10**6))


def _travel(reader: EntryReader, names: list[str]) -> dict[tuple[int, int], int]:
    """Return the minutes of travel by pairs of rooms, in both orders."""
    minutes_of_pair: dict[tuple[int, int], int] = {}
    for pair, given in reader.section("travel").items():
        ends = [end.strip() for end in pair.split(" - ")]
        if len(ends) != 2:
            reader.fail(("travel", pair), "expected two rooms with ' - ' between them, such as Blue - Red: 10")
        a, b = (reader.one_of(("travel", pair), end, names, "rooms") for end in ends)
        minutes_of_pair[a, b] = minutes_of_pair[b, a] = reader.integer(("travel", pair), given, 0, 24 * 60)
    return minutes_of_pair


def _fairness(reader: EntryReader) -> Fairness:
    """Read the weights of fairness."""
    given: Mapping[str, Any] = reader.mapping(("fairness",), reader.document.data.get("fairness"), Fairness._fields)
    return Fairness(**{name: reader.number(("fairness", name), weight, 0) for name, weight in given.items()})
