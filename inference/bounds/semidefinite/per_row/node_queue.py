"""Choose the next nodes of the rows' search trees, and the size of a batch.

Each row (an assignment of an agent's boundary variables) has a tree, whose root is the row. A node fixes some hidden
variables; a leaf is a node that has been bounded and not branched. Its excess is its bound minus the row's cutoff, the
utility that the row has to exceed to matter. A leaf is branched into parts of the domain of the next variable, and a
part into its single values. Splitting a domain in two stages lowers the bound about twice as far per step. If a branch
is not lower than its parent, its descent has not converged, and it gets more steps first.
"""

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import AgentBuffers
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import NodeStart
from dmcmc.inference.bounds.semidefinite.per_row.nodes import (
    BRANCH_SCHEDULE,
    ROOT_SCHEDULE,
    NodeSchedule,
    RowNode,
    node_utilities,
)
from dmcmc.inference.bounds.semidefinite.relaxation import ActiveRelaxation
from dmcmc.inference.bounds.semidefinite.row_tree import DomainPart, Leaf

_MAX_SKIPPED_SHARE = 1.0  # of the batch size: nodes of another stage that a batch may pass over
_MIN_STEP_SECONDS = 2e-4  # estimated seconds of a step of a small batch
_SECONDS_PER_PRODUCT = 2e-14  # estimated seconds of a step per node, pair of values and component of the vectors
_DOMAIN_PARTS = 4  # parts into which a domain of at least twice as many values is split; chosen by measurement
_LEAVES_PER_ROW = 8  # leaves of a row that are candidates for a batch
_PLANNED_TIME_SHARE = 0.8  # of the remaining time is used for planning a batch


class Stage(IntEnum):
    """Next action for a row: bound its root, continue a leaf's descent, or branch a leaf.

    A row starts at ``ROOT``. Its leaves are then branched if they are converged, otherwise continued.
    """

    ROOT = 0
    CONTINUE = 1
    BRANCH = 2

    @property
    def schedule(self) -> NodeSchedule:
        """Schedule of the descents of this stage."""
        return BRANCH_SCHEDULE if self == Stage.BRANCH else ROOT_SCHEDULE


class QueueItem(NamedTuple):
    """A leaf of a row with its next action; items compare by priority.

    Attributes
    ----------
    negative_excess : float
        Cutoff minus bound, in utility; the smallest is first.
    stage : Stage
        Next action.
    relaxation_index : int
        Index of the agent's relaxation.
    row : int
        Number of the row.
    leaf_order : int
        Position of the leaf among those of its row.
    leaf : Leaf or None
        None if the row has no per-row bound yet.
    """

    negative_excess: float
    stage: Stage
    relaxation_index: int
    row: int
    leaf_order: int = 0
    leaf: Leaf | None = None


