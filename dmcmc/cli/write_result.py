"""What is done with a result: files are written, then it is printed."""

from argparse import Namespace
from typing import TYPE_CHECKING, Protocol

from dmcmc.cli import calendar as calendars
from dmcmc.cli.failure import report
from dmcmc.cli.terminal import emit
from dmcmc.config.configuration import Config
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import FileError
from dmcmc.results.result import Output, Result

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dmcmc.formats.calendar.plan import Calendar


class Work(Protocol):
    """What was asked for."""

    @property
    def config(self) -> Config:
        """How, and where the result goes."""

    @property
    def problem(self) -> Problem | None:
        """What was solved; None where nobody knows all of it."""


def deliver(result: Output, work: Work, arguments: Namespace) -> int:
    """Write the files, then print; a result that cannot be written is printed all the same, and is a failure.

    Returns
    -------
    int
        The exit code.
    """
    code, written = result.exit_code, list[str]()
    calendar = calendars.calendar_at(work.config.problem.get("file")) if isinstance(result, Result) else None
    try:
        if work.config.output is not None:
            result.write(work.config.output)
            written.append(work.config.output)
        if calendar is not None and isinstance(result, Result):
            written += calendars.write(result, calendar, arguments)
    except FileError as error:
        report(error)
        code = 1
    if arguments.json:
        emit(result.to_json())
    else:
        emit(_summary(result, work, calendar, written))
    return code


def _summary(result: Output, work: Work, calendar: "Calendar | None", written: list[str]) -> "RenderableType":
    files = ", ".join(written) or None
    if calendar is not None and isinstance(result, Result):
        from dmcmc.report.calendar.table import summary as of_calendar

        return of_calendar(result, calendar, files)
    from dmcmc.report.solve_summary import summary

    return summary(result, work.problem, files)
