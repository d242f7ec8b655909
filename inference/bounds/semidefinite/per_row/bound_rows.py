"""Lower the bounds of agents' rows by bounding nodes in batches on the device.

A row is an assignment of an agent's boundary variables. A node is a row with some hidden variables fixed; a leaf of a
row's search tree is a node that was bounded already. ``node_queue`` chooses the nodes, ``node_batch`` runs their
descents, ``certificates`` proves their bounds.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.per_row.certificates import certificate_bytes, certificates
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import AgentBuffers
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import NodeStart, RowNodeBatch
from dmcmc.inference.bounds.semidefinite.per_row.node_queue import NodeQueue, QueueItem, Stage
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import NodeShape
from dmcmc.inference.bounds.semidefinite.per_row.nodes import certified_node_bound
from dmcmc.inference.bounds.semidefinite.relaxation import ActiveRelaxation
from dmcmc.inference.bounds.semidefinite.row_tree import Leaf, RowTree
from dmcmc.inference.bounds.semidefinite.step_throughput import step_allowance
from dmcmc.inference.runtime.threads import run_parallel

_LOG = logging.getLogger(__name__)
_MAX_NODES_PER_BATCH = 512  # larger batches are no faster, and the time may run out between two batches
_MAX_ARRAY_ENTRIES = 1 << 31  # kernels use 32-bit indices
_MIN_NODES_FOR_TIMING = 32  # a smaller batch says little about the time per node
_RETAINED_SHARE = 0.75  # of the buffer entries are kept, for the leaves furthest above their cutoffs, if none is free


def max_nodes_per_batch(shape: NodeShape, free_bytes: int) -> int:
    """Return the number of nodes for which the given memory suffices; 0 if it does not suffice for one.

    The number is reduced by a quarter until a batch fits. The bytes of the steps count twice, as a reserve for
    temporary arrays.
    """
    max_nodes = min(_MAX_NODES_PER_BATCH, (_MAX_ARRAY_ENTRIES - 1) // (shape.m * max(shape.m, shape.r)))
    while max_nodes > 0:
        batch = shape._replace(nodes=max_nodes)
        # factor 2: a reserve for temporary arrays
        if 2 * batch.bytes + certificate_bytes(batch) <= free_bytes:
            break
        max_nodes = max_nodes * 3 // 4
    return max_nodes


class PerRowBounding:
    """Best-first branch and bound in the rows of several agents, with a time limit.

    Parameters
    ----------
    relaxations : sequence of ActiveRelaxation
        Relaxations whose rows share a term already; all use the same buffers.
    buffers : AgentBuffers
        The agents' data and the stored factor vectors.
    max_nodes : int
        Maximum number of nodes per batch.
    seconds_left : callable
        Returns the remaining seconds.
    threads : int
        CPU threads for certificates, if those of the device differ from those of the CPU.

    Attributes
    ----------
    relaxations : sequence of ActiveRelaxation
        The agents' relaxations.
    queue : NodeQueue
        The next nodes.
    nodes_by_stage : list of int
        Number of nodes bounded in each ``Stage``.
    """

    def __init__(
        self,
        relaxations: Sequence[ActiveRelaxation],
        buffers: AgentBuffers,
        max_nodes: int,
        seconds_left: Callable[[], float],
        threads: int = 1,
    ) -> None:
        self.relaxations, self.nodes_by_stage, self.queue = (
            relaxations,
            [0] * len(Stage),
            NodeQueue(relaxations, buffers, max_nodes, seconds_left),
        )
        self._buffers, self._max_nodes, self._seconds_left, self._threads = buffers, max_nodes, seconds_left, threads

    def run(self) -> None:
        """Lower rows until the time is over or no row can be lowered; a relaxation without such rows is exhausted."""
        while (items := self.queue.next_batch()) and self._seconds_left() > 0:
            self._process_batch(items)
        self._update_states()

    def _update_states(self) -> None:
        """Record which relaxations are exhausted, and which have branched every row that matters."""
        items = self.queue.items()
        for number, active in enumerate(self.relaxations):
            per_row, rows = active.relaxation.per_row, [item.row for item in items if item.relaxation_index == number]
            per_row.has_branched = per_row.has_branched or all(
                row in per_row.trees and per_row.trees[row].is_branched for row in rows
            )
            if not rows:
                active.relaxation.exhausted = True
                per_row.discard()

    def _process_batch(self, items: Sequence[QueueItem]) -> None:
        """Bound the nodes of some items of one stage, and lower their rows' bounds."""
        start_time, schedule = time.perf_counter(), items[0].stage.schedule
        starts = [self.queue.starts(item) for item in items]
        nodes = [start for item_starts in starts for start in item_starts]
        bounds_found, entry_ids = list[int | None](), list[int | None]()
        if nodes:
            batch = RowNodeBatch(self._buffers, nodes)
            steps_made = batch.run(schedule, step_allowance(self._seconds_left))
            bounds_found = self._certify(batch)
            entry_ids = self._store_factors(batch, items, bounds_found)
            if steps_made == schedule.steps and len(nodes) >= min(_MIN_NODES_FOR_TIMING, self._max_nodes):
                elapsed = time.perf_counter() - start_time
                for active in self.relaxations:  # the first batch also loads libraries and allocates
                    seconds_by_steps = active.relaxation.per_row.step_seconds
                    seconds_by_steps[schedule.steps] = (
                        elapsed / (len(nodes) * steps_made) if schedule.steps in seconds_by_steps else 0.0
                    )
        self.nodes_by_stage[items[0].stage] += len(nodes)
        at = 0
        for item, nodes_of_item in zip(items, starts, strict=True):
            self._record_bounds(
                item,
                nodes_of_item,
                bounds_found[at : at + len(nodes_of_item)],
                entry_ids[at : at + len(nodes_of_item)],
            )
            at += len(nodes_of_item)

    def _record_bounds(
        self,
        item: QueueItem,
        starts: Sequence[NodeStart],
        bounds_found: Sequence[int | None],
        entry_ids: Sequence[int | None],
    ) -> None:
        """Replace an item's leaf by the bounded nodes, and lower the row's bound to that of its highest leaf.

        Parameters
        ----------
        item : QueueItem
            The leaf that was branched or continued, or a row without a tree.
        starts : sequence of NodeStart
            The nodes that were bounded for the item.
        bounds_found : sequence of int or None
            Bound of each node; None if its numbers were too large.
        entry_ids : sequence of int or None
            Buffer entry of each node's factor vectors; None if they are not stored.
        """
        relaxation = self.relaxations[item.relaxation_index].relaxation
        per_row = relaxation.per_row
        per_row.nodes_solved += len(starts)
        self.queue.invalidate(item)
        tree = per_row.trees.setdefault(item.row, RowTree())
        # A root keeps its own bound, even if another method has lowered the row further: compared with that bound, the
        # root's branches would seem not to have converged.
        if item.leaf is None:
            bounds = [int(relaxation.state.bounds[item.row]) if bound is None else bound for bound in bounds_found]
        else:
            parent_bound = item.leaf.bound
            bounds = [parent_bound if bound is None else min(parent_bound, bound) for bound in bounds_found]
            tree.remove(item.leaf)
            if item.stage == Stage.BRANCH:
                per_row.release(item.leaf)
        for start, bound, entry in zip(starts, bounds, entry_ids, strict=True):
            converged = item.stage != Stage.BRANCH or (entry is not None and bound < parent_bound)
            child = Leaf(start.node.fixed, bound, start.node.domain_part, entry, converged)
            if bound > MINUS_INFINITY:
                tree.add(child)
            else:
                per_row.release(child)
        row_bound = MINUS_INFINITY if tree.top is None else tree.top.bound
        relaxation.tighten(np.array([item.row], dtype=np.int64), np.array([row_bound], dtype=np.int64))
        if row_bound <= MINUS_INFINITY or relaxation.state.bounds[item.row] <= MINUS_INFINITY:
            for leaf in tree.leaves:
                per_row.release(leaf)

    def _store_factors(
        self, batch: RowNodeBatch, items: Sequence[QueueItem], bounds_found: Sequence[int | None]
    ) -> list[int | None]:
        """Store the points of the nodes that can be branched; return each node's buffer entry, None if not stored.

        ``bounds_found`` holds the bound of each node, or None. Nodes with high bounds are stored first if space is
        short.
        """
        entry_ids: list[int | None] = [None] * len(bounds_found)
        if items[0].stage == Stage.CONTINUE:  # a continued leaf overwrites its own entry, if it still has one
            entry_ids = [None if item.leaf is None else item.leaf.entry for item in items]
            stored = [b for b, entry in enumerate(entry_ids) if entry is not None]
            self._buffers.overwrite(batch.steps.best, stored, [entry for entry in entry_ids if entry is not None])
        wanted = [
            b
            for b, (start, bound) in enumerate(zip(batch.starts, bounds_found, strict=True))
            if entry_ids[b] is None
            and bound is not None
            and bound > MINUS_INFINITY
            and len(start.node.fixed) + 1 < len(self._buffers.branching_orders[start.agent])
        ]
        if len(self._buffers.free) < len(wanted):
            self._free_entries({id(item.leaf) for item in items})
        wanted = sorted(wanted, key=lambda b: -(bounds_found[b] or 0))[: len(self._buffers.free)]
        for b, entry in zip(wanted, self._buffers.store(batch.steps.best, wanted), strict=True):
            entry_ids[b] = entry
        return entry_ids

    def _free_entries(self, kept_leaves: set[int]) -> None:
        """Release the entries of the leaves with the smallest excess; more steps restore their points later.

        Parameters
        ----------
        kept_leaves : set of int
            Identities of leaves that keep their entries.
        """
        candidates = list[tuple[float, int, int, Leaf]]()
        for number, (relaxation, task) in enumerate(self.relaxations):
            unit = 2.0**-relaxation.state.layout.scale.shift
            cutoffs = dict(zip(task.rows.tolist(), task.cutoffs.tolist(), strict=True))
            for row, tree in relaxation.per_row.trees.items():
                for leaf in tree.leaves:
                    if leaf.entry is not None and leaf is not tree.top and id(leaf) not in kept_leaves:
                        excess = (leaf.bound - cutoffs[row]) * unit if row in cutoffs else -math.inf
                        candidates.append((excess, number, len(candidates), leaf))
        candidates.sort(key=lambda candidate: candidate[:3])
        for _, number, _, leaf in candidates[: math.ceil((1 - _RETAINED_SHARE) * len(candidates))]:
            self.relaxations[number].relaxation.per_row.release(leaf)
            leaf.converged = False
        self.queue.invalidate()

    def _certify(self, batch: RowNodeBatch) -> list[int | None]:
        """Return the exact bounds of a batch, None for a node whose numbers are too large.

        The CPU checks the first bound that the device computes. If they differ, the CPU computes all bounds from then
        on.
        """
        states = [active.relaxation.per_row for active in self.relaxations]
        known_exactness = {per_row.exact for per_row in states}
        if False not in known_exactness:
            bounds = certificates(batch)
            exact = True in known_exactness or bounds[0] == self._certify_on_cpu(batch, 0)
            for per_row in states:
                per_row.exact = exact
            if exact:
                return bounds
            _LOG.warning(
                "dmcmc: semidefinite certificates of the GPU differ from the CPU's; the CPU computes all of them"
            )
        bounds = [None] * len(batch.starts)

        def certify(b: int) -> None:
            bounds[b] = self._certify_on_cpu(batch, b)

        run_parallel([partial(certify, b) for b in range(len(bounds))], self._threads)
        return bounds

    def _certify_on_cpu(self, batch: RowNodeBatch, b: int) -> int | None:
        """Return the exact bound of a node, computed on the CPU."""
        start = batch.starts[b]
        return certified_node_bound(self._buffers.descents[start.agent], start.node, batch.point(b))
