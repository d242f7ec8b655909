"""Branch and bound in a background thread, with the interface of a search engine (``CostSearchEngine``).

The kernels search a network of nonnegative costs; the thread calls them for some hundred nodes at a time, so that it
can report, pause and stop in between.
"""

import numpy as np

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.branch_and_bound.cost_network import FOUND, LOWER, TOP, build_network, bytes_needed
from dmcmc.samplers.branch_and_bound.search_kernels import COMPLETE, TRAIL_FULL, search
from dmcmc.samplers.external.process import SearchProgress
from dmcmc.samplers.external.search_thread import SearchThread
from dmcmc.samplers.toulbar2.costs import CostProblem, costs_of

_NODES_PER_REPORT = 500  # nodes between two reports


class BranchAndBound(SearchThread[CostProblem]):
    """A thread that searches one problem depth first with soft arc consistency."""

    def _search(self, costs: CostProblem, top: int, stop: Deadline, progress: SearchProgress) -> None:
        """Search for assignments that cost less than ``top``; see :class:`SearchThread`."""
        if self._memory and bytes_needed(costs) > self._memory:
            return
        (network, state), found, n = build_network(costs), 0, costs.domains.size
        state.head[TOP] = top
        code, begin = -1, True
        while code != COMPLETE and self._may_continue(stop):
            code, begin = search(network, state, begin, _NODES_PER_REPORT, self.halt), False
            if state.head[FOUND] > found:
                found, progress.values = int(state.head[FOUND]), state.best[:n].copy()
            progress.lower = max(progress.lower, int(state.head[LOWER]))
            if code == TRAIL_FULL:
                trail = np.concatenate([state.trail, np.zeros_like(state.trail)])
                state = state._replace(trail=trail)
        progress.complete = code == COMPLETE


def compile_search() -> None:
    """Compile the kernels of the search, or load them from disk."""
    network, state = build_network(costs_of([(0, 1)], [np.arange(4).reshape(2, 2)], np.array([2, 2])))
    search(network, state, True, 1, np.zeros(1, dtype=np.uint8))
