"""Read a calendar file: YAML by the safe loader, with errors that name the line. Here its days, people and rooms."""

from collections.abc import Mapping
from datetime import date, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmcmc.calendars.file import plan
from dmcmc.calendars.file.busy_files import busy_rules
from dmcmc.calendars.file.read_meetings import move_cost_of, read_meetings
from dmcmc.calendars.file.time_rules import CompanionFiles, EntryReader, RuleReader, date_of, span_of
from dmcmc.files.document import Document, Key, read_data, show
from dmcmc.files.text import SourceFile
from dmcmc.inference.runtime.errors import DmcmcError, FileError
from dmcmc.inference.runtime.types import Number

_SECTIONS = (
    *("calendar", "first_day", "days", "hours", "slot", "timezone", "everyone", "people", "rooms", "travel"),
    *("meetings", "fairness", "early", "move_cost", "poll"),
)
_ROOM = ("capacity", "busy", "count")
_FIRST_YEAR, _LAST_YEAR = 1970, 9000  # the first in which time zones are known everywhere
_MAX_DAYS = 366
_MAX_SLOTS = 20_000  # slots of all days together
_PERSON_KEYS = ("busy", "prefer", "hours", "timezone", "buffer", "max_per_day", "max_in_a_row", "lunch", "no_gaps")
_BUSY_KEYS = ("ics", "when", "cost")  # of an entry of busy that is no rule
_LUNCH_MINUTES = 30  # length of a lunch break that the file does not give
_MAX_PER_DAY = 1000  # limit for max_per_day


def read_calendar(source: SourceFile, folder: Path | None = None) -> plan.Calendar:
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


def _calendar(document: Document, files: CompanionFiles) -> plan.Calendar:
    """Read all sections and return the calendar."""
    entries = EntryReader(document)
    entries.check_keys((), document.data, _SECTIONS)
    reader = RuleReader(document, _grid(entries))
    rooms = tuple(_room(reader, name, entry) for name, entry in reader.section("rooms").items())
    people = read_people(reader, files)
    travel = _travel(reader, [room.name for room in rooms])
    defaults = {
        "early": reader.number(("early",), document.data.get("early", 0), 0),
        "move_cost": document.data.get("move_cost", plan.DEFAULT_MOVE_COST),
    }
    move_cost_of(reader, ("move_cost",), defaults["move_cost"], 1)
    meetings = read_meetings(reader, people, rooms, files, defaults)
    fairness = _fairness(reader)
    for person in people if any(fairness) else ():
        if not all(isinstance(preference.points, int) for preference in person.preferences):
            reader.fail(("fairness",), f"needs whole numbers as points; {person.name}'s are not")
    name = str(document.data.get("calendar") or "Calendar")
    return plan.Calendar(name, reader.grid, people, rooms, travel, meetings, fairness)


