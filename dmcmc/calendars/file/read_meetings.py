"""Read the meetings of a calendar file: participants, times, rooms, order, repetitions and availability polls."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dmcmc.calendars.file import plan
from dmcmc.calendars.file.time_rules import CompanionFiles, RuleReader, moment_of
from dmcmc.files.document import Key, show, suggestion
from dmcmc.inference.runtime.types import Number

_KEYS = (
    *("people", "optional", "slots", "must", "weight", "when", "prefer", "room", "prefer_rooms", "after", "before"),
    *("buffer", "early", "repeat", "same", "fixed", "booked", "move_cost", "poll"),
)
_MAX_GAP = 366 * 24 * 60  # minutes between two ordered meetings
_MAX_MEETINGS = 5000  # with all occurrences of repeated meetings
_SAME = ("time", "room")
_ANSWERS = ("yes", "maybe", "no")
_MAX_ROWS = 100_000


class Poll(NamedTuple):
    """The answers of a poll.

    Attributes
    ----------
    starts : (slots,) bool
        The slots that the poll proposes.
    refused : dict of int to (slots,) bool
        By person, the slots with the answer ``no``.
    uncertain : list of (int, int)
        Person and slot of each answer ``maybe``.
    """

    starts: plan.Mask
    refused: dict[int, plan.Mask]
    uncertain: list[tuple[int, int]]


class _Occurrence(NamedTuple):
    """An occurrence of a repeated meeting: the suffix of its name, its days by number, and its week (from 1 on)."""

    suffix: str
    days: tuple[int, ...]
    week: int


class _Order(NamedTuple):
    """The entry of an order in the file: its place, the names of the earlier and the later meeting, and the gap."""

    key: Key
    earlier: str
    later: str
    gap: int


def read_meetings(
    reader: RuleReader,
    people: Sequence[plan.Person],
    rooms: Sequence[plan.MeetingRoom],
    files: CompanionFiles,
    defaults: Mapping[str, Any],
) -> tuple[plan.Meeting, ...]:
    """Read the section ``meetings``; a repeated meeting becomes one meeting per occurrence.

    ``defaults`` has the entries ``early`` and ``move_cost`` of meetings that give none.
    """
    of_meeting = _MeetingReader(reader, people, rooms, files, defaults)
    meetings: list[plan.Meeting] = []
    numbers: dict[str, list[int]] = {}
    for name, entry in reader.section("meetings").items():
        found = of_meeting.meetings(name, entry)
        numbers[name] = [*range(len(meetings), len(meetings) + len(found))]
        meetings += found
    if not meetings:
        reader.fail(("meetings",), "expected meetings by name, such as Stand-up: {people: [Ann, Bob], slots: 1}")
    if len(meetings) > _MAX_MEETINGS:
        reader.fail(
            ("meetings",), f"{len(meetings)} meetings with all repetitions; at most {_MAX_MEETINGS} are allowed"
        )
    for key, earlier, later, gap in of_meeting.orders:
        for name in (earlier, later):
            reader.one_of(key, name, [*numbers], "meetings")
        if earlier == later:
            reader.fail(key, "a meeting cannot be before or after itself")
        pairs = [(a, b) for a in numbers[earlier] for b in numbers[later]]
        if len(numbers[earlier]) == len(numbers[later]):  # two series in step: occurrence by occurrence
            pairs = [*zip(numbers[earlier], numbers[later], strict=True)]
        for a, b in pairs:
            meetings[b] = replace(meetings[b], after=(*meetings[b].after, plan.Precedence(a, gap)))
    return tuple(meetings)


def move_cost_of(reader: RuleReader, key: Key, given: Any, people: int) -> Number:
    """Return the cost of moving a booked meeting: a number, or one for each of its participants."""
    if not isinstance(given, dict):
        return reader.number(key, given, 0)
    each = reader.mapping(key, given, ("per_participant",)).get("per_participant")
    return people * reader.number((*key, "per_participant"), each, 0)


class _MeetingReader:
    """Reader of meetings.

    Attributes
    ----------
    reader : RuleReader
        Checks of entries.
    people, rooms : sequence of Person, MeetingRoom
        The people and rooms of the calendar.
    files : CompanionFiles
        Files that the calendar names.
    defaults : mapping of str to number or dict
        Entries of meetings that give none.
    orders : list of _Order
        The entries ``after`` and ``before`` that were read.
    """

    def __init__(
        self,
        reader: RuleReader,
        people: Sequence[plan.Person],
        rooms: Sequence[plan.MeetingRoom],
        files: CompanionFiles,
        defaults: Mapping[str, Any],
    ) -> None:
        self.reader, self.people, self.rooms = reader, people, rooms
        self.names = [person.name for person in people]
        self.files, self.defaults = files, defaults
        self.orders: list[_Order] = []

    def meetings(self, name: str, entry: Any) -> list[plan.Meeting]:
        """Read one meeting: its occurrences if it is repeated, otherwise the meeting alone."""
        key, reader = ("meetings", name), self.reader
        entry = reader.mapping(key, entry, _KEYS)
        meeting = self.meeting(key, name, entry)
        self.orders += self.orders_of(key, name, entry)
        if "poll" in entry or "poll" in reader.document.data:
            meeting = self.with_poll(key, entry, meeting)
        given = entry.get("repeat")
        if given is None:
            if "same" in entry:
                reader.fail((*key, "same"), "is for meetings with 'repeat'")
            return [self.at_given_times(key, entry, meeting, ())]
        if given not in ("weekly", "daily"):
            reader.fail((*key, "repeat"), f"expected weekly or daily, got {show(given)}")
        series = _series(self.reader, key, entry, given == "weekly")
        found = []
        for suffix, days, week in occurrences(reader.grid, given == "weekly"):
            inside = np.isin(np.arange(reader.grid.size) // reader.grid.slots, days)
            when = inside if meeting.when is None else inside & meeting.when.mask
            text = suffix if meeting.when is None else f"{suffix}, {meeting.when.text}"
            one = replace(meeting, name=f"{name}, {suffix}", when=plan.TimeRule(when, text), series=series)
            found.append(self.at_given_times(key, entry, one, (week,)))
        return found

    def meeting(self, key: Key, name: str, entry: dict[str, Any]) -> plan.Meeting:
        """Read the entries of a meeting that need no other meetings."""
        reader = self.reader
        people, optional = self.participants(key, entry)
        length = reader.integer((*key, "slots"), entry.get("slots", 1), 1, 10**6)
        if length > reader.grid.slots:
            reader.fail((*key, "slots"), f"a day has {reader.grid.slots} slots; a meeting cannot be longer")
        rooms = self.rooms_for(key, entry, len(people) + len(optional))
        return plan.Meeting(
            name=name,
            people=people,
            length=length,
            weight=self.weight(key, entry),
            when=reader.any_of((*key, "when"), entry["when"]) if "when" in entry else None,
            rooms=rooms,
            preferences=reader.preferences((*key, "prefer"), entry.get("prefer", {})),
            optional=optional,
            buffer=reader.minutes((*key, "buffer"), entry.get("buffer", 0)),
            early=reader.number((*key, "early"), entry.get("early", self.defaults["early"]), 0),
            room_points=self.room_points(key, entry, rooms),
            move_cost=move_cost_of(reader, (*key, "move_cost"), {**self.defaults, **entry}["move_cost"], len(people)),
        )

    def participants(
        self, key: Key, entry: dict[str, Any]
    ) -> tuple[tuple[int, ...], tuple[plan.OptionalAttendee, ...]]:
        """Return the participants, and the optional ones with the utility of their attendance."""
        reader, given = self.reader, entry.get("people")
        if not isinstance(given, list) or not given:
            reader.fail((*key, "people"), f"expected a list of people, such as [Ann, Bob], got {show(given)}")
        people = tuple(reader.one_of((*key, "people"), str(person), self.names, "people") for person in given)
        place = (*key, "optional")
        weights = reader.numbers(place, entry.get("optional", {}), "people, such as {Cem: 2} or [Cem]", 0)
        optional = tuple(
            plan.OptionalAttendee(reader.one_of((*place, name), name, self.names, "people"), weight)
            for name, weight in weights.items()
        )
        if len({*people}) < len(people):
            reader.fail((*key, "people"), "a person occurs twice")
        for attendee in optional:
            if attendee.person in people:
                reader.fail(place, f"{self.names[attendee.person]} is among the people who must attend")
        return people, optional

    def weight(self, key: Key, entry: dict[str, Any]) -> Number | None:
        """Return the utility of holding a meeting; None if it must be held."""
        must = entry.get("must", "weight" not in entry)
        if not isinstance(must, bool):
            self.reader.fail((*key, "must"), f"expected true or false, got {show(must)}")
        if must:
            if "weight" in entry:
                self.reader.fail(
                    (*key, "weight"), "a meeting that must be held has no weight; leave one of the two out"
                )
            return None
        return self.reader.number((*key, "weight"), entry.get("weight", 1))

    def rooms_for(self, key: Key, entry: dict[str, Any], people: int) -> tuple[int, ...]:
        """Return the rooms in which a meeting may take place: those named (or all) that hold its participants."""
        reader, given = self.reader, entry.get("room", "any" if self.rooms else "none")
        if given in (None, "none"):
            return ()
        names = [room.name for room in self.rooms]
        requested = names if given == "any" else [str(n) for n in (given if isinstance(given, list) else [given])]
        rooms = [reader.one_of((*key, "room"), name, names, "rooms") for name in requested]
        large = [r for r in rooms if self.rooms[r].capacity is None or (self.rooms[r].capacity or 0) >= people]
        if not large:
            reader.fail((*key, "room") if "room" in entry else key, f"none of its rooms holds {people} people")
        return tuple(dict.fromkeys(large))

    def room_points(self, key: Key, entry: dict[str, Any], rooms: tuple[int, ...]) -> dict[int, Number]:
        """Return the utility of rooms."""
        place, possible = (*key, "prefer_rooms"), [self.rooms[r].name for r in rooms]
        points = self.reader.numbers(place, entry.get("prefer_rooms", {}), "rooms with points, such as {Blue: 2}")
        return {
            rooms[self.reader.one_of((*place, name), name, possible, "rooms of this meeting")]: number
            for name, number in points.items()
        }

    def orders_of(self, key: Key, name: str, entry: dict[str, Any]) -> list[_Order]:
        """Return the entries ``after`` and ``before``: names of meetings, or names with the minutes between the two."""
        found = []
        for word in ("after", "before"):
            given, place = entry.get(word, []), (*key, word)
            if isinstance(given, str):
                given = [given]
            if not isinstance(given, list | dict):
                self.reader.fail(place, f"expected meetings, such as [Kick-off] or {{Kick-off: 60}}, got {show(given)}")
            gaps = given if isinstance(given, dict) else {str(other): 0 for other in given}
            for other, gap in gaps.items():
                minutes = self.reader.integer((*place, other), gap, 0, _MAX_GAP)
                earlier, later = (other, name) if word == "after" else (name, other)
                found.append(_Order((*place, other) if isinstance(given, dict) else place, earlier, later, minutes))
        return found

    def with_poll(self, key: Key, entry: dict[str, Any], meeting: plan.Meeting) -> plan.Meeting:
        """Return a meeting that takes place at a slot of a poll; ``maybe`` of a participant costs points."""
        reader, place = self.reader, (*key, "poll") if "poll" in entry else ("poll",)
        given = entry.get("poll", reader.document.data.get("poll"))
        if given in (None, "none"):
            return meeting
        options = reader.mapping(place, {"csv": given} if isinstance(given, str) else given, ("csv", "maybe"))
        file = reader.string(place, options.get("csv"), "the name of a CSV file, such as poll.csv")
        points = reader.number((*place, "maybe"), options.get("maybe", -1))
        poll = reader.parsed(place, self._poll, file)
        invited = {*meeting.people, *(attendee.person for attendee in meeting.optional)}
        uncertain = [(p, slot) for p, slot in poll.uncertain if p in invited and points]
        slots = np.arange(reader.grid.size)
        costs = (
            plan.Preference((slots >= slot) & (slots < slot + meeting.length), points, f"maybe of {self.names[p]}")
            for p, slot in uncertain
        )
        return replace(
            meeting,
            starts=plan.TimeRule(poll.starts, f"at a slot of {file}"),
            refused={p: mask for p, mask in poll.refused.items() if p in invited},
            preferences=(*meeting.preferences, *costs),
        )

    def _poll(self, file: str) -> Poll:
        """Return the answers of a poll."""
        return read_poll(self.files.text(file), file, self.reader.grid, self.names)

    def at_given_times(
        self, key: Key, entry: dict[str, Any], meeting: plan.Meeting, weeks: tuple[int, ...]
    ) -> plan.Meeting:
        """Return a meeting with the start of ``fixed`` and the time and room of ``booked``, if they are given."""
        reader = self.reader
        if "fixed" in entry:
            text = reader.string((*key, "fixed"), entry["fixed"], "a time, such as 2027-03-01 10:00 or Mon 10:00")
            start = reader.parsed((*key, "fixed"), lambda words: moment_of(words, reader.grid, weeks), text)
            mask = np.arange(reader.grid.size) == start
            meeting = replace(meeting, starts=plan.TimeRule(mask, f"fixed at {text}"))
        if "booked" in entry:
            place, given = (*key, "booked"), entry["booked"]
            options = reader.mapping(place, {"start": given} if isinstance(given, str) else given, ("start", "room"))
            text = reader.string(place, options.get("start"), "a time, such as 2027-03-01 10:00")
            start = reader.parsed(place, lambda words: moment_of(words, reader.grid, weeks), text)
            names = [room.name for room in self.rooms]
            given = options.get("room")
            room = None if given is None else reader.one_of((*place, "room"), str(given), names, "rooms")
            meeting = replace(meeting, booked=plan.MeetingChoice(start, room))
        return meeting


def _series(reader: RuleReader, key: Key, entry: dict[str, Any], weekly: bool) -> plan.SeriesRule:
    """Return what the occurrences of a repeated meeting have in common: ``same`` is time, room, both or none."""
    given = entry.get("same", [*_SAME])
    same = [] if given == "none" else given if isinstance(given, list) else [given]
    if any(word not in _SAME for word in same):
        reader.fail((*key, "same"), f"expected time, room, a list of both, or none, got {show(given)}")
    return plan.SeriesRule(key[-1], weekly, "time" in same, "room" in same)


def occurrences(grid: plan.TimeGrid, weekly: bool) -> list[_Occurrence]:
    """Return the occurrences of a repeated meeting: one for each week, or each day, of the grid."""
    first_monday = grid.days[0].toordinal() - grid.days[0].weekday()
    weeks = [(day.toordinal() - first_monday) // 7 + 1 for day in grid.days]
    if not weekly:
        return [_Occurrence(f"{day:%a} {day.day} {day:%b}", (i,), weeks[i]) for i, day in enumerate(grid.days)]
    return [
        _Occurrence(f"week {week}", tuple(i for i, other in enumerate(weeks) if other == week), week)
        for week in dict.fromkeys(weeks)
    ]


def read_poll(text: str, name: str, grid: plan.TimeGrid, people: Sequence[str]) -> Poll:
    """Read a poll.

    Parameters
    ----------
    text
        The file, with one line per answer: ``Ann,2027-03-01 10:00,maybe``. The first line may have column names.
    name
        Its name, for errors.
    grid
        Days and slots.
    people
        The names of all people of the calendar.

    Raises
    ------
    ValueError
        If a line is not valid; the message names the file and the line.
    """
    starts = np.zeros(grid.size, dtype=bool)
    refused: dict[int, plan.Mask] = {}
    uncertain = []
    rows = csv.reader(io.StringIO(text))
    for row in rows:
        at = f"{name}:{rows.line_num}"
        cells = [cell.strip() for cell in row]
        if not any(cells) or (rows.line_num == 1 and cells[-1].lower() not in _ANSWERS):
            continue
        if rows.line_num > _MAX_ROWS:
            raise ValueError(f"{at}: a poll has at most {_MAX_ROWS} lines")
        if len(cells) != 3:
            raise ValueError(f"{at}: expected name, slot and answer, such as 'Ann,2027-03-01 10:00,yes'")
        person, moment, answer = cells[0], cells[1], cells[2].lower()
        if person not in people:
            raise ValueError(f"{at}: {person!r} is not among the people; {suggestion(person, people[:50], 'people')}")
        if answer not in _ANSWERS:
            raise ValueError(f"{at}: expected yes, maybe or no, got {cells[2]!r}")
        try:
            slot = moment_of(moment, grid)
        except ValueError as error:
            raise ValueError(f"{at}: {error}") from None
        starts[slot] = True
        if answer == "no":
            refused.setdefault(people.index(person), np.zeros(grid.size, dtype=bool))[slot] = True
        elif answer == "maybe":
            uncertain.append((people.index(person), slot))
    if not starts.any():
        raise ValueError(f"{name}: has no answers, such as 'Ann,2027-03-01 10:00,yes'")
    return Poll(starts, refused, uncertain)
