"""Branch and bound beside other work: on a thread of its own, followed and ended as any search engine."""

import threading
import time
from typing import Self

import numpy as np

from dmcmc.inference.runtime.threads import step_back
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.branch_and_bound.cost_network import FOUND, LOWER, TOP, bytes_needed, lay_out
from dmcmc.samplers.branch_and_bound.search_kernels import COMPLETE, MORE_ROOM, search
from dmcmc.samplers.toulbar2.costs import Costs, costs_of
from dmcmc.samplers.toulbar2.search import Progress

_NODES = 500  # between two looks at what it has found


class BranchAndBound:
    """A thread that searches one problem as toulbar2's ``Engine`` does; a context manager that ends it.

    Parameters
    ----------
    memory : int
        Bytes that it may take; 0 for no limit.
    """

    def __init__(self, memory: int = 0) -> None:
        self._memory, self._behind = memory, False
        self._halt, self._open = np.zeros(1, dtype=np.uint8), threading.Event()
        self._thread: threading.Thread | None = None
        self._open.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the search, and wait until it has."""
        self._halt[0] = 1
        self._open.set()
        if self._thread is not None:
            self._thread.join()

    def step_back(self) -> bool:
        """Let what else runs on this machine go first, from now on."""
        self._behind = True
        return True

    def pause(self) -> bool:
        """Do nothing until :meth:`go_on`."""
        self._open.clear()
        return True

    def go_on(self) -> None:
        """Go on after a pause."""
        self._open.set()

    def start(self, costs: Costs, beat: Number | None, seconds: float) -> Progress:
        """Begin to search a problem; return at once.

        Parameters
        ----------
        beat
            The utility of an assignment that is known: only better ones are of interest.
        seconds
            At most.
        """
        progress, until = Progress(), time.perf_counter() + seconds
        top = costs.top if beat is None else costs.to_beat(beat)
        self._thread = threading.Thread(target=self._work, args=(costs, top, until, progress), name="branch and bound")
        self._thread.daemon = True
        self._thread.start()
        return progress

    def search(self, costs: Costs, beat: Number | None, seconds: float) -> Progress:
        """Search a problem to the end."""
        progress = self.start(costs, beat, seconds)
        if self._thread is not None:
            self._thread.join()
        return progress

    def _work(self, costs: Costs, top: int, until: float, progress: Progress) -> None:
        """Search until it is through, or has to end; the thread's own work."""
        try:
            if self._memory and bytes_needed(costs) > self._memory:
                return
            (network, state), found, own = lay_out(costs), 0, costs.domains.size
            state.head[TOP] = min(top, costs.top)
            code, begin, behind = -1, True, False
            while code != COMPLETE and not self._halt[0] and time.perf_counter() < until:
                self._open.wait()
                if self._behind and not behind:
                    behind = True
                    step_back()
                code, begin = search(network, state, begin, _NODES, self._halt), False
                if state.head[FOUND] > found:
                    found, progress.values = int(state.head[FOUND]), state.best[:own].copy()
                progress.lower = max(progress.lower, int(state.head[LOWER]))
                if code == MORE_ROOM:
                    trail = np.concatenate([state.trail, np.zeros_like(state.trail)])
                    state = state._replace(trail=trail)
            progress.complete = code == COMPLETE
        finally:
            progress.end()


def compile_search() -> None:
    """Compile what a search uses, or load it."""
    network, state = lay_out(costs_of([(0, 1)], [np.arange(4).reshape(2, 2)], np.array([2, 2])))
    search(network, state, True, 1, np.zeros(1, dtype=np.uint8))
