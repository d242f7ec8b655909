"""Turn an assignment into a calendar: when and where meetings take place, and why others do not.

The terminal table, the web page and the iCalendar files show this answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from dmcmc.formats.calendar.plan import Calendar, Meeting, MeetingChoice
from dmcmc.inference.model.problem import Label

_MAX_NAMED = 3  # meetings that a reason names


@dataclass(frozen=True)
class ScheduledMeeting:
    """A meeting that takes place.

    Attributes
    ----------
    meeting : Meeting
        The meeting as the calendar file describes it.
    choice : MeetingChoice
        Its first time slot and its room.
    begin, end : datetime
        When it begins and ends, in the calendar's local time.
    room : str
        Name of the room; empty without one.
    people : tuple of str
        Names of the participants.
    """

    meeting: Meeting
    choice: MeetingChoice
    begin: datetime
    end: datetime
    room: str
    people: tuple[str, ...]


@dataclass(frozen=True)
class MissingMeeting:
    """A meeting that does not take place.

    Attributes
    ----------
    meeting : Meeting
        The meeting as the calendar file describes it.
    reason : str
        Why it does not take place, for people.
    """

    meeting: Meeting
    reason: str


@dataclass(frozen=True)
class CalendarAnswer:
    """A solved calendar.

    Attributes
    ----------
    calendar : Calendar
        The calendar file.
    scheduled : tuple of ScheduledMeeting
        Meetings that take place, by time.
    missing : tuple of MissingMeeting
        Meetings that do not take place.
    """

    calendar: Calendar
    scheduled: tuple[ScheduledMeeting, ...]
    missing: tuple[MissingMeeting, ...]


def answer_of(calendar: Calendar, assignment: Mapping[str, Label]) -> CalendarAnswer:
    """Return the calendar of an assignment that breaks no hard constraint."""
    chosen: dict[int, MeetingChoice] = {}
    for m, meeting in enumerate(calendar.meetings):
        label = assignment[f"{calendar.people[meeting.people[0]].name}: {meeting.name}"]
        match = next((choice for choice in calendar.choices[m] if calendar.label(choice) == label), None)
        if match is not None:
            chosen[m] = match
    by_time = sorted((choice.start, m) for m, choice in chosen.items())
    missing = [m for m in range(len(calendar.meetings)) if m not in chosen]
    return CalendarAnswer(
        calendar,
        tuple(_scheduled(calendar, m, chosen[m]) for _, m in by_time),
        tuple(MissingMeeting(calendar.meetings[m], reason_of(calendar, m, chosen)) for m in missing),
    )


def reason_of(calendar: Calendar, m: int, chosen: Mapping[int, MeetingChoice]) -> str:
    """Return why a meeting does not take place, in words.

    Parameters
    ----------
    calendar
        The calendar.
    m
        Number of the meeting.
    chosen
        The times and rooms of the meetings that take place, by their numbers.
    """
    choices = calendar.choices[m]
    if not choices:
        return no_time(calendar, m)
    blocks = {n: calendar.clashes(m, n)[:, calendar.choices[n].index(choice)] for n, choice in chosen.items()}
    blocks = {n: column for n, column in blocks.items() if column.any()}
    n_conflicts = np.sum(list(blocks.values()), axis=0) if blocks else np.zeros(len(choices), dtype=int)
    free = np.flatnonzero(n_conflicts == 0)
    times = f"{len(choices)} possible time{'s' if len(choices) > 1 else ''}"
    if len(free):
        scores = _scores(calendar, m)
        best = max(free.tolist(), key=lambda i: scores[i])
        verdict = (
            "would not raise the total score" if scores[best] <= 0 else "would raise the total score; solve for longer"
        )
        return f"free at {len(free)} of its {times}, but the best, {calendar.label(choices[best])}, {verdict}"
    main_conflicts = sorted(blocks, key=lambda n: -int(blocks[n].sum()))[:_MAX_NAMED]
    named = ", ".join(f"{calendar.meetings[n].name} at {int(blocks[n].sum())}" for n in main_conflicts)
    fewest_conflicts = int(n_conflicts.argmin())
    conflicts_there = [calendar.meetings[n].name for n, column in blocks.items() if column[fewest_conflicts]]
    conflicting = " and ".join(conflicts_there[:_MAX_NAMED]) + (
        " and others" if len(conflicts_there) > _MAX_NAMED else ""
    )
    more = ", and others" if len(blocks) > _MAX_NAMED else ""
    return (
        f"another meeting takes place at each of its {times}: {named}{more};"
        f" at {calendar.label(choices[fewest_conflicts])} only {conflicting}"
    )


def no_time(calendar: Calendar, m: int) -> str:
    """Return why a meeting could not take place even if it were the only one."""
    meeting, grid = calendar.meetings[m], calendar.grid
    starts = grid.free_starts(meeting.allowed, meeting.length)
    if not len(starts):
        return f"its allowed times contain no {_slots(meeting.length)}"
    blocked = []
    for p in meeting.people:
        person = calendar.people[p]
        person_starts = grid.free_starts(meeting.allowed & ~person.busy, meeting.length)
        if not len(person_starts):
            return f"{person.name} is busy at all of its {len(starts)} allowed times"
        if len(person_starts) < len(starts):
            blocked.append(f"{person.name} is busy at {len(starts) - len(person_starts)}")
    if not blocked:
        return "no room is free at any of its allowed times"
    return f"its participants are never free at the same time: of its {len(starts)} allowed times, {', '.join(blocked)}"


def _scheduled(calendar: Calendar, m: int, choice: MeetingChoice) -> ScheduledMeeting:
    """Return a meeting with its time, room and participants."""
    meeting, grid = calendar.meetings[m], calendar.grid
    return ScheduledMeeting(
        meeting,
        choice,
        grid.moment(choice.start),
        grid.moment(choice.start, meeting.length),
        "" if choice.room is None else calendar.rooms[choice.room].name,
        tuple(calendar.people[p].name for p in meeting.people),
    )


def _scores(calendar: Calendar, m: int) -> list[float]:
    """Return the score of each choice of a meeting: its own and the preferences of all participants."""
    scores = [calendar.utilities(m), *(calendar.utilities(m, p) for p in calendar.meetings[m].people)]
    return [float(sum(parts)) for parts in zip(*scores, strict=True)]


def _slots(count: int) -> str:
    """Return a number of consecutive time slots in words."""
    return "time slot" if count == 1 else f"{count} consecutive time slots"
