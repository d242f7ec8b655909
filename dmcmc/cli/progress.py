"""How far a run is: a line that changes on a terminal, a line now and then in a log file and under a launcher."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from dmcmc.cli.signals import SIGNALS
from dmcmc.cli.verbosity import Logged, logs, quiet
from dmcmc.results.result import TracePoint
from dmcmc.run.monitoring.progress import Silent

_SOON, _OFTEN = 5.0, 4.0  # seconds until the first plain line, unless something is compiled; and between two

_WHOLE = ("improving", "compiling", "opening")  # titles that say it all, or what the clock stands still for


class _Informed(Silent):
    """Knows what is being done, and how far the answer is.

    Parameters
    ----------
    seconds
        The time budget; None without one.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds, self._began, self._title, self._known = seconds, 0.0, "", ""

    def point(self, point: TracePoint) -> None:
        """Take in a new objective or bound."""
        self._began = time.perf_counter() - point.time
        found = [] if point.objective is None else [f"{point.objective}"]
        if point.bound is not None:
            found.append(f"bound {point.bound}")
            if point.objective is not None:
                gap = abs(point.bound - point.objective) / max(1, abs(point.objective))
                found.append(f"gap {100 * gap:.3g} %")
        self._known = ", ".join(found)

    @property
    def words(self) -> str:
        """What is being done, the objective, the bound, the gap and the time left, as far as they are known."""
        if not self._known or self._title.startswith(_WHOLE):
            return self._title
        left = ""
        if self._seconds is not None:
            left = f", {max(0.0, self._began + self._seconds - time.perf_counter()):.0f} s left"
        return f"{self._title}: {self._known}{left}"


class Terminal(_Informed):
    """One line on stderr, wiped at the end."""

    def __init__(self, seconds: float | None = None) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        super().__init__(seconds)
        self._bar: Any = Bar(console=Console(stderr=True), transient=True)
        self._task: Any = None

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage; see :class:`~dmcmc.run.monitoring.progress.Progress`."""
        self._title = title
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(self._shown, total=total)

    def advance(self, steps: int = 1) -> None:
        """Report steps; see :class:`~dmcmc.run.monitoring.progress.Progress`."""
        if self._task is not None:
            self._bar.update(self._task, advance=steps, description=self._shown)

    def point(self, point: TracePoint) -> None:
        """Report a new objective or bound."""
        super().point(point)
        if self._task is not None:
            self._bar.update(self._task, description=self._shown)

    @property
    def _shown(self) -> str:
        return self.words.replace("[", r"\[")

    def __enter__(self) -> Self:
        self._bar.start()
        SIGNALS.tidy = self._bar.stop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class Plain(_Informed):
    """Writes to stderr what is being done as a line every few seconds; nothing of a run that is soon over."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(seconds)
        self._start, self._due = time.perf_counter(), _SOON

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage; see :class:`~dmcmc.run.monitoring.progress.Progress`."""
        self._title = title
        self._tell(at_once=title.startswith("compiling") and self._due == _SOON)

    def advance(self, steps: int = 1) -> None:
        """Report steps; see :class:`~dmcmc.run.monitoring.progress.Progress`."""
        self._tell()

    def point(self, point: TracePoint) -> None:
        """Report a new objective or bound."""
        super().point(point)
        self._tell()

    def _tell(self, at_once: bool = False) -> None:
        now = time.perf_counter() - self._start
        if now >= self._due or at_once:
            self._due = now + _OFTEN
            print(f"dmcmc: {now:.0f} s: {self.words}", file=sys.stderr, flush=True)


def progress_for(rank: int, seconds: float | None = None) -> Silent:
    """Return the terminal's progress, the log's, or that of a file for rank 0, and silence for the others.

    Parameters
    ----------
    seconds
        The time budget; None without one.
    """
    if rank != 0 or quiet():
        return Silent()
    return Logged() if logs() else Terminal(seconds) if sys.stderr.isatty() else Plain(seconds)
