"""The observer of a run: progress, the plan, and a handle by which the run can be ended."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.solving.monitoring.interrupt import RunHandle
from dmcmc.solving.monitoring.progress import NoProgress, ProgressReporter
from dmcmc.solving.planning.setup import Setup


@dataclass(frozen=True)
class Watch:
    """An observer of a run, given by its caller; its functions are called on all ranks.

    Attributes
    ----------
    progress : ProgressReporter
        Receives the stages of the run and, on rank 0, each point of the result's trace.
    planned : callable
        Called with the plan before the work begins, and again if some agents' methods had to change. The time that it
        takes is not counted as time of the run.
    handle : RunHandle or None
        Handle by which the run can be ended early, and by which its best result so far can be read.
    handles_signals : bool
        Whether the caller handles signals; otherwise, a run with a time budget ends at the first Ctrl-C.
    """

    progress: ProgressReporter
    planned: Callable[[Setup], object] = lambda setup: None
    handle: RunHandle | None = None
    handles_signals: bool = False

    @property
    def stop(self) -> Deadline:
        """The deadline of the run: never, unless the caller asks for the end."""
        return NO_DEADLINE if self.handle is None else Deadline(cancellation=self.handle.cancellation)

    def with_handle(self, handle: RunHandle) -> "Watch":
        """Return the same with a handle."""
        return replace(self, handle=handle)

    def with_planned(self, planned: Callable[[Setup], object]) -> "Watch":
        """Return the same with another observer of the plan, who is called before the present one."""

        def both(setup: Setup) -> None:
            planned(setup)
            self.planned(setup)

        return replace(self, planned=both)


UNWATCHED = Watch(NoProgress())
