"""The time grid of a calendar: slots of equal length on several days, and their local times in other time zones."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, cached_property
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

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
