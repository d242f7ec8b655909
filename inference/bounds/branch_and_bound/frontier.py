"""The search tree's frontier over all rows of an agent.

The open nodes of a branch and bound over an agent's rows, in best-first order, and the bounds of the rows.

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

The rows of a branch and bound: which are opened, their thresholds and cutoffs, and bounds of their closed nodes.

All numbers are int64 in the agent's integer scale; see :mod:`.frontier`.
"""

import math
from typing import Any

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
from dmcmc.inference.bounds.branch_and_bound.open_nodes import (
    NO_ENTRY,
    BufferEntries,
    LeafAssignments,
    NodeParcel,
    OpenNodes,
    largest,
    node_bytes,
)
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY, Scale
from dmcmc.inference.runtime.types import Ints


class SearchedRows:
    """The state of each row in a search, besides its open nodes.

    Parameters
    ----------
    bounds : (rows,) int64
        Upper bounds of the rows.
    scale : Scale
        The agent's scale.

    Attributes
    ----------
    initial_bounds : (rows,) int64
        Upper bounds of the rows before the search.
    thresholds : (rows,) int64
        Nodes whose upper bound is below their row's threshold are closed.
    cutoffs : (rows,) int64
        Utilities that rows have to exceed.
    """

    def __init__(self, bounds: Ints, scale: Scale) -> None:
        self._scale, self.initial_bounds = scale, bounds.copy()
        self.thresholds = np.full(bounds.size, MINUS_INFINITY, dtype=np.int64)
        self.cutoffs = self.thresholds.copy()
        self._closed_bounds = self.thresholds.copy()  # upper bound on the closed nodes of each row
        self._opened, self._branched = np.zeros(bounds.size, dtype=np.bool_), np.zeros(bounds.size, dtype=np.bool_)

    def begin(self, bounds: Ints, rows: Ints, thresholds: Ints, cutoffs: Ints) -> Ints:
        """Raise thresholds, and open the given rows that are new; return those. The parameters are the frontier's."""
        irrelevant = np.ones(bounds.size, dtype=np.bool_)
        irrelevant[rows] = False
        np.maximum.at(self.thresholds, rows, thresholds)
        self.thresholds[irrelevant] = -MINUS_INFINITY  # plus infinity: closes all nodes of these rows
        self.cutoffs[rows] = cutoffs
        self.initial_bounds = bounds.copy()
        new = rows[~self._opened[rows] & (bounds[rows] >= self.thresholds[rows])]
        self._opened[new] = True
        return new

    def reopen(self, rows: Ints, thresholds: Ints) -> NDArray[np.bool_]:
        """Reset the thresholds, and forget the rows whose closed nodes may reach the given ones.

        Returns
        -------
        (all rows,) bool
            Whether each row is forgotten.
        """
        self._closed_bounds[self._closed_bounds > MINUS_INFINITY] += self._scale.threshold_error
        again = np.zeros(self.thresholds.size, dtype=np.bool_)
        again[rows] = self._closed_bounds[rows] >= thresholds
        self.thresholds[:] = MINUS_INFINITY
        self._closed_bounds[again] = MINUS_INFINITY
        self._opened &= ~again
        self._branched &= ~again
        return again

    def open_all(self) -> None:
        """Mark all rows as opened: another search opens them."""
        self._opened[:] = True

    def close(self, rows: Ints, bounds: Ints) -> None:
        """Record the upper bounds of closed nodes of some rows."""
        np.maximum.at(self._closed_bounds, rows, bounds)

    def attain(self, rows: Ints, utilities: Ints) -> None:
        """Raise the thresholds of rows above the utilities that leaves of these rows attain.

        If all utilities are integers, the next utility that matters is 1 higher: 2^shift in the agent's scale.
        """
        # one utility in the scale; 1 if utilities are not integers
        step = 1 << max(0, self._scale.shift) if self._scale.integral else 1
        np.maximum.at(self.thresholds, rows, (utilities // step + 1) * step)

    def record(self, jobs: Ints, final_rows: Ints, final_bounds: Ints) -> None:
        """Record what jobs show of their rows.

        Parameters
        ----------
        jobs : (k, JOB_FIELDS) int64
            The jobs that created nodes. Those that did not start from the row have branched it.
        final_rows, final_bounds : (m,) int64
            Rows and upper bounds of the new nodes that are not branched any more.
        """
        self._branched[jobs[jobs[:, JOB_SOURCE] >= 0, JOB_ROW]] = True
        # Values below the threshold are removed without their bound, so the row may still attain anything below it.
        self.close(jobs[:, JOB_ROW], jobs[:, JOB_THRESHOLD] - 1)
        self.close(final_rows, final_bounds)

    def are_branched(self, nodes: OpenNodes) -> bool:
        """Return whether the rows of some nodes have been branched."""
        return bool(self._branched[nodes.row].all())

    def bounds(self, nodes: OpenNodes) -> tuple[Ints, Ints]:
        """Return the opened rows and their upper bounds, given all open nodes."""
        row_bounds = self._closed_bounds.copy()
        np.maximum.at(row_bounds, nodes.row, nodes.bound)
        rows = np.flatnonzero(self._opened)
        return rows, row_bounds[rows]

    def excesses(self, nodes: OpenNodes) -> Ints:
        """Return each node's bound minus its row's cutoff: the amount by which it raises the whole problem's bound."""
        excess: Ints = nodes.bound - self.cutoffs[nodes.row]
        return excess

    def largest_excess(self, nodes: OpenNodes) -> float:
        """Return the largest excess of some nodes, in utility; 0 if it is negative or there is no node."""
        if not nodes.row.size:
            return 0.0
        return max(0.0, math.ldexp(float(self.excesses(nodes).max()), -self._scale.shift))


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
    rows : SearchedRows
        The rows: which are opened, their thresholds and cutoffs.
    open_nodes : OpenNodes
        The open nodes.
    entries : BufferEntries
        The free buffer entries.
    nodes : int
        Number of nodes processed.
    leaves : LeafAssignments
        Assignments found.
    max_open : int
        Number of open nodes above which the search is depth first.
    """

    def __init__(
        self, allowed: NDArray[np.bool_], bounds: Ints, scale: Scale, capacity: int, memory_limit: int
    ) -> None:
        self.max_open = memory_limit // node_bytes(*allowed.shape)
        self._shape, self._all_values = allowed.shape, np.packbits(allowed.reshape(1, -1), axis=1)
        self.rows, self.entries = SearchedRows(bounds, scale), BufferEntries(capacity)
        self.open_nodes = self._roots(np.zeros(0, dtype=np.int64))
        self.nodes, self.leaves = 0, LeafAssignments()

    @property
    def size(self) -> int:
        """Number of open nodes."""
        return int(self.open_nodes.row.size)

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
        new = self.rows.begin(bounds, rows, thresholds, cutoffs)
        lowered = self.open_nodes._replace(bound=np.minimum(self.open_nodes.bound, bounds[self.open_nodes.row]))
        self.open_nodes = lowered.joined(self._roots(new))
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
        dropped = self.rows.reopen(rows, thresholds)[self.open_nodes.row]
        self.entries.release(self.open_nodes.entry[dropped])
        self.open_nodes = self.open_nodes.where(~dropped)

    def best_excesses(self, count: int) -> Ints:
        """Return the excesses of the best open nodes, at most ``count``, descending."""
        excesses = self.rows.excesses(self.open_nodes)
        return excesses[largest(excesses, count)]

    def give(self, count: int) -> NodeParcel:
        """Remove and return about ``count`` of the best open nodes: every second one, so that good nodes remain.

        At most half of the open nodes are removed.
        """
        chosen = largest(self.rows.excesses(self.open_nodes), 2 * count)[1::2]
        given = self.open_nodes.where(chosen)
        self.entries.release(given.entry)
        self.open_nodes = self.open_nodes.without(chosen)
        return NodeParcel(given.row, given.bound, given.mask)

    def take(self, parcel: NodeParcel) -> None:
        """Add open nodes of another search of the same rows."""
        received = self._roots(parcel.row)._replace(bound=parcel.bound, mask=parcel.mask)
        self.open_nodes = self.open_nodes.joined(received)
        self._close_nodes()

    def bounds(self) -> tuple[Ints, Ints]:
        """Return the opened rows and their upper bounds."""
        return self.rows.bounds(self.open_nodes)

    def next_batch(self, max_nodes: int, work: NodeWork) -> tuple[Ints, SearchBatch]:
        """Select the best nodes for which buffer entries suffice, and build the batch that bounds their branches.

        If more than ``max_open`` nodes are open, the newest ones are selected instead. The search is then depth first,
        which keeps the number of open nodes small.

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
        nodes, excesses = self.open_nodes, self.rows.excesses(self.open_nodes)
        if self.size > self.max_open:
            chosen = np.arange(self.size - 1, max(-1, self.size - 1 - max_nodes), -1)
        else:
            chosen = largest(excesses, max_nodes)
        needed = nodes.where(chosen).needed_entries()
        chosen = chosen[: self.entries.reserve(nodes.entry, excesses, chosen, needed)]
        return chosen, _batch_of(nodes.where(chosen), self._shape[0], self.rows.thresholds, self.entries, work)

    def record(self, chosen: Ints, batch: SearchBatch, results: BatchResult) -> None:
        """Replace the nodes of a batch by their branches.

        Parameters
        ----------
        chosen, batch
            As ``next_batch`` returned them.
        results : BatchResult
            Results of the batch. Nodes with a job that was not processed stay open.
        """
        nodes, node_of = self.open_nodes, np.repeat(np.arange(chosen.size), np.diff(batch.groups))
        undone = np.zeros(chosen.size, dtype=np.bool_)  # nodes with a job that was not processed
        undone[node_of[results.bounds == NOT_PROCESSED]] = True
        jobs, node_of, masks, results = _jobs_of_branches(batch, node_of, results)
        failed, parent_bounds = results.bounds == OUT_OF_RANGE, nodes.bound[chosen][node_of]
        bounds = np.where(failed, parent_bounds, np.minimum(parent_bounds, results.bounds))
        done, leaf, rows = ~undone[node_of], results.variables == LEAF, jobs[:, JOB_ROW]
        self.nodes += int(done.sum())
        # nodes that have no branching variable and are not to be bounded further
        ended = (results.variables < LEAF) & (results.variables != UNFINISHED)
        # leaves, and rows that are closed, infeasible or out of range at their root
        final = done & (leaf | (ended & (jobs[:, JOB_SOURCE] < 0)))
        self.rows.record(jobs[done], rows[final], bounds[final])
        attained = final & leaf
        self.rows.attain(rows[attained], bounds[attained])
        self.leaves.add(rows[attained], bounds[attained], results.masks[attained])
        # The node is closed by its bound (see _close_nodes), or its numbers left their range and it starts again.
        is_child, restart = done & ~final, done & ended & ~final
        masks = np.where(failed[:, None, None], masks, results.masks)
        # A node that was not processed keeps its entry.
        still_used = undone[node_of] & (jobs[:, JOB_TARGET] == nodes.entry[chosen][node_of])
        self.entries.release(jobs[(~is_child & ~still_used) | restart, JOB_TARGET])
        children = OpenNodes(
            rows[is_child], bounds[is_child], np.where(restart, NO_ENTRY, jobs[:, JOB_TARGET])[is_child],
            np.where(results.variables < LEAF, UNFINISHED, results.variables)[is_child],
            results.parts[is_child],
            np.packbits(masks[is_child].reshape(-1, self._shape[0] * self._shape[1]), axis=1),
        )  # fmt: skip
        self.open_nodes = nodes.without(chosen[~undone]).joined(children)
        self._close_nodes()

    def _roots(self, rows: Ints) -> OpenNodes:
        """Return the given rows as new nodes that have not been bounded yet."""
        return OpenNodes.roots(rows, self.rows.initial_bounds[rows], self._all_values, self._shape[1])

    @property
    def excess(self) -> float:
        """The largest excess of the open nodes, in utility; 0 if none is open."""
        return self.rows.largest_excess(self.open_nodes)

    def _close_nodes(self) -> None:
        """Close the nodes that do not reach their rows' thresholds."""
        closed = self.open_nodes.bound < self.rows.thresholds[self.open_nodes.row]
        if not closed.any():
            return
        nodes = self.open_nodes.where(closed)
        self.rows.close(nodes.row, nodes.bound)
        self.entries.release(nodes.entry)
        self.open_nodes = self.open_nodes.where(~closed)


def _batch_of(parents: OpenNodes, n: int, thresholds: Ints, entries: BufferEntries, work: NodeWork) -> SearchBatch:
    """Build the batch that bounds the branches of some nodes, one group of jobs per node.

    A row that has just been opened has a single job, which starts from the row; so has an unfinished node, whose job
    continues from its buffer entry. Any other node has one job per branch, and the last one overwrites its entry. If
    the node has no entry, a job that restores it from the row comes first.

    Parameters
    ----------
    parents : OpenNodes
        The nodes, of which this is the only copy: those without a buffer entry get one.
    n : int
        Number of hidden variables.
    thresholds : (rows,) int64
        The thresholds of the rows.
    entries : BufferEntries
        The free entries, which suffice.
    work : NodeWork
        Amounts of work.
    """
    is_single, branches, needs_entry = parents.variable == UNFINISHED, parents.branches(), parents.entry < 0
    parents.entry[needs_entry] = entries.take(int(needs_entry.sum()))
    # jobs of a node: one if it is not branched yet; otherwise one per branch, and one that restores it if needed
    groups = np.concatenate([[0], np.cumsum(np.where(is_single, 1, branches + needs_entry))])
    node_of = np.repeat(np.arange(parents.row.size), np.diff(groups))
    from_row = np.zeros(node_of.size, dtype=np.bool_)
    from_row[groups[:-1][needs_entry]] = True
    is_branch, branch_number = ~from_row & ~is_single[node_of], groups[1:][node_of] - 1 - np.arange(node_of.size)
    branching, masks = np.flatnonzero(is_branch), parents.masks(n)[node_of]
    parts, variables = parents.parts[node_of[branching]], parents.variable[node_of[branching]]
    masks[branching, variables] &= parts == branch_number[branching, None]
    jobs = np.zeros((node_of.size, JOB_FIELDS), dtype=np.int64)
    jobs[:, JOB_ROW], jobs[:, JOB_TARGET] = parents.row[node_of], parents.entry[node_of]
    jobs[:, JOB_SOURCE] = np.where(from_row, -1, parents.entry[node_of])
    with_new_entry = np.flatnonzero(is_branch & (branch_number > 0))
    jobs[with_new_entry, JOB_TARGET] = entries.take(with_new_entry.size)
    jobs[:, JOB_THRESHOLD] = thresholds[jobs[:, JOB_ROW]]
    jobs[:, JOB_WORK] = np.where(is_single[node_of], work.root, np.where(from_row, work.restored, work.branch))
    return SearchBatch(jobs, groups.astype(np.int64), masks)


def _jobs_of_branches(
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
