"""A batch of nodes whose descents run together; their initial points are gathered on the device.

A node is a row of an agent (an assignment of its boundary variables) with some hidden variables fixed. A point is a
node's factor vectors, one per value and one for the row, and its messages. Array sizes: h hidden variables of d values,
n = h·d values, and m > n vectors of r components, of which number n is the row's.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN, FORBIDDEN_BELOW
from dmcmc.inference.bounds.semidefinite.descent import FORBIDDEN_UTILITY, DescentPoint
from dmcmc.inference.bounds.semidefinite.descent_batch import distinct_pairs
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import AgentBuffers
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import NodeDescent, NodeInputs
from dmcmc.inference.bounds.semidefinite.per_row.nodes import NodeSchedule, RowNode, shared_row_vector


class NodeStart(NamedTuple):
    """A node with its initial point.

    Attributes
    ----------
    agent : int
        The agent's index in the buffers.
    node : RowNode
        The node.
    entry : int
        Buffer entry of the initial point. The entry number ``agent`` is that of the term that all rows share.
    from_parent : bool
        Whether the point is that of the parent, whose last variable was not fixed yet. Otherwise it is the node's own
        point or the shared one.
    """

    agent: int
    node: RowNode
    entry: int
    from_parent: bool = False


class RowNodeBatch:
    """Nodes whose descents run together.

    Parameters
    ----------
    buffers : AgentBuffers
        The agents' data and the stored points.
    starts : sequence of NodeStart
        One per node.

    Attributes
    ----------
    values : (nodes, n) int64, on the device
        Unary utilities of the values, in the scale.
    constants : (nodes,) int64
        Utilities without free variables, in the scale.
    sizes : (nodes, h) int32
        Domain sizes; 0 for a fixed or padded variable.
    exists : (nodes, h) bool
        Whether a variable is free.
    agents : (nodes,) int32
        Agent of each node.
    steps : NodeDescent
        The descents.
    """

    def __init__(self, buffers: AgentBuffers, starts: Sequence[NodeStart]) -> None:
        self.buffers, self.starts = buffers, starts
        self.shape = buffers.shape._replace(nodes=len(starts))
        self.agents = np.array([start.agent for start in starts], dtype=np.int32)
        self.sizes = sizes = buffers.sizes[self.agents]
        fixed_positions = [(b, variable) for b, start in enumerate(starts) for variable, _ in start.node.fixed]
        if fixed_positions:
            sizes[tuple(np.array(fixed_positions).T)] = 0
        self.exists = sizes > 0
        utilities, constant_utilities = self._gather_utilities()
        put = buffers.arrays.put
        given = NodeInputs(
            buffers.utilities,
            put(self.agents),
            put(sizes),
            put(self.exists.sum(axis=1).astype(np.float32)),
            utilities,
            constant_utilities,
        )
        self.steps = NodeDescent(self.shape, given, *self._initial_points(sizes), buffers.arrays)

    def run(self, schedule: NodeSchedule, steps_to_make: Callable[[int], int]) -> int:
        """Make the steps of a schedule as long as they are allowed; return the number of steps, at least one.

        Parameters
        ----------
        schedule : NodeSchedule
            Number of steps, temperatures and step sizes.
        steps_to_make : callable
            See ``descent_batch.DescentBatch.run``.
        """
        parameters = np.array([schedule.at(step) for step in range(schedule.steps)], dtype=np.float32)
        passes, steps_made = self.steps.passes(parameters), 0
        while steps_made < schedule.steps - 1 and (count := steps_to_make(steps_made)) > 0:
            last = min(steps_made + count, schedule.steps - 1)
            self.steps.advance(passes, steps_made, last, schedule.steps)
            steps_made = last
            self.buffers.arrays.get(self.steps.least_bound)  # waits until the steps are complete
        self.steps.finish(passes, steps_made)
        return steps_made + 1

    def point(self, b: int) -> DescentPoint:
        """Return the best point of a node."""
        return self.buffers.extract(int(self.agents[b]), *(part[b] for part in self.steps.best))

    def _gather_utilities(self) -> tuple[Any, Any]:
        """Compute the nodes' unary utilities, (nodes, n), and constants, (nodes,), on the device; return them in units.

        A fixed value adds its unary utility to the constant and its pairwise utilities to the other values.
        """
        buffers, put, xp = self.buffers, self.buffers.arrays.put, self.buffers.arrays.module
        rows = buffers.first_row[self.agents] + np.array([start.node.row for start in self.starts])
        values, constants = xp.take(buffers.row_values, put(rows), axis=0), put(buffers.constants[rows])
        for fixed in zip_longest(*(start.node.fixed for start in self.starts)):
            nodes = np.array([b for b, assignment in enumerate(fixed) if assignment is not None])
            positions = [assignment[0] * self.shape.d + assignment[1] for assignment in fixed if assignment is not None]
            at, position = put(nodes), put(np.array(positions))
            constants[at] += values[at, position]
            values[at] += buffers.pairs[put(self.agents[nodes]), position]
        self._mask_domain_parts(values)
        self.values, self.constants = values, buffers.arrays.get(constants)
        units = buffers.units[self.agents]
        utilities = values.astype(np.float32) * put((1 / units).astype(np.float32))[:, None]
        return xp.where(values < FORBIDDEN_BELOW, np.float32(FORBIDDEN_UTILITY), utilities), put(self.constants / units)

    def _mask_domain_parts(self, values: Any) -> None:
        """Mask the values that the nodes' domain restrictions exclude, on the device."""
        put, xp, d = self.buffers.arrays.put, self.buffers.arrays.module, self.shape.d
        parts = [
            (b, start.node.domain_part) for b, start in enumerate(self.starts) if start.node.domain_part is not None
        ]
        if not parts:
            return
        excluded = np.ones((len(parts), d), dtype=bool)
        excluded[
            np.repeat(np.arange(len(parts)), [len(part.values) for _, part in parts]),
            np.concatenate([part.values for _, part in parts]),
        ] = False
        at = put(np.array([[b] for b, _ in parts]))
        positions = put(np.array([[part.variable * d] for _, part in parts]) + np.arange(d))
        values[at, positions] = xp.where(put(excluded), np.int64(FORBIDDEN), values[at, positions])

    def _initial_points(self, sizes: Any) -> tuple[Any, Any]:
        """Return the initial factor vectors, (nodes, m, r), and messages, (nodes, h, n), float32 on the device.

        The row's vector absorbs the vectors of the fixed values. Vectors and messages of fixed variables become zero.
        """
        arrays, (d, n, m) = self.buffers.arrays, (self.shape.d, self.shape.n, self.shape.m)
        xp, count = arrays.module, len(self.starts)
        entry_ids = arrays.put(np.array([start.entry for start in self.starts], dtype=np.int64))
        points, messages = (
            xp.take(part, entry_ids, axis=0).astype(np.float32)
            for part in (self.buffers.vectors, self.buffers.messages)
        )
        for b, start in enumerate(self.starts):
            if start.entry == start.agent:
                row_vector = shared_row_vector(self.buffers.descents[start.agent], start.node.row)
                points[b, n, : row_vector.size] = arrays.put(row_vector)
        # The row's vector absorbs the vectors of the fixed values.
        for positions_by_node in zip_longest(*map(self._fixed_value_positions, self.starts)):
            nodes = np.array([b for b, value_position in enumerate(positions_by_node) if value_position is not None])
            at, position = (
                arrays.put(nodes),
                arrays.put(
                    np.array([value_position for value_position in positions_by_node if value_position is not None])
                ),
            )
            points[at, n] += points[at, position]
        value_mask = (np.arange(d) < sizes[:, :, None]).astype(np.float32).reshape(count, n)
        vector_mask = np.zeros((count, m), dtype=np.float32)
        vector_mask[:, :n], vector_mask[:, n] = value_mask, 1
        points *= arrays.put(vector_mask)[:, :, None]
        messages *= xp.repeat(arrays.put(distinct_pairs(self.exists).astype(np.float32)), d, axis=2)
        messages *= arrays.put(value_mask)[:, None, :]
        return points, messages

    def _fixed_value_positions(self, start: NodeStart) -> list[int]:
        """Return the positions of the fixed values whose vectors the row's initial vector does not contain yet."""
        fixed = start.node.fixed if start.entry == start.agent else start.node.fixed[-1:] if start.from_parent else ()
        return [variable * self.shape.d + value for variable, value in fixed]
