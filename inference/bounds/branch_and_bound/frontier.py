"""The open nodes of a branch and bound over an agent's rows, in best-first order, and the bounds of the rows.

A row is an assignment of the agent's boundary variables; a node is a row with the values that each hidden variable may
still take. ``BoundarySearch`` takes batches of nodes from a ``Frontier`` and returns their results. All bounds,
thresholds and cutoffs here are int64 in the agent's integer scale (``Scale``: one unit is 2^-shift of a utility). n is
the number of hidden variables, W the number of columns of a table.

A row's cutoff is the utility that it has to exceed to be part of a better solution; it orders the nodes. A row's
threshold closes nodes: those whose upper bound is below it.

The search is best first as long as the open nodes fit into a memory limit. Above it, the newest nodes go first, which
is a depth-first dive: it closes nodes until the rest fit again. This is the hybrid of best-first and depth-first search
by Allouche, de Givry, Katsirelos, Schiex and Zytnicki (*Anytime hybrid best-first search with tree decomposition for
weighted CSP*, CP 2015), without their limit on the length of a dive. The limit changes the order of the nodes, and
hence the time, but no bound of a search that ends.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import (
    JOB_FIELDS,
    JOB_ROW,
    JOB_SOURCE,
    JOB_TARGET,
    JOB_THRESHOLD,
    JOB_WORK,
    LEAF,
    NOT_PROCESSED,
    OUT_OF_RANGE,
    UNFINISHED,
    BatchResult,
    NodeWork,
    SearchBatch,
)
from dmcmc.inference.bounds.branch_and_bound.leaf_assignments import LeafAssignments
from dmcmc.inference.bounds.branch_and_bound.node_parcel import NodeParcel
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY, Scale
from dmcmc.inference.runtime.types import Ints

_NO_ENTRY = -1  # in place of a buffer entry: nothing is stored for the node
_WORDS_PER_NODE = 4  # int64 numbers of an open node: row, bound, entry, variable
_COPIES = 2  # of the open nodes, while branches are added to them


class _OpenNodes(NamedTuple):
    """Open nodes: parallel arrays with one element per node.

    Attributes
    ----------
    row : (k,) int64
        Row of the node.
    bound : (k,) int64
        Upper bound in the agent's scale.
    entry : (k,) int64
        Buffer entry of the node, or ``_NO_ENTRY``.
    variable : (k,) int64
        Branching variable; ``UNFINISHED`` if the node has to be bounded, or bounded further, before it is branched.
    parts : (k, W) uint8
        Number of the branch that each value of the branching variable belongs to.
    mask : (k, ceil(n W / 8)) uint8
        Packed bits: remaining values of all hidden variables.
    """

    row: Ints
    bound: Ints
    entry: Ints
    variable: Ints
    parts: NDArray[np.uint8]
    mask: NDArray[np.uint8]

    def where(self, chosen: NDArray[np.bool_]) -> "_OpenNodes":
        """Return the nodes where ``chosen`` (k,) is true."""
        parts: list[Any] = [part[chosen] for part in self]
        return _OpenNodes(*parts)

    def joined(self, others: "_OpenNodes") -> "_OpenNodes":
        """Return these nodes followed by the nodes of ``others``."""
        these, those = list[Any](self), list[Any](others)
        parts = [np.concatenate(pair) for pair in zip(these, those, strict=True)]
        return _OpenNodes(*parts)


def node_bytes(n: int, width: int) -> int:
    """Return the bytes that an open node takes, with n hidden variables and masks of ``width`` columns."""
    return _COPIES * (8 * _WORDS_PER_NODE + width + -(-n * width // 8))


class Frontier:
    """The open nodes of one agent's search.

    A node is new (its row has just been opened), then bounded, with a branching variable, and finally closed or
    replaced by its branches. A bounded node whose buffer entry was taken away stays open; what it stored is
    computed again from the row before it is branched. A node that the bounder calls ``UNFINISHED`` is bounded further
    before it is branched.

    Parameters
    ----------
    allowed : (n, W) bool
        Allowed values of the agent's hidden variables.
    bounds : (rows,) int64
        Upper bounds of the rows, in the agent's scale.
    scale : Scale
        The agent's scale.
    capacity : int
        Number of buffer entries, more than a node has branches. An entry stores what the branches of a node start from.
    memory_limit : int
        Bytes for the open nodes. With more of them, the search is depth first.

    Attributes
    ----------
    thresholds : (rows,) int64
        Nodes whose upper bound is below their row's threshold are closed.
    nodes : int
        Number of nodes processed.
    leaves : LeafAssignments
        Assignments found.
    max_open : int
        Number of open nodes above which the search is depth first.
    """

    def __init__(
        self, allowed: NDArray[np.bool_], bounds: Ints, scale: Scale, capacity: int, memory_limit: int = 1 << 26
    ) -> None:
        self.max_open = memory_limit // node_bytes(*allowed.shape)
        self._shape, self._scale, self._initial_bounds = allowed.shape, scale, bounds.copy()
        self.thresholds = np.full(bounds.size, MINUS_INFINITY, dtype=np.int64)
        self._cutoffs = np.full(bounds.size, MINUS_INFINITY, dtype=np.int64)
        self._closed_bounds = np.full(
            bounds.size, MINUS_INFINITY, dtype=np.int64
        )  # upper bound on the closed nodes of each row
        self._opened, self._branched = np.zeros(bounds.size, dtype=np.bool_), np.zeros(bounds.size, dtype=np.bool_)
        self._free_entries = list(range(capacity - 1, -1, -1))
        self._all_values = np.packbits(allowed.reshape(1, -1), axis=1)
        self._open_nodes = self._roots(np.zeros(0, dtype=np.int64))
        self.nodes, self.leaves = 0, LeafAssignments()

    @property
    def size(self) -> int:
        """Number of open nodes."""
        return int(self._open_nodes.row.size)

    @property
    def all_branched(self) -> bool:
        """Whether every row that has open nodes has been branched."""
        return bool(self._branched[self._open_nodes.row].all())

    def begin(self, bounds: Ints, rows: Ints, thresholds: Ints, cutoffs: Ints) -> None:
        """Open the given rows that are new, raise thresholds, and close the nodes that do not reach them.

        Parameters
        ----------
        bounds : (all rows,) int64
            Current upper bounds.
        rows : (k,) int64
            Rows that still matter; the nodes of all other rows are closed.
        thresholds : (k,) int64
            Upper bounds below which nodes of these rows are closed.
        cutoffs : (k,) int64
            Utilities that these rows have to exceed. Nodes are taken in the order of their bounds above these cutoffs.
        """
        irrelevant = np.ones(bounds.size, dtype=np.bool_)
        irrelevant[rows] = False
        np.maximum.at(self.thresholds, rows, thresholds)
        self.thresholds[irrelevant] = -MINUS_INFINITY  # plus infinity: closes all nodes of these rows
        self._cutoffs[rows] = cutoffs
        self._initial_bounds = bounds.copy()
        self._open_nodes = self._open_nodes._replace(
            bound=np.minimum(self._open_nodes.bound, bounds[self._open_nodes.row])
        )
        new = rows[~self._opened[rows] & (bounds[rows] >= self.thresholds[rows])]
        self._opened[new] = True
        self._open_nodes = self._open_nodes.joined(self._roots(new))
        self._close_nodes()

    def reopen(self, rows: Ints, thresholds: Ints) -> None:
        """Let the rows whose closed nodes may reach the given thresholds start again at their roots, in ``begin``.

        Thresholds only rise during a run; those of another run of the same rows may be lower.

        Parameters
        ----------
        rows : (k,) int64
            Rows that matter now.
        thresholds : (k,) int64
            Their thresholds.
        """
        self._closed_bounds[self._closed_bounds > MINUS_INFINITY] += self._scale.threshold_error
        again = np.zeros(self.thresholds.size, dtype=np.bool_)
        again[rows] = self._closed_bounds[rows] >= thresholds
        self.thresholds[:] = MINUS_INFINITY
        dropped = again[self._open_nodes.row]
        self._free_entries += [int(e) for e in self._open_nodes.entry[dropped] if e >= 0]
        self._open_nodes = self._open_nodes.where(~dropped)
        self._closed_bounds[again] = MINUS_INFINITY
        self._opened &= ~again
        self._branched &= ~again

    def hold_no_roots(self) -> None:
        """Leave the opening of rows to another search, which may give nodes to this one."""
        self._opened[:] = True

    def best_excesses(self, count: int) -> Ints:
        """Return the excesses of the best open nodes, at most ``count``, descending."""
        return self._excesses()[self._by_excess(count)]

    def give(self, count: int) -> NodeParcel:
        """Remove and return about ``count`` of the best open nodes: every second one, so that good nodes remain.

        At most half of the open nodes are removed.
        """
        chosen = self._by_excess(2 * count)[1::2]
        nodes = self._open_nodes
        self._free_entries += [int(e) for e in nodes.entry[chosen] if e >= 0]
        remains = np.ones(nodes.row.size, dtype=np.bool_)
        remains[chosen] = False
        self._open_nodes = nodes.where(remains)
        return NodeParcel(nodes.row[chosen], nodes.bound[chosen], nodes.mask[chosen])

    def take(self, parcel: NodeParcel) -> None:
        """Add open nodes of another search of the same rows."""
        received = self._roots(parcel.row)._replace(bound=parcel.bound, mask=parcel.mask)
        self._open_nodes = self._open_nodes.joined(received)
        self._close_nodes()

    def bounds(self) -> tuple[Ints, Ints]:
        """Return the opened rows and their upper bounds."""
        row_bounds = self._closed_bounds.copy()
        np.maximum.at(row_bounds, self._open_nodes.row, self._open_nodes.bound)
        rows = np.flatnonzero(self._opened)
        return rows, row_bounds[rows]

    def next_batch(self, max_nodes: int, work: NodeWork) -> tuple[Ints, SearchBatch]:
        """Select the best nodes for which buffer entries suffice, and build the batch that bounds their branches.

        A row that has just been opened has a single job, which starts from the row; so has an unfinished node, whose
        job continues from its buffer entry. Any other node has one job per branch, and the last one overwrites its
        entry. If the node has no entry, a job that restores it from the row comes first.

        Parameters
        ----------
        max_nodes : int
            Maximum number of nodes.
        work : NodeWork
            Amounts of work.

        Returns
        -------
        chosen : (k,) int64
            Indices of the selected nodes among the open nodes.
        batch : SearchBatch
            Their jobs, one group per node.
        """
        nodes, chosen = self._open_nodes, self._best(max_nodes)
        is_single = nodes.variable[chosen] == UNFINISHED
        branches = np.where(is_single, 0, nodes.parts[chosen].max(axis=1, initial=0) + np.int64(1))
        # A node without an entry needs one, and a node that is branched one for each branch but the last.
        needed = (nodes.entry[chosen] < 0) + np.maximum(branches - 1, 0)
        chosen = chosen[: self._reserve_entries(chosen, needed)]
        is_single, branches, node_entries = is_single[: chosen.size], branches[: chosen.size], nodes.entry[chosen]
        needs_entry = node_entries < 0
        node_entries[needs_entry] = self._take_entries(int(needs_entry.sum()))
        # jobs of a node: one if it is not branched yet; otherwise one per branch, and one that restores it if needed
        groups = np.concatenate([[0], np.cumsum(np.where(is_single, 1, branches + needs_entry))])
        node_of = np.repeat(np.arange(chosen.size), np.diff(groups))
        from_row = np.zeros(node_of.size, dtype=np.bool_)
        from_row[groups[:-1][needs_entry]] = True
        is_branch, branch_number = ~from_row & ~is_single[node_of], groups[1:][node_of] - 1 - np.arange(node_of.size)
        branching, masks = np.flatnonzero(is_branch), self._masks(chosen)[node_of]
        parts = nodes.parts[chosen][node_of[branching]]
        variables = nodes.variable[chosen][node_of[branching]]
        masks[branching, variables] &= parts == branch_number[branching, None]
        jobs = np.zeros((node_of.size, JOB_FIELDS), dtype=np.int64)
        jobs[:, JOB_ROW], jobs[:, JOB_TARGET] = nodes.row[chosen][node_of], node_entries[node_of]
        jobs[:, JOB_SOURCE] = np.where(from_row, -1, node_entries[node_of])
        with_new_entry = np.flatnonzero(is_branch & (branch_number > 0))
        jobs[with_new_entry, JOB_TARGET] = self._take_entries(with_new_entry.size)
        jobs[:, JOB_THRESHOLD] = self.thresholds[jobs[:, JOB_ROW]]
        jobs[:, JOB_WORK] = np.where(is_single[node_of], work.root, np.where(from_row, work.restored, work.branch))
        return chosen, SearchBatch(jobs, groups.astype(np.int64), masks)

    def record(self, chosen: Ints, batch: SearchBatch, results: BatchResult) -> None:
        """Replace the nodes of a batch by their branches.

        Parameters
        ----------
        chosen, batch
            As ``next_batch`` returned them.
        results : BatchResult
            Results of the batch. Nodes with a job that was not processed stay open.
        """
        nodes, node_of = self._open_nodes, np.repeat(np.arange(chosen.size), np.diff(batch.groups))
        # nodes with a job that was not processed
        undone = np.zeros(chosen.size, dtype=np.bool_)
        undone[node_of[results.bounds == NOT_PROCESSED]] = True
        jobs, node_of, masks, results = _branches(batch, node_of, results)
        failed = results.bounds == OUT_OF_RANGE
        parent_bounds = nodes.bound[chosen]
        bounds = np.where(failed, parent_bounds[node_of], np.minimum(parent_bounds[node_of], results.bounds))
        not_branchable, leaf = results.variables < LEAF, results.variables == LEAF
        unfinished = results.variables == UNFINISHED
        done = ~undone[node_of]
        self.nodes += int(done.sum())
        rows = jobs[:, JOB_ROW]
        self._branched[rows[done & (jobs[:, JOB_SOURCE] >= 0)]] = True
        # Values below the threshold are removed without their bound, so the row may still attain anything below it.
        np.maximum.at(self._closed_bounds, rows[done], jobs[done, JOB_THRESHOLD] - 1)
        # leaves, and rows that are closed, infeasible or out of range at their root
        final = done & (leaf | (not_branchable & ~unfinished & (jobs[:, JOB_SOURCE] < 0)))
        np.maximum.at(self._closed_bounds, rows[final], bounds[final])
        attained = final & leaf
        self._raise_thresholds(rows[attained], bounds[attained])
        self.leaves.add(rows[attained], bounds[attained], results.masks[attained])
        # The node is closed by its bound (see _close_nodes), or its numbers left their range and it starts again.
        restart = done & not_branchable & ~unfinished & ~final
        is_child = done & ~final
        masks = np.where(failed[:, None, None], masks, results.masks)
        entries = np.where(restart, _NO_ENTRY, jobs[:, JOB_TARGET])
        # A node that was not processed keeps its entry.
        still_used = undone[node_of] & (jobs[:, JOB_TARGET] == nodes.entry[chosen][node_of])
        self._free_entries += [int(e) for e in jobs[(~is_child & ~still_used) | restart, JOB_TARGET]]
        remains = np.ones(nodes.row.size, dtype=np.bool_)
        remains[chosen[~undone]] = False
        children = _OpenNodes(
            rows[is_child], bounds[is_child], entries[is_child],
            np.where(not_branchable, UNFINISHED, results.variables)[is_child],
            results.parts[is_child],
            np.packbits(masks[is_child].reshape(-1, self._shape[0] * self._shape[1]), axis=1),
        )  # fmt: skip
        self._open_nodes = nodes.where(remains).joined(children)
        self._close_nodes()

    def _roots(self, rows: Ints) -> _OpenNodes:
        """Return the given rows as new nodes that have not been bounded yet."""
        k = rows.size
        return _OpenNodes(
            rows,
            self._initial_bounds[rows],
            np.full(k, _NO_ENTRY),
            np.full(k, UNFINISHED),
            np.zeros((k, self._shape[1]), dtype=np.uint8),
            np.repeat(self._all_values, k, axis=0),
        )

    def _masks(self, chosen: Ints) -> NDArray[np.bool_]:
        """Return the remaining values of the chosen nodes, (k, n, W) bool."""
        n, width = self._shape
        bits = np.unpackbits(self._open_nodes.mask[chosen], axis=1, count=n * width)
        return bits.astype(np.bool_).reshape(-1, n, width)

    def _excesses(self) -> Ints:
        """Return each node's bound minus its row's cutoff: the amount by which it raises the whole problem's bound."""
        excess: Ints = self._open_nodes.bound - self._cutoffs[self._open_nodes.row]
        return excess

    def _best(self, max_nodes: int) -> Ints:
        """Return the indices of at most ``max_nodes`` nodes to bound next: those with the largest excess.

        If more than ``max_open`` nodes are open, return the newest ones instead. The search is then depth first, which
        keeps the number of open nodes small.
        """
        if self.size > self.max_open:
            return np.arange(self.size - 1, max(-1, self.size - 1 - max_nodes), -1)
        return self._by_excess(max_nodes)

    def _by_excess(self, max_nodes: int) -> Ints:
        """Return the indices of at most ``max_nodes`` nodes with the largest excess, in order; ties: oldest first."""
        excess = self._excesses()
        if self.size > 4 * max_nodes:  # sorting all of them would take longer than processing a batch
            smallest_excess = np.partition(excess, self.size - max_nodes)[self.size - max_nodes]
            candidates = np.flatnonzero(excess >= smallest_excess)
            return candidates[np.argsort(-excess[candidates], kind="stable")][:max_nodes]
        return np.argsort(-excess, kind="stable")[:max_nodes]

    @property
    def excess(self) -> float:
        """The largest excess of the open nodes, in utility; 0 if none is open."""
        if not self.size:
            return 0.0
        return max(0.0, math.ldexp(float(self._excesses().max()), -self._scale.shift))

    def _reserve_entries(self, chosen: Ints, needed: Ints) -> int:
        """Make buffer entries available for chosen nodes; return how many of these nodes can be processed, at least 1.

        Entries are taken from the open nodes with the smallest excess that are not chosen; these are restored later.

        Parameters
        ----------
        chosen : (k,) int64
            Indices of nodes, best first.
        needed : (k,) int64
            Number of new buffer entries that each of them needs.
        """
        missing = int(needed.sum()) - len(self._free_entries)
        if missing > 0:
            entries, is_other = self._open_nodes.entry, np.ones(self._open_nodes.row.size, dtype=np.bool_)
            is_other[chosen] = False
            holders = np.flatnonzero((entries >= 0) & is_other)
            worst = holders[np.argsort(self._excesses()[holders], kind="stable")][:missing]
            self._free_entries += [int(e) for e in entries[worst]]
            entries[worst] = _NO_ENTRY
        fitting = int(np.searchsorted(np.cumsum(needed), len(self._free_entries), side="right"))
        if not fitting:  # chosen nodes hold all entries
            later = chosen[1:][self._open_nodes.entry[chosen[1:]] >= 0]
            self._free_entries += [int(e) for e in self._open_nodes.entry[later]]
            self._open_nodes.entry[later] = _NO_ENTRY
            fitting = 1
        return fitting

    def _take_entries(self, count: int) -> list[int]:
        """Return ``count`` free buffer entries, which are not free from then on."""
        first = len(self._free_entries) - count
        taken = self._free_entries[first:][::-1]
        del self._free_entries[first:]
        return taken

    def _raise_thresholds(self, rows: Ints, bounds: Ints) -> None:
        """Raise the thresholds of rows above the utilities ``bounds`` that leaves of these rows attain.

        If all utilities are integers, the next utility that matters is 1 higher: 2^shift in the agent's scale.
        """
        # one utility in the scale; 1 if utilities are not integers
        step = 1 << max(0, self._scale.shift) if self._scale.integral else 1
        np.maximum.at(self.thresholds, rows, (bounds // step + 1) * step)

    def _close_nodes(self) -> None:
        """Close the nodes that do not reach their rows' thresholds."""
        closed = self._open_nodes.bound < self.thresholds[self._open_nodes.row]
        if not closed.any():
            return
        rows, bounds = self._open_nodes.row[closed], self._open_nodes.bound[closed]
        np.maximum.at(self._closed_bounds, rows, bounds)
        self._free_entries += [int(e) for e in self._open_nodes.entry[closed] if e >= 0]
        self._open_nodes = self._open_nodes.where(~closed)


def _branches(
    batch: SearchBatch, node_of: Ints, results: BatchResult
) -> tuple[Ints, Ints, NDArray[np.bool_], BatchResult]:
    """Select the jobs that create nodes; the other jobs only restore a node.

    A job creates a node if it starts from a buffer entry or is the only job of its group (a new row).

    Returns
    -------
    jobs : (k, JOB_FIELDS) int64
        The selected jobs.
    node_of : (k,) int64
        Index of each one's parent among the nodes of the batch.
    masks : (k, n, W) bool
        Values that each new node may take.
    results : BatchResult
        Results of these jobs.
    """
    creates_node = (batch.jobs[:, JOB_SOURCE] >= 0) | (np.diff(batch.groups)[node_of] == 1)
    parts: list[Any] = [part[creates_node] for part in results]
    return batch.jobs[creates_node], node_of[creates_node], batch.masks[creates_node], BatchResult(*parts)
