"""Convert a calendar to a problem in the PEAV model: private events as variables.

Each person is an agent with one variable for each of its meetings; the values are the meeting's possible times and
rooms. Hard equality factors make all participants of a meeting choose the same value. Hard factors also forbid
overlapping meetings of a person and overlapping meetings in a room. Soft unary factors hold the utility of holding a
meeting, and the preferences of the meeting and of its participants (Maheswaran et al., *Taking DCOP to the Real World*,
AAMAS 2004).
"""

from itertools import combinations, pairwise

import numpy as np

from dmcmc.files.text import SourceFile
from dmcmc.formats.calendar.plan import NOT_HELD, Calendar
from dmcmc.formats.calendar.read import read_calendar
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.memory import format_bytes, memory_limit
from dmcmc.inference.runtime.types import Array

_BYTES_PER_ENTRY = 16  # bytes per table entry while the table is built


def read(source: SourceFile) -> Problem:
    """Read a calendar file as a problem; see :func:`dmcmc.formats.registry.load`."""
    return problem_of(read_calendar(source))


def problem_of(calendar: Calendar) -> Problem:
    """Return the problem of a calendar.

    An optional meeting has an additional last value, :data:`NOT_HELD`. A mandatory meeting without any possible time
    has only this value, and it is forbidden.

    Raises
    ------
    FileError
        If the tables over pairs of meetings do not fit the memory.
    """
    labels = [domain_of(calendar, m) for m in range(len(calendar.meetings))]
    _check_size(calendar, labels)
    participations = [(p, m) for m, meeting in enumerate(calendar.meetings) for p in meeting.people]
    variable_of = {pair: i for i, pair in enumerate(participations)}
    factors: list[Factor] = []
    for p, m in participations:
        table = _padded(calendar, m, calendar.utilities(m, p))
        if table.any():
            name = f"{calendar.people[p].name}'s preferences for {calendar.meetings[m].name}"
            factors.append(Factor.of((variable_of[p, m],), table, name=name))
    for m, meeting in enumerate(calendar.meetings):
        factors += _agreement(calendar, m, [variable_of[p, m] for p in meeting.people], len(labels[m]))
    for m, n in combinations(range(len(calendar.meetings)), 2):
        factors += _apart(calendar, m, n, variable_of)
    return Problem(
        variables=tuple(f"{calendar.people[p].name}: {calendar.meetings[m].name}" for p, m in participations),
        domains=np.array([len(labels[m]) for _, m in participations], dtype=np.int64),
        agents=tuple(person.name for person in calendar.people),
        owner=np.array([p for p, _ in participations], dtype=np.int64),
        factors=tuple(factors),
        labels=tuple(labels[m] for _, m in participations),
        name=calendar.name,
    )


def domain_of(calendar: Calendar, m: int) -> tuple[str, ...]:
    """Return the labels of a meeting's values: its times and rooms, and :data:`NOT_HELD` if it may be dropped."""
    labels = tuple(calendar.label(choice) for choice in calendar.choices[m])
    has_not_held = calendar.meetings[m].weight is not None or not labels
    return (*labels, NOT_HELD) if has_not_held else labels


def _padded(calendar: Calendar, m: int, utilities: list[int | float]) -> Array:
    """Return the utilities of a meeting's values, with 0 for :data:`NOT_HELD`."""
    return np.array([*utilities, *[0] * (len(domain_of(calendar, m)) - len(utilities))])


def _agreement(calendar: Calendar, m: int, copies: list[int], size: int) -> list[Factor]:
    """Return the factors of a meeting itself: its own utility, and the equality of all participants' copies.

    Parameters
    ----------
    calendar
        The calendar.
    m
        The meeting.
    copies
        The variables of the meeting, one per participant.
    size
        Domain size of the meeting.
    """
    meeting = calendar.meetings[m]
    utilities = _padded(calendar, m, calendar.utilities(m))
    if meeting.weight is None and not calendar.choices[m]:
        utilities = np.array([-np.inf])
    same = np.where(np.eye(size, dtype=bool), 0, -np.inf)
    unary_factors = [Factor.of((copies[0],), utilities, name=meeting.name)] if utilities.any() else []
    return unary_factors + [
        Factor.of(pair, same, name=f"{meeting.name}: one time for all") for pair in pairwise(copies)
    ]


def _apart(calendar: Calendar, m: int, n: int, variable_of: dict[tuple[int, int], int]) -> list[Factor]:
    """Return the factors that forbid clashing choices of two meetings.

    There is one factor per common participant. If the meetings only share a room, there is one factor between their
    first participants.
    """
    a, b = calendar.meetings[m], calendar.meetings[n]
    common_people = [p for p in a.people if p in b.people]
    if not common_people and not {*a.rooms} & {*b.rooms}:
        return []
    clash = calendar.clashes(m, n)
    if not clash.any():
        return []
    sizes = len(domain_of(calendar, m)), len(domain_of(calendar, n))
    table = np.zeros(sizes)
    table[: clash.shape[0], : clash.shape[1]] = np.where(clash, -np.inf, 0)
    names = f"{a.name} and {b.name}"
    if not common_people:
        pair = variable_of[a.people[0], m], variable_of[b.people[0], n]
        return [Factor.of(pair, table, name=f"{names} in one room")]
    return [
        Factor.of((variable_of[p, m], variable_of[p, n]), table, name=f"{names} of {calendar.people[p].name}")
        for p in common_people
    ]


def _check_size(calendar: Calendar, labels: list[tuple[str, ...]]) -> None:
    """Raise ``FileError`` if the tables over pairs of meetings cannot fit the memory, before any table is built."""
    entries, max_entries = 0, memory_limit() // _BYTES_PER_ENTRY
    for m, n in combinations(range(len(labels)), 2):
        a, b = calendar.meetings[m], calendar.meetings[n]
        shared = len({*a.people} & {*b.people}) or bool({*a.rooms} & {*b.rooms})
        entries += shared * len(labels[m]) * len(labels[n])
    entries += sum(len(values) ** 2 * len(calendar.meetings[m].people) for m, values in enumerate(labels))
    if entries > max_entries:
        raise FileError(
            f"{calendar.name}: its tables need {format_bytes(entries * _BYTES_PER_ENTRY)} of memory;"
            " longer slots, fewer days or fewer rooms make them smaller"
        )
