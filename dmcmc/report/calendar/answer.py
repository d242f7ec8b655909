"""From an assignment to a calendar: what is held when and where, and what stands in the way of the rest."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from dmcmc.formats.calendar.plan import Calendar, Choice, Meeting
from dmcmc.inference.model.problem import Label

_MOST_NAMED = 3


@dataclass(frozen=True)
class Held:
    """A meeting with its time and room."""

    meeting: Meeting
    choice: Choice
    begin: datetime
    end: datetime
    room: str
    people: tuple[str, ...]


@dataclass(frozen=True)
class Missing:
    """A meeting that is not held, and why."""

    meeting: Meeting
    reason: str


@dataclass(frozen=True)
class Answer:
    """A calendar as it came out: by time, and what did not fit."""

    calendar: Calendar
    held: tuple[Held, ...]
    missing: tuple[Missing, ...]


def answer_of(calendar: Calendar, assignment: Mapping[str, Label]) -> Answer:
    """Return a calendar for an assignment that breaks no hard constraint."""
    chosen: dict[int, Choice] = {}
    for m, meeting in enumerate(calendar.meetings):
        label = assignment[f"{calendar.people[meeting.people[0]].name}: {meeting.name}"]
        found = next((choice for choice in calendar.choices[m] if calendar.label(choice) == label), None)
        if found is not None:
            chosen[m] = found
    held = sorted((choice.start, m) for m, choice in chosen.items())
    missing = [m for m in range(len(calendar.meetings)) if m not in chosen]
    return Answer(
        calendar,
        tuple(_held(calendar, m, chosen[m]) for _, m in held),
        tuple(Missing(calendar.meetings[m], reason_of(calendar, m, chosen)) for m in missing),
    )


def reason_of(calendar: Calendar, m: int, chosen: Mapping[int, Choice]) -> str:
    """Return why a meeting is not held, the others being when and where they are."""
    choices = calendar.choices[m]
    if not choices:
        return no_time(calendar, m)
    blocks = {n: calendar.clashes(m, n)[:, calendar.choices[n].index(choice)] for n, choice in chosen.items()}
    blocks = {n: column for n, column in blocks.items() if column.any()}
    count = np.sum(list(blocks.values()), axis=0) if blocks else np.zeros(len(choices), dtype=int)
    free = np.flatnonzero(count == 0)
    times = f"{len(choices)} possible time{'s' if len(choices) > 1 else ''}"
    if len(free):
        worth = _worth(calendar, m)
        best = max(free.tolist(), key=lambda i: worth[i])
        what = "no gain" if worth[best] <= 0 else "a gain that the run has not found"
        return f"free at {len(free)} of its {times}; at best, {calendar.label(choices[best])}, it is {what}"
    most = sorted(blocks, key=lambda n: -int(blocks[n].sum()))[:_MOST_NAMED]
    named = ", ".join(f"{calendar.meetings[n].name} at {int(blocks[n].sum())}" for n in most)
    least = int(count.argmin())
    only = [calendar.meetings[n].name for n, column in blocks.items() if column[least]]
    way = " and ".join(only[:_MOST_NAMED]) + (" and others" if len(only) > _MOST_NAMED else "")
    more = ", and others" if len(blocks) > _MOST_NAMED else ""
    return (
        f"another meeting is in the way at each of its {times}: {named}{more};"
        f" at {calendar.label(choices[least])} it is {way}"
    )


def no_time(calendar: Calendar, m: int) -> str:
    """Return why a meeting could not be held even if there were no others."""
    meeting, grid = calendar.meetings[m], calendar.grid
    starts = grid.runs(meeting.allowed, meeting.length)
    if not len(starts):
        return f"no {_slots(meeting.length)} within the times that it may have"
    blocked = []
    for p in meeting.people:
        person = calendar.people[p]
        left = grid.runs(meeting.allowed & ~person.busy, meeting.length)
        if not len(left):
            return f"{person.name} is busy at each of the {len(starts)} times that it may have"
        if len(left) < len(starts):
            blocked.append(f"{person.name} is busy at {len(starts) - len(left)}")
    if not blocked:
        return "no room is free when it could be"
    return f"its people are never free together: of the {len(starts)} times that it may have, {', '.join(blocked)}"


def _held(calendar: Calendar, m: int, choice: Choice) -> Held:
    meeting, grid = calendar.meetings[m], calendar.grid
    return Held(
        meeting,
        choice,
        grid.moment(choice.start),
        grid.moment(choice.start, meeting.length),
        "" if choice.room is None else calendar.rooms[choice.room].name,
        tuple(calendar.people[p].name for p in meeting.people),
    )


def _worth(calendar: Calendar, m: int) -> list[float]:
    """Return what each of a meeting's choices is worth to all."""
    of = [calendar.worth(m), *(calendar.worth(m, p) for p in calendar.meetings[m].people)]
    return [float(sum(parts)) for parts in zip(*of, strict=True)]


def _slots(count: int) -> str:
    return "slot" if count == 1 else f"{count} slots in a row"
