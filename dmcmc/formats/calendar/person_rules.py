"""Factors of one person's rules: limits per day, limits in a row, a lunch break and gaps between meetings."""

from collections.abc import Iterator, Sequence

import numpy as np

from dmcmc.formats.calendar.data.plan import Calendar, Person, union
from dmcmc.formats.calendar.participations import Participation
from dmcmc.formats.calendar.sums import bounded_sum, extreme_position, free_run
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.types import Ints


def factors_of_person(calendar: Calendar, p: int, attended: Sequence[Participation]) -> Iterator[Factor]:
    """Yield the factors of a person's rules over the meetings that the person attends or may attend."""
    if attended:
        yield from _meetings_per_day(calendar, p, attended)
        yield from _slots_in_a_row(calendar, p, attended)
        yield from _lunch(calendar, p, attended)
        yield from _gaps(calendar, p, attended)


def _meetings_per_day(calendar: Calendar, p: int, attended: Sequence[Participation]) -> Iterator[Factor]:
    """Yield for each day the limit on the number of meetings."""
    person, grid = calendar.people[p], calendar.grid
    if person.max_per_day is None:
        return
    for d, day in enumerate(grid.days):
        weights = [x.padded((x.starts // grid.slots == d).astype(np.int64)) for x in attended]
        name = f"{person.name}: at most {person.max_per_day} meetings on {day:%a} {day.day} {day:%b}"
        yield from _limit(attended, weights, person.max_per_day, name)


def _slots_in_a_row(calendar: Calendar, p: int, attended: Sequence[Participation]) -> Iterator[Factor]:
    """Yield the limits on consecutive slots in meetings: a free slot among each limit + 1 consecutive slots."""
    person, grid = calendar.people[p], calendar.grid
    if person.max_in_a_row is None:
        return
    limit = person.max_in_a_row // grid.minutes
    for d, day in enumerate(grid.days):
        for first in range(d * grid.slots, (d + 1) * grid.slots - limit):
            weights = [x.padded(_overlaps(calendar, x, first, first + limit + 1)) for x in attended]
            name = f"{person.name}: at most {person.max_in_a_row} minutes in a row on {day:%a} {day.day} {day:%b}"
            yield from _limit(attended, weights, limit, name)


def _overlaps(calendar: Calendar, x: Participation, begin: int, end: int) -> Ints:
    """Return how many slots from ``begin`` to before ``end`` each time of a meeting takes, as (times,) int64."""
    length = calendar.meetings[x.meeting].length
    overlaps: Ints = np.maximum(0, np.minimum(x.starts + length, end) - np.maximum(x.starts, begin))
    return overlaps


def _limit(attended: Sequence[Participation], weights: Sequence[Ints], limit: int, name: str) -> Iterator[Factor]:
    """Yield the constraint that a sum over the meetings with a positive weight is at most ``limit``."""
    counted = [(x.variable, w) for x, w in zip(attended, weights, strict=True) if w.any()]
    if counted:
        factor = bounded_sum([v for v, _ in counted], [w for _, w in counted], None, limit, name)
        yield from [] if factor is None else [factor]


def _lunch(calendar: Calendar, p: int, attended: Sequence[Participation]) -> Iterator[Factor]:
    """Yield for each day the constraint that a lunch break stays free, unless busy times take it already."""
    person = calendar.people[p]
    if person.lunch is None:
        return
    busy = union((*person.busy_times, *person.away_times), calendar.grid)
    for window in person.lunch.windows:
        first, count = window[0], len(window)
        busy_bits = sum(1 << s for s in range(count) if busy[first + s])
        if not _has_free_run(busy_bits, count, person.lunch.slots):
            continue
        day = calendar.grid.days[first // calendar.grid.slots]
        name = f"{person.name}: lunch within {person.lunch.text} on {day:%a} {day.day} {day:%b}"
        if person.lunch.slots == 1:  # any free slot will do, and meetings of a person do not overlap
            weights = [x.padded(_overlaps(calendar, x, first, first + count)) for x in attended]
            yield from _limit(attended, weights, count - busy_bits.bit_count() - 1, name)
            continue
        taken = []
        for x in attended:
            low = np.clip(x.starts - first, 0, count)
            high = np.clip(x.starts + calendar.meetings[x.meeting].length - first, 0, count)
            taken.append((x.variable, x.padded((1 << high) - (1 << low))))
        taken = [(variable, bits) for variable, bits in taken if bits.any()]
        if taken:
            bits = [b | busy_bits for _, b in taken]
            factor = free_run([v for v, _ in taken], bits, count, person.lunch.slots, name)
            yield from [] if factor is None else [factor]


def _has_free_run(taken: int, slots: int, run: int) -> bool:
    """Return whether ``run`` consecutive slots are free; bit s of ``taken`` stands for slot s."""
    return any(not taken >> s & ((1 << run) - 1) for s in range(slots - run + 1))


def _gaps(calendar: Calendar, p: int, attended: Sequence[Participation]) -> Iterator[Factor]:
    """Yield the factors that count free slots between the first and the last meeting of each day.

    The free slots are the end of the last meeting minus the start of the first one minus the lengths of all meetings
    (:func:`attended_slots`).
    """
    person, grid = calendar.people[p], calendar.grid
    if not person.no_gaps:
        return
    positions = np.arange(grid.slots + 1)
    for d, day in enumerate(grid.days):
        on_day = [x for x in attended if (x.starts // grid.slots == d).any()]
        if not on_day:
            continue
        scope = [x.variable for x in on_day]
        lengths = [calendar.meetings[x.meeting].length for x in on_day]
        first = [_position(x, x.starts % grid.slots, x.starts // grid.slots == d) for x in on_day]
        last = [
            _position(x, x.starts % grid.slots + length, x.starts // grid.slots == d)
            for x, length in zip(on_day, lengths, strict=True)
        ]
        name = f"{person.name}: no gaps on {day:%a} {day.day} {day:%b}"
        yield extreme_position(scope, first, person.no_gaps * positions, False, name)
        yield extreme_position(scope, last, -person.no_gaps * positions, True, name)


def _position(x: Participation, positions: Ints, counted: Ints) -> Ints:
    """Return the position of each value on a day, −1 for values on other days and without a time."""
    return x.padded(np.where(counted, positions, -1), -1)


def attended_slots(calendar: Calendar, person: Person, x: Participation) -> Ints:
    """Return the utility that makes up for a meeting's own slots in the sum of :func:`_gaps`, as (times,)."""
    return np.full(len(x.starts), person.no_gaps * calendar.meetings[x.meeting].length)
