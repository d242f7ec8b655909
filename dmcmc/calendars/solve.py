"""Solve a calendar, also anew with what was booked, complete its result, and explain why it is impossible."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from dmcmc.calendars.explain import explain
from dmcmc.config.document import show
from dmcmc.config.settings import Settings, settings_from
from dmcmc.formats.calendar.data.grid import TimeGrid
from dmcmc.formats.calendar.data.plan import Calendar, Meeting, MeetingChoice
from dmcmc.formats.calendar.problem import problem_of
from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.types import Number
from dmcmc.report.calendar.answer import CalendarAnswer, answer_of, variable_of
from dmcmc.results.calendar_result import (
    CalendarConflict,
    CalendarResult,
    DroppedMeeting,
    HeldMeeting,
    MovedBooking,
    YieldingAppointment,
)
from dmcmc.results.result import Result
from dmcmc.run.algorithms import choose_algorithm
from dmcmc.samplers.tuning import common
from dmcmc.tuning import run as tuning

_NUMBER = re.compile(r" [0-9]+$")


def solve_calendar(calendar: Calendar, seconds: float, settings: Settings | None = None) -> Result:
    """Solve a calendar with one variable per meeting, within a time limit in seconds; start from what is booked."""
    keywords: dict[str, Any] = {"timeout": seconds, "presolve": "merge", "device": "cpu"}
    if booked := booked_assignment(calendar):
        keywords["start"] = booked
    settings = settings_from(settings, keywords)
    return choose_algorithm.solve_alone(problem_of(calendar, copies=False), settings)


def as_calendar_result(
    result: Result, calendar: Calendar, seconds: float = tuning.EXPLANATION_SECONDS
) -> CalendarResult:
    """Return a result with the meetings of its calendar, or with a conflict if it is proven to be impossible.

    Parameters
    ----------
    result
        The result of the calendar's problem.
    calendar
        The calendar.
    seconds
        Time limit for the explanation of an impossible calendar, in seconds.
    """
    conflict = explain(calendar, seconds, solve_calendar) if result.status == "infeasible" else None
    return with_meetings(result, calendar, conflict)


def find_calendar_conflict(calendar: Calendar, settings: Settings) -> CalendarConflict:
    """Return why a calendar is impossible, or that it is possible; the task ``conflict`` for calendars.

    Parameters
    ----------
    calendar
        The calendar.
    settings
        ``budget.time`` limits the proof and the explanation together.
    """
    start, limit = time.perf_counter(), settings.budget.time or tuning.EXPLANATION_SECONDS
    result = solve_calendar(calendar, common.FIRST_SHARE * limit)
    if result.status == "infeasible":
        conflict = explain(calendar, limit - (time.perf_counter() - start), solve_calendar)
        return msgspec.structs.replace(conflict, time=time.perf_counter() - start, provenance=result.provenance)
    return CalendarConflict(
        status="feasible" if result.violation == 0 else "unknown",
        summary="all required meetings can take place" if result.violation == 0 else "no proof was found in time",
        time=time.perf_counter() - start,
        provenance=result.provenance,
    )


def with_meetings(result: Result, calendar: Calendar, conflict: CalendarConflict | None) -> CalendarResult:
    """Return a result with the meetings of its calendar.

    Parameters
    ----------
    result
        The result of the calendar's problem.
    calendar
        The calendar.
    conflict
        Why the calendar is impossible; None if that is not proven.
    """
    fields = msgspec.structs.asdict(result)
    if result.assignment is not None:
        fields["assignment"] = _for_all(calendar, result.assignment)
    fields["alternatives"] = tuple(
        msgspec.structs.replace(x, assignment=_for_all(calendar, x.assignment)) for x in result.alternatives
    )
    fields["conflict"] = conflict
    if conflict is None and result.assignment is not None and not result.violation:
        fields |= _meetings(answer_of(calendar, result.assignment))
    return CalendarResult(**fields)


def _for_all(calendar: Calendar, assignment: Mapping[str, Label]) -> dict[str, Label]:
    """Return an assignment with the value of each meeting for all of its participants."""
    found = dict(assignment)
    for m, meeting in enumerate(calendar.meetings):
        value = assignment.get(variable_of(calendar, m, meeting.people[0]))
        if value is not None:
            found |= {variable_of(calendar, m, p): value for p in meeting.people}
    return found


def _meetings(answer: CalendarAnswer) -> dict[str, object]:
    """Return the fields that describe a solved calendar."""
    grid = answer.calendar.grid
    held = tuple(
        HeldMeeting(
            name=item.meeting.name,
            start=_text(item.begin, grid),
            end=_text(item.end, grid),
            room=item.room or None,
            people=item.people,
            optional_missing=tuple(item.optional_missing),
        )
        for item in answer.scheduled
    )
    return {
        "meetings": held,
        "not_held": tuple(DroppedMeeting(name=x.meeting.name, reason=x.reason) for x in answer.missing),
        "moved": tuple(
            MovedBooking(name=x.meeting.name, booked=x.booked, now=x.now, cost=x.meeting.move_cost, reason=x.reason)
            for x in answer.moved
        ),
        "gives_way": tuple(
            YieldingAppointment(person=x.person, appointment=x.appointment, meeting=x.meeting, cost=x.cost)
            for x in answer.gives_way
        ),
    }


def _text(local: datetime, grid: TimeGrid) -> str:
    """Return a local time in ISO form, with the offset of the calendar's time zone if it has one."""
    return (local.replace(tzinfo=ZoneInfo(grid.timezone)) if grid.timezone else local).isoformat(timespec="minutes")


