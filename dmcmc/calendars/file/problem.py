"""Convert a calendar to a problem in the PEAV model: private events as variables.

Each person is an agent with one variable for each of its meetings; the values are the meeting's possible times and
rooms. Hard equality factors make all participants of a meeting choose the same value. An optional attendee has the
additional value "not attending". Hard factors forbid overlapping meetings of a person and of a room, limit the meetings
of a day, and keep orders and series. The meetings of a busy person are kept apart by one constraint, those of others by
tables over pairs of meetings. A room, or several identical rooms, hold a limited number of meetings at a time. Soft
unary factors hold the utility of holding a meeting, and the preferences of the meeting and of its participants
(Maheswaran et al., *Taking DCOP to the Real World*, AAMAS 2004).
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

from dmcmc.calendars.file import person_rules
from dmcmc.calendars.file.clashes import Places, clashes, close_pairs, different_in_series, gap_between, out_of_order
from dmcmc.calendars.file.plan import Calendar, Meeting, points_of_person
from dmcmc.calendars.file.read import read_calendar
from dmcmc.files.text import SourceFile
from dmcmc.inference.constraints.cumulative import CumulativeConstraint
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden, normalise
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.memory import format_bytes, memory_limit
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.contract import tuning

_BYTES_PER_ENTRY = 16  # bytes per table entry while the table is built


def read(source: SourceFile) -> Problem:
    """Read a calendar file as a problem; see :func:`dmcmc.formats.registry.load`."""
    return problem_of(read_calendar(source))


def problem_of(calendar: Calendar, copies: bool = True) -> Problem:
    """Return the problem of a calendar.

    A meeting that may be dropped has an additional last value, :data:`dmcmc.calendars.file.plan.NOT_HELD`. A
    mandatory meeting without any possible time has only this value, and it is forbidden.

    Parameters
    ----------
    calendar
        The calendar.
    copies
        Whether each participant of a meeting has a variable for it, as agents need that keep their preferences to
        themselves. Otherwise the variable of the first participant stands for all: the same problem, solved faster.

    Raises
    ------
    FileError
        If the tables over pairs of meetings do not fit the memory.
    """
    variables = person_rules.participations(calendar, copies)
    by_person: list[list[person_rules.Participation]] = [[] for _ in calendar.people]
    by_meeting: list[list[person_rules.Participation]] = [[] for _ in calendar.meetings]
    for x in variables:
        by_person[x.person].append(x)
        by_meeting[x.meeting].append(x)
    pairs = uses_pairs(calendar)
    constraints = {p: person_rules.meetings_apart(calendar, p, attended) for p, attended in enumerate(by_person)}
    apart = {p: constraint for p, constraint in constraints.items() if constraint is not None}
    _check_size(calendar, by_meeting, pairs, apart)
    factors: list[Factor] = []
    for x in variables:
        factors += _preferences(calendar, x) if copies or x.weight is None else []
    for m in range(len(calendar.meetings)):
        factors += _agreement(calendar, by_meeting[m], copies)
    for m, n in combinations(range(len(calendar.meetings)), 2):
        factors += _apart(calendar, by_meeting[m], by_meeting[n], pairs, apart)
    factors += apart.values()
    for p, attended in enumerate(by_person):
        factors += person_rules.factors_of_person(calendar, p, attended)
    factors += factors_of_rooms(calendar, [copies[0] for copies in by_meeting], pairs)
    distinct = [x for i, x in enumerate(variables) if not i or x.variable != variables[i - 1].variable]
    levels = person_rules.levels_of(calendar, by_person, len(distinct))
    for level in levels:
        factors += level.factors
    names = [f"{calendar.people[x.person].name}: {calendar.meetings[x.meeting].name}" for x in distinct]
    return Problem(
        variables=(*names, *(level.name for level in levels)),
        domains=np.array([*(x.size for x in distinct), *(len(level.points) for level in levels)], dtype=np.int64),
        agents=tuple(person.name for person in calendar.people),
        owner=np.array([*(x.person for x in distinct), *(0 for _ in levels)], dtype=np.int64),
        factors=tuple(factors),
        labels=(*(x.labels for x in distinct), *(tuple(level.points.tolist()) for level in levels)),
        name=calendar.name,
    )


def _preferences(calendar: Calendar, x: person_rules.Participation) -> list[Factor]:
    """Return the factor of a person's preferences for a meeting, and of an optional attendee's attendance."""
    table = _utilities(calendar, x)
    return [Factor.of((x.variable,), table, name=_preferences_name(calendar, x))] if table.any() else []


def _utilities(calendar: Calendar, x: person_rules.Participation) -> Array:
    """Return the utility of each value of a meeting to a person: preferences, lost appointments and attendance."""
    length = calendar.meetings[x.meeting].length
    return x.padded(points_of_person(calendar, x.person, x.starts, length) + (x.weight or 0))


def _preferences_name(calendar: Calendar, x: person_rules.Participation) -> str:
    """Return the name of the factor of a person's preferences for a meeting."""
    return f"{calendar.people[x.person].name}'s preferences for {calendar.meetings[x.meeting].name}"


