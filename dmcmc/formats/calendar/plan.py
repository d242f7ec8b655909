"""Data of a calendar file: days and slots, people, rooms and meetings.

A *slot* is a period of fixed length on one day; every day has the same slots. Arrays marked (slots,) have one entry
per slot of the whole calendar.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.types import Number

Mask = NDArray[np.bool_]
NOT_HELD = "not held"


@dataclass(frozen=True)
class TimeGrid:
    """The slots of all days. Slot ``s`` of day ``d`` has the number ``d * slots + s``.

    Attributes
    ----------
    days : tuple of date
        The days, in ascending order.
    opens : int
        Start of the first slot of each day, in minutes after midnight.
    slots : int
        Slots per day.
    minutes : int
        Length of a slot in minutes.
    """

    days: tuple[date, ...]
    opens: int
    slots: int
    minutes: int

    @property
    def size(self) -> int:
        """Total number of slots."""
        return len(self.days) * self.slots

    def moment(self, slot: int, length: int = 0) -> datetime:
        """Return the start of a slot, or the end of a meeting of ``length`` slots that starts there."""
        day, position = divmod(slot, self.slots)
        midnight = datetime.combine(self.days[day], time())
        return midnight + timedelta(minutes=self.opens + (position + length) * self.minutes)

    def free_starts(self, free: Mask, length: int) -> NDArray[np.int64]:
        """Return the slots at which ``length`` consecutive free slots of one day begin.

        Parameters
        ----------
        free
            (slots,) bool.
        length
            Number of consecutive slots.
        """
        by_day = free.reshape(len(self.days), self.slots)
        if length > self.slots:
            return np.empty(0, dtype=np.int64)
        fits = np.lib.stride_tricks.sliding_window_view(by_day, length, axis=1).all(axis=2)
        day, position = np.nonzero(fits)
        return (day * self.slots + position).astype(np.int64)


@dataclass(frozen=True)
class Person:
    """A participant of meetings.

    Attributes
    ----------
    name : str
        Name of the person.
    busy : (slots,) bool
        Slots in which the person is not available.
    preferences : tuple of ((slots,) bool, number, str)
        For each rule: its slots, the utility that a meeting gains (if positive) or loses if all its slots match it, and
        the text of the rule.
    """

    name: str
    busy: Mask
    preferences: tuple[tuple[Mask, Number, str], ...] = ()


@dataclass(frozen=True)
class MeetingRoom:
    """A room that holds one meeting at a time.

    Attributes
    ----------
    name : str
        Name of the room.
    capacity : int or None
        Number of people that it holds; None is unlimited.
    busy : (slots,) bool
        Slots in which the room is not available.
    """

    name: str
    capacity: int | None
    busy: Mask


@dataclass(frozen=True)
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
    allowed : (slots,) bool
        Slots in which it may take place.
    rooms : tuple of int
        Rooms of which it needs one; empty if it needs none.
    preferences : tuple of ((slots,) bool, number, str)
        Preferences of the meeting, as for ``Person``.
    """

    name: str
    people: tuple[int, ...]
    length: int
    weight: Number | None
    allowed: Mask
    rooms: tuple[int, ...]
    preferences: tuple[tuple[Mask, Number, str], ...] = ()


@dataclass(frozen=True)
class MeetingChoice:
    """A value of a meeting: its first slot and its room (None: no room)."""

    start: int
    room: int | None


@dataclass(frozen=True)
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
    timezone : str
        Name of the time zone; empty if the file gives none.
    """

    name: str
    grid: TimeGrid
    people: tuple[Person, ...]
    rooms: tuple[MeetingRoom, ...]
    travel: Mapping[tuple[int, int], int]
    meetings: tuple[Meeting, ...]
    timezone: str = ""

    @cached_property
    def choices(self) -> tuple[tuple[MeetingChoice, ...], ...]:
        """For each meeting, its possible times and rooms if there were no other meetings."""
        return tuple(self._choices(meeting) for meeting in self.meetings)

    def _choices(self, meeting: Meeting) -> tuple[MeetingChoice, ...]:
        """Return the times and rooms at which all participants and the room are free."""
        free = meeting.allowed & ~np.logical_or.reduce([self.people[p].busy for p in meeting.people])
        if not meeting.rooms:
            return tuple(MeetingChoice(int(s), None) for s in self.grid.free_starts(free, meeting.length))
        pairs = [
            (int(s), r)
            for r in meeting.rooms
            for s in self.grid.free_starts(free & ~self.rooms[r].busy, meeting.length)
        ]
        return tuple(MeetingChoice(*pair) for pair in sorted(pairs))

    def label(self, choice: MeetingChoice) -> str:
        """Return a readable label of a choice: day, time and room.

        >>> grid = TimeGrid((date(2027, 3, 1),), 540, 16, 30)
        >>> Calendar("", grid, (), (), {}, ()).label(MeetingChoice(3, None))
        'Mon 1 Mar 10:30'
        """
        moment = self.grid.moment(choice.start)
        when = f"{moment:%a} {moment.day} {moment:%b %H:%M}"
        return when if choice.room is None else f"{when}, {self.rooms[choice.room].name}"

    def clashes(self, first: int, second: int) -> Mask:
        """Return which choices of two meetings exclude each other.

        Two choices clash if they use the same room at the same time, or if a common participant would have to be in two
        places at once or travel longer than the break between them.

        Returns
        -------
        ndarray of bool, shape (choices of the first, choices of the second)
        """
        a, b = self.meetings[first], self.meetings[second]
        (starts_a, rooms_a), (starts_b, rooms_b) = self._arrays(first), self._arrays(second)
        starts_a, rooms_a = starts_a[:, None], rooms_a[:, None]
        overlap = (starts_a < starts_b + b.length) & (starts_b < starts_a + a.length)
        if not {*a.people} & {*b.people}:
            return np.asarray(overlap & (rooms_a == rooms_b) & (rooms_a >= 0))
        if not self.travel or not (a.rooms and b.rooms):
            return overlap
        travel_slots = np.zeros((len(self.rooms), len(self.rooms)), dtype=np.int64)
        for pair, minutes in self.travel.items():
            travel_slots[pair] = -(-minutes // self.grid.minutes)
        needed = travel_slots[rooms_a, rooms_b]
        same_day = starts_a // self.grid.slots == starts_b // self.grid.slots
        near = (starts_a < starts_b + b.length + needed) & (starts_b < starts_a + a.length + needed)
        return np.asarray(overlap | (near & same_day))

    def utilities(self, index: int, person: int | None = None) -> list[Number]:
        """Return the utility of each choice of a meeting to one person: a sum over the rules that all its slots match.

        Parameters
        ----------
        index
            The meeting.
        person
            The participant; None for the meeting's own preferences, to which its weight is added.
        """
        meeting = self.meetings[index]
        preferences = meeting.preferences if person is None else self.people[person].preferences
        utilities: list[Number] = [meeting.weight or 0 if person is None else 0] * len(self.choices[index])
        for mask, points, _ in preferences:
            matching = {*self.grid.free_starts(mask, meeting.length).tolist()}
            utilities = [
                u + points if c.start in matching else u for u, c in zip(utilities, self.choices[index], strict=True)
            ]
        return utilities

    def _arrays(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first slots and the rooms (−1 for none) of a meeting's choices, both (choices,) int64."""
        choices = self.choices[index]
        starts = np.array([c.start for c in choices], dtype=np.int64)
        return starts, np.array([-1 if c.room is None else c.room for c in choices], dtype=np.int64)
