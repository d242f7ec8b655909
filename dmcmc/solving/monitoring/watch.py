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
    plan_observers : tuple of callable
        Called with the plan one after the other, see :meth:`planned`.
    handle : RunHandle or None
        Handle by which the run can be ended early, and by which its best result so far can be read.
    handles_signals : bool
        Whether the caller handles signals; otherwise, a run with a time budget ends at the first Ctrl-C.
    """

    progress: ProgressReporter
    plan_observers: tuple[Callable[[Setup], object], ...] = ()
    handle: RunHandle | None = None
    handles_signals: bool = False

    @property
    def stop(self) -> Deadline:
        """The deadline of the run: never, unless the caller asks for the end."""
        return NO_DEADLINE if self.handle is None else Deadline(cancellation=self.handle.cancellation)

    def with_handle(self, handle: RunHandle) -> "Watch":
        """Return the same with a handle."""
        return replace(self, handle=handle)

    def with_planned(self, observer: Callable[[Setup], object]) -> "Watch":
        """Return the same with another observer of the plan, who is called before the present ones."""
        return replace(self, plan_observers=(observer, *self.plan_observers))

    def planned(self, setup: Setup) -> None:
        """Show the plan to its observers, before the work begins, and again if some agents' methods had to change.

        The time that this takes is not counted as time of the run.
        """
        for observer in self.plan_observers:
            observer(setup)


UNWATCHED = Watch(NoProgress())
