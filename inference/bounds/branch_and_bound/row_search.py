"""Best-first branch and bound over agents' boundary assignments (rows); a ``Bounder`` bounds the nodes.

The nodes of several agents share a batch. A row's cutoff is the utility that it has to exceed to be part of a better
solution of the whole problem. A node's excess (bound minus cutoff) therefore means the same in every agent: the amount
by which the node raises the bound of the whole problem. An agent's share of a batch is proportional to the recent
decrease of its largest excess per node.
"""

import time
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import (
    NOT_PROCESSED,
    BatchResult,
    Bounder,
    SearchBatch,
    run_batches,
)
from dmcmc.inference.bounds.branch_and_bound.frontier import Frontier
from dmcmc.inference.bounds.branch_and_bound.open_nodes import NodeParcel, OpenNodes, largest, with_exact_leaves
from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.contract.tuning import GAIN_DECAY, MAX_FRONTIER_BYTES, MIN_GAIN_SHARE
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import SHARE_PER_ITEM

if TYPE_CHECKING:
    from dmcmc.inference.bounds.dual.dual_bound import DualState

_LARGEST = np.iinfo(np.int64).max


class SearchedPart(Enum):
    """Which of its rows' nodes a search holds.

    Attributes
    ----------
    ALL
        All nodes. The search lowers the rows' bounds.
    SHARED
        The nodes of the rows that it opens, of which it may give some to searches on other ranks.
    RECEIVED
        Only nodes that it is given; it opens no rows.
    """

    ALL = "all"
    SHARED = "shared"
    RECEIVED = "received"


class BoundarySearch:
    """Branch and bound over the rows of one agent.

    A search is used in rounds: ``begin``, then any number of ``next_batch`` and ``record``, then ``end``. Open nodes
    survive between rounds. A search is ``exhausted`` before the first ``begin``, which opens its rows, and again when
    no node is open.

    Parameters
    ----------
    state : DualState
        Holds the rows' bounds, which the search lowers.
    bounder : Bounder
        Bounds the nodes.
    part : SearchedPart
        Which of the rows' nodes this search holds.
    memory_limit : int or None
        Bytes for the open nodes; None for a share of the memory.
    """

    def __init__(
        self,
        state: "DualState",
        bounder: Bounder,
        part: SearchedPart = SearchedPart.ALL,
        memory_limit: int | None = None,
    ) -> None:
        self.state, self.bounder, self._part = state, bounder, part
        if memory_limit is None:
            memory_limit = MEMORY_ACCOUNT.budget_share(SHARE_PER_ITEM, MAX_FRONTIER_BYTES)
        self._frontier = Frontier(bounder.allowed, state.bounds, bounder.scale, bounder.capacity, memory_limit)
        self._recent_gain, self._recent_nodes = 0.0, 0.0
        if part == SearchedPart.RECEIVED:
            self._frontier.rows.open_all()  # another search opens them and may give nodes

    @property
    def gain_per_node(self) -> float | None:
        """Recent decrease of the largest excess per node, in utility; None before the first batch."""
        return self._recent_gain / self._recent_nodes if self._recent_nodes else None

    @property
    def nodes(self) -> int:
        """Number of nodes processed."""
        return self._frontier.nodes

    @property
    def exhausted(self) -> bool:
        """Whether no node is open, or the memory does not suffice for a node and its branches, or for the rows."""
        fits = self.bounder.capacity > self.bounder.max_branches and self.state.bounds.size <= self._frontier.max_open
        return not self._frontier.size or not fits

    @property
    def all_branched(self) -> bool:
        """Whether every row that has open nodes has been branched."""
        return self._frontier.rows.are_branched(self._frontier.open_nodes)

    def begin(self, thresholds: NDArray[Any], cutoffs: NDArray[Any], rows: Rows | None) -> None:
        """Open the rows that matter, and update thresholds and cutoffs.

        Parameters
        ----------
        thresholds : (rows of the interface,)
            Utilities below which nodes are closed.
        cutoffs : (rows of the interface,)
            Utilities that rows have to exceed to be part of a better solution; they order the nodes.
        rows : Rows or None
            Rows that still matter; None for all.
        """
        chosen, scale = self.state.rows(rows), self.bounder.scale
        encoded = [scale.encode_all(np.asarray(utilities)[chosen]) for utilities in (thresholds, cutoffs)]
        self._frontier.begin(self.state.bounds, chosen, *encoded)

    def reopen(self, thresholds: NDArray[Any], rows: Rows | None) -> None:
        """Prepare a search of an earlier run for ``begin``: rows with lower thresholds may have to start again.

        Parameters
        ----------
        thresholds : (rows of the interface,)
            Utilities below which nodes are closed in the present run.
        rows : Rows or None
            Rows that still matter; None for all.
        """
        chosen = self.state.rows(rows)
        self._frontier.reopen(chosen, self.bounder.scale.encode_all(np.asarray(thresholds)[chosen]))

    def next_batch(self, max_nodes: int) -> tuple[Ints, SearchBatch]:
        """Return the best open nodes, at most ``max_nodes``, and the batch that branches them."""
        return self._frontier.next_batch(max_nodes, self.bounder.work)

    def record(self, chosen: Ints, batch: SearchBatch, results: BatchResult) -> None:
        """Replace the nodes of a batch by their branches; the arguments are as in ``Frontier.record``."""
        excess_before, nodes_before = self._frontier.excess, self.nodes
        results = with_exact_leaves(self.state.local, self.bounder.scale, batch, results)
        self._frontier.record(chosen, batch, results)
        self._recent_gain = GAIN_DECAY * self._recent_gain + max(0.0, excess_before - self._frontier.excess)
        self._recent_nodes = GAIN_DECAY * self._recent_nodes + self.nodes - nodes_before

    def leaves(self) -> tuple[Ints, Ints] | None:
        """Return and remove the assignments found: rows (k,) and hidden values (k, n); None if there are none."""
        return self._frontier.leaves.pop_all()

    def end(self) -> None:
        """Lower the rows' bounds to those of the search, if it holds all nodes."""
        if self._part == SearchedPart.ALL:
            rows, bounds = self._frontier.bounds()
            self.state.bounds[rows] = np.minimum(self.state.bounds[rows], bounds)

    def part_bounds(self) -> tuple[Ints, Ints]:
        """Return the opened rows and upper bounds on the part of each that this search holds."""
        return self._frontier.bounds()

    def best_excesses(self, count: int) -> Ints:
        """Return the excesses of the best open nodes, at most ``count``, descending, in the agent's scale."""
        return self._frontier.best_excesses(count)

    def best_nodes(self, count: int) -> tuple[OpenNodes, Ints]:
        """Return the best open nodes, at most ``count``, and the thresholds of their rows; nothing is removed."""
        nodes = self._frontier.open_nodes
        best = nodes.where(largest(self._frontier.rows.excesses(nodes), count))
        return best, self._frontier.rows.thresholds[best.row]

    def give(self, count: int) -> NodeParcel:
        """Remove and return about ``count`` of the best open nodes for a search of the same rows on another rank."""
        return self._frontier.give(count)

    def take(self, parcel: NodeParcel) -> None:
        """Add open nodes of a search of the same rows on another rank."""
        self._frontier.take(parcel)


