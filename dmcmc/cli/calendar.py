"""Calendars on the command line: default settings, and the web page and iCalendar files of the answer."""

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from dmcmc.cli.file_roles import is_calendar
from dmcmc.config.document import Document
from dmcmc.files.text import open_source
from dmcmc.files.write import check_writable, replace_file
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.results.result import Result

if TYPE_CHECKING:
    from dmcmc.formats.calendar.plan import Calendar

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


def write(result: Result, calendar: "Calendar", arguments: Namespace) -> list[str]:
    """Write the web page and the iCalendar files that the options ask for; return the files as text.

    Raises
    ------
    FileError
        If a file cannot be written.
    """
    if result.assignment is None or result.violation:
        return []
    from dmcmc.report.calendar import ics
    from dmcmc.report.calendar.answer import answer_of
    from dmcmc.report.calendar.page import page_of

    answer, written = answer_of(calendar, result.assignment), []
    if arguments.html is not None:
        replace_file(arguments.html, [page_of(answer, result)])
        written.append(arguments.html)
    if arguments.ics is not None:
        written.append(ics.write(answer, arguments.ics))
    return written
