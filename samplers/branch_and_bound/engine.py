"""Branch and bound with soft arc consistency in a background thread, a search engine (``CostSearchEngine``).

A network of nonnegative costs is made path consistent first. The thread calls the kernels of the search for some
hundred nodes at a time, so that it can report, pause and stop in between.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.branch_and_bound.cost_network import (
    FOUND,
    LOWER,
    TOP,
    CostNetwork,
    CostTables,
    Ints,
    Tables,
    bytes_needed,
    cost_tables,
    network_of,
)
from dmcmc.samplers.branch_and_bound.search_kernels import COMPLETE, TRAIL_FULL, pass_over, search
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.external.process import SearchProgress, SearchThread
from dmcmc.samplers.toulbar2.costs import CostProblem, costs_of


def make_path_consistent(
    costs: CostTables,
    max_entries: int = tuning.LARGE_ENTRIES,
    may_continue: Callable[[], bool] = lambda: True,
    halt: NDArray[np.uint8] | None = None,
) -> CostTables:
    """Return the same costs with a higher lower bound: costs of triples move to pairs, values and the bound.

    Parameters
    ----------
    costs : CostTables
        The costs; they are not changed.
    max_entries : int
        Maximum number of entries of the tables of all triples together; the smallest triples are used.
    may_continue : callable
        Asked before each pass.
    halt : (1,) uint8, optional
        Nonzero ends a pass early.

    Returns
    -------
    CostTables
        Costs of the same sum for every assignment. Triples without costs are left out.
    """
    triples = triples_of(costs.pairs, costs.domains, max_entries)
    empty = {triple: np.zeros(costs.domains[list(triple)], dtype=np.int64) for triple in triples}
    net, state = network_of(costs._replace(triples=empty))
    unary, bound = state.cost[1 : 1 + net.first[-1]], state.cost[:1]
    halt, before = np.zeros(1, dtype=np.uint8) if halt is None else halt, -1.0
    for number in range(tuning.MAX_PASSES):
        if not may_continue() or halt[0]:
            break
        pass_over(net, unary, bound, number % 2 == 0, halt)
        if number % 2:
            if bound[0] - before <= tuning.MIN_PASS_GAIN * bound[0]:
                break
            before = float(bound[0])
    return _named(costs, net, unary, int(bound[0]))


def triples_of(pairs: Tables, domains: Ints, max_entries: int) -> list[tuple[int, int, int]]:
    """Return the triples of variables of which every two share a pair, ascending; the smallest ones if there are many.

    ``max_entries`` is the maximum number of entries of their tables together.
    """
    later: dict[int, set[int]] = {}
    for v, u in pairs:
        later.setdefault(v, set()).add(u)
    found = [(v, u, w) for v, u in pairs for w in later.get(u, set()) & later[v]]
    sizes = domains[np.array(found, dtype=np.int64).reshape(-1, 3)].prod(axis=1)
    order = np.argsort(sizes, kind="stable")
    used = order[np.cumsum(sizes[order]) <= max_entries]
    return sorted(found[number] for number in used.tolist())


def _named(costs: CostTables, net: CostNetwork, unary: Ints, bound: int) -> CostTables:
    """Return the costs with the tables of a network, unary costs and a bound."""

    def shaped(flat: Ints, at: int, variables: list[int]) -> Ints:
        """Return the table over some variables that begins at an offset."""
        sizes = costs.domains[variables].tolist()
        return flat[at : at + int(np.prod(sizes))].reshape(sizes)

    pairs = zip(net.ends.tolist(), net.cell_at.tolist(), strict=True)
    triples = {
        (a, b, c): shaped(net.entries, at, [a, b, c])
        for (a, b, c), at in zip(net.triples.tolist(), net.entry_at.tolist(), strict=True)
    }
    return costs._replace(
        unary=np.split(unary, net.first[1:-1]) if costs.unary else [],
        pairs={(v, u): shaped(net.cells, at, [v, u]) for (v, u), at in pairs},
        triples={triple: table for triple, table in triples.items() if table.any()},
        bound=bound,
    )


_BYTES_PER_ENTRY = 32  # bytes per entry of a triple's table: two copies, and as much while they are made


class BranchAndBound(SearchThread):
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
        tables, entries = cost_tables(costs), tuning.LARGE_ENTRIES
        if not self._paths:
            return tables
        if self._memory:
            entries = min(entries, (self._memory - bytes_needed(costs)) // _BYTES_PER_ENTRY)
        until = time.perf_counter() + tuning.UNTRIED_SHARE * stop.left

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