class BoundarySearchRequest(NamedTuple):
    """One agent's part in ``run_boundary_searches``.

    Attributes
    ----------
    search : BoundarySearch
        The agent's search.
    thresholds : (rows of the interface,)
        Utilities below which nodes are closed: such a row cannot be part of a solution that is good enough.
    cutoffs : (rows of the interface,)
        Utilities that rows have to exceed to be part of a better solution. The row furthest above its cutoff is first.
    rows : Rows or None
        Rows that still matter; None for all.
    """

    search: BoundarySearch
    thresholds: NDArray[Any]
    cutoffs: NDArray[Any]
    rows: Rows | None = None


def run_boundary_searches(
    requests: Sequence[BoundarySearchRequest], seconds: float | None = None, batches: int | None = None
) -> None:
    """Lower the bounds of rows that reach their thresholds, for several agents at once.

    Parameters
    ----------
    requests : sequence of BoundarySearchRequest
        One per agent.
    seconds : float or None
        Time budget; None for no limit.
    batches : int or None
        Maximum number of batches; None for no limit. With a number instead of a time budget, the result does not depend
        on the number of threads.
    """
    for request in requests:
        request.search.begin(request.thresholds, request.cutoffs, request.rows)
    # a negative number of batches is never counted down to 0
    searches, batches_left = [request.search for request in requests], -1 if batches is None else batches
    if not searches:
        return
    stop = searches[0].state.backend.stop
    if seconds is not None:
        stop = stop.by(time.perf_counter() + seconds)
    try:
        while batches_left != 0 and not (seconds is not None and stop.over):
            if not _run_batch([search for search in searches if not search.exhausted], stop):
                break
            batches_left -= 1
    finally:  # also if a device fails: the bounds of the batches before hold
        for search in searches:
            search.end()


def _run_batch(searches: Sequence[BoundarySearch], stop: Deadline) -> bool:
    """Bound a batch of nodes of some searches; return False if there is none, or no time for one."""
    if not searches:
        return False
    selected = [search.next_batch(count) for search, count in zip(searches, _nodes_per_search(searches), strict=True)]
    work = [(search.bounder, batch) for search, (_, batch) in zip(searches, selected, strict=True)]
    all_results = run_batches(work, stop)
    for search, (chosen, batch), results in zip(searches, selected, all_results, strict=True):
        search.record(chosen, batch, results)
    return any((results.bounds != NOT_PROCESSED).any() for results in all_results)


def _nodes_per_search(searches: Sequence[BoundarySearch]) -> list[int]:
    """Return the number of nodes that each search branches in a batch, by its gain per node; at least 1.

    A search without a gain yet counts with the mean gain of the others; if there is no gain at all, all weigh the same.
    """
    batch_size = max(search.bounder.batch_size for search in searches)
    gains_or_none = [search.gain_per_node for search in searches]
    gains = [gain for gain in gains_or_none if gain is not None]
    mean = sum(gains) / len(gains) if gains else 0.0
    # 1.0 if there is no gain at all
    weights = [max(MIN_GAIN_SHARE * mean, mean if gain is None else gain) or 1.0 for gain in gains_or_none]
    return [max(1, int(batch_size * weight / sum(weights))) for weight in weights]


def next_above(cutoffs: NDArray[Any]) -> NDArray[Any]:
    """Return the least whole numbers above the cutoffs; the largest int64 stays as it is.

    >>> next_above(np.array([3, 2**63 - 1])).tolist(), next_above(np.array([3.4, -0.5, np.inf])).tolist()
    ([4, 9223372036854775807], [4.0, 0.0, inf])
    """
    result: NDArray[Any] = np.floor(cutoffs) + 1 if cutoffs.dtype.kind == "f" else cutoffs + (cutoffs < _LARGEST)
    return result
