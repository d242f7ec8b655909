"""A calendar as its file describes it: people, rooms, meetings and their rules on a time grid, and what is booked.

A *slot* is a period of fixed length on one day; every day has the same slots, and other time zones have their local
times. Arrays marked (slots,) have one entry per slot of the whole calendar. Durations are in minutes unless their name
says slots. When a calendar is planned anew, the meetings of an earlier answer are taken as booked.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, cached_property
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.document import show
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Array, Number

Mask = NDArray[np.bool_]
DAY_MINUTES = 24 * 60


class LocalTimes(NamedTuple):
    """Local times of all slots in one time zone. A slot in which the clocks change has two pieces, all others one.

    Attributes
    ----------
    slot : (pieces,) int64
        The slot of each piece, in ascending order.
    day : (pieces,) int64
        Proleptic Gregorian ordinal of the day on which each piece starts (``date.toordinal``).
    begin, end : (pieces,) int64
        Start and end of each piece in minutes after midnight of its day.
    """

    slot: NDArray[np.int64]
    day: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]

    def slots_with(self, pieces: Mask) -> Mask:
        """Return the slots that have a marked piece, as a (slots,) bool array."""
        marked = np.zeros(self.slot[-1] + 1, dtype=bool)
        marked[self.slot[pieces]] = True
        return marked

    def outside(self, begin: int, end: int) -> Mask:
        """Return the slots that lie partly outside a span in minutes after midnight, as a (slots,) bool array."""
        return self.slots_with((self.begin < begin) | (self.end > end))


@dataclass(frozen=True)
class TimeGrid:
    """The slots of all days. Slot ``s`` of day ``d`` has the number ``d * slots + s``.

    Slots are elapsed time in the calendar's time zone. On a day on which the clocks change, the hours of the calendar
    have fewer or more slots than on others. All days have the slots of the longest one; those that do not lie within
    the hours are closed.

    Attributes
    ----------
    days : tuple of date
        The days, in ascending order.
    opens : int
        Start of the first slot of each day, in minutes after midnight.
    ordinary_slots : int
        Slots of a day on which the clocks do not change.
    minutes : int
        Length of a slot in minutes.
    timezone : str
        Name of the time zone of these times; empty if the file gives none.
    """

    days: tuple[date, ...]
    opens: int
    ordinary_slots: int
    minutes: int
    timezone: str = ""

    @property
    def closes(self) -> int:
        """End of the last slot of an ordinary day, in minutes after midnight."""
        return self.opens + self.ordinary_slots * self.minutes

    @cached_property
    def slots(self) -> int:
        """Slots per day."""
        seconds = [_instant(self, day, self.closes, 1) - _instant(self, day, self.opens) for day in self.days]
        return max(self.ordinary_slots, max(seconds) // (60 * self.minutes))

    @property
    def size(self) -> int:
        """Total number of slots."""
        return len(self.days) * self.slots

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Start of each slot in seconds since 1970 in UTC, as (slots,) int64; local times if there is no time zone."""
        first = np.array([_instant(self, day, self.opens) for day in self.days], dtype=np.int64)
        return (first[:, None] + np.arange(self.slots) * (60 * self.minutes)).reshape(-1)

    @cached_property
    def open(self) -> Mask:
        """The slots that lie within the calendar's hours, as a (slots,) bool array."""
        local = self.local_times()
        days = np.array([day.toordinal() for day in self.days], dtype=np.int64)[local.slot // self.slots]
        return ~(local.outside(self.opens, self.closes) | local.slots_with(local.day != days))

    def moment(self, slot: int, length: int = 0) -> datetime:
        """Return the start of a slot, or the end of a meeting of ``length`` slots that starts there, as local time.

        The time has no time zone; its ``fold`` is 1 if it is the second of two equal local times.
        """
        seconds = int(self.starts[slot]) + length * self.minutes * 60
        return self.local(datetime.fromtimestamp(seconds, UTC))

    def local(self, moment: datetime) -> datetime:
        """Return a moment as a time of the grid, without a time zone; a time without one is already local."""
        if moment.tzinfo is None:
            return moment
        return moment.astimezone(ZoneInfo(self.timezone or "UTC")).replace(tzinfo=None)

    def unique(self, moment: datetime, offset: str = "") -> datetime:
        """Return a local time with its fold; ``offset`` such as ``+01:00`` says which of two equal times is meant.

        Raises
        ------
        ValueError
            If the time does not exist, if it exists twice and there is no offset, or if it never has this offset.
        """
        first, second = (moment.replace(tzinfo=ZoneInfo(self.timezone or "UTC"), fold=fold) for fold in (0, 1))
        day = f"on {moment:%Y-%m-%d}, when clocks in {self.timezone} change"
        if self.local(first.astimezone(UTC)) != moment:
            raise ValueError(f"{moment:%H:%M} does not exist {day}")
        named = {x.isoformat(" ", "minutes"): x.replace(tzinfo=None) for x in (second, first)}
        if offset:
            named = {name: x for name, x in named.items() if name.endswith(offset)}
        if not named:
            raise ValueError(f"{moment:%H:%M} does not have the offset {offset} in {self.timezone or 'UTC'}")
        if len(named) > 1:
            raise ValueError(f"{moment:%H:%M} exists twice {day}; give {' or '.join(sorted(named))}")
        return next(iter(named.values()))

    def clock(self, moment: datetime) -> str:
        """Return the time of day of a local time, with the name of its offset if two times of the day are equal."""
        first, second = (moment.replace(tzinfo=ZoneInfo(self.timezone or "UTC"), fold=fold) for fold in (0, 1))
        is_unique = first.utcoffset() == second.utcoffset()
        return f"{moment:%H:%M}" if is_unique else f"{moment:%H:%M} {(first, second)[moment.fold].tzname()}"

    def slot_at(self, moment: datetime) -> int | None:
        """Return the slot that starts at a local time; None if no slot starts then."""
        aware = moment.replace(tzinfo=ZoneInfo(self.timezone or "UTC"))
        slots = np.flatnonzero((self.starts == aware.timestamp()) & self.open)
        return int(slots[0]) if len(slots) and self.moment(int(slots[0])) == moment else None

    def slots_of(self, minutes: int) -> int:
        """Return the number of slots that a duration takes, rounded up."""
        return -(-minutes // self.minutes)

    def start_mask(self, free: Mask, length: int) -> Mask:
        """Return at which slots ``length`` consecutive free slots of one day begin, as a (slots,) bool array.

        Closed slots are not free.

        Parameters
        ----------
        free
            (slots,) bool.
        length
            Number of consecutive slots.
        """
        found = np.zeros((len(self.days), self.slots), dtype=bool)
        if length <= self.slots:
            by_day = (free & self.open).reshape(found.shape)
            windows = np.lib.stride_tricks.sliding_window_view(by_day, length, axis=1)
            found[:, : self.slots - length + 1] = windows.all(axis=2)
        return found.reshape(-1)

    def widened(self, mask: Mask, minutes: int) -> Mask:
        """Return a mask with the slots of the same day that are less than ``minutes`` before or after it."""
        by_day = mask.reshape(len(self.days), self.slots)
        wide = by_day.copy()
        for shift in range(1, min(self.slots_of(minutes), self.slots - 1) + 1):
            wide[:, shift:] |= by_day[:, :-shift]
            wide[:, :-shift] |= by_day[:, shift:]
        return wide.reshape(-1)

    def within(self, begin: datetime, end: datetime, zone: str = "") -> Mask:
        """Return the slots that overlap the time from ``begin`` to ``end``, as a (slots,) bool array.

        Parameters
        ----------
        begin, end
            Times with a time zone, or local times in ``zone``.
        zone
            The time zone of local times; empty for the grid's.
        """
        source = ZoneInfo(zone or self.timezone or "UTC")
        low, high = (  # of two equal local times, the first begin and the last end
            (moment if moment.tzinfo is not None else moment.replace(tzinfo=source, fold=fold)).timestamp()
            for fold, moment in enumerate((begin, end))
        )
        return np.asarray((self.starts < high) & (self.starts + 60 * self.minutes > low))

    def local_times(self, zone: str = "") -> LocalTimes:
        """Return the local times of all slots in a time zone; empty for the grid's."""
        return _local_times(self, zone or self.timezone or "UTC")


def _instant(grid: TimeGrid, day: date, minutes: int, fold: int = 0) -> int:
    """Return a local time in seconds since 1970 in UTC; ``fold`` 1 is the second of two equal local times."""
    moment = datetime.combine(day, time()) + timedelta(minutes=minutes)
    return int(moment.replace(tzinfo=ZoneInfo(grid.timezone or "UTC"), fold=fold).timestamp())


@cache
def _local_times(grid: TimeGrid, zone: str) -> LocalTimes:
    """Return the local times of all slots in a time zone."""
    target, pieces = ZoneInfo(zone), list[tuple[int, int, int, int]]()

    def local(slot: int, minute: int) -> datetime:
        """Return the local time some minutes after the start of a slot."""
        return datetime.fromtimestamp(starts[slot] + 60 * minute, target)

    starts = grid.starts.tolist()
    for slot in range(grid.size):
        first, change = local(slot, 0), grid.minutes
        if local(slot, change - 1).utcoffset() != first.utcoffset():
            change = next(i for i in range(1, change) if local(slot, i).utcoffset() != first.utcoffset())
        for moment, length in ((first, change), (local(slot, change), grid.minutes - change)):
            if length:
                begin = moment.hour * 60 + moment.minute
                pieces.append((slot, moment.toordinal(), begin, begin + length))
    return LocalTimes(*np.array(pieces, dtype=np.int64).T)


NOT_HELD = "not held"
NOT_ATTENDING = "not attending"
DEFAULT_MOVE_COST = 5  # utility lost by moving a booked meeting


class TimeRule(NamedTuple):
    """A rule for times: the slots that match it, as (slots,) bool, and its text in the file."""

    mask: Mask
    text: str


class Preference(NamedTuple):
    """A preference: the slots of its rule, the utility of a meeting whose slots all match it, and the rule's text."""

    mask: Mask
    points: Number
    text: str


class Appointment(NamedTuple):
    """An appointment that may give way to meetings.

    Attributes
    ----------
    mask : (slots,) bool
        Its slots.
    cost : number
        Utility lost by each meeting of the person that overlaps it.
    text : str
        Its rule or its name in the file.
    """

    mask: Mask
    cost: Number
    text: str


class LunchBreak(NamedTuple):
    """A break that each day leaves free.

    Attributes
    ----------
    windows : tuple of tuple of int
        For each day the consecutive slots within which the break lies.
    slots : int
        Length of the break in slots.
    text : str
        The hours as the file gives them.
    """

    windows: tuple[tuple[int, ...], ...]
    slots: int
    text: str


class Precedence(NamedTuple):
    """An earlier meeting, by its number, and the least number of minutes between its end and the later start."""

    meeting: int
    gap: int


class OptionalAttendee(NamedTuple):
    """A person who need not attend a meeting: the person's number, and the utility of attendance."""

    person: int
    weight: Number


class SeriesRule(NamedTuple):
    """Properties that all occurrences of a repeated meeting share.

    Attributes
    ----------
    name : str
        The name of the repeated meeting.
    day_counts : bool
        Whether the time within a week is compared (``weekly``), or the time of the day only (``daily``).
    same_time, same_room : bool
        Whether all occurrences take place at one time, and in one room.
    """

    name: str
    day_counts: bool
    same_time: bool
    same_room: bool


class Fairness(NamedTuple):
    """Weights of fairness.

    A person's satisfaction is the sum of the points of the own preferences that the calendar keeps.

    Attributes
    ----------
    least_worst : number
        Utility per point of the satisfaction of the least satisfied person.
    spread : number
        Utility lost per point of difference between the most and the least satisfied person.
    """

    least_worst: Number = 0
    spread: Number = 0


NO_FAIRNESS = Fairness()


class MeetingChoice(NamedTuple):
    """A value of a meeting: its first slot and its room (None: no room)."""

    start: int
    room: int | None


@dataclass(frozen=True, eq=False)
class Person:
    """A participant of meetings.

    Attributes
    ----------
    name : str
        Name of the person.
    busy_times : tuple of TimeRule
        When the person is busy; a meeting with a buffer keeps away from these times.
    appointments : tuple of Appointment
        Busy times that may give way.
    away_times : tuple of TimeRule
        Times outside the person's working hours.
    preferences : tuple of Preference
        The person's preferences for the times of meetings.
    buffer : int
        Least number of minutes between two meetings of the person.
    max_per_day : int or None
        Largest number of meetings on one day.
    max_in_a_row : int or None
        Largest number of minutes in meetings without a free slot.
    lunch : LunchBreak or None
        The break that each day leaves free, if the busy times leave it free.
    no_gaps : number
        Utility lost for each free slot between the first and the last meeting of a day.
    """

    name: str
    busy_times: tuple[TimeRule, ...] = ()
    appointments: tuple[Appointment, ...] = ()
    away_times: tuple[TimeRule, ...] = ()
    preferences: tuple[Preference, ...] = ()
    buffer: int = 0
    max_per_day: int | None = None
    max_in_a_row: int | None = None
    lunch: LunchBreak | None = None
    no_gaps: Number = 0


@dataclass(frozen=True, eq=False)
class MeetingRoom:
    """One or several identical rooms, each of which holds one meeting at a time.

    Attributes
    ----------
    name : str
        Name of the room.
    capacity : int or None
        Number of people that it holds; None is unlimited.
    busy_times : tuple of TimeRule
        When the room is taken.
    count : int
        Number of identical rooms of this name.
    """

    name: str
    capacity: int | None
    busy_times: tuple[TimeRule, ...] = ()
    count: int = 1


@dataclass(frozen=True, eq=False)
class Meeting:
    """A meeting to be scheduled.

    Attributes
    ----------
    name : str
        Name of the meeting.
    people : tuple of int
        Indices of the participants.
    length : int
        Duration in slots.
    weight : number or None
        Utility of holding the meeting; None if it must be held.
    when : TimeRule or None
        The slots in which it may take place; None for all.
    rooms : tuple of int
        Rooms of which it needs one; empty if it needs none.
    preferences : tuple of Preference
        Preferences of the meeting itself.
    optional : tuple of OptionalAttendee
        People who may attend.
    after : tuple of Precedence
        Meetings that end before this one starts, if both are held.
    buffer : int
        Minutes that its participants are free before and after it.
    early : number
        Utility lost for each day between the first day of the calendar and the meeting.
    room_points : mapping of int to number
        Utility of rooms.
    starts : TimeRule or None
        The slots at which it may start, from ``fixed`` or a poll; None for all.
    refused : mapping of int to (slots,) bool
        By person, the starts that the person has refused in a poll.
    series : SeriesRule or None
        The series that the meeting is an occurrence of.
    booked : MeetingChoice or None
        The time and the room that are booked; another choice costs ``move_cost``.
    move_cost : number
        Utility lost if the meeting is moved away from ``booked``, or is not held.
    """

    name: str
    people: tuple[int, ...]
    length: int
    weight: Number | None
    when: TimeRule | None = None
    rooms: tuple[int, ...] = ()
    preferences: tuple[Preference, ...] = ()
    optional: tuple[OptionalAttendee, ...] = ()
    after: tuple[Precedence, ...] = ()
    buffer: int = 0
    early: Number = 0
    room_points: Mapping[int, Number] = field(default_factory=dict)
    starts: TimeRule | None = None
    refused: Mapping[int, Mask] = field(default_factory=dict)
    series: SeriesRule | None = None
    booked: MeetingChoice | None = None
    move_cost: Number = DEFAULT_MOVE_COST


@dataclass(frozen=True, eq=False)
class Calendar:
    """Content of a calendar file.

    Attributes
    ----------
    name : str
        Name of the calendar.
    grid : TimeGrid
        Days and slots.
    people : tuple of Person
        The participants.
    rooms : tuple of MeetingRoom
        The rooms.
    travel : mapping of (int, int) to int
        Minutes of travel between two rooms, for both orders of the pair.
    meetings : tuple of Meeting
        The meetings.
    fairness : Fairness
        The weights of fairness.
    """

    name: str
    grid: TimeGrid
    people: tuple[Person, ...]
    rooms: tuple[MeetingRoom, ...]
    travel: Mapping[tuple[int, int], int]
    meetings: tuple[Meeting, ...]
    fairness: Fairness = NO_FAIRNESS

    @cached_property
    def choices(self) -> tuple[tuple[MeetingChoice, ...], ...]:
        """For each meeting, its possible times and rooms if there were no other meetings."""
        return tuple(self._choices(meeting) for meeting in self.meetings)

    @cached_property
    def starts_and_rooms(self) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]:
        """For each meeting the first slots and the rooms (−1 for none) of its choices, both (choices,) int64."""
        arrays = [np.array([(c.start, -1 if c.room is None else c.room) for c in x], np.int64) for x in self.choices]
        return tuple((x.reshape(-1, 2)[:, 0], x.reshape(-1, 2)[:, 1]) for x in arrays)

    def start_mask(self, meeting: Meeting, people: Collection[int], room: int | None = None) -> Mask:
        """Return at which slots a meeting may start if only some of its people and one room count; (slots,) bool."""
        free = np.ones(self.grid.size, dtype=bool) if meeting.when is None else meeting.when.mask.copy()
        for p in people:
            person = self.people[p]
            busy, buffer = union(person.busy_times, self.grid), max(meeting.buffer, person.buffer)
            free &= ~(self.grid.widened(busy, buffer) if buffer else busy) & ~union(person.away_times, self.grid)
        if room is not None:
            free &= ~union(self.rooms[room].busy_times, self.grid)
        mask = self.grid.start_mask(free, meeting.length)
        for p in {*people} & meeting.refused.keys():
            mask = mask & ~meeting.refused[p]
        return mask if meeting.starts is None else mask & meeting.starts.mask

    def _choices(self, meeting: Meeting) -> tuple[MeetingChoice, ...]:
        """Return the times and rooms at which all participants and the room are free."""
        starts = {r: self.start_mask(meeting, meeting.people, r) for r in meeting.rooms or (None,)}
        return tuple(
            MeetingChoice(int(s), r)
            for s in np.flatnonzero(np.logical_or.reduce([*starts.values()]))
            for r, mask in sorted(starts.items(), key=lambda item: -1 if item[0] is None else item[0])
            if mask[s]
        )

    def booked_choice(self, m: int) -> MeetingChoice | None:
        """Return the first choice of a meeting that is as booked; None if nothing is booked or that is not possible."""
        booked = self.meetings[m].booked
        if booked is None:
            return None
        return next((c for c in self.choices[m] if c.start == booked.start and booked.room in (None, c.room)), None)

    def variable(self, m: int, person: int) -> str:
        """Return the name of a person's variable for a meeting."""
        return f"{self.people[person].name}: {self.meetings[m].name}"

    @property
    def variables(self) -> tuple[str, ...]:
        """The name of the variable of each meeting's first participant."""
        return tuple(self.variable(m, meeting.people[0]) for m, meeting in enumerate(self.meetings))

    def label(self, choice: MeetingChoice) -> str:
        """Return a readable label of a choice: day, time and room.

        >>> from datetime import date
        >>> grid = TimeGrid((date(2027, 3, 1),), 540, 16, 30)
        >>> Calendar("", grid, (), (), {}, ()).label(MeetingChoice(3, None))
        'Mon 1 Mar 10:30'
        """
        moment = self.grid.moment(choice.start)
        when = f"{moment:%a} {moment.day} {moment:%b} {self.grid.clock(moment)}"
        return when if choice.room is None else f"{when}, {self.rooms[choice.room].name}"

    def utilities(self, index: int, person: int | None = None) -> list[Number]:
        """Return the utility of each choice of a meeting to one person: a sum over the rules that all its slots match.

        Parameters
        ----------
        index
            The meeting.
        person
            The participant; None for the meeting itself: its weight, its preferences for times and rooms, and what is
            lost by a late or a moved meeting.
        """
        starts, rooms = self.starts_and_rooms[index]
        meeting = self.meetings[index]
        if person is not None:
            return list(points_of_person(self, person, starts, meeting.length).tolist())
        utilities = self.points(meeting.preferences, starts, meeting.length) + (meeting.weight or 0)
        for room, points in meeting.room_points.items():
            utilities = utilities + np.where(rooms == room, points, 0)
        if meeting.early:
            ordinals = np.array([day.toordinal() for day in self.grid.days], dtype=np.int64)
            utilities = utilities - meeting.early * (ordinals[starts // self.grid.slots] - ordinals[0])
        if meeting.booked is not None:
            utilities = utilities - np.where(self.moved(index), meeting.move_cost, 0)
        return list(utilities.tolist())

    def points(self, preferences: Iterable[Preference], starts: NDArray[np.int64], length: int) -> Array:
        """Return for each start of a meeting the sum of the points of the preferences that all its slots match.

        Returns
        -------
        ndarray of int64 or float64, shape (starts,)
        """
        total = np.zeros(len(starts), dtype=np.int64)
        for mask, points, _ in preferences:
            total = total + np.where(self.grid.start_mask(mask, length)[starts], points, 0)
        return total

    def moved(self, index: int) -> Mask:
        """Return which choices of a meeting differ from what is booked, as (choices,) bool."""
        booked, (starts, rooms) = self.meetings[index].booked, self.starts_and_rooms[index]
        if booked is None:
            return np.zeros(len(starts), dtype=bool)
        differs: Mask = starts != booked.start
        return differs if booked.room is None else differs | (rooms != booked.room)


def points_of_person(calendar: Calendar, person: int, starts: NDArray[np.int64], length: int) -> Array:
    """Return what each start of a meeting is worth to a participant: points of preferences, less lost appointments.

    Returns
    -------
    ndarray of int64 or float64, shape (starts,)
    """
    given, grid = calendar.people[person], calendar.grid
    total = calendar.points(given.preferences, starts, length)
    for appointment in given.appointments:
        total = total - np.where(overlaps(grid, appointment.mask, length)[starts], appointment.cost, 0)
    return total


def overlaps(grid: TimeGrid, mask: Mask, length: int) -> Mask:
    """Return at which slots a meeting of some length may start and then overlaps a mask; (slots,) bool."""
    fits = grid.start_mask(np.ones(grid.size, dtype=bool), length)
    return np.asarray(fits & ~grid.start_mask(~mask, length))


def union(rules: Iterable[TimeRule], grid: TimeGrid) -> Mask:
    """Return the slots that match at least one rule, as a (slots,) bool array."""
    mask = np.zeros(grid.size, dtype=bool)
    for rule in rules:
        mask |= rule.mask
    return mask


_NUMBER = re.compile(r" [0-9]+$")


def with_earlier_answer(calendar: Calendar, text: str, name: str) -> Calendar:
    """Return a calendar whose meetings are booked as an earlier answer has them.

    Meetings that the earlier answer does not hold, or that take place outside the calendar's slots, are not booked.

    Parameters
    ----------
    calendar
        The calendar.
    text
        The JSON text of an earlier answer (``--json`` or ``--output``).
    name
        Its file name, for errors.

    Raises
    ------
    FileError
        If the text is not the answer of a calendar, or lists a meeting twice.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise FileError(f"{name}:{line}: is not valid JSON: {getattr(error, 'msg', error)}") from None
    meetings = data.get("meetings") if isinstance(data, dict) else None
    if not isinstance(meetings, list):
        raise FileError(f"{name}: has no 'meetings'; expected the answer of a calendar (dmcmc run --json or --output)")
    booked = {}
    for number, entry in enumerate(meetings):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise FileError(f"{name}: meetings[{number}]: expected a meeting with its name, got {show(entry)}")
        if entry["name"] in booked:
            raise FileError(f"{name}: meetings[{number}]: {entry['name']} is listed twice")
        booked[entry["name"]] = _choice(calendar, entry, f"{name}: meetings[{number}] ({entry['name']})")
    return replace(calendar, meetings=tuple(replace(x, booked=booked.get(x.name, x.booked)) for x in calendar.meetings))


def with_move_cost(calendar: Calendar, move_cost: Number) -> Calendar:
    """Return a calendar in which moving any booked meeting costs ``move_cost``."""
    return replace(calendar, meetings=tuple(replace(x, move_cost=move_cost) for x in calendar.meetings))


def _choice(calendar: Calendar, entry: Mapping[str, Any], where: str) -> MeetingChoice | None:
    """Return the time and room of a meeting of an earlier answer; None if no slot of the calendar starts then."""
    try:
        start = datetime.fromisoformat(entry["start"])
    except (KeyError, TypeError, ValueError):
        raise FileError(
            f"{where}: start: expected a time such as 2027-03-01T10:00, got {show(entry.get('start'))}"
        ) from None
    slot = calendar.grid.slot_at(calendar.grid.local(start))
    if slot is None:
        return None
    names, given = [room.name for room in calendar.rooms], entry.get("room") or None
    known = next((name for name in (given, _NUMBER.sub("", str(given))) if name in names), None)
    return MeetingChoice(slot, None if known is None else names.index(known))


def booked_assignment(calendar: Calendar) -> dict[str, str]:
    """Return the values of the booked meetings that are still possible, by the names of the variables."""
    booked = ((name, calendar.booked_choice(m)) for m, name in enumerate(calendar.variables))
    return {name: calendar.label(choice) for name, choice in booked if choice}
