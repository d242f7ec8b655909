"""How far a run is: a line that changes on a terminal, a line now and then in a log file and under a launcher."""

import sys
import time
from types import TracebackType
from typing import Any, Self

from dmcmc.cli.signals import SIGNALS
from dmcmc.cli.voice import Logged, logs, quiet
from dmcmc.run.watch.progress import Silent

_SOON, _OFTEN = 5.0, 4.0  # seconds until the first plain line, unless something is compiled; and between two


class Terminal(Silent):
    """One line on stderr, wiped at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        self._bar: Any = Bar(console=Console(stderr=True), transient=True)
        self._task: Any = None

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage; see :class:`Progress`."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(title.replace("[", r"\["), total=total)

    def advance(self, steps: int = 1) -> None:
        """Report steps; see :class:`Progress`."""
        if self._task is not None:
            self._bar.advance(self._task, steps)

    def __enter__(self) -> Self:
        self._bar.start()
        SIGNALS.tidy = self._bar.stop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


class Plain(Silent):
    """Writes a stage that lasts to stderr as a line, one every few seconds; nothing of a run that is soon over."""

    def __init__(self) -> None:
        self._start, self._due = time.perf_counter(), _SOON

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage; see :class:`~dmcmc.run.watch.progress.Progress`."""
        now = time.perf_counter() - self._start
        if now >= self._due or (title.startswith("compiling") and self._due == _SOON):
            self._due = now + _OFTEN
            print(f"dmcmc: {now:.0f} s: {title}", file=sys.stderr, flush=True)


def progress_for(rank: int) -> Silent:
    """Return the terminal's progress, the log's, or that of a file for rank 0, and silence for the others."""
    if rank != 0 or quiet():
        return Silent()
    return Logged() if logs() else Terminal() if sys.stderr.isatty() else Plain()
