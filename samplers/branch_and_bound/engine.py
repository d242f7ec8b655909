"""Branch and bound in a background thread, with the interface of a search engine (``CostSearchEngine``).

The kernels search a network of nonnegative costs; the thread calls them for some hundred nodes at a time, so that it
can report, pause and stop in between.
"""

import time

import numpy as np

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.branch_and_bound.cost_network import (
    FOUND,
    LOWER,
    TOP,
    CostTables,
    bytes_needed,
    cost_tables,
    network_of,
)
from dmcmc.samplers.branch_and_bound.path_consistency import make_path_consistent
from dmcmc.samplers.branch_and_bound.search_kernels import COMPLETE, TRAIL_FULL, search
from dmcmc.samplers.external.process import SearchProgress
from dmcmc.samplers.external.search_thread import SearchThread
from dmcmc.samplers.toulbar2.costs import CostProblem, costs_of
from dmcmc.samplers.tuning import common
from dmcmc.samplers.tuning import engines as tuning

_BYTES_PER_ENTRY = 32  # bytes per entry of a triple's table: two copies, and as much while they are made


class BranchAndBound(SearchThread[CostProblem]):
    """A thread that searches one problem depth first with soft arc consistency, after making it path consistent.

    Parameters
    ----------
    memory : int
        Maximum of bytes; 0 for no limit.
    paths : bool
        Whether costs are made path consistent first.
    """

    def __init__(self, memory: int = 0, paths: bool = True) -> None:
        super().__init__(memory)
        self._paths = paths

    def _consistent(self, costs: CostProblem, stop: Deadline) -> CostTables:
        """Return the costs of a problem, path consistent if that is wanted."""
        tables, entries = cost_tables(costs), common.LARGE_ENTRIES
        if not self._paths:
            return tables
        if self._memory:
            entries = min(entries, (self._memory - bytes_needed(costs)) // _BYTES_PER_ENTRY)
        until = time.perf_counter() + common.UNTRIED_SHARE * stop.left

        def may_continue() -> bool:
            """Return whether there is time for another pass."""
            return self._may_continue(stop) and time.perf_counter() < until

        return make_path_consistent(tables, entries, may_continue, self.halt)

    def _search(self, costs: CostProblem, top: int, stop: Deadline, progress: SearchProgress) -> None:
        """Search for assignments that cost less than ``top``; see :class:`SearchThread`."""
        if self._memory and bytes_needed(costs) > self._memory:
            return
        (network, state), found, n = network_of(self._consistent(costs, stop)), 0, costs.domains.size
        state.head[TOP] = top
        code, begin = -1, True
        while code != COMPLETE and self._may_continue(stop):
            code, begin = search(network, state, begin, tuning.NODES_PER_REPORT, self.halt), False
            if state.head[FOUND] > found:
                found, progress.values = int(state.head[FOUND]), state.best[:n].copy()
            progress.lower = max(progress.lower, int(state.head[LOWER]))
            if code == TRAIL_FULL:
                trail = np.concatenate([state.trail, np.zeros_like(state.trail)])
                state = state._replace(trail=trail)
        progress.complete = code == COMPLETE


def compile_search() -> None:
    """Compile the kernels of the search, or load them from disk."""
    scopes, costs = [(0, 1), (0, 2), (1, 2)], [np.arange(4).reshape(2, 2)] * 3
    network, state = network_of(make_path_consistent(cost_tables(costs_of(scopes, costs, np.full(3, 2)))))
    search(network, state, True, 1, np.zeros(1, dtype=np.uint8))
