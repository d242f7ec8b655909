"""The time grid of a calendar: slots of equal length on several days, and their local times in other time zones."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
DAY_MINUTES = 24 * 60


class LocalTimes(NamedTuple):
    """Local times of all slots in one time zone.

    Attributes
    ----------
    day : (slots,) int64
        Proleptic Gregorian ordinal of the day on which each slot starts (``date.toordinal``).
    begin : (slots,) int64
        Start of each slot in minutes after midnight.
    """

    day: NDArray[np.int64]
    begin: NDArray[np.int64]


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
    timezone : str
        Name of the time zone of these times; empty if the file gives none.
    """

    days: tuple[date, ...]
    opens: int
    slots: int
    minutes: int
    timezone: str = ""

    @property
    def size(self) -> int:
        """Total number of slots."""
        return len(self.days) * self.slots

    def moment(self, slot: int, length: int = 0) -> datetime:
        """Return the start of a slot, or the end of a meeting of ``length`` slots that starts there."""
        day, position = divmod(slot, self.slots)
        midnight = datetime.combine(self.days[day], time())
        return midnight + timedelta(minutes=self.opens + (position + length) * self.minutes)

    def local(self, moment: datetime) -> datetime:
        """Return a moment as a time of the grid, without a time zone; a time without one is already local."""
        return moment if moment.tzinfo is None else _local(moment, "UTC", self.timezone or "UTC")

    def slot_at(self, moment: datetime) -> int | None:
        """Return the slot that starts at a local time; None if no slot starts then."""
        if moment.date() not in self.days:
            return None
        after_opening = moment.hour * 60 + moment.minute - self.opens
        position, rest = divmod(after_opening, self.minutes)
        if rest or moment.second or not 0 <= position < self.slots:
            return None
        return self.days.index(moment.date()) * self.slots + position

    def slots_of(self, minutes: int) -> int:
        """Return the number of slots that a duration takes, rounded up."""
        return -(-minutes // self.minutes)

    def start_mask(self, free: Mask, length: int) -> Mask:
        """Return at which slots ``length`` consecutive free slots of one day begin, as a (slots,) bool array.

        Parameters
        ----------
        free
            (slots,) bool.
        length
            Number of consecutive slots.
        """
        found = np.zeros((len(self.days), self.slots), dtype=bool)
        if length <= self.slots:
            by_day = free.reshape(found.shape)
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
        local_zone = self.timezone or "UTC"
        starts = np.array([self.moment(s) for s in range(self.size)], dtype="datetime64[m]")
        ends = starts + np.timedelta64(self.minutes, "m")
        low, high = (np.datetime64(_local(moment, zone or local_zone, local_zone), "s") for moment in (begin, end))
        return np.asarray((starts < high) & (ends > low))

    def local_times(self, zone: str = "") -> LocalTimes:
        """Return the local times of all slots in a time zone; empty for the grid's."""
        return _local_times(self, "" if zone == self.timezone else zone)


@cache
def _local_times(grid: TimeGrid, zone: str) -> LocalTimes:
    """Return the local times of all slots in a time zone; empty for the grid's own times."""
    moments = [grid.moment(s) for s in range(grid.size)]
    if zone:
        moments = [_local(moment, grid.timezone or "UTC", zone) for moment in moments]
    day = np.array([moment.toordinal() for moment in moments], dtype=np.int64)
    return LocalTimes(day, np.array([moment.hour * 60 + moment.minute for moment in moments], dtype=np.int64))


def _local(moment: datetime, source: str, target: str) -> datetime:
    """Return a moment as a local time in ``target``; a moment without a time zone is a local time in ``source``."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(source))
    return aware.astimezone(ZoneInfo(target)).replace(tzinfo=None)