def _attendance(calendar: Calendar, meeting: person_rules.Participation, x: person_rules.Participation) -> list[Factor]:
    """Return the factors of an optional attendee, with the utility of the best attendance moved to the meeting.

    For each value of the meeting, a factor of the meeting alone has the largest utility that the attendee can add, and
    the table over both has the rest, which is at most 0. The sum is the same, but bounds that look at each factor alone
    are smaller.
    """
    agree = person_rules.common_times(meeting, x)
    utilities = np.where(forbidden(agree), -np.inf, _utilities(calendar, x)[None, :])
    best = utilities.max(axis=1)
    name = _preferences_name(calendar, x)
    return [
        Factor.of((meeting.variable,), best, name=name),
        Factor.of((meeting.variable, x.variable), utilities - best[:, None], name=name),
    ]


def _agreement(calendar: Calendar, copies: list[person_rules.Participation], separate_attendance: bool) -> list[Factor]:
    """Return the factors of a meeting itself: its own utility, and the agreement of all participants' variables.

    Parameters
    ----------
    calendar
        The calendar.
    copies
        The variables of the meeting, one per participant, then one per optional attendee.
    separate_attendance
        Whether the utilities of optional attendees are factors of the attendees' variables.
    """
    first = copies[0]
    meeting = calendar.meetings[first.meeting]
    not_held = -meeting.move_cost if meeting.booked is not None else 0
    utilities = first.padded(np.array(calendar.utilities(first.meeting)), not_held)
    if meeting.weight is None and not len(first.starts):
        utilities = np.array([-np.inf])
    factors = [Factor.of((first.variable,), utilities, name=meeting.name)] if utilities.any() else []
    required = [x for x in copies if x.weight is None]
    name = f"{meeting.name}: one time for all"
    separate = [(x, y) for x, y in pairwise(required) if x.variable != y.variable]
    factors += [Factor((x.variable, y.variable), person_rules.common_times(x, y), name) for x, y in separate]
    for x in (x for x in copies if x.weight is not None):
        if separate_attendance:
            factors.append(Factor((first.variable, x.variable), person_rules.common_times(first, x), name))
        else:
            factors += _attendance(calendar, first, x)
    return factors


def _apart(
    calendar: Calendar,
    first: list[person_rules.Participation],
    second: list[person_rules.Participation],
    pairs: bool,
    apart: Collection[int],
) -> list[Factor]:
    """Return the factors that forbid clashing choices of two meetings.

    There is one factor per common person whose meetings no constraint keeps apart. If the meetings only share a room,
    an order or a series besides, there is one factor between their first participants.

    Parameters
    ----------
    calendar
        The calendar.
    first, second
        The variables of the two meetings, one per participant.
    pairs
        Whether tables over pairs of meetings limit single rooms.
    apart
        The people whose meetings one constraint keeps apart.
    """
    a, b = calendar.meetings[first[0].meeting], calendar.meetings[second[0].meeting]
    of_person = {x.person: x for x in second}
    common = [(x, of_person[x.person]) for x in first if x.person in of_person and x.person not in apart]
    required = [(x, y) for x, y in common if x.weight is None and y.weight is None]
    if len(required) > 1 and required[0][0].variable == required[1][0].variable:
        required = required[:1]
    is_covered = not required and bool({*a.people} & {*b.people})
    factors: list[Factor] = []
    if required or _are_related(calendar, a, b, pairs and not is_covered):
        m, n = first[0].meeting, second[0].meeting
        if is_covered:
            clash = out_of_order(calendar, m, n) | different_in_series(calendar, m, n)
        else:
            clash = clashes(calendar, m, n)
        if clash.any():
            x, y = first[0], second[0]
            table = normalise(_forbidding(clash, (x.size, y.size)))
            names = f"{a.name} and {b.name}"
            if not required:
                factors.append(Factor((x.variable, y.variable), table, f"{names} do not fit together"))
            for x, y in required:
                name = f"{names} of {calendar.people[x.person].name}"
                factors.append(Factor((x.variable, y.variable), table, name))
    for x, y in common:
        if x.weight is not None or y.weight is not None:
            gap = gap_between(calendar, x.meeting, y.meeting, x.person)
            clash = close_pairs(calendar, Places(x.starts, x.rooms, a.length), Places(y.starts, y.rooms, b.length), gap)
            if clash.any():
                name = f"{a.name} and {b.name} of {calendar.people[x.person].name}"
                factors.append(Factor.of((x.variable, y.variable), _forbidding(clash, (x.size, y.size)), name=name))
    return factors


