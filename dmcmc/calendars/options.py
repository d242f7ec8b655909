"""Calendars on the command line: default settings, earlier answers, and the page and iCalendar files of the answer."""

import warnings
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dmcmc.config.configuration import Config
from dmcmc.config.document import Document
from dmcmc.config.yaml_lines import value_of
from dmcmc.files.text import open_source
from dmcmc.files.write import replace_file
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, FileWarning
from dmcmc.results.calendar_result import CalendarConflict, CalendarResult
from dmcmc.results.improver_names import BRANCH_AND_BOUND, CP_SAT, MAX_SAT
from dmcmc.results.result import Result

if TYPE_CHECKING:
    from dmcmc.calendars.file.plan import Calendar
    from dmcmc.calendars.pages.answer import CalendarAnswer

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
    from dmcmc.anytime.engines.choose_engine import choose_engine  # not all runs need it

    is_made_for_constraints = choose_engine(config, problem) in (CP_SAT, MAX_SAT)
    return config if is_made_for_constraints else replace(config, search=BRANCH_AND_BOUND)


def calendar_at(path: str) -> "Calendar":
    """Return the calendar in a file."""
    from dmcmc.calendars.file.read import read_calendar

    source = open_source(path)
    assert source is not None
    return read_calendar(source)


def calendar_of(arguments: Namespace, path: str) -> "Calendar":
    """Return the calendar in a file, with the bookings of ``--keep`` and ``--move-cost``.

    Raises
    ------
    DmcmcError
        If the calendar or the earlier answer cannot be read.
    """
    from dmcmc.calendars.file.booked import with_earlier_answer, with_move_cost

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


def set_start(document: Document, calendar: "Calendar") -> None:
    """Let the search start from the booked times and rooms, unless the user gave another assignment."""
    from dmcmc.calendars.file.booked import booked_assignment

    if "start" not in document.data and (booked := booked_assignment(calendar)):
        document.override(("start",), booked, "booked meetings")


def variables_by_meeting(calendar: "Calendar") -> dict[str, tuple[str, ...]]:
    """Return the variable of each meeting's first participant by the meeting's name, and those of each series."""
    found: dict[str, tuple[str, ...]] = {}
    for meeting, variable in zip(calendar.meetings, calendar.variables, strict=True):
        for name in {meeting.name, meeting.name if meeting.series is None else meeting.series.name}:
            found[name] = (*found.get(name, ()), variable)
    return found


def write(result: CalendarResult, calendar: "Calendar", arguments: Namespace) -> list[str]:
    """Write the web page and the iCalendar files that the options ask for; return the files as text.

    If there is no calendar, the page says why. Then no iCalendar file is written, and a warning says so.

    Raises
    ------
    FileError
        If a file cannot be written.
    """
    from dmcmc.calendars.pages.reasons import reason_without_answer

    reason, written = reason_without_answer(result), list[str]()
    if arguments.html is not None:
        from dmcmc.calendars.pages.page import page_of, page_without_answer

        page = page_without_answer(calendar, result) if reason else page_of(_answer(calendar, result), result)
        replace_file(arguments.html, [page])
        written.append(arguments.html)
    if arguments.ics is not None and reason:
        path = Path(arguments.ics)
        earlier = "; the one of an earlier run is unchanged" if path.exists() else ""
        text = f"--ics: {path}: not written, since there is no calendar{earlier}"
        warnings.warn(text, FileWarning, stacklevel=2)
    elif arguments.ics is not None:
        from dmcmc.calendars.pages import ics

        written.append(ics.write(_answer(calendar, result), arguments.ics))
    return written


def write_conflict(conflict: CalendarConflict, calendar: "Calendar", arguments: Namespace) -> list[str]:
    """Write the web page of a conflict if ``--html`` asks for it; return the file as text."""
    if arguments.html is None:
        return []
    from dmcmc.calendars.pages.page import page_of_conflict
    from dmcmc.report.summary import status_text

    status = status_text(conflict.status, None) if conflict.status == "infeasible" else conflict.status
    replace_file(arguments.html, [page_of_conflict(calendar, conflict, status, conflict.summary)])
    return [arguments.html]


def _answer(calendar: "Calendar", result: Result) -> "CalendarAnswer":
    """Return the calendar of a result that breaks no hard constraint."""
    from dmcmc.calendars.pages.answer import answer_of

    assert result.assignment is not None
    return answer_of(calendar, result.assignment)
