"""Solve a calendar, complete its result, and find out why an impossible calendar is impossible."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from dmcmc.algorithms.choice import choose_algorithm
from dmcmc.calendars.explain import explain
from dmcmc.calendars.file.booked import booked_assignment
from dmcmc.calendars.file.grid import TimeGrid
from dmcmc.calendars.file.plan import Calendar
from dmcmc.calendars.file.problem import problem_of
from dmcmc.calendars.pages.answer import CalendarAnswer, answer_of
from dmcmc.config.settings import Settings, settings_from
from dmcmc.inference.model.problem import Label
from dmcmc.results.calendar_result import (
    CalendarConflict,
    CalendarResult,
    DroppedMeeting,
    HeldMeeting,
    MovedBooking,
    YieldingAppointment,
)
from dmcmc.results.result import Result
from dmcmc.samplers.tuning import common
from dmcmc.tuning import run as tuning


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
        value = assignment.get(calendar.variable(m, meeting.people[0]))
        if value is not None:
            found |= {calendar.variable(m, p): value for p in meeting.people}
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
