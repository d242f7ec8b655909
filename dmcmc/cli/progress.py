"""What a command prints: its progress on standard error, and results on standard output by ``emit``.

Progress is one updated line on a terminal, or otherwise a new line every few seconds. ``--quiet`` and ``--verbose`` set
how much is written.
"""

import io
import logging
import os
import sys
import time
import warnings
from argparse import Namespace
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType

from dmcmc.cli.signals import SIGNALS
from dmcmc.inference.runtime.errors import DivisionWarning, FileError
from dmcmc.results.result import TracePoint
from dmcmc.solving.observe import NoProgress

LOG = logging.getLogger("dmcmc")


class Logged(NoProgress):
    """Progress that writes stages, and each new objective and bound, to the log ``dmcmc``."""

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage; see :class:`~dmcmc.solving.observe.ProgressReporter`."""
        LOG.info("%s", title if total is None else f"{title}: {total}")

    def point(self, point: TracePoint) -> None:
        """Report a new objective or bound."""
        LOG.info(
            "%.3f s: objective %s, bound %s, found by %s",
            point.time,
            point.objective,
            point.bound,
            point.found_by or "-",
        )


def set_verbosity(arguments: Namespace) -> None:
    """Apply ``--quiet`` and ``--verbose`` to the log and the warnings of this process."""
    LOG.setLevel(logging.INFO if getattr(arguments, "verbose", False) else logging.WARNING)
    if LOG.isEnabledFor(logging.INFO) and not LOG.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
        LOG.addHandler(handler)
        LOG.propagate = False
    if getattr(arguments, "quiet", False):
        LOG.setLevel(logging.CRITICAL)
        warnings.simplefilter("ignore", DivisionWarning)


def quiet() -> bool:
    """Return whether only errors are written."""
    return LOG.level > logging.WARNING


def logs() -> bool:
    """Return whether a log is written (``--verbose``)."""
    return LOG.isEnabledFor(logging.INFO)


_FIRST_LINE_SECONDS = 5.0  # until the first line, unless kernels are compiled; short runs print nothing
_LINE_INTERVAL = 4.0  # seconds between two lines
# Stages that are shown without objective and time: their titles contain them, or their time does not count.
_COMPLETE_TITLES = ("improving", "compiling", "opening")


class _KnownProgress(NoProgress):
    """Keeps the title of the stage, and the best objective and bound so far.

    Parameters
    ----------
    seconds
        The time budget in seconds; None without one.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds, self._began, self._title, self._known = seconds, 0.0, "", ""

    def point(self, point: TracePoint) -> None:
        """Keep a new objective or bound."""
        self._began = time.perf_counter() - point.time
        parts = [] if point.objective is None else [f"objective {point.objective}"]
        if point.bound is not None:
            parts.append(f"bound {point.bound}")
            if point.objective is not None:
                gap = abs(point.bound - point.objective) / max(1, abs(point.objective))
                parts.append(f"gap {100 * gap:.3g} %")
        self._known = ", ".join(parts)

    @property
    def text(self) -> str:
        """The stage with objective, bound, gap and remaining time, as far as they are known."""
        if not self._known or self._title.startswith(_COMPLETE_TITLES):
            return self._title
        remaining = ""
        if self._seconds is not None:
            remaining = f", {max(0.0, self._began + self._seconds - time.perf_counter()):.0f} s left"
        return f"{self._title}: {self._known}{remaining}"


class TerminalProgress(_KnownProgress):
    """Shows one line on standard error, which is removed at the end."""

    def __init__(self, seconds: float | None = None) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        super().__init__(seconds)
        self._bar: Any = Bar(console=Console(stderr=True), transient=True)
        self._task: Any = None

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage; see :class:`~dmcmc.solving.observe.ProgressReporter`."""
        self._title = title
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(self._shown, total=total)

    def advance(self, steps: int = 1) -> None:
        """Report steps; see :class:`~dmcmc.solving.observe.ProgressReporter`."""
        if self._task is not None:
            self._bar.update(self._task, advance=steps, description=self._shown)

    def point(self, point: TracePoint) -> None:
        """Report a new objective or bound."""
        super().point(point)
        if self._task is not None:
            self._bar.update(self._task, description=self._shown)

    @property
    def _shown(self) -> str:
        """The text with rich markup escaped."""
        return self.text.replace("[", r"\[")

    def __enter__(self) -> Self:
        self._bar.start()
        SIGNALS.delivery.clear_display = self._bar.stop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class PeriodicProgress(_KnownProgress):
    """Writes a line to standard error every few seconds; nothing for short runs."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(seconds)
        self._start, self._due = time.perf_counter(), _FIRST_LINE_SECONDS

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage; see :class:`~dmcmc.solving.observe.ProgressReporter`."""
        self._title = title
        self._print(at_once=title.startswith("compiling") and self._due == _FIRST_LINE_SECONDS)

    def advance(self, steps: int = 1) -> None:
        """Report steps; see :class:`~dmcmc.solving.observe.ProgressReporter`."""
        self._print()

    def point(self, point: TracePoint) -> None:
        """Report a new objective or bound."""
        super().point(point)
        self._print()

    def _print(self, at_once: bool = False) -> None:
        """Print the text if a line is due, or ``at_once``."""
        now = time.perf_counter() - self._start
        if now >= self._due or at_once:
            self._due = now + _LINE_INTERVAL
            print(f"dmcmc: {now:.0f} s: {self.text}", file=sys.stderr, flush=True)


def progress_for(rank: int, seconds: float | None = None) -> NoProgress:
    """Return the progress display of a rank: rank 0 has a terminal line, a log or plain lines; the others have none.

    Parameters
    ----------
    rank
        The MPI rank.
    seconds
        The time budget in seconds; None without one.
    """
    if rank != 0 or quiet():
        return NoProgress()
    return Logged() if logs() else TerminalProgress(seconds) if sys.stderr.isatty() else PeriodicProgress(seconds)


_FILE_WIDTH = 120  # columns if standard output is not a terminal


class OutputError(FileError):
    """Standard output cannot be written, as on a full disk."""

    exit_code = 1


def emit(content: RenderableType) -> None:
    """Print text, or a rich renderable as text. A closed pipe is not an error.

    Raises
    ------
    OutputError
        If standard output cannot be written.
    """
    if not isinstance(content, str):
        console = Console() if sys.stdout.isatty() else Console(file=io.StringIO(), width=_FILE_WIDTH)
        with console.capture() as capture:
            console.print(content)
        content = "\n".join(line.rstrip() for line in capture.get().splitlines())
    encoding = sys.stdout.encoding or "utf-8"
    write_output(content.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def write_output(text: str = "") -> None:
    """Write text to standard output, after everything that was printed before. A closed pipe is not an error.

    Raises
    ------
    OutputError
        If standard output cannot be written.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        close_quietly()
    except OSError as error:
        close_quietly()
        raise OutputError(f"standard output cannot be written: {error.strerror}") from None


def close_quietly() -> None:
    """Redirect standard output to the null device, so that the flush at exit does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
