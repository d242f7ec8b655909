"""Prepare a job on rank 0, carry it out on all ranks, and deliver its result: to files, and in print."""

import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self, TypeVar, cast

from dmcmc.calendars.pages import answer
from dmcmc.calendars.solve import as_calendar_result, write, write_conflict
from dmcmc.cli.ending import exit_code, report
from dmcmc.cli.progress import emit
from dmcmc.cli.signals import SIGNALS
from dmcmc.config.configuration import Config
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import FileError
from dmcmc.mpi.collective_calls import OtherRankError
from dmcmc.mpi.compute_node import binding_advice
from dmcmc.mpi.world import World, connect
from dmcmc.report.summary import summary
from dmcmc.results.calendar_result import CalendarConflict, CalendarResult
from dmcmc.results.result import Output, Result
from dmcmc.solving.observe import RunHandle

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
        return answer.summary(result, calendar, files)
    if isinstance(result, CalendarConflict):
        return answer.summary_of_conflict(result, files)
    return summary(result, job.problem, files)


class _SharedJob(SolvedJob, Protocol):
    """A job that rank 0 prepares and sends to the other ranks."""

    def for_other_ranks(self, world: World) -> Self:
        """Return the job without the data that other ranks do not need."""


J = TypeVar("J", bound=_SharedJob)

_OTHER_RANKS_WAIT = 2.0  # seconds that a failed rank waits for a more informative error of another one
_FORWARDING = 0.5  # seconds for the launcher to pass an error line on; less than the wait above


def on_all_ranks(
    arguments: Namespace,
    prepare: Callable[[Namespace], J],
    work: Callable[[J, World, RunHandle | None], Output | None],
) -> int:
    """Prepare a job on rank 0, carry it out on all ranks, and deliver the result on rank 0.

    After a signal, ``SIGNALS`` delivers the best result so far earlier.

    Parameters
    ----------
    arguments
        The parsed command line.
    prepare
        Called on rank 0 only: checks the arguments, reads the problem, and returns the job.
    work
        Called on every rank with the job, the MPI ranks and the handle by which a signal ends the run (None without
        signal handling). Returns the result on rank 0, and None on the others.

    Returns
    -------
    int
        This rank's exit code; 0 on ranks without a result.
    """
    with warnings.catch_warnings(), SIGNALS.default_handling():
        warnings.filterwarnings("ignore", "suspicious MPI execution environment")  # connect reports it in one line
        world = connect()
    SIGNALS.processes.world = world
    if world.rank == 0 and world.core_binding is not None:
        print(f"dmcmc: warning: {binding_advice(world.core_binding)}", file=sys.stderr, flush=True)
    job = _prepare_together(world, arguments, prepare)
    if isinstance(job, int):
        return job
    run_handle = SIGNALS.begin(lambda found: deliver(found, job, arguments))
    try:
        result = work(job, world, run_handle)
    except (Exception, KeyboardInterrupt) as error:
        if SIGNALS.is_ending:  # the run was ended, or another rank has ended
            return SIGNALS.finish()
        if world.size == 1:
            raise
        return _abort(world, error)
    return 0 if result is None else SIGNALS.deliver(result)


def _prepare_together(world: World, arguments: Namespace, prepare: Callable[[Namespace], J]) -> J | int:
    """Read configuration and problem on rank 0, and return the job, or the exit code of a failure, on all ranks."""
    job_or_code: J | int = 0
    failure: BaseException | None = None
    if world.rank == 0:
        try:
            job_or_code = prepare(arguments)
        except (Exception, KeyboardInterrupt) as error:
            job_or_code, failure = exit_code(error), error
    message = job_or_code if isinstance(job_or_code, int) else job_or_code.for_other_ranks(world)
    try:
        received = world.bcast(message)
    finally:
        if failure is not None:
            report(failure)
    return job_or_code if world.rank == 0 else cast("J | int", received)


def _abort(world: World, error: BaseException) -> int:
    """Report an error, end all ranks by ``MPI_Abort``, and return the exit code for the error.

    Ranks other than 0 wait a moment: mostly rank 0 fails in the same way, reports it once and ends the others. A rank
    that only knows that another one failed waits longer, since that one has the more informative error.
    """
    if isinstance(error, OtherRankError):
        time.sleep(2 * _OTHER_RANKS_WAIT)
    elif world.rank != 0:
        time.sleep(_OTHER_RANKS_WAIT)
    report(error, world.rank or None)
    time.sleep(_FORWARDING)  # an immediate abort can overtake the line in the launcher
    world.abort(exit_code(error))
    return exit_code(error)
