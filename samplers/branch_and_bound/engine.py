"""Branch and bound in a background thread, with the interface of a search engine (``CostSearchEngine``).

The kernels search a network of nonnegative costs; the thread calls them for some hundred nodes at a time, so that it
can report, pause and stop in between.
"""

import threading
import time
from typing import Self

import numpy as np

from dmcmc.inference.runtime.threads import lower_priority
from dmcmc.inference.runtime.types import Number
from dmcmc.samplers.branch_and_bound.cost_network import FOUND, LOWER, TOP, build_network, bytes_needed
from dmcmc.samplers.branch_and_bound.search_kernels import COMPLETE, TRAIL_FULL, search
from dmcmc.samplers.external.process import SearchProgress
from dmcmc.samplers.toulbar2.costs import CostProblem, costs_of

_NODES_PER_REPORT = 500  # nodes between two reports


class BranchAndBound:
    """A thread that searches one problem; a context manager that ends it.

    Parameters
    ----------
    memory : int
        Maximum of bytes; 0 for no limit. A larger problem is not searched: the search ends at once, incomplete.

    Attributes
    ----------
    max_discarded_seconds : float
        Seconds of work, in total, that restarts with a better known assignment may discard.
    _halt : (1,) uint8
        Set to 1 by ``close``, and never cleared: the kernel returns.
    _not_paused : threading.Event
        Set unless the search is paused; checked between calls of the kernel.
    """

    max_discarded_seconds: float = 4.0

    def __init__(self, memory: int = 0) -> None:
        self._memory, self._low_priority = memory, False
        self._halt, self._not_paused = np.zeros(1, dtype=np.uint8), threading.Event()
        self._thread: threading.Thread | None = None
        self._not_paused.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the search and wait until its thread has ended."""
        self._halt[0] = 1
        self._not_paused.set()
        if self._thread is not None:
            self._thread.join()

    def step_back(self) -> bool:
        """Lower the priority of the thread; return True."""
        self._low_priority = True
        return True

    def pause(self) -> bool:
        """Suspend the search; return True."""
        self._not_paused.clear()
        return True

    def go_on(self) -> None:
        """Resume the search after a pause."""
        self._not_paused.set()

    def start(self, costs: CostProblem, beat: Number | None, seconds: float) -> SearchProgress:
        """Begin to search a problem and return at once.

        Parameters
        ----------
        costs : CostProblem
            The problem.
        beat : int, float or None
            Utility of the best known assignment: only better ones are searched for.
        seconds : float
            Time limit.
        """
        progress, until = SearchProgress(), time.perf_counter() + seconds
        top = costs.top if beat is None else costs.cost_to_beat(beat)
        self._thread = threading.Thread(
            target=self._run_search, args=(costs, top, until, progress), name="branch and bound"
        )
        self._thread.daemon = True
        self._thread.start()
        return progress

    def search(self, costs: CostProblem, beat: Number | None, seconds: float) -> SearchProgress:
        """Search a problem until the search ends."""
        progress = self.start(costs, beat, seconds)
        if self._thread is not None:
            self._thread.join()
        return progress

    def _run_search(self, costs: CostProblem, top: int, until: float, progress: SearchProgress) -> None:
        """Search until the search is complete, stopped or out of time; runs in the thread."""
        try:
            if self._memory and bytes_needed(costs) > self._memory:
                return
            (network, state), found, n = build_network(costs), 0, costs.domains.size
            state.head[TOP] = min(top, costs.top)
            code, begin, lowered = -1, True, False
            while code != COMPLETE and not self._halt[0] and time.perf_counter() < until:
                self._not_paused.wait()
                if self._low_priority and not lowered:
                    lowered = True
                    lower_priority()
                code, begin = search(network, state, begin, _NODES_PER_REPORT, self._halt), False
                if state.head[FOUND] > found:
                    found, progress.values = int(state.head[FOUND]), state.best[:n].copy()
                progress.lower = max(progress.lower, int(state.head[LOWER]))
                if code == TRAIL_FULL:
                    trail = np.concatenate([state.trail, np.zeros_like(state.trail)])
                    state = state._replace(trail=trail)
            progress.complete = code == COMPLETE
        finally:
            progress.end()


def compile_search() -> None:
    """Compile the kernels of the search, or load them from disk."""
    network, state = build_network(costs_of([(0, 1)], [np.arange(4).reshape(2, 2)], np.array([2, 2])))
    search(network, state, True, 1, np.zeros(1, dtype=np.uint8))
