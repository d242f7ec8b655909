"""Data of a calendar file: people, rooms, meetings and their rules on a time grid.

A *slot* is a period of fixed length on one day; every day has the same slots. Arrays marked (slots,) have one entry
per slot of the whole calendar. Durations are in minutes unless their name says slots.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.calendars.file.grid import Mask, TimeGrid
from dmcmc.inference.runtime.types import Array, Number

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
