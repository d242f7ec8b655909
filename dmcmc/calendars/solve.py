"""Solve a calendar, complete its result, and find out why an impossible calendar is impossible.

For the command line: default settings, earlier answers, and the page and iCalendar files of the answer.
"""

import time
import warnings
from argparse import Namespace
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from dmcmc.algorithms.choice import choose_algorithm
from dmcmc.anytime.engines.choose_engine import choose_engine
from dmcmc.calendars.explain import explain
from dmcmc.calendars.file.plan import Calendar, TimeGrid, booked_assignment, with_earlier_answer, with_move_cost
from dmcmc.calendars.file.problem import problem_of
from dmcmc.calendars.file.read import read_calendar
from dmcmc.calendars.pages.answer import CalendarAnswer, answer_of, write_ics
from dmcmc.calendars.pages.page import page_of, page_of_conflict, page_without_answer
from dmcmc.calendars.pages.reasons import reason_without_answer
from dmcmc.config.configuration import Config
from dmcmc.config.make_settings import settings_from
from dmcmc.config.settings import Settings
from dmcmc.files.document import Document, value_of
from dmcmc.files.text import open_source
from dmcmc.files.write import replace_file
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ConfigError, FileWarning
from dmcmc.report.summary import status_text
from dmcmc.results.calendar_result import CalendarConflict, CalendarResult, HeldMeeting
from dmcmc.results.result import BRANCH_AND_BOUND, CP_SAT, MAX_SAT, Result
from dmcmc.samplers.contract import tuning as sampler_tuning
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
    result = solve_calendar(calendar, sampler_tuning.FIRST_SHARE * limit)
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
    return {"meetings": held, "not_held": answer.missing, "moved": answer.moved, "gives_way": answer.gives_way}


def _text(local: datetime, grid: TimeGrid) -> str:
    """Return a local time in ISO form, with the offset of the calendar's time zone if it has one."""
    return (local.replace(tzinfo=ZoneInfo(grid.timezone)) if grid.timezone else local).isoformat(timespec="minutes")


_SECONDS = 60  # default time limit of a calendar
_DEFAULT = "a calendar's default"
_MAX_MOVE_COST = 10**9


def set_defaults(document: Document) -> None:
    """Set the default settings of calendars for keys that are not given.

    Parameters
    ----------
    document
        The options as the sections of a configuration.
    """
    defaults: dict[tuple[str, str], Any] = {("budget", "time"): _SECONDS, ("problem", "presolve"): "merge"}
    for (section, name), value in defaults.items():
        if name not in (document.data.get(section) or {}):
            document.override((section, name), value, _DEFAULT)


def with_search(config: Config, problem: Problem) -> Config:
    """Return the settings of a calendar with its default search, which runs in the background.

    It is dmcmc's own branch and bound, which proves small tables soonest, unless most of the calendar is global
    constraints for which an engine is installed.
    """
    is_made_for_constraints = choose_engine(config, problem) in (CP_SAT, MAX_SAT)
    return config if is_made_for_constraints else replace(config, search=BRANCH_AND_BOUND)


def calendar_at(path: str) -> Calendar:
    """Return the calendar in a file."""
    source = open_source(path)
    assert source is not None
    return read_calendar(source)


def calendar_of(arguments: Namespace, path: str) -> Calendar:
    """Return the calendar in a file, with the bookings of ``--keep`` and ``--move-cost``.

    Raises
    ------
    DmcmcError
        If the calendar or the earlier answer cannot be read.
    """
    calendar = calendar_at(path)
    if (earlier := getattr(arguments, "keep", None)) is not None:
        source = open_source(earlier)
        assert source is not None
        calendar = with_earlier_answer(calendar, source.text(), earlier)
    if (text := getattr(arguments, "move_cost", None)) is not None:
        cost = value_of(text, "--move-cost")
        if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost <= _MAX_MOVE_COST:
            raise ConfigError(f"--move-cost: expected a number from 0 to {_MAX_MOVE_COST}, got {text!r}")
        calendar = with_move_cost(calendar, cost)
    return calendar


def set_start(document: Document, calendar: Calendar) -> None:
    """Let the search start from the booked times and rooms, unless the user gave another assignment."""
    if "start" not in document.data and (booked := booked_assignment(calendar)):
        document.override(("start",), booked, "booked meetings")


def variables_by_meeting(calendar: Calendar) -> dict[str, tuple[str, ...]]:
    """Return the variable of each meeting's first participant by the meeting's name, and those of each series."""
    found: dict[str, tuple[str, ...]] = {}
    for meeting, variable in zip(calendar.meetings, calendar.variables, strict=True):
        for name in {meeting.name, meeting.name if meeting.series is None else meeting.series.name}:
            found[name] = (*found.get(name, ()), variable)
    return found


def write(result: CalendarResult, calendar: Calendar, arguments: Namespace) -> list[str]:
    """Write the web page and the iCalendar files that the options ask for; return the files as text.

    If there is no calendar, the page says why. Then no iCalendar file is written, and a warning says so.

    Raises
    ------
    FileError
        If a file cannot be written.
    """
    reason, written = reason_without_answer(result), list[str]()
    if arguments.html is not None:
        page = page_without_answer(calendar, result) if reason else page_of(_answer(calendar, result), result)
        replace_file(arguments.html, [page])
        written.append(arguments.html)
    if arguments.ics is not None and reason:
        path = Path(arguments.ics)
        earlier = "; the one of an earlier run is unchanged" if path.exists() else ""
        text = f"--ics: {path}: not written, since there is no calendar{earlier}"
        warnings.warn(text, FileWarning, stacklevel=2)
    elif arguments.ics is not None:
        written.append(write_ics(_answer(calendar, result), arguments.ics))
    return written


def write_conflict(conflict: CalendarConflict, calendar: Calendar, arguments: Namespace) -> list[str]:
    """Write the web page of a conflict if ``--html`` asks for it; return the file as text."""
    if arguments.html is None:
        return []
    status = status_text(conflict.status, None) if conflict.status == "infeasible" else conflict.status
    replace_file(arguments.html, [page_of_conflict(calendar, conflict, status, conflict.summary)])
    return [arguments.html]


def _answer(calendar: Calendar, result: Result) -> CalendarAnswer:
    """Return the calendar of a result that breaks no hard constraint."""
    assert result.assignment is not None
    return answer_of(calendar, result.assignment)
