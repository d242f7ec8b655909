"""Solve a calendar, complete its result, and find out why an impossible calendar is impossible."""

import time
from typing import Any

import msgspec

from dmcmc.calendars.complete import with_meetings
from dmcmc.calendars.explain import explain
from dmcmc.config.settings import Settings, settings_from
from dmcmc.formats.calendar.data.plan import Calendar
from dmcmc.formats.calendar.keep import booked_assignment
from dmcmc.formats.calendar.problem import problem_of
from dmcmc.results.calendar_result import CalendarConflict, CalendarResult
from dmcmc.results.result import Result
from dmcmc.run.algorithms import choose_algorithm
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
