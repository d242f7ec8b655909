"""How far a run is: shown on a terminal, silent everywhere else."""

import sys
from types import TracebackType
from typing import Any, Self

from dmcmc.cli.signals import SIGNALS
from dmcmc.cli.voice import Logged, logs, quiet
from dmcmc.run.watch.progress import Silent


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


def progress_for(rank: int) -> Silent:
    """Return the terminal's progress, or the log's, for rank 0, and silence for the others."""
    if rank == 0 and (logs() or quiet()):
        return Logged() if logs() else Silent()
    return Terminal() if rank == 0 and sys.stderr.isatty() else Silent()
