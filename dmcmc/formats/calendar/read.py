"""Read a calendar file: YAML by the safe loader, with errors that name the line."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from itertools import pairwise
from typing import Any, NoReturn, TypeVar
from zoneinfo import ZoneInfo

import numpy as np

from dmcmc.config.document import Document, Key, show
from dmcmc.config.validate import suggestion
from dmcmc.config.yaml_lines import read_data
from dmcmc.files.text import SourceFile
from dmcmc.formats.calendar.plan import Calendar, Mask, Meeting, MeetingRoom, Person, TimeGrid
from dmcmc.formats.calendar.rules import EXAMPLES, date_of, mask_of, span_of
from dmcmc.inference.runtime.errors import DmcmcError, FileError
from dmcmc.inference.runtime.types import Number

T = TypeVar("T")

_SECTIONS = ("calendar", "first_day", "days", "hours", "slot", "timezone", "people", "rooms", "travel", "meetings")
_PERSON = ("busy", "prefer")
_ROOM = ("capacity", "busy")
_MEETING = ("people", "slots", "must", "weight", "when", "room", "prefer")
_MAX_DAYS = 366
_MAX_SLOTS = 20_000  # slots of all days together
_MAX_UTILITY = 10**9  # limit for the absolute value of preferences and weights


def read_calendar(source: SourceFile) -> Calendar:
    """Read a calendar file.

    Raises
    ------
    FileError
        Names the line, the key and the expected value.
    """
    try:
        return _CalendarReader(read_data(source.data, source.name)).calendar()
    except FileError:
        raise
    except DmcmcError as error:
        raise FileError(str(error)) from None


class _CalendarReader:
    """Reader of the sections of a calendar file; each method reads and checks one kind of entry.

    A ``key`` is the path of an entry in the file, such as ``("people", "Ann", "busy")``; error messages name it and its
    line.
    """

    def __init__(self, document: Document) -> None:
        """Check the top-level keys and read the slots."""
        self.document, self.data = document, document.data
        self.check_keys((), self.data, _SECTIONS)
        self.grid = self.read_slots()

    def calendar(self) -> Calendar:
        """Read all sections and return the calendar."""
        self.rooms = tuple(self.room(name, entry) for name, entry in self.section("rooms").items())
        self.people = tuple(self.person(name, entry) for name, entry in self.section("people").items())
        if not self.people:
            self.fail(("people",), "expected people by name, such as Ann: {}")
        travel = self.travel()
        meetings = tuple(self.meeting(name, entry) for name, entry in self.section("meetings").items())
        if not meetings:
            self.fail(("meetings",), "expected meetings by name, such as Stand-up: {people: [Ann, Bob], slots: 1}")
        name = str(self.data.get("calendar") or "Calendar")
        return Calendar(name, self.grid, self.people, self.rooms, travel, meetings, self.timezone())

    def read_slots(self) -> TimeGrid:
        """Read ``days``, ``hours`` and ``slot``."""
        days = self.days()
        opens, closes = self.parsed(("hours",), span_of, self.string(("hours",), self.data.get("hours", "")))
        minutes = self.integer(("slot",), self.data.get("slot", 30), 1, 24 * 60)
        slots = (closes - opens) // minutes
        if not 0 < slots * len(days) <= _MAX_SLOTS:
            self.fail(("slot",), f"{slots} slots on each of {len(days)} days; 1 to {_MAX_SLOTS} in all are allowed")
        return TimeGrid(tuple(days), opens, slots, minutes)

    def days(self) -> list[date]:
        """Return the listed days, or the given number of weekdays from ``first_day`` on."""
        given = self.data.get("days")
        if isinstance(given, list):
            days = [self.parsed(("days",), date_of, str(day)) for day in given]
            if not 0 < len(days) <= _MAX_DAYS or any(a >= b for a, b in pairwise(days)):
                self.fail(("days",), f"expected 1 to {_MAX_DAYS} days, each after the one before")
            return days
        count = self.integer(("days",), given, 1, _MAX_DAYS)
        day = self.parsed(("first_day",), date_of, str(self.data.get("first_day", "")))
        if day.year > 9000:
            self.fail(("first_day",), "expected a year before 9000")
        days = []
        while len(days) < count:
            if day.weekday() < 5:
                days.append(day)
            day += timedelta(days=1)
        return days

    def timezone(self) -> str:
        """Return the checked name of the time zone; empty if none is given."""
        name = str(self.data.get("timezone") or "")
        if name:
            try:
                ZoneInfo(name)
            except (OSError, ValueError, KeyError):
                self.fail(("timezone",), f"expected a time zone such as Europe/Berlin, got {show(name)}")
        return name

    def room(self, name: str, entry: Any) -> MeetingRoom:
        """Read one room."""
        key = ("rooms", name)
        entry = self.mapping(key, entry, _ROOM)
        given = entry.get("capacity")
        capacity = None if given is None else self.integer((*key, "capacity"), given, 1, 10**6)
        return MeetingRoom(name, capacity, self.any_of((*key, "busy"), entry.get("busy", []), touching=True))

    def person(self, name: str, entry: Any) -> Person:
        """Read one person."""
        key = ("people", name)
        entry = self.mapping(key, entry, _PERSON)
        busy = self.any_of((*key, "busy"), entry.get("busy", []), touching=True)
        return Person(name, busy, self.preferences((*key, "prefer"), entry.get("prefer", {})))

    def travel(self) -> dict[tuple[int, int], int]:
        """Return the minutes of travel by pairs of rooms, in both orders."""
        names, minutes_of_pair = [room.name for room in self.rooms], {}
        for pair, given in self.section("travel").items():
            ends = [end.strip() for end in pair.split(" - ")]
            if len(ends) != 2:
                self.fail(("travel", pair), "expected two rooms with ' - ' between them, such as Blue - Red: 10")
            a, b = (self.one_of(("travel", pair), end, names, "rooms") for end in ends)
            minutes_of_pair[a, b] = minutes_of_pair[b, a] = self.integer(("travel", pair), given, 0, 24 * 60)
        return minutes_of_pair

    def meeting(self, name: str, entry: Any) -> Meeting:
        """Read one meeting."""
        key = ("meetings", name)
        entry = self.mapping(key, entry, _MEETING)
        given = entry.get("people")
        if not isinstance(given, list) or not given:
            self.fail((*key, "people"), f"expected a list of people, such as [Ann, Bob], got {show(given)}")
        names = [person.name for person in self.people]
        people = tuple(self.one_of((*key, "people"), str(person), names, "people") for person in given)
        if len({*people}) < len(people):
            self.fail((*key, "people"), "a person occurs twice")
        length = self.integer((*key, "slots"), entry.get("slots", 1), 1, _MAX_SLOTS)
        if length > self.grid.slots:
            self.fail((*key, "slots"), f"a day has {self.grid.slots} slots; a meeting cannot be longer")
        always = np.ones(self.grid.size, dtype=bool)
        return Meeting(
            name=name,
            people=people,
            length=length,
            weight=self.weight(key, entry),
            allowed=self.any_of((*key, "when"), entry["when"]) if "when" in entry else always,
            rooms=self.rooms_for(key, entry, len(people)),
            preferences=self.preferences((*key, "prefer"), entry.get("prefer", {})),
        )

    def weight(self, key: Key, entry: dict[str, Any]) -> Number | None:
        """Return the utility of holding a meeting; None if it must be held."""
        must = entry.get("must", "weight" not in entry)
        if not isinstance(must, bool):
            self.fail((*key, "must"), f"expected true or false, got {show(must)}")
        if must:
            if "weight" in entry:
                self.fail((*key, "weight"), "a meeting that must be held has no weight; leave one of the two out")
            return None
        return self.number((*key, "weight"), entry.get("weight", 1))

    def rooms_for(self, key: Key, entry: dict[str, Any], people: int) -> tuple[int, ...]:
        """Return the rooms in which a meeting may take place: those named (or all) that hold its participants."""
        given = entry.get("room", "any" if self.rooms else "none")
        if given in (None, "none"):
            return ()
        names = [room.name for room in self.rooms]
        requested = names if given == "any" else [str(n) for n in (given if isinstance(given, list) else [given])]
        rooms = [self.one_of((*key, "room"), name, names, "rooms") for name in requested]
        large = [r for r in rooms if self.rooms[r].capacity is None or (self.rooms[r].capacity or 0) >= people]
        if not large:
            self.fail((*key, "room") if "room" in entry else key, f"none of its rooms holds {people} people")
        return tuple(dict.fromkeys(large))

    def preferences(self, key: Key, given: Any) -> tuple[tuple[Mask, Number, str], ...]:
        """Return preferences: a mapping of rules to utilities, or a list of rules with utility 1 each."""
        if isinstance(given, str):
            given = [given]
        if isinstance(given, list):
            given = {str(rule): 1 for rule in given}
        if not isinstance(given, dict):
            self.fail(key, f"expected rules with their utilities, such as {{mornings: 3}}, got {show(given)}")
        return tuple(
            (self.rule((*key, rule), rule, False), self.number((*key, rule), points), rule)
            for rule, points in given.items()
        )

    def any_of(self, key: Key, given: Any, touching: bool = False) -> Mask:
        """Return the slots that match at least one of several rules.

        With ``touching`` a slot also matches if it lies only partly within a rule's times.
        """
        rules = given if isinstance(given, list) else [given]
        mask = np.zeros(self.grid.size, dtype=bool)
        for rule in rules:
            mask |= self.rule(key, self.string(key, rule), touching)
        return mask

    def rule(self, key: Key, rule: str, touching: bool) -> Mask:
        """Return the slots that match a rule."""
        return self.parsed(key, lambda text: mask_of(text, self.grid, touching), rule)

    def section(self, name: str) -> dict[str, Any]:
        """Return a section with named entries; a missing section is empty."""
        entry = self.data.get(name)
        if entry is not None and not isinstance(entry, dict):
            self.fail((name,), f"expected names with their properties, got {show(entry)}")
        return entry or {}

    def mapping(self, key: Key, entry: Any, known: Sequence[str]) -> dict[str, Any]:
        """Return the keys of an entry after a check that they are known."""
        if entry is None:
            return {}
        if not isinstance(entry, dict):
            self.fail(key, f"expected some of the keys {', '.join(known)}, got {show(entry)}")
        self.check_keys(key, entry, known)
        return entry

    def check_keys(self, key: Key, entry: dict[str, Any], known: Sequence[str]) -> None:
        """Check that all keys are known."""
        for name in entry:
            if name not in known:
                self.fail((*key, name), f"unknown key; {suggestion(name, known)}")

    def one_of(self, key: Key, name: str, names: Sequence[str], what: str) -> int:
        """Return the index of a name in a list of names."""
        if name not in names:
            self.fail(key, f"{show(name)} is not among the {what}; {suggestion(name, names[:50], what)}")
        return names.index(name)

    def integer(self, key: Key, given: Any, low: int, high: int) -> int:
        """Return an integer between two bounds."""
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            self.fail(key, f"expected a whole number from {low} to {high}, got {show(given)}")
        return given

    def number(self, key: Key, given: Any) -> Number:
        """Return a number of limited size."""
        if isinstance(given, bool) or not isinstance(given, int | float) or not -_MAX_UTILITY <= given <= _MAX_UTILITY:
            self.fail(key, f"expected a number from -{_MAX_UTILITY} to {_MAX_UTILITY}, got {show(given)}")
        return given

    def string(self, key: Key, given: Any) -> str:
        """Return a string."""
        if not isinstance(given, str):
            example = "09:00-17:00" if key == ("hours",) else f"a rule, such as {EXAMPLES}"
            self.fail(key, f"expected {example}, got {show(given)}")
        return given

    def parsed(self, key: Key, parse: Callable[[str], T], text: str) -> T:
        """Return the parsed value of a text; a ``ValueError`` becomes an error with its place in the file."""
        try:
            return parse(text)
        except ValueError as error:
            self.fail(key, str(error))

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise the error that names the line and the key."""
        raise FileError(f"{self.document.at(key)}: {message}")
