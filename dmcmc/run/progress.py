"""What a run reports to while it works."""

from types import TracebackType
from typing import Protocol, Self


class Progress(Protocol):
    """What a run reports to; both calls are cheap enough for a few hundred a second."""

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage of ``total`` steps (None: unknown); the one before is over."""

    def advance(self, steps: int = 1) -> None:
        """Report that ``steps`` more steps of the stage are done."""


class Silent:
    """Shows nothing."""

    def stage(self, title: str, total: int | None = None) -> None:
        """Do nothing."""

    def advance(self, steps: int = 1) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
