"""Calendars on the command line: default settings, and the web page and iCalendar files of the answer."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmcmc.cli.failure import print_line
from dmcmc.cli.file_roles import is_calendar
from dmcmc.config.document import Document
from dmcmc.files.text import open_source
from dmcmc.files.write import check_writable, replace_file
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.results.result import Result

if TYPE_CHECKING:
    from dmcmc.formats.calendar.plan import Calendar
    from dmcmc.report.calendar.answer import CalendarAnswer

_SECONDS = 60  # default time limit of a calendar
_DEFAULT = "a calendar's default"


def set_defaults(document: Document, searched: bool) -> None:
    """Set the default settings of calendars for keys that are not given.

    Parameters
    ----------
    document
        The options as the sections of a configuration.
    searched
        Whether all methods are ``auto``, so that a background search is useful.
    """
    defaults: dict[tuple[str, str], Any] = {("budget", "time"): _SECONDS, ("problem", "presolve"): "merge"}
    for (section, name), value in defaults.items():
        if name not in (document.data.get(section) or {}):
            document.override((section, name), value, _DEFAULT)
    if searched and "search" not in document.data:
        document.override(("search",), "branch-and-bound", _DEFAULT)


def check_options(arguments: Namespace, path: str) -> None:
    """Check ``--html`` and ``--ics`` before any work is done; raise an error if a file cannot be written."""
    for option in ("html", "ics"):
        target = getattr(arguments, option, None)
        if target is None:
            continue
        if not is_calendar(path):
            raise ConfigError(f"--{option}: is for calendars, not for {path} ('dmcmc init calendar' writes an example)")
        check_writable(target if option == "html" or target.lower().endswith(".ics") else f"{target}/all.ics")


def calendar_at(path: Any) -> "Calendar | None":
    """Return the calendar in a file; None for other files."""
    if not isinstance(path, str) or not is_calendar(path):
        return None
    from dmcmc.formats.calendar.read import read_calendar

    source = open_source(path)
    return None if source is None else read_calendar(source)


def first_participations(calendar: "Calendar") -> tuple[str, ...]:
    """Return the variables of the meetings, each that of its first participant."""
    return tuple(f"{calendar.people[x.people[0]].name}: {x.name}" for x in calendar.meetings)


def write(result: Result, calendar: "Calendar", arguments: Namespace) -> list[str]:
    """Write the web page and the iCalendar files that the options ask for; return the files as text.

    If there is no calendar, the page says why. Then no iCalendar file is written, and a warning says so.

    Raises
    ------
    FileError
        If a file cannot be written.
    """
    from dmcmc.report.calendar.conflict import reason_without_answer

    reason, written = reason_without_answer(calendar, result), list[str]()
    if arguments.html is not None:
        from dmcmc.report.calendar.page import page_of, page_without_answer

        page = page_without_answer(calendar, result, reason) if reason else page_of(_answer(calendar, result), result)
        replace_file(arguments.html, [page])
        written.append(arguments.html)
    if arguments.ics is not None and reason:
        path = Path(arguments.ics)
        earlier = "; the one of an earlier run is unchanged" if path.exists() else ""
        print_line(f"dmcmc: warning: --ics: {path}: not written, since there is no calendar{earlier}")
    elif arguments.ics is not None:
        from dmcmc.report.calendar import ics

        written.append(ics.write(_answer(calendar, result), arguments.ics))
    return written


def _answer(calendar: "Calendar", result: Result) -> "CalendarAnswer":
    """Return the calendar of a result that breaks no hard constraint."""
    from dmcmc.report.calendar.answer import answer_of

    assert result.assignment is not None
    return answer_of(calendar, result.assignment)