def _grid(entries: EntryReader) -> plan.TimeGrid:
    """Read ``days``, ``hours``, ``slot`` and ``timezone``."""
    data, days = entries.document.data, _days(entries)
    hours = entries.string(("hours",), data.get("hours", ""), "09:00-17:00")
    opens, closes = entries.parsed(("hours",), span_of, hours)
    minutes = entries.integer(("slot",), data.get("slot", 30), 1, 24 * 60)
    zone = entries.time_zone(("timezone",), data.get("timezone"))
    grid = plan.TimeGrid(tuple(days), opens, (closes - opens) // minutes, minutes, zone)
    if not 0 < grid.size <= _MAX_SLOTS:
        entries.fail(("slot",), f"{grid.slots} slots on each of {len(days)} days; 1 to {_MAX_SLOTS} in all are allowed")
    return grid


def _days(entries: EntryReader) -> list[date]:
    """Return the listed days, or the given number of weekdays from ``first_day`` on."""
    given = entries.document.data.get("days")
    if isinstance(given, list):
        days = [entries.parsed(("days",), _day, str(day)) for day in given]
        if not 0 < len(days) <= _MAX_DAYS or any(a >= b for a, b in pairwise(days)):
            entries.fail(("days",), f"expected 1 to {_MAX_DAYS} days, each after the one before")
        return days
    count = entries.integer(("days",), given, 1, _MAX_DAYS)
    day = entries.parsed(("first_day",), _day, str(entries.document.data.get("first_day", "")))
    days = []
    while len(days) < count:
        if day.weekday() < 5:
            days.append(day)
        day += timedelta(days=1)
    return days


def _day(text: str) -> date:
    """Return the date for a text, after a check of its year."""
    if not _FIRST_YEAR <= date_of(text).year < _LAST_YEAR:
        raise ValueError(f"expected a year from {_FIRST_YEAR} on and before {_LAST_YEAR}, got {text}")
    return date_of(text)


def _room(reader: RuleReader, name: str, entry: Any) -> plan.MeetingRoom:
    """Read one room, or one kind of identical rooms."""
    key = ("rooms", name)
    entry = reader.mapping(key, entry, _ROOM)
    given = entry.get("capacity")
    capacity = None if given is None else reader.integer((*key, "capacity"), given, 1, 10**6)
    busy = reader.rules((*key, "busy"), entry.get("busy", []), touching=True)
    return plan.MeetingRoom(name, capacity, busy, reader.integer((*key, "count"), entry.get("count", 1), 1, 10**6))


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


def _fairness(reader: EntryReader) -> plan.Fairness:
    """Read the weights of fairness."""
    given: Mapping[str, Any] = reader.mapping(
        ("fairness",), reader.document.data.get("fairness"), plan.Fairness._fields
    )
    return plan.Fairness(**{name: reader.number(("fairness", name), weight, 0) for name, weight in given.items()})


class _Entry(NamedTuple):
    """An entry of a person or of everyone: its place in the file and its contents."""

    key: Key
    given: Any


def read_people(reader: RuleReader, files: CompanionFiles) -> tuple[plan.Person, ...]:
    """Read the sections ``everyone`` and ``people``; a person's own entry replaces that of everyone."""
    everyone = reader.mapping(("everyone",), reader.document.data.get("everyone"), _PERSON_KEYS)
    defaults = {name: _Entry(("everyone", name), given) for name, given in everyone.items()}
    people = []
    for name, entry in reader.section("people").items():
        own = reader.mapping(("people", name), entry, _PERSON_KEYS)
        entries = defaults | {x: _Entry(("people", name, x), given) for x, given in own.items()}
        people.append(_PersonReader(reader, files, entries).person(name))
    if not people:
        reader.fail(("people",), "expected people by name, such as Ann: {}")
    return tuple(people)


class _PersonReader:
    """Reader of one person.

    Attributes
    ----------
    reader : RuleReader
        Checks of entries.
    files : CompanionFiles
        Files that the calendar names.
    entries : dict of str to _Entry
        The person's entries, with those of everyone.
    zone : str
        The person's time zone; empty for the calendar's.
    """

    def __init__(self, reader: RuleReader, files: CompanionFiles, entries: dict[str, _Entry]) -> None:
        self.reader, self.files, self.entries = reader, files, entries
        key, given = self.entry("timezone")
        self.zone = reader.time_zone(key, given)
        if self.zone and not reader.grid.timezone:
            reader.fail(key, "the calendar needs a 'timezone' too, such as Europe/Berlin")

    def entry(self, name: str, default: Any = None) -> _Entry:
        """Return an entry, or a default."""
        return self.entries.get(name, _Entry((name,), default))

    def person(self, name: str) -> plan.Person:
        """Read all entries."""
        reader = self.reader
        key, given = self.entry("max_per_day")
        max_per_day = None if given is None else reader.integer(key, given, 1, _MAX_PER_DAY)
        key, given = self.entry("max_in_a_row")
        max_in_a_row = None if given is None else reader.minutes(key, given)
        if max_in_a_row is not None and max_in_a_row < reader.grid.minutes:
            reader.fail(key, f"expected at least the {reader.grid.minutes} minutes of a slot, got {max_in_a_row}")
        busy = self.busy(name)
        return plan.Person(
            name=name,
            busy_times=tuple(rule for rule, cost in busy if cost is None),
            appointments=tuple(plan.Appointment(rule.mask, cost, rule.text) for rule, cost in busy if cost is not None),
            away_times=self.away_times(),
            preferences=reader.preferences(*self.entry("prefer", {}), self.zone),
            buffer=reader.minutes(*self.entry("buffer", 0)),
            max_per_day=max_per_day,
            max_in_a_row=max_in_a_row,
            lunch=self.lunch(),
            no_gaps=reader.number(*self.entry("no_gaps", 0), low=0),
        )

    def busy(self, person: str) -> list[tuple[plan.TimeRule, Number | None]]:
        """Return rules for times and events of iCalendar files, each with its cost; None: no meeting may overlap it."""
        reader, (key, given) = self.reader, self.entry("busy", [])
        rules: list[tuple[plan.TimeRule, Number | None]] = []
        for item in given if isinstance(given, list) else [given]:
            entry = reader.mapping(key, item, _BUSY_KEYS) if isinstance(item, dict) else {"when": item}
            is_soft_rule = isinstance(item, dict) and entry.keys() == {"when", "cost"}
            if isinstance(item, dict) and not (is_soft_rule or entry.keys() in ({"ics"}, {"ics", "cost"})):
                expected = "a rule, {when: Mon 10:00-11:00, cost: 3}, {ics: ann.ics} or {ics: ann.ics, cost: 3}"
                reader.fail(key, f"expected {expected}, got {show(item)}")
            cost = reader.number((*key, "cost"), entry["cost"], 0) if "cost" in entry else None
            if "when" in entry:
                rules += [(rule, cost) for rule in reader.rules(key, entry["when"], touching=True, zone=self.zone)]
                continue
            for name in entry["ics"] if isinstance(entry["ics"], list) else [entry["ics"]]:
                file = reader.string(key, name, "the name of an iCalendar file, such as {ics: ann.ics}")
                rules += [(rule, cost) for rule in reader.parsed(key, partial(self._events, person), file)]
        return rules

    def _events(self, person: str, file: str) -> tuple[plan.TimeRule, ...]:
        """Return the busy times of an iCalendar file."""
        return busy_rules(self.files.read(file).data, file, self.reader.grid, self.zone, person)

    def away_times(self) -> tuple[plan.TimeRule, ...]:
        """Return the times outside the person's working hours, in the person's time zone."""
        key, given = self.entry("hours")
        if given is None:
            return ()
        begin, end = self.reader.parsed(key, span_of, self.reader.string(key, given, "hours, such as 09:00-17:00"))
        away = self.reader.grid.local_times(self.zone).outside(begin, end)
        return (plan.TimeRule(away, f"outside {given}" + (f" in {self.zone}" if self.zone else "")),)

    def lunch(self) -> plan.LunchBreak | None:
        """Return the lunch break; None if there is none."""
        key, given = self.entry("lunch")
        if given is None or given == "none":
            return None
        hours, minutes = given, _LUNCH_MINUTES
        if isinstance(given, dict):
            entry = self.reader.mapping(key, given, ("between", "minutes"))
            hours, minutes = entry.get("between"), self.reader.minutes((*key, "minutes"), entry.get("minutes", 30))
        if not isinstance(hours, str):
            self.reader.fail(key, f"expected hours, such as 12:00-14:00, got {show(hours)}")
        begin, end = self.reader.parsed(key, span_of, hours)
        grid = self.reader.grid
        slots = max(1, grid.slots_of(minutes))
        if slots * grid.minutes > end - begin:
            self.reader.fail(key, f"{hours} is shorter than the break of {slots * grid.minutes} minutes")
        inside = ~grid.local_times(self.zone).outside(begin, end).reshape(len(grid.days), grid.slots)
        # Where the hours lie partly outside the calendar's, the break may lie there as well.
        complete = inside.sum(axis=1) >= (end - begin) // grid.minutes
        windows = tuple(
            tuple((day * grid.slots + np.flatnonzero(row)).tolist())
            for day, row in enumerate(inside)
            if complete[day] and row.any()
        )
        return plan.LunchBreak(windows, slots, hours)
