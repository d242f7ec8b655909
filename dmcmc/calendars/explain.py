"""Explain an impossible calendar: a minimal set of its rules in conflict, and the cheapest relaxations."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from dmcmc.calendars.file.clashes import clashes
from dmcmc.calendars.file.plan import NO_FAIRNESS, Calendar, Mask, Meeting, Person, Precedence
from dmcmc.calendars.pages.reasons import has_other_rules, no_time
from dmcmc.inference.presolve.minimal_conflict import minimal_conflict
from dmcmc.inference.runtime.types import Number
from dmcmc.results.calendar_result import CalendarConflict
from dmcmc.results.questions import RelaxedConstraint
from dmcmc.results.result import Result
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.tuning import run as tuning

Solve = Callable[[Calendar, float], Result]
"""Solves a calendar within a time limit in seconds."""
Test = Callable[[Sequence[int]], bool | None]
"""Whether some meetings of a calendar fit together; None if this is not known in time."""


class CalendarRule(NamedTuple):
    """A rule that may be part of a conflict.

    Attributes
    ----------
    text : str
        The rule in the words of the calendar.
    relax : callable
        Returns a calendar without the rule, for a calendar with the same people, rooms and meetings.
    """

    text: str
    relax: Callable[[Calendar], Calendar]


def explain(calendar: Calendar, seconds: float, solve: Solve) -> CalendarConflict:
    """Return a minimal set of rules of an impossible calendar that cannot hold together, and what relaxing one brings.

    First a minimal set of required meetings that cannot all take place is found, then a minimal set of the rules of
    these meetings, their participants and their rooms. A test that is not finished in time counts as possible, so that
    the result is a conflict, but perhaps not minimal.

    Parameters
    ----------
    calendar
        A calendar that is proven to be impossible.
    seconds
        Time limit of all tests together, in seconds.
    solve
        Solves a calendar within a time limit in seconds.
    """
    return _Explanation(calendar, seconds, solve).conflict()


class _Explanation:
    """The tests of an explanation and their time limit.

    Attributes
    ----------
    calendar : Calendar
        The calendar.
    start, seconds : float
        When the explanation began (``time.perf_counter``), and its time limit in seconds.
    solve : callable
        Solves a calendar within a time limit in seconds.
    """

    def __init__(self, calendar: Calendar, seconds: float, solve: Solve) -> None:
        self.calendar, self.solve = calendar, solve
        self.start, self.seconds = time.perf_counter(), seconds

    def remaining(self, reserved: float = 0.0) -> float:
        """Return the remaining seconds, without a reserved share of the time limit."""
        return self.start + (1 - reserved) * self.seconds - time.perf_counter()

    def conflict(self) -> CalendarConflict:
        """Find the conflict and the relaxations."""
        meetings = conflict_of(self.calendar, lambda some: self.is_possible(restricted_to(self.calendar, some)))
        rules = rules_of(self.calendar, meetings)

        def is_infeasible(items: list[int]) -> bool | None:
            """Return whether some of the rules cannot hold together; None if this is not known."""
            answer = self.is_possible(restricted_to(self._without(rules, {*range(len(rules))} - {*items}), meetings))
            return None if answer is None else not answer

        found = minimal_conflict(len(rules), is_infeasible)
        chosen = [rules[i] for i in found.items]
        return CalendarConflict(
            status="infeasible",
            constraints=tuple(rule.text for rule in chosen),
            minimal=found.is_minimal,
            relaxations=self.relaxations([*chosen, *self.attendances(meetings)][: tuning.MAX_RELAXATIONS]),
            time=time.perf_counter() - self.start,
            summary=summary_of(self.calendar, meetings),
            meetings=tuple(self.calendar.meetings[m].name for m in meetings),
        )

    def is_possible(self, calendar: Calendar) -> bool | None:
        """Return whether all required meetings of a calendar fit together; None if this is not known in time."""
        must = [m for m, meeting in enumerate(calendar.meetings) if meeting.weight is None]
        if not must or not all(calendar.choices[m] for m in must):
            return not must
        answer = MeetingSearch(calendar).fits(must)
        if answer is False or (answer and not has_other_rules(calendar)):
            return answer
        seconds = self.remaining(sampler_tuning.MAIN_SHARE)
        if seconds <= 0:
            return None
        result = self.solve(calendar, max(0.5, sampler_tuning.UNTRIED_SHARE * seconds))
        return False if result.status == "infeasible" else True if result.violation == 0 else None

    def relaxations(self, rules: Sequence[CalendarRule]) -> tuple[RelaxedConstraint, ...]:
        """Return what relaxing each rule alone brings for the whole calendar, the best objective first."""
        found = []
        for number, rule in enumerate(rules):
            seconds = self.remaining() / (len(rules) - number)
            if seconds <= 0:
                found.append(RelaxedConstraint(constraint=rule.text, objective=None, status="timeout"))
                continue
            result = self.solve(rule.relax(self.calendar), max(0.1, seconds))
            found.append(RelaxedConstraint(constraint=rule.text, objective=result.objective, status=result.status))
        return tuple(sorted(found, key=_preferred))

    def attendances(self, meetings: Sequence[int]) -> list[CalendarRule]:
        """Return the attendance of people who attend several of the meetings, as rules."""
        calendar, rules = self.calendar, []
        for m in meetings:
            for p in calendar.meetings[m].people:
                shared = sum(p in calendar.meetings[n].people for n in meetings)
                if len(calendar.meetings[m].people) > 1 and (shared > 1 or len(meetings) == 1):
                    text = f"{calendar.people[p].name} attends {calendar.meetings[m].name}"
                    rules.append(CalendarRule(text, partial(_without_person, m=m, p=p)))
        return rules

    def _without(self, rules: Sequence[CalendarRule], relaxed: set[int]) -> Calendar:
        """Return the calendar without some of the rules."""
        calendar = self.calendar
        for i in sorted(relaxed):
            calendar = rules[i].relax(calendar)
        return calendar


def _preferred(relaxation: RelaxedConstraint) -> tuple[bool, Number]:
    """Return the sort key of a relaxation: those that make the calendar possible first, by their objectives."""
    return relaxation.objective is None, -(relaxation.objective or 0)


def _without_person(calendar: Calendar, m: int, p: int) -> Calendar:
    """Return a calendar in which a person does not attend a meeting."""
    meetings = list(calendar.meetings)
    meetings[m] = replace(meetings[m], people=tuple(q for q in meetings[m].people if q != p))
    return replace(calendar, meetings=tuple(meetings))


def summary_of(calendar: Calendar, meetings: Sequence[int]) -> str:
    """Return a conflict between meetings in one sentence."""
    names = [calendar.meetings[m].name for m in meetings]
    if len(meetings) == 1 and not calendar.choices[meetings[0]]:
        return f"{names[0]} cannot take place: {no_time(calendar, meetings[0])}"
    if len(meetings) == 1:
        return f"{names[0]} cannot take place"
    shared = set.intersection(*({*calendar.meetings[m].people} for m in meetings)) if meetings else set()
    names_of_shared = ", ".join(calendar.people[p].name for p in sorted(shared))
    by = f"; {names_of_shared} would have to attend all of them" if names_of_shared else ""
    return f"these {len(names)} meetings cannot all take place: {', '.join(names)}{by}"


def conflict_of(calendar: Calendar, fits: Test | None = None) -> list[int]:
    """Return the numbers of required meetings that cannot all take place; mostly, removing any one of them resolves it.

    QuickXplain makes a small group of meetings that cannot all take place minimal. The groups are the meetings of each
    person, the meetings with rooms, and all meetings. They are tested by rules between pairs of meetings, and if no
    group fails, by ``fits``.

    Parameters
    ----------
    calendar
        The calendar.
    fits
        A test by all rules; None for a test by rules between pairs of meetings.
    """
    must = [m for m, meeting in enumerate(calendar.meetings) if meeting.weight is None]
    for m in must:
        if not calendar.choices[m]:
            return [m]
    search = MeetingSearch(calendar)
    people = range(len(calendar.people))
    groups = [[m for m in must if p in calendar.meetings[m].people] for p in people]
    groups += [[m for m in must if calendar.meetings[m].rooms]]
    impossible = [group for group in groups if search.fits(group) is False]
    test: Test = search.fits
    if not impossible and search.fits(must) is not False and fits is not None:
        test = fits
        failing = (group for group in sorted(groups, key=len) if group and fits(group) is False)
        impossible = [next(failing, must)]
    conflict = min(impossible, key=len, default=must)

    def is_infeasible(items: list[int]) -> bool | None:
        """Return whether some of the meetings cannot all take place; None if this is not known."""
        answer = test([conflict[i] for i in items])
        return None if answer is None else not answer

    return [conflict[i] for i in minimal_conflict(len(conflict), is_infeasible).items]


class MeetingSearch:
    """Depth-first search for times of some meetings, the meeting with the fewest choices first.

    It knows the rules between pairs of meetings (``Calendar.clashes``). The remaining choices of a meeting are the bits
    of an integer: bit i stands for choice i.

    Attributes
    ----------
    calendar : Calendar
        The calendar.
    allowed : callable
        ``_allowed`` with cached results.
    nodes : int
        Number of search nodes of the current test.
    """

    def __init__(self, calendar: Calendar) -> None:
        self.calendar = calendar
        self.allowed = cache(self._allowed)
        self.nodes = 0

    def fits(self, meetings: Sequence[int]) -> bool | None:
        """Return whether the given meetings can all take place; None if the search was not finished."""
        if self._exceeds_slots(meetings):
            return False
        self.nodes = 0
        return self._place({m: (1 << len(self.calendar.choices[m])) - 1 for m in meetings})

    def _place(self, remaining: dict[int, int]) -> bool | None:
        """Return whether the meetings in ``remaining`` fit together with their choices; None if not finished.

        ``remaining`` maps each meeting to its remaining choices, as the bits of an integer. A choice is kept only if
        each other meeting still has a compatible one (forward checking).
        """
        if not remaining:
            return True
        self.nodes += 1
        if self.nodes > tuning.MAX_MEETING_NODES:
            return None
        m = min(remaining, key=lambda n: (remaining[n].bit_count(), n))
        choices, others = remaining[m], {n: bits for n, bits in remaining.items() if n != m}
        while choices:
            choice = (choices & -choices).bit_length() - 1
            choices &= choices - 1
            narrowed = {n: bits & self.allowed(m, n)[choice] for n, bits in others.items()}
            if all(narrowed.values()) and (is_possible := self._place(narrowed)) is not False:
                return is_possible
        return False

    def _exceeds_slots(self, meetings: Sequence[int]) -> bool:
        """Return whether the meetings of one person need more time slots than those in which they are possible."""
        for p in range(len(self.calendar.people)):
            attended = [m for m in meetings if p in self.calendar.meetings[m].people]
            slots: set[int] = set()
            for m in attended:
                length = self.calendar.meetings[m].length
                slots |= {s for c in self.calendar.choices[m] for s in range(c.start, c.start + length)}
            if len(slots) < sum(self.calendar.meetings[m].length for m in attended):
                return True
        return False

    def _allowed(self, m: int, n: int) -> list[int]:
        """Return for each choice of meeting ``m`` the compatible choices of meeting ``n`` as the bits of an integer.

        Bit i stands for choice i of ``n``.
        """
        packed = np.packbits(~clashes(self.calendar, m, n), axis=1, bitorder="little")
        return [int.from_bytes(row.tobytes(), "little") for row in packed]


def restricted_to(calendar: Calendar, meetings: Iterable[int]) -> Calendar:
    """Return the calendar of some meetings only, without preferences: it is possible if these meetings fit together.

    The other meetings and all optional attendees are left out; the numbers of the meetings change.
    """
    chosen = sorted(meetings)
    number = {m: i for i, m in enumerate(chosen)}
    kept = []
    for m in chosen:
        meeting = calendar.meetings[m]
        after = tuple(Precedence(number[x.meeting], x.gap) for x in meeting.after if x.meeting in number)
        nothing: dict[str, Any] = {"preferences": (), "optional": (), "early": 0, "room_points": {}, "booked": None}
        kept.append(replace(meeting, after=after, **nothing))
    people = tuple(replace(person, preferences=(), appointments=(), no_gaps=0) for person in calendar.people)
    return replace(calendar, meetings=tuple(kept), people=people, fairness=NO_FAIRNESS)


def rules_of(calendar: Calendar, meetings: Sequence[int]) -> list[CalendarRule]:
    """Return the rules of some meetings of a calendar, of their participants and of their rooms.

    Rules that come first are preferred in explanations.
    """
    people = sorted({p for m in meetings for p in calendar.meetings[m].people})
    rooms = sorted({r for m in meetings for r in calendar.meetings[m].rooms})
    return [
        *(rule for m in meetings for rule in _rules_of_meeting(calendar, m, meetings)),
        *(rule for p in people for rule in _rules_of_person(calendar, p, meetings)),
        *(rule for r in rooms for rule in _rules_of_room(calendar, r)),
        *([CalendarRule("travel between rooms takes time", _without_travel)] if calendar.travel else []),
    ]


def _without_travel(calendar: Calendar) -> Calendar:
    """Return a calendar in which travel between rooms takes no time."""
    return replace(calendar, travel={})


def _rules_of_meeting(calendar: Calendar, m: int, meetings: Sequence[int]) -> Iterator[CalendarRule]:
    """Yield the rules of a meeting; of its orders those with other ones of the given meetings."""
    meeting = calendar.meetings[m]
    name = meeting.name
    if meeting.weight is None:
        yield CalendarRule(f"{name} must be held", _meeting_change(m, {"weight": 0}))
    if meeting.when is not None and meeting.series is None:
        yield CalendarRule(f"{name} lies within {meeting.when.text}", _meeting_change(m, {"when": None}))
    if meeting.starts is not None:
        yield CalendarRule(f"{name} is {meeting.starts.text}", _meeting_change(m, {"starts": None}))
    for p in meeting.refused:
        remaining = {other: mask for other, mask in meeting.refused.items() if other != p}
        text = f"{calendar.people[p].name} has refused times of {name} in the poll"
        yield CalendarRule(text, _meeting_change(m, {"refused": remaining}))
    if meeting.buffer:
        yield CalendarRule(f"{name} has a buffer of {meeting.buffer} minutes", _meeting_change(m, {"buffer": 0}))
    for earlier, gap in (x for x in meeting.after if x.meeting in meetings):
        remaining_order = tuple(x for x in meeting.after if x.meeting != earlier)
        text = f"{name} is after {calendar.meetings[earlier].name}" + (f" by {gap} minutes" if gap else "")
        yield CalendarRule(text, _meeting_change(m, {"after": remaining_order}))
    if meeting.series is not None and (meeting.series.same_time or meeting.series.same_room):
        same = [*(["time"] if meeting.series.same_time else []), *(["room"] if meeting.series.same_room else [])]
        text = f"{name} has the {' and '.join(same)} of {meeting.series.name}"
        yield CalendarRule(text, _meeting_change(m, {"series": None}))
    if meeting.rooms:
        names = " or ".join(calendar.rooms[r].name for r in meeting.rooms)
        yield CalendarRule(f"{name} needs a room ({names})", _meeting_change(m, {"rooms": ()}))


def _rules_of_person(calendar: Calendar, p: int, meetings: Sequence[int]) -> Iterator[CalendarRule]:
    """Yield the rules of a person that may concern one of some meetings."""
    person, name = calendar.people[p], calendar.people[p].name
    for kind, verb in (("away_times", "is away"), ("busy_times", "is busy")):
        for i, rule in enumerate(getattr(person, kind)):
            if _concerns(calendar, p, rule.mask, meetings):
                yield CalendarRule(f"{name} {verb} {rule.text}", _without_time(p, kind, i))
    if person.buffer:
        text = f"{name} has {person.buffer} minutes between meetings"
        yield CalendarRule(text, _person_change(p, {"buffer": 0}))
    if person.max_per_day is not None:
        text = f"{name} has at most {person.max_per_day} meeting{'s' if person.max_per_day > 1 else ''} a day"
        yield CalendarRule(text, _person_change(p, {"max_per_day": None}))
    if person.max_in_a_row is not None:
        text = f"{name} has at most {person.max_in_a_row} minutes of meetings in a row"
        yield CalendarRule(text, _person_change(p, {"max_in_a_row": None}))
    if person.lunch is not None:
        yield CalendarRule(f"{name} has lunch within {person.lunch.text}", _person_change(p, {"lunch": None}))


def _rules_of_room(calendar: Calendar, r: int) -> Iterator[CalendarRule]:
    """Yield the rules of a room."""
    room = calendar.rooms[r]
    several = f"there are {room.count} rooms {room.name}"
    yield CalendarRule(f"{room.name} holds one meeting at a time" if room.count == 1 else several, _more_rooms(r))
    for i, rule in enumerate(room.busy_times):

        def relax(x: Calendar, i: int = i) -> Calendar:
            """Return the calendar in which the room is not taken by the rule; the others keep their numbers."""
            rules = list(x.rooms[r].busy_times)
            rules[i] = rules[i]._replace(mask=np.zeros(x.grid.size, dtype=bool))
            return _with_item(x, "rooms", r, replace(x.rooms[r], busy_times=tuple(rules)))

        yield CalendarRule(f"{room.name} is taken {rule.text}", relax)


def _concerns(calendar: Calendar, p: int, mask: Mask, meetings: Sequence[int]) -> bool:
    """Return whether a rule for times of a person concerns one of some meetings, which the person attends."""
    for meeting in (calendar.meetings[m] for m in meetings):
        if p in meeting.people:
            starts = calendar.start_mask(meeting, ())
            slots = np.zeros(calendar.grid.size, dtype=bool)
            for start in np.flatnonzero(starts):
                slots[start : start + meeting.length] = True
            buffer = max(meeting.buffer, calendar.people[p].buffer)
            if (slots & (calendar.grid.widened(mask, buffer) if buffer else mask)).any():
                return True
    return False


def _meeting_change(m: int, changes: Mapping[str, Any]) -> Callable[[Calendar], Calendar]:
    """Return a function that changes fields of a meeting."""
    return lambda x: _with_item(x, "meetings", m, _changed(x.meetings[m], changes))


def _person_change(p: int, changes: Mapping[str, Any]) -> Callable[[Calendar], Calendar]:
    """Return a function that changes fields of a person."""
    return lambda x: _with_item(x, "people", p, _changed(x.people[p], changes))


def _changed(item: Meeting | Person, changes: Mapping[str, Any]) -> Meeting | Person:
    """Return a record with other values of some fields; of a list of remaining items, those that it still has."""
    if "after" in changes and isinstance(item, Meeting):
        return replace(item, after=tuple(x for x in item.after if x in changes["after"]))
    if "refused" in changes and isinstance(item, Meeting):
        return replace(item, refused={p: mask for p, mask in item.refused.items() if p in changes["refused"]})
    return replace(item, **changes)


def _without_time(p: int, kind: str, i: int) -> Callable[[Calendar], Calendar]:
    """Return a function that empties one rule of a person's busy or away times; the others keep their numbers."""

    def relax(x: Calendar) -> Calendar:
        """Return the calendar without the rule."""
        rules = list(getattr(x.people[p], kind))
        rules[i] = rules[i]._replace(mask=np.zeros(x.grid.size, dtype=bool))
        changes: dict[str, Any] = {kind: tuple(rules)}
        return _with_item(x, "people", p, replace(x.people[p], **changes))

    return relax


def _more_rooms(r: int) -> Callable[[Calendar], Calendar]:
    """Return a function that makes as many identical rooms as there are meetings."""
    return lambda x: _with_item(x, "rooms", r, replace(x.rooms[r], count=max(len(x.meetings), 2)))


def _with_item(calendar: Calendar, section: str, index: int, item: Any) -> Calendar:
    """Return a calendar with another person, room or meeting at a position."""
    items = list(getattr(calendar, section))
    items[index] = item
    changes: dict[str, Any] = {section: tuple(items)}
    return replace(calendar, **changes)