def with_earlier_answer(calendar: Calendar, text: str, name: str) -> Calendar:
    """Return a calendar whose meetings are booked as an earlier answer has them.

    Meetings that the earlier answer does not hold, or that take place outside the calendar's slots, are not booked.

    Parameters
    ----------
    calendar
        The calendar.
    text
        The JSON text of an earlier answer (``--json`` or ``--output``).
    name
        Its file name, for errors.

    Raises
    ------
    FileError
        If the text is not the answer of a calendar, or lists a meeting twice.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise FileError(f"{name}:{line}: is not valid JSON: {getattr(error, 'msg', error)}") from None
    meetings = data.get("meetings") if isinstance(data, dict) else None
    if not isinstance(meetings, list):
        raise FileError(f"{name}: has no 'meetings'; expected the answer of a calendar (dmcmc run --json or --output)")
    booked = {}
    for number, entry in enumerate(meetings):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise FileError(f"{name}: meetings[{number}]: expected a meeting with its name, got {show(entry)}")
        if entry["name"] in booked:
            raise FileError(f"{name}: meetings[{number}]: {entry['name']} is listed twice")
        booked[entry["name"]] = _choice(calendar, entry, f"{name}: meetings[{number}] ({entry['name']})")
    return replace(calendar, meetings=tuple(replace(x, booked=booked.get(x.name, x.booked)) for x in calendar.meetings))


def with_move_cost(calendar: Calendar, move_cost: Number) -> Calendar:
    """Return a calendar in which moving any booked meeting costs ``move_cost``."""
    return replace(calendar, meetings=tuple(replace(x, move_cost=move_cost) for x in calendar.meetings))


def _choice(calendar: Calendar, entry: Mapping[str, Any], where: str) -> MeetingChoice | None:
    """Return the time and room of a meeting of an earlier answer; None if no slot of the calendar starts then."""
    try:
        start = datetime.fromisoformat(entry["start"])
    except (KeyError, TypeError, ValueError):
        raise FileError(
            f"{where}: start: expected a time such as 2027-03-01T10:00, got {show(entry.get('start'))}"
        ) from None
    slot = calendar.grid.slot_at(calendar.grid.local(start))
    if slot is None:
        return None
    names, given = [room.name for room in calendar.rooms], entry.get("room") or None
    known = next((name for name in (given, _NUMBER.sub("", str(given))) if name in names), None)
    return MeetingChoice(slot, None if known is None else names.index(known))


def booked_assignment(calendar: Calendar) -> dict[str, str]:
    """Return the values of the booked meetings that are still possible, by the names of the variables."""
    found = {}
    for meeting, choices in zip(calendar.meetings, calendar.choices, strict=True):
        if (label := _booked_label(calendar, meeting, choices)) is not None:
            found[f"{calendar.people[meeting.people[0]].name}: {meeting.name}"] = label
    return found


def _booked_label(calendar: Calendar, meeting: Meeting, choices: tuple[MeetingChoice, ...]) -> str | None:
    """Return the label of a meeting's booked time and room; None if there is none, or it is not possible."""
    booked = meeting.booked
    if booked is None:
        return None
    matching = (c for c in choices if c.start == booked.start and booked.room in (None, c.room))
    return next((calendar.label(choice) for choice in matching), None)
