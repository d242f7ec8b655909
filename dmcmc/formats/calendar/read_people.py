"""Read the people of a calendar file: busy times, working hours, preferences and limits per day."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dmcmc.config.document import Key, show
from dmcmc.formats.calendar.companions import CompanionFiles
from dmcmc.formats.calendar.data.plan import Appointment, LunchBreak, Person, TimeRule
from dmcmc.formats.calendar.data.rules import span_of
from dmcmc.formats.calendar.entries import RuleReader
from dmcmc.formats.calendar.ics_events import busy_rules
from dmcmc.inference.runtime.types import Number

_KEYS = ("busy", "prefer", "hours", "timezone", "buffer", "max_per_day", "max_in_a_row", "lunch", "no_gaps")
_BUSY_KEYS = ("ics", "when", "cost")  # of an entry of busy that is no rule
_LUNCH_MINUTES = 30  # length of a lunch break that the file does not give
_MAX_MEETINGS = 1000  # limit for max_per_day


class _Entry(NamedTuple):
    """An entry of a person or of everyone: its place in the file and its contents."""

    key: Key
    given: Any


def read_people(reader: RuleReader, files: CompanionFiles) -> tuple[Person, ...]:
    """Read the sections ``everyone`` and ``people``; a person's own entry replaces that of everyone."""
    everyone = reader.mapping(("everyone",), reader.document.data.get("everyone"), _KEYS)
    defaults = {name: _Entry(("everyone", name), given) for name, given in everyone.items()}
    people = []
    for name, entry in reader.section("people").items():
        own = reader.mapping(("people", name), entry, _KEYS)
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

    def person(self, name: str) -> Person:
        """Read all entries."""
        reader = self.reader
        key, given = self.entry("max_per_day")
        max_per_day = None if given is None else reader.integer(key, given, 1, _MAX_MEETINGS)
        key, given = self.entry("max_in_a_row")
        max_in_a_row = None if given is None else reader.minutes(key, given)
        if max_in_a_row is not None and max_in_a_row < reader.grid.minutes:
            reader.fail(key, f"expected at least the {reader.grid.minutes} minutes of a slot, got {max_in_a_row}")
        busy = self.busy(name)
        return Person(
            name=name,
            busy_times=tuple(rule for rule, cost in busy if cost is None),
            appointments=tuple(Appointment(rule.mask, cost, rule.text) for rule, cost in busy if cost is not None),
            away_times=self.away_times(),
            preferences=reader.preferences(*self.entry("prefer", {}), self.zone),
            buffer=reader.minutes(*self.entry("buffer", 0)),
            max_per_day=max_per_day,
            max_in_a_row=max_in_a_row,
            lunch=self.lunch(),
            no_gaps=reader.number(*self.entry("no_gaps", 0), low=0),
        )

    def busy(self, person: str) -> list[tuple[TimeRule, Number | None]]:
        """Return rules for times and events of iCalendar files, each with its cost; None: no meeting may overlap it."""
        reader, (key, given) = self.reader, self.entry("busy", [])
        rules: list[tuple[TimeRule, Number | None]] = []
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

    def _events(self, person: str, file: str) -> tuple[TimeRule, ...]:
        """Return the busy times of an iCalendar file."""
        return busy_rules(self.files.read(file).data, file, self.reader.grid, self.zone, person)

    def away_times(self) -> tuple[TimeRule, ...]:
        """Return the times outside the person's working hours, in the person's time zone."""
        key, given = self.entry("hours")
        if given is None:
            return ()
        begin, end = self.reader.parsed(key, span_of, self.reader.string(key, given, "hours, such as 09:00-17:00"))
        away = self.reader.grid.local_times(self.zone).outside(begin, end)
        return (TimeRule(away, f"outside {given}" + (f" in {self.zone}" if self.zone else "")),)

    def lunch(self) -> LunchBreak | None:
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
        return LunchBreak(windows, slots, hours)
