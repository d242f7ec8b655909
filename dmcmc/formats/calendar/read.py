"""Read a calendar file: YAML by the safe loader, errors by line."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from itertools import pairwise
from typing import Any, NoReturn, TypeVar
from zoneinfo import ZoneInfo

import numpy as np

from dmcmc.config.document import Document, Key, show
from dmcmc.config.validate import suggestion
from dmcmc.config.yaml_lines import read_data
from dmcmc.files.text import Source
from dmcmc.formats.calendar.plan import Calendar, Grid, Mask, Meeting, Person, Room
from dmcmc.formats.calendar.rules import KNOWN, date_of, mask_of, span_of
from dmcmc.inference.runtime.errors import DmcmcError, FileError
from dmcmc.inference.runtime.types import Number

T = TypeVar("T")

_SECTIONS = ("calendar", "first_day", "days", "hours", "slot", "timezone", "people", "rooms", "travel", "meetings")
_PERSON = ("busy", "prefer")
_ROOM = ("capacity", "busy")
_MEETING = ("people", "slots", "must", "weight", "when", "room", "prefer")
_MOST_DAYS, _MOST_SLOTS = 366, 20_000
_MOST = 10**9  # points and weights


def read_calendar(source: Source) -> Calendar:
    """Read a calendar file.

    Raises
    ------
    FileError
        Names the line, the key, and what would be right.
    """
    try:
        return _Reader(read_data(source.data, source.name)).calendar()
    except FileError:
        raise
    except DmcmcError as error:
        raise FileError(str(error)) from None


class _Reader:
    def __init__(self, document: Document) -> None:
        self.document, self.data = document, document.data
        self.known((), self.data, _SECTIONS)
        self.grid = self.read_grid()

    def calendar(self) -> Calendar:
        """Read everything."""
        self.rooms = tuple(self.room(name, about) for name, about in self.section("rooms").items())
        self.people = tuple(self.person(name, about) for name, about in self.section("people").items())
        if not self.people:
            self.fail(("people",), "expected people by name, such as Ann: {}")
        travel = self.travel()
        meetings = tuple(self.meeting(name, about) for name, about in self.section("meetings").items())
        if not meetings:
            self.fail(("meetings",), "expected meetings by name, such as Stand-up: {people: [Ann, Bob], slots: 1}")
        name = str(self.data.get("calendar") or "Calendar")
        return Calendar(name, self.grid, self.people, self.rooms, travel, meetings, self.timezone())

    def read_grid(self) -> Grid:
        days = self.days()
        opens, closes = self.understood(("hours",), span_of, self.word(("hours",), self.data.get("hours", "")))
        minutes = self.whole(("slot",), self.data.get("slot", 30), 1, 24 * 60)
        slots = (closes - opens) // minutes
        if not 0 < slots * len(days) <= _MOST_SLOTS:
            self.fail(("slot",), f"{slots} slots on each of {len(days)} days; 1 to {_MOST_SLOTS} in all are allowed")
        return Grid(tuple(days), opens, slots, minutes)

    def days(self) -> list[date]:
        """Return the days: as listed, or so many from the first one on, without Saturdays and Sundays."""
        given = self.data.get("days")
        if isinstance(given, list):
            days = [self.understood(("days",), date_of, str(day)) for day in given]
            if not 0 < len(days) <= _MOST_DAYS or any(a >= b for a, b in pairwise(days)):
                self.fail(("days",), f"expected 1 to {_MOST_DAYS} days, each after the one before")
            return days
        count = self.whole(("days",), given, 1, _MOST_DAYS)
        day = self.understood(("first_day",), date_of, str(self.data.get("first_day", "")))
        if day.year > 9000:
            self.fail(("first_day",), "expected a year before 9000")
        days = []
        while len(days) < count:
            if day.weekday() < 5:
                days.append(day)
            day += timedelta(days=1)
        return days

    def timezone(self) -> str:
        name = str(self.data.get("timezone") or "")
        if name:
            try:
                ZoneInfo(name)
            except (OSError, ValueError, KeyError):
                self.fail(("timezone",), f"expected a time zone such as Europe/Berlin, got {show(name)}")
        return name

    def room(self, name: str, about: Any) -> Room:
        key = ("rooms", name)
        about = self.mapping(key, about, _ROOM)
        given = about.get("capacity")
        capacity = None if given is None else self.whole((*key, "capacity"), given, 1, 10**6)
        return Room(name, capacity, self.any_of((*key, "busy"), about.get("busy", []), touching=True))

    def person(self, name: str, about: Any) -> Person:
        key = ("people", name)
        about = self.mapping(key, about, _PERSON)
        busy = self.any_of((*key, "busy"), about.get("busy", []), touching=True)
        return Person(name, busy, self.likes((*key, "prefer"), about.get("prefer", {})))

    def travel(self) -> dict[tuple[int, int], int]:
        """Return minutes by pairs of rooms, in both orders."""
        names, found = [room.name for room in self.rooms], {}
        for pair, given in self.section("travel").items():
            ends = [end.strip() for end in pair.split(" - ")]
            if len(ends) != 2:
                self.fail(("travel", pair), "expected two rooms with ' - ' between them, such as Blue - Red: 10")
            a, b = (self.one_of(("travel", pair), end, names, "rooms") for end in ends)
            found[a, b] = found[b, a] = self.whole(("travel", pair), given, 0, 24 * 60)
        return found

    def meeting(self, name: str, about: Any) -> Meeting:
        key = ("meetings", name)
        about = self.mapping(key, about, _MEETING)
        given = about.get("people")
        if not isinstance(given, list) or not given:
            self.fail((*key, "people"), f"expected a list of people, such as [Ann, Bob], got {show(given)}")
        names = [person.name for person in self.people]
        people = tuple(self.one_of((*key, "people"), str(person), names, "people") for person in given)
        if len({*people}) < len(people):
            self.fail((*key, "people"), "somebody stands twice")
        length = self.whole((*key, "slots"), about.get("slots", 1), 1, _MOST_SLOTS)
        if length > self.grid.slots:
            self.fail((*key, "slots"), f"a day has {self.grid.slots} slots; no meeting may be longer")
        whenever = np.ones(self.grid.size, dtype=bool)
        return Meeting(
            name=name,
            people=people,
            length=length,
            weight=self.weight(key, about),
            allowed=self.any_of((*key, "when"), about["when"]) if "when" in about else whenever,
            rooms=self.rooms_for(key, about, len(people)),
            likes=self.likes((*key, "prefer"), about.get("prefer", {})),
        )

    def weight(self, key: Key, about: dict[str, Any]) -> Number | None:
        """Return what it is worth to hold a meeting; None if it must be held."""
        must = about.get("must", "weight" not in about)
        if not isinstance(must, bool):
            self.fail((*key, "must"), f"expected true or false, got {show(must)}")
        if must:
            if "weight" in about:
                self.fail((*key, "weight"), "a meeting that must be held has no weight; leave one of the two out")
            return None
        return self.number((*key, "weight"), about.get("weight", 1))

    def rooms_for(self, key: Key, about: dict[str, Any], people: int) -> tuple[int, ...]:
        """Return the rooms that a meeting may be in: of those named, or of all, the ones that hold its people."""
        given = about.get("room", "any" if self.rooms else "none")
        if given in (None, "none"):
            return ()
        names = [room.name for room in self.rooms]
        asked = names if given == "any" else [str(n) for n in (given if isinstance(given, list) else [given])]
        rooms = [self.one_of((*key, "room"), name, names, "rooms") for name in asked]
        large = [r for r in rooms if self.rooms[r].capacity is None or (self.rooms[r].capacity or 0) >= people]
        if not large:
            self.fail((*key, "room") if "room" in about else key, f"none of its rooms holds {people} people")
        return tuple(dict.fromkeys(large))

    def likes(self, key: Key, given: Any) -> tuple[tuple[Mask, Number, str], ...]:
        """Return preferences: rules with what they are worth, or a list of rules that are worth 1 each."""
        if isinstance(given, str):
            given = [given]
        if isinstance(given, list):
            given = {str(rule): 1 for rule in given}
        if not isinstance(given, dict):
            self.fail(key, f"expected rules with what they are worth, such as {{mornings: 3}}, got {show(given)}")
        return tuple(
            (self.rule((*key, rule), rule, False), self.number((*key, rule), points), rule)
            for rule, points in given.items()
        )

    def any_of(self, key: Key, given: Any, touching: bool = False) -> Mask:
        """Return the slots that one of some rules means."""
        rules = given if isinstance(given, list) else [given]
        mask = np.zeros(self.grid.size, dtype=bool)
        for rule in rules:
            mask |= self.rule(key, self.word(key, rule), touching)
        return mask

    def rule(self, key: Key, rule: str, touching: bool) -> Mask:
        return self.understood(key, lambda text: mask_of(text, self.grid, touching), rule)

    def section(self, name: str) -> dict[str, Any]:
        about = self.data.get(name)
        if about is not None and not isinstance(about, dict):
            self.fail((name,), f"expected names with what is said of each, got {show(about)}")
        return about or {}

    def mapping(self, key: Key, about: Any, known: Sequence[str]) -> dict[str, Any]:
        if about is None:
            return {}
        if not isinstance(about, dict):
            self.fail(key, f"expected some of the keys {', '.join(known)}, got {show(about)}")
        self.known(key, about, known)
        return about

    def known(self, key: Key, about: dict[str, Any], known: Sequence[str]) -> None:
        for name in about:
            if name not in known:
                self.fail((*key, name), f"unknown key; {suggestion(name, known)}")

    def one_of(self, key: Key, name: str, names: Sequence[str], what: str) -> int:
        if name not in names:
            self.fail(key, f"{show(name)} is not among the {what}; {suggestion(name, names[:50], what)}")
        return names.index(name)

    def whole(self, key: Key, given: Any, low: int, high: int) -> int:
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            self.fail(key, f"expected a whole number from {low} to {high}, got {show(given)}")
        return given

    def number(self, key: Key, given: Any) -> Number:
        if isinstance(given, bool) or not isinstance(given, int | float) or not -_MOST <= given <= _MOST:
            self.fail(key, f"expected a number from -{_MOST} to {_MOST}, got {show(given)}")
        return given

    def word(self, key: Key, given: Any) -> str:
        if not isinstance(given, str):
            example = "09:00-17:00" if key == ("hours",) else f"a rule, such as {KNOWN}"
            self.fail(key, f"expected {example}, got {show(given)}")
        return given

    def understood(self, key: Key, parse: Callable[[str], T], text: str) -> T:
        """Return what a text means; what is wrong with it is said with its place."""
        try:
            return parse(text)
        except ValueError as error:
            self.fail(key, str(error))

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise the error that names the line and the key."""
        raise FileError(f"{self.document.at(key)}: {message}")
