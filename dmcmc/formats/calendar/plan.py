"""What a calendar file says: days and slots, people, rooms and meetings."""

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
class Grid:
    """The slots: each day has the same ones. Slot ``s`` of day ``d`` is number ``d * slots + s``.

    Attributes
    ----------
    days : tuple of date
    opens : int
        Minutes after midnight.
    slots : int
        Of a day.
    minutes : int
        Of a slot.
    """

    days: tuple[date, ...]
    opens: int
    slots: int
    minutes: int

    @property
    def size(self) -> int:
        """Number of slots in all."""
        return len(self.days) * self.slots

    def moment(self, slot: int, length: int = 0) -> datetime:
        """Return when a slot begins, or when ``length`` slots from it on end."""
        day, place = divmod(slot, self.slots)
        midnight = datetime.combine(self.days[day], time())
        return midnight + timedelta(minutes=self.opens + (place + length) * self.minutes)

    def runs(self, free: Mask, length: int) -> NDArray[np.int64]:
        """Return the slots at which ``length`` free ones of one day begin."""
        by_day = free.reshape(len(self.days), self.slots)
        if length > self.slots:
            return np.empty(0, dtype=np.int64)
        fits = np.lib.stride_tricks.sliding_window_view(by_day, length, axis=1).all(axis=2)
        day, place = np.nonzero(fits)
        return (day * self.slots + place).astype(np.int64)


@dataclass(frozen=True)
class Person:
    """Somebody who meets others.

    Attributes
    ----------
    busy : (slots,) bool
    likes : tuple of ((slots,) bool, number, str)
        Slots, what a meeting is worth to this person all of whose slots are among them, and the rule's own words.
    """

    name: str
    busy: Mask
    likes: tuple[tuple[Mask, Number, str], ...] = ()


@dataclass(frozen=True)
class Room:
    """Where one meeting at a time may be. ``capacity`` None: any number of people."""

    name: str
    capacity: int | None
    busy: Mask


@dataclass(frozen=True)
class Meeting:
    """A meeting.

    Attributes
    ----------
    people : tuple of int
    length : int
        In slots.
    weight : number or None
        What it is worth that it is held; None: it must be.
    allowed : (slots,) bool
    rooms : tuple of int
        Which it may be in, one of them; empty: it needs none.
    """

    name: str
    people: tuple[int, ...]
    length: int
    weight: Number | None
    allowed: Mask
    rooms: tuple[int, ...]
    likes: tuple[tuple[Mask, Number, str], ...] = ()


@dataclass(frozen=True)
class Choice:
    """When a meeting begins, and in which room (None: in none)."""

    start: int
    room: int | None


@dataclass(frozen=True)
class Calendar:
    """All of a file. ``travel`` has minutes by pairs of rooms, both ways; ``timezone`` is empty where none is given."""

    name: str
    grid: Grid
    people: tuple[Person, ...]
    rooms: tuple[Room, ...]
    travel: Mapping[tuple[int, int], int]
    meetings: tuple[Meeting, ...]
    timezone: str = ""

    @cached_property
    def choices(self) -> tuple[tuple[Choice, ...], ...]:
        """Of each meeting: where and when it could be if there were no others."""
        return tuple(self._choices(meeting) for meeting in self.meetings)

    def _choices(self, meeting: Meeting) -> tuple[Choice, ...]:
        free = meeting.allowed & ~np.logical_or.reduce([self.people[p].busy for p in meeting.people])
        if not meeting.rooms:
            return tuple(Choice(int(s), None) for s in self.grid.runs(free, meeting.length))
        found = [(int(s), r) for r in meeting.rooms for s in self.grid.runs(free & ~self.rooms[r].busy, meeting.length)]
        return tuple(Choice(*pair) for pair in sorted(found))

    def label(self, choice: Choice) -> str:
        """Return the words for a choice.

        >>> grid = Grid((date(2027, 3, 1),), 540, 16, 30)
        >>> Calendar("", grid, (), (), {}, ()).label(Choice(3, None))
        'Mon 1 Mar 10:30'
        """
        moment = self.grid.moment(choice.start)
        when = f"{moment:%a} {moment.day} {moment:%b %H:%M}"
        return when if choice.room is None else f"{when}, {self.rooms[choice.room].name}"

    def clashes(self, first: int, second: int) -> Mask:
        """Return which choices of two meetings cannot both be: a room twice, or somebody in two places, or on the way.

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
        way = np.zeros((len(self.rooms), len(self.rooms)), dtype=np.int64)
        for pair, minutes in self.travel.items():
            way[pair] = -(-minutes // self.grid.minutes)
        slots = way[rooms_a, rooms_b]
        same_day = starts_a // self.grid.slots == starts_b // self.grid.slots
        near = (starts_a < starts_b + b.length + slots) & (starts_b < starts_a + a.length + slots)
        return np.asarray(overlap | (near & same_day))

    def worth(self, index: int, person: int | None = None) -> list[Number]:
        """Return what each choice of a meeting is worth to one person; None: beside people's preferences."""
        meeting = self.meetings[index]
        likes = meeting.likes if person is None else self.people[person].likes
        total: list[Number] = [meeting.weight or 0 if person is None else 0] * len(self.choices[index])
        for mask, points, _ in likes:
            good = {*self.grid.runs(mask, meeting.length).tolist()}
            total = [t + points if c.start in good else t for t, c in zip(total, self.choices[index], strict=True)]
        return total

    def _arrays(self, index: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        choices = self.choices[index]
        starts = np.array([c.start for c in choices], dtype=np.int64)
        return starts, np.array([-1 if c.room is None else c.room for c in choices], dtype=np.int64)
