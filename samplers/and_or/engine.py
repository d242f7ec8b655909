"""AND/OR branch and bound in a background thread, with the interface of a search engine (``CostSearchEngine``).

The thread computes the messages of mini-buckets once. Then it calls the kernels for some thousand nodes at a time, so
that it can report, pause and stop in between.
"""

import numpy as np

from dmcmc.inference.elimination.eliminate import compile_joins
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.minibuckets.moment_matching import compile_matching
from dmcmc.inference.model.arithmetic import narrowest
from dmcmc.inference.orders import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.and_or.messages import compute_messages
from dmcmc.samplers.and_or.search_kernels import begin_search, improve_incumbent, search
from dmcmc.samplers.and_or.search_space import FOUND, LOWER, NODES, build_search
from dmcmc.samplers.external.process import SearchProgress
from dmcmc.samplers.external.search_thread import SearchThread
from dmcmc.samplers.toulbar2.costs import CostProblem, costs_of
from dmcmc.samplers.tuning import common
from dmcmc.samplers.tuning import engines as tuning


class AndOrSearch(SearchThread[CostProblem]):
    """A thread that searches one problem by AND/OR branch and bound with mini-bucket heuristics and caching.

    Parameters
    ----------
    memory : int
        Maximum of bytes; 0 for 1 GiB. It decides how large messages and caches are. A problem whose smallest
        mini-buckets do not fit is not searched: the search ends at once, incomplete.
    device : {"auto", "cpu", "cuda"}
        Where the messages are computed.
    max_z : int or None
        Upper limit on the number of variables of a message; None for the largest that fits.

    Attributes
    ----------
    nodes : int
        Number of OR nodes opened.
    z : int or None
        Largest number of variables of a message; None if the messages are exact, or not computed yet.
    """

    def __init__(self, memory: int = 0, device: str = "cpu", max_z: int | None = None) -> None:
        super().__init__(memory or tuning.DEFAULT_MEMORY)
        self._device, self._max_z = device, max_z
        self.nodes = 0
        self.z: int | None = None

    def _search(self, costs: CostProblem, top: int, stop: Deadline, progress: SearchProgress) -> None:
        """Search for assignments that cost less than ``top``; see :class:`SearchThread`."""
        backend, memory = Backend(self._device, 1, stop=stop), int(2 * common.MEMORY_SHARE * self._memory)
        messages = compute_messages(costs, backend, memory, stop.left, self._max_z)
        self.z = messages.z
        space, state = build_search(messages, int(common.MEMORY_SHARE * self._memory))
        begin_search(space, state, top)
        found, complete = 0, False
        improve_incumbent(space, state)
        while not complete and self._may_continue(stop):
            complete = search(space, state, tuning.NODES_PER_REPORT, self.halt)
            improve_incumbent(space, state)
            self.nodes = int(state.head[NODES])
            if state.head[FOUND] > found:
                found, progress.values = int(state.head[FOUND]), state.assignment.copy()
            progress.lower = max(progress.lower, int(state.head[LOWER]))
        progress.complete = complete


def compile_search() -> None:
    """Compile the kernels of the search, or load them from disk."""
    best_order.compile_search()
    for dtype, largest in ((np.int32, 1), (np.int64, 2**40)):
        compile_matching(np.dtype(dtype))
        compile_joins(narrowest(largest, True))
        costs = costs_of([(0, 1)], [largest * np.arange(4).reshape(2, 2)], np.array([2, 2]))
        AndOrSearch().search(costs, None, 60)
