"""Work of the host that is left for when a GPU is at work: without it the host would only wait."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dmcmc.inference.runtime.device import opened, shared_device
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.mpi.world import World
from dmcmc.run.planning.combination_plan import will_prove
from dmcmc.run.planning.divided_problem import Divided
from dmcmc.run.planning.setup import Setup


class Meanwhile:
    """One piece of work, if any is left."""

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None

    def leave(self, work: Callable[[], None]) -> None:
        """Leave a piece of work for later."""
        self._work = work

    def do(self) -> None:
        """Do what is left."""
        work, self._work = self._work, None
        if work is not None:
            work()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Do what is left as soon as the device is at work in the body, or else at its end.

        Also where that is for want of memory or time: the run then ends with what there is.
        """
        if self._work is None:
            yield
            return
        device = shared_device()
        device.meanwhile = self.do
        try:
            yield
        except ResourceError:
            self.do()
            raise
        finally:
            device.meanwhile = None
        self.do()


def may_soon_wait(parts: Divided, world: World) -> bool:
    """Return whether this rank, alone and without a clock, may soon wait for a GPU that it uses already."""
    config = parts.config
    alone = world.size == 1 and not parts.timed and config.search in ("auto", "none")
    return alone and config.device != "cpu" and opened()


def proves_on_gpu(setup: Setup) -> bool:
    """Return whether tables will prove the answer, and a GPU makes some of them."""
    return will_prove(setup) and any(choice.device != "cpu" for choice in setup.choices)
