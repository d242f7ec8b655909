"""A calendar as a problem: each person is an agent with a variable for each of its meetings (PEAV).

A meeting's participants agree by hard equalities, a person's meetings keep apart, and so do meetings in one room;
utilities are what preferences and meetings are worth (Maheswaran et al., *Taking DCOP to the Real World*, AAMAS 2004).
"""

from itertools import combinations, pairwise

import numpy as np

from dmcmc.files.text import Source
from dmcmc.formats.calendar.plan import NOT_HELD, Calendar
from dmcmc.formats.calendar.read import read_calendar
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.memory import memory_limit, readable
from dmcmc.inference.runtime.types import Array

_BYTES = 16  # of an entry while its table is made


def read(source: Source) -> Problem:
    """Read a calendar file as a problem; see :func:`dmcmc.formats.registry.load`."""
    return problem_of(read_calendar(source))


def problem_of(calendar: Calendar) -> Problem:
    """Return the problem of a calendar.

    A meeting that need not be held has one more value, the last: :data:`NOT_HELD`. One that must be held and cannot has
    only that one, and it is forbidden.

    Raises
    ------
    FileError
        If tables over two meetings do not fit the memory.
    """
    labels = [domain_of(calendar, m) for m in range(len(calendar.meetings))]
    _check_size(calendar, labels)
    held = [(p, m) for m, meeting in enumerate(calendar.meetings) for p in meeting.people]
    place = {pair: i for i, pair in enumerate(held)}
    factors: list[Factor] = []
    for p, m in held:
        table = _padded(calendar, m, calendar.worth(m, p))
        if table.any():
            name = f"{calendar.people[p].name}'s preferences for {calendar.meetings[m].name}"
            factors.append(Factor.of((place[p, m],), table, name=name))
    for m, meeting in enumerate(calendar.meetings):
        factors += _agreement(calendar, m, [place[p, m] for p in meeting.people], len(labels[m]))
    for m, n in combinations(range(len(calendar.meetings)), 2):
        factors += _apart(calendar, m, n, place)
    return Problem(
        variables=tuple(f"{calendar.people[p].name}: {calendar.meetings[m].name}" for p, m in held),
        domains=np.array([len(labels[m]) for _, m in held], dtype=np.int64),
        agents=tuple(person.name for person in calendar.people),
        owner=np.array([p for p, _ in held], dtype=np.int64),
        factors=tuple(factors),
        labels=tuple(labels[m] for _, m in held),
        name=calendar.name,
    )


def domain_of(calendar: Calendar, m: int) -> tuple[str, ...]:
    """Return the labels of a meeting's values."""
    labels = tuple(calendar.label(choice) for choice in calendar.choices[m])
    spare = calendar.meetings[m].weight is not None or not labels
    return (*labels, NOT_HELD) if spare else labels


def _padded(calendar: Calendar, m: int, worth: list[int | float]) -> Array:
    """Return what values are worth: nothing if the meeting is not held."""
    return np.array([*worth, *[0] * (len(domain_of(calendar, m)) - len(worth))])


def _agreement(calendar: Calendar, m: int, copies: list[int], size: int) -> list[Factor]:
    """Return what holds for a meeting whoever comes: its own worth, and that all participants mean the same."""
    meeting = calendar.meetings[m]
    worth = _padded(calendar, m, calendar.worth(m))
    if meeting.weight is None and not calendar.choices[m]:
        worth = np.array([-np.inf])
    same = np.where(np.eye(size, dtype=bool), 0, -np.inf)
    found = [Factor.of((copies[0],), worth, name=meeting.name)] if worth.any() else []
    return found + [Factor.of(pair, same, name=f"{meeting.name}: one time for all") for pair in pairwise(copies)]


def _apart(calendar: Calendar, m: int, n: int, place: dict[tuple[int, int], int]) -> list[Factor]:
    """Return what keeps two meetings apart: for each person who has both; or, if they share a room, once."""
    a, b = calendar.meetings[m], calendar.meetings[n]
    both = [p for p in a.people if p in b.people]
    if not both and not {*a.rooms} & {*b.rooms}:
        return []
    clash = calendar.clashes(m, n)
    if not clash.any():
        return []
    sizes = len(domain_of(calendar, m)), len(domain_of(calendar, n))
    table = np.zeros(sizes)
    table[: clash.shape[0], : clash.shape[1]] = np.where(clash, -np.inf, 0)
    names = f"{a.name} and {b.name}"
    if not both:
        pair = place[a.people[0], m], place[b.people[0], n]
        return [Factor.of(pair, table, name=f"{names} in one room")]
    return [Factor.of((place[p, m], place[p, n]), table, name=f"{names} of {calendar.people[p].name}") for p in both]


def _check_size(calendar: Calendar, labels: list[tuple[str, ...]]) -> None:
    """Refuse a calendar whose tables over two meetings cannot fit, before any is made."""
    cells, most = 0, memory_limit() // _BYTES
    for m, n in combinations(range(len(labels)), 2):
        a, b = calendar.meetings[m], calendar.meetings[n]
        shared = len({*a.people} & {*b.people}) or bool({*a.rooms} & {*b.rooms})
        cells += shared * len(labels[m]) * len(labels[n])
    cells += sum(len(own) ** 2 * len(calendar.meetings[m].people) for m, own in enumerate(labels))
    if cells > most:
        raise FileError(
            f"{calendar.name}: its tables need {readable(cells * _BYTES)} of memory; longer slots, fewer days or fewer"
            " rooms make them smaller"
        )