def _are_related(calendar: Calendar, a: Meeting, b: Meeting, pairs: bool) -> bool:
    """Return whether two meetings without common participants may clash."""
    single = {r for r in {*a.rooms} & {*b.rooms} if calendar.rooms[r].count == 1}
    in_order = any(calendar.meetings[n] is y for x, y in ((a, b), (b, a)) for n, _ in x.after)
    return (pairs and bool(single)) or in_order or (a.series is not None and a.series == b.series)


def _forbidding(clash: Array, shape: tuple[int, int]) -> Array:
    """Return a table with −∞ for the choices that clash, and 0 for all other values."""
    table = np.zeros(shape)
    table[: clash.shape[0], : clash.shape[1]] = np.where(clash, -np.inf, 0)
    return table


def _check_size(
    calendar: Calendar, by_meeting: list[list[person_rules.Participation]], pairs: bool, apart: Collection[int]
) -> None:
    """Raise ``FileError`` if the tables over pairs of variables cannot fit the memory, before any table is built."""
    entries, max_entries = 0, memory_limit() // _BYTES_PER_ENTRY
    for first, second in combinations(by_meeting, 2):
        common = {x.person for x in first} & {x.person for x in second}
        if common and common <= {*apart}:
            continue
        rooms = {*calendar.meetings[first[0].meeting].rooms} & {*calendar.meetings[second[0].meeting].rooms}
        entries += (len(common - {*apart}) or (pairs and bool(rooms))) * first[0].size * second[0].size
    entries += sum(copies[0].size ** 2 * len(copies) for copies in by_meeting)
    if entries > max_entries:
        raise FileError(
            f"{calendar.name}: its tables need {format_bytes(entries * _BYTES_PER_ENTRY)} of memory;"
            " longer slots, fewer days or fewer rooms make them smaller"
        )


def uses_pairs(calendar: Calendar) -> bool:
    """Return whether single rooms are tables over pairs of meetings; otherwise they are cumulative constraints."""
    entries = 0
    for a, b in combinations(range(len(calendar.meetings)), 2):
        first, second = calendar.meetings[a], calendar.meetings[b]
        if {*first.rooms} & {*second.rooms} and not {*first.people} & {*second.people}:
            entries += len(calendar.choices[a]) * len(calendar.choices[b])
    return entries <= tuning.LARGE_ENTRIES


def factors_of_rooms(
    calendar: Calendar, meetings: Sequence[person_rules.Participation], pairs: bool
) -> Iterator[Factor]:
    """Yield the limits on meetings at the same time: of identical rooms, and of single rooms without pair tables.

    Parameters
    ----------
    calendar
        The calendar.
    meetings
        The variable of each meeting's first participant.
    pairs
        Whether tables over pairs of meetings limit single rooms.
    """
    for r, room in enumerate(calendar.rooms):
        users = [x for x in meetings if (x.rooms == r).any()]
        if len(users) > room.count and (room.count > 1 or not pairs):
            yield _cumulative(calendar, users, r)


def _cumulative(calendar: Calendar, users: Sequence[person_rules.Participation], r: int) -> CumulativeConstraint:
    """Return the constraint that at most ``count`` of the meetings that may use a room use it at any time.

    A value with another room, or without a time, has a time after the calendar's last slot, at which no other meeting
    takes place.
    """
    times, lengths, after = [], [], calendar.grid.size
    for x in users:
        times.append(x.padded(np.where(x.rooms == r, x.starts, after), after))
        lengths.append(calendar.meetings[x.meeting].length)
        after += lengths[-1]
    given = {"times": tuple(times), "durations": tuple(lengths), "demands": (1,) * len(users)}
    room = calendar.rooms[r]
    name = f"{room.name}: {room.count} meeting{'s' if room.count > 1 else ''} at a time"
    scope, shape = [x.variable for x in users], [x.size for x in users]
    return CumulativeConstraint(scope, shape, {**given, "capacity": room.count}, None, name)
