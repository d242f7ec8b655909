"""Complete the result of a calendar: its meetings, and what is not held or moves."""

from collections.abc import Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from dmcmc.formats.calendar.data.grid import TimeGrid
from dmcmc.formats.calendar.data.plan import Calendar
from dmcmc.inference.model.problem import Label
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