class NodeQueue:
    """Priority queue of the leaves of several agents' rows.

    Parameters
    ----------
    relaxations : sequence of ActiveRelaxation
        Relaxations whose rows share a term already; all use the same buffers.
    buffers : AgentBuffers
        The agents' data.
    max_nodes : int
        Maximum number of nodes per batch.
    seconds_left : callable
        Returns the remaining seconds.
    """

    def __init__(
        self,
        relaxations: Sequence[ActiveRelaxation],
        buffers: AgentBuffers,
        max_nodes: int,
        seconds_left: Callable[[], float],
    ) -> None:
        self._relaxations, self._buffers, self._max_nodes, self._seconds_left = (
            relaxations,
            buffers,
            max_nodes,
            seconds_left,
        )
        self._initial_bounds = [active.relaxation.state.bounds[active.task.rows] for active in relaxations]
        self._cached_items: dict[tuple[int, int], list[QueueItem]] = {}

    def invalidate(self, item: QueueItem | None = None) -> None:
        """Forget the cached items of an item's row, whose tree has changed; without an item, those of all rows."""
        if item is None:
            self._cached_items.clear()
        else:
            self._cached_items.pop((item.relaxation_index, item.row), None)

    def items(self) -> list[QueueItem]:
        """Return the leaves that can be lowered, those furthest above their rows' cutoffs first.

        The cutoffs refer to the bounds at the start. All agents' rows are lowered concurrently, so a row approaches its
        cutoff by the sum of all agents' gains. What a row has gained is therefore counted once per agent. Otherwise
        each agent would lower its first rows far below the point where other rows matter.
        """
        items, agents = list[QueueItem](), len(self._relaxations)
        for index, ((relaxation, task), initial_bounds) in enumerate(
            zip(self._relaxations, self._initial_bounds, strict=True)
        ):
            unit, bounds = 2.0**-relaxation.state.layout.scale.shift, relaxation.state.bounds[task.rows]
            row_data = zip(
                task.rows.tolist(), bounds.tolist(), task.cutoffs.tolist(), initial_bounds.tolist(), strict=True
            )
            for row, bound, cutoff, initial_bound in row_data:
                if bound <= MINUS_INFINITY:
                    continue
                items_of_row = self._cached_items.get((index, row))
                if items_of_row is None:
                    items_of_row = self._cached_items[index, row] = []
                    for leaf_order, (leaf, leaf_bound) in enumerate(self._branchable_leaves(index, row, bound)):
                        negative_excess = (cutoff - initial_bound + agents * (initial_bound - leaf_bound)) * unit
                        items_of_row.append(QueueItem(negative_excess, self._stage(leaf), index, row, leaf_order, leaf))
                items += items_of_row
        return sorted(items)  # ``leaf_order`` is unique within a row, so leaves are never compared

    def _stage(self, leaf: Leaf | None) -> Stage:
        """Return the next action for a leaf; None stands for a row without a tree."""
        if leaf is None:
            return Stage.ROOT
        return Stage.BRANCH if leaf.converged else Stage.CONTINUE

    def _branchable_leaves(self, index: int, row: int, bound: int) -> list[tuple[Leaf | None, int]]:
        """Return a row's first leaves that can be branched or continued, with their bounds.

        The list ends at the first leaf that cannot, since that leaf bounds the row from then on.
        """
        per_row = self._relaxations[index].relaxation.per_row
        if row not in per_row.trees:
            return [(None, bound)]
        branchable = list[tuple[Leaf | None, int]]()
        for leaf in per_row.trees[row].first(_LEAVES_PER_ROW):
            n_fixed, order = len(leaf.fixed), self._buffers.branching_orders[per_row.agent]
            is_final = leaf.entry is None and leaf.converged
            if is_final or n_fixed + 1 >= len(order) or self._branch_count(index, leaf) > self._max_nodes:
                break  # the leaves after it cannot lower the row's bound
            branchable.append((leaf, min(bound, leaf.bound)))
        return branchable

    def next_batch(self) -> list[QueueItem]:
        """Return the items of the next batch: those with the first item's stage for which memory and time suffice.

        The items are sorted by agent. The batch does not reach far below the first items of other stages. The list is
        empty if no leaf can be lowered or the time does not suffice for one node.
        """
        items, chosen, count, skipped = self.items(), list[QueueItem](), 0, 0
        stage = items[0].stage if items else Stage.ROOT
        affordable = self._max_affordable_nodes(stage.schedule)
        for item in items:
            if item.stage != stage:
                skipped += self._node_count(item)
            elif (count := count + self._node_count(item)) <= affordable:
                chosen.append(item)
            if count >= affordable or skipped > _MAX_SKIPPED_SHARE * affordable:
                break
        return sorted(chosen, key=lambda item: (item.relaxation_index, item.row, item.leaf_order))

    def _max_affordable_nodes(self, schedule: NodeSchedule) -> int:
        """Return the number of nodes for which memory and time suffice; 0 if the time is too short for any batch."""
        seconds = _PLANNED_TIME_SHARE * self._seconds_left()
        if math.isinf(seconds):
            return self._max_nodes
        if schedule.steps * _MIN_STEP_SECONDS > seconds:
            return 0
        return min(self._max_nodes, int(seconds / (schedule.steps * self._node_step_seconds(schedule))))

    def _node_step_seconds(self, schedule: NodeSchedule) -> float:
        """Return the seconds per step and node, measured or estimated."""
        shape = self._buffers.shape
        return (
            self._relaxations[0].relaxation.per_row.step_seconds.get(schedule.steps)
            or _SECONDS_PER_PRODUCT * shape.n**2 * shape.r
        )

    def _node_count(self, item: QueueItem) -> int:
        """Return an upper bound on the number of nodes that an item adds to a batch."""
        return (
            self._branch_count(item.relaxation_index, item.leaf) if item.leaf is not None and item.leaf.converged else 1
        )

    def _branch_count(self, index: int, leaf: Leaf) -> int:
        """Return an upper bound on the number of branches of a leaf."""
        if leaf.domain_part is not None:
            return len(leaf.domain_part.values)
        per_row = self._relaxations[index].relaxation.per_row
        domain = int(self._buffers.sizes[per_row.agent, self._buffers.branching_orders[per_row.agent][len(leaf.fixed)]])
        return domain if domain < 2 * _DOMAIN_PARTS else _DOMAIN_PARTS

    def starts(self, item: QueueItem) -> list[NodeStart]:
        """Return the nodes of an item, with their initial points."""
        per_row, leaf = self._relaxations[item.relaxation_index].relaxation.per_row, item.leaf
        if leaf is None:
            return [NodeStart(per_row.agent, RowNode(item.row), per_row.agent)]
        entry = per_row.agent if leaf.entry is None else leaf.entry
        if not leaf.converged:
            return [NodeStart(per_row.agent, RowNode(item.row, leaf.fixed, leaf.domain_part), entry)]
        nodes = self._branches(per_row.agent, item.row, leaf)
        return [NodeStart(per_row.agent, node, entry, from_parent=node.domain_part is None) for node in nodes]

    def _branches(self, agent: int, row: int, leaf: Leaf) -> list[RowNode]:
        """Return the branches of a leaf: nodes with parts of the next variable's domain, or with its single values."""
        matrix = self._buffers.descents[agent].matrix
        variable = self._buffers.branching_orders[agent][len(leaf.fixed)]
        first, last = matrix.starts[variable : variable + 2].tolist()
        values = list(range(last - first) if leaf.domain_part is None else leaf.domain_part.values)
        if self._buffers.has_forbidden[agent]:
            (utilities,), _ = node_utilities(matrix, [RowNode(row, leaf.fixed)])
            values = [value for value in values if utilities[first + value] >= FORBIDDEN_BELOW]
        if leaf.domain_part is None and last - first >= 2 * _DOMAIN_PARTS:
            ends = [len(values) * i // _DOMAIN_PARTS for i in range(_DOMAIN_PARTS + 1)]
            parts = [tuple(values[start:end]) for start, end in pairwise(ends) if start < end]
            return [RowNode(row, leaf.fixed, DomainPart(variable, part)) for part in parts]
        return [RowNode(row, (*leaf.fixed, (variable, value))) for value in values]
