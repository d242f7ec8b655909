"""Do deferred work on the host while a GPU kernel runs and the host would only wait.

``IncumbentSearch`` defers its search for the first incumbent here if tables on the GPU will prove the optimum soon.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dmcmc.inference.runtime.device import is_gpu_in_use, shared_device
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.mpi.world import World
from dmcmc.solving.planning.combination_plan import will_prove
from dmcmc.solving.planning.divided_problem import DividedProblem
from dmcmc.solving.planning.setup import Setup


class OverlappedWork:
    """Holds at most one piece of deferred work: ``defer`` stores it, and ``run`` or ``overlapping`` does it once."""

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None

    def defer(self, work: Callable[[], None]) -> None:
        """Defer a piece of work."""
        self._work = work

    def run(self) -> None:
        """Do the deferred work, if there is any."""
        work, self._work = self._work, None
        if work is not None:
            work()

    @contextmanager
    def overlapping(self) -> Iterator[None]:
        """Do the deferred work as soon as the GPU is busy in the body, otherwise at the end of the body.

        The work is also done if the body ends for lack of memory or time: the run then ends with the results so far.
        """
        if self._work is None:
            yield
            return
        device = shared_device()
        device.overlapped_work = self.run
        try:
            yield
        except ResourceError:
            self.run()
            raise
        finally:
            device.overlapped_work = None
        self.run()


def may_wait_for_gpu(parts: DividedProblem, world: World) -> bool:
    """Return whether this single rank, without time budget, may soon wait for a GPU that is already open."""
    config = parts.config
    single_untimed_rank = world.size == 1 and not parts.timed and config.search in ("auto", "none")
    return single_untimed_rank and config.device != "cpu" and is_gpu_in_use()


def proves_on_gpu(setup: Setup) -> bool:
    """Return whether the tables will prove the optimum, and a GPU computes some of them."""
    return will_prove(setup) and any(choice.device != "cpu" for choice in setup.choices)
