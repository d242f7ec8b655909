"""Best-first branch and bound over agents' boundary assignments (rows), with a dual bound at each node.

The dual bound is the sum of the maxima of reparametrised tables; sweeps of dual ascent, which move utility between
tables, lower it. The nodes of several agents share a batch. A row's cutoff is the utility that it has to exceed to be
part of a better solution of the whole problem. A node's excess (bound minus cutoff) therefore means the same in every
agent: the amount by which the node raises the bound of the whole problem. An agent's share of a batch is proportional
to the recent decrease of its largest excess per node.
"""

import time
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.engine import CpuNodeEngine, NodeEngine, run_batches
from dmcmc.inference.bounds.branch_and_bound.frontier import Frontier
from dmcmc.inference.bounds.branch_and_bound.node_buffers import BatchResult, SearchBatch
from dmcmc.inference.bounds.branch_and_bound.node_parcel import NodeParcel
from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.types import Ints

ROOT_SWEEPS = 24  # sweeps of dual ascent at the root, which is a row; chosen by measurement, as are the next two
NODE_SWEEPS = 8  # sweeps of dual ascent at any other node
_RESTORE_SWEEPS = 12  # sweeps that restore a node whose tables are not stored, before it is branched
MIN_ENTRIES = 3  # buffer entries: a node and its two branches
_GAIN_DECAY = 0.9  # weight of earlier batches in the gain per node, which is an exponential mean
_MIN_GAIN_SHARE = 0.25  # of the agents' mean gain per node: lower limit of an agent's weight


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
        The agent's dual ascent. The search lowers its bounds; its layout must not change any more.
    engine : NodeEngine
        Stores and processes the nodes.
    part : SearchedPart
        Which of the rows' nodes this search holds.
    """

    def __init__(self, state: DualState, engine: NodeEngine, part: SearchedPart = SearchedPart.ALL) -> None:
        self.state, self.engine, self._part = state, engine, part
        state.layout_fixed = True
        hidden = state.potentials.unary[: state.layout.n_hidden]
        self._frontier = Frontier(hidden >= FORBIDDEN_BELOW, state.bounds, state.layout.scale, engine.capacity)
        self._recent_gain, self._recent_nodes = 0.0, 0.0
        if part == SearchedPart.RECEIVED:
            self._frontier.hold_no_roots()

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
        """Whether no node is open, or the engine cannot store enough nodes."""
        return not self._frontier.size or self.engine.capacity < MIN_ENTRIES

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
        chosen, scale = self.state.rows(rows), self.state.layout.scale
        encoded = [scale.encode_all(np.asarray(utilities)[chosen]) for utilities in (thresholds, cutoffs)]
        self._frontier.begin(self.state.bounds, chosen, *encoded)

    def next_batch(self, max_nodes: int) -> tuple[Ints, SearchBatch]:
        """Return the best open nodes, at most ``max_nodes``, and the batch that branches them."""
        return self._frontier.next_batch(max_nodes, ROOT_SWEEPS, _RESTORE_SWEEPS, NODE_SWEEPS)

    def record(self, chosen: Ints, batch: SearchBatch, results: BatchResult) -> None:
        """Replace the nodes of a batch by their branches; the arguments are as in ``Frontier.record``."""
        excess_before, nodes_before = self._frontier.excess, self.nodes
        self._frontier.record(chosen, batch, results)
        self._recent_gain = _GAIN_DECAY * self._recent_gain + max(0.0, excess_before - self._frontier.excess)
        self._recent_nodes = _GAIN_DECAY * self._recent_nodes + self.nodes - nodes_before

    def leaves(self) -> tuple[Ints, Ints] | None:
        """Return and remove the assignments found: rows (k,) and hidden values (k, n); None if there are none."""
        return self._frontier.leaves.pop_all()

    def end(self) -> None:
        """Lower the bounds of the dual state to those of the search, if it holds all nodes."""
        if self._part == SearchedPart.ALL:
            rows, bounds = self._frontier.bounds()
            self.state.bounds[rows] = np.minimum(self.state.bounds[rows], bounds)

    def part_bounds(self) -> tuple[Ints, Ints]:
        """Return the opened rows and upper bounds on the part of each that this search holds."""
        return self._frontier.bounds()

    def best_excesses(self, count: int) -> Ints:
        """Return the excesses of the best open nodes, at most ``count``, descending, in the agent's scale."""
        return self._frontier.best_excesses(count)

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
    while batches_left != 0 and not (seconds is not None and stop.over):
        active = [search for search in searches if not search.exhausted]
        if not active:
            break
        selected = [search.next_batch(count) for search, count in zip(active, _nodes_per_search(active), strict=True)]
        work = [(search.engine, batch) for search, (_, batch) in zip(active, selected, strict=True)]
        for search, (chosen, batch), results in zip(active, selected, run_batches(work, stop), strict=True):
            search.record(chosen, batch, results)
        batches_left -= 1
    for search in searches:
        search.end()


def _nodes_per_search(searches: Sequence[BoundarySearch]) -> list[int]:
    """Return the number of nodes that each search branches in a batch, by its gain per node; at least 1.

    A search without a gain yet counts with the mean gain of the others; if there is no gain at all, all weigh the same.
    """
    batch_size, gains_or_none = (
        max(search.engine.batch_size for search in searches),
        [search.gain_per_node for search in searches],
    )
    gains = [gain for gain in gains_or_none if gain is not None]
    mean = sum(gains) / len(gains) if gains else 0.0
    # 1.0 if there is no gain at all
    weights = [max(_MIN_GAIN_SHARE * mean, mean if gain is None else gain) or 1.0 for gain in gains_or_none]
    return [max(1, int(batch_size * weight / sum(weights))) for weight in weights]


def compile_boundary_search() -> None:
    """Compile the CPU kernels of the search."""
    local = LocalProblem(0, (), (0, 1), (Factor.of((0, 1), [[0, 1], [1, 0]]),), np.full(2, 2))
    state = DualState(local, triangles=True)
    no_cutoff = np.array([-np.inf])
    # 1 MiB for the nodes' tables is more than enough for two variables of two values.
    run_boundary_searches(
        [BoundarySearchRequest(BoundarySearch(state, CpuNodeEngine(state, 1 << 20)), no_cutoff, no_cutoff)], batches=1
    )
