"""Write a result to files, and print it."""

from argparse import Namespace
from typing import TYPE_CHECKING, Protocol

from dmcmc.calendars.solve import write, write_conflict
from dmcmc.cli.ending import report
from dmcmc.cli.progress import emit
from dmcmc.config.configuration import Config
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import FileError
from dmcmc.results.calendar_result import CalendarConflict, CalendarResult
from dmcmc.results.result import Output, Result

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dmcmc.calendars.file.plan import Calendar


class SolvedJob(Protocol):
    """The job that a result belongs to."""

    @property
    def config(self) -> Config:
        """The configuration, with the output file."""

    @property
    def problem(self) -> Problem | None:
        """The problem; None if no rank knows all of it."""

    @property
    def calendar(self) -> "Calendar | None":
        """The calendar of the problem; None for other problems."""


def deliver(result: Output, job: SolvedJob, arguments: Namespace) -> int:
    """Write the files, then print the result; if a file cannot be written, the result is printed with exit code 1.

    Returns
    -------
    int
        The exit code of the command line.
    """
    code, written = result.exit_code, list[str]()
    calendar = job.calendar
    if calendar is not None and isinstance(result, Result):
        from dmcmc.calendars.solve import as_calendar_result

        result = as_calendar_result(result, calendar)
    try:
        if job.config.output is not None:
            result.write(job.config.output)
            written.append(job.config.output)
        if calendar is not None and isinstance(result, CalendarResult):
            written += write(result, calendar, arguments)
        if calendar is not None and isinstance(result, CalendarConflict):
            written += write_conflict(result, calendar, arguments)
    except FileError as error:
        report(error)
        code = 1
    if arguments.json:
        emit(result.to_json())
    else:
        emit(_summary(result, job, calendar, written))
    return code


def _summary(result: Output, job: SolvedJob, calendar: "Calendar | None", written: list[str]) -> "RenderableType":
    """Return the text or table to print."""
    files = ", ".join(written) or None
    if calendar is not None and isinstance(result, CalendarResult):
        from dmcmc.calendars.pages.answer import summary as of_calendar

        return of_calendar(result, calendar, files)
    if isinstance(result, CalendarConflict):
        from dmcmc.calendars.pages.answer import summary_of_conflict

        return summary_of_conflict(result, files)
    from dmcmc.report.summary import summary

    return summary(result, job.problem, files)
