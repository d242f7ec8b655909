"""A batch of nodes whose descents run together; their initial points are gathered on the device.

A node is a row of an agent (an assignment of its boundary variables) with the values that each hidden variable may
take. A variable with one value is fixed. A point is a node's factor vectors, one per value and one for the row, and its
messages. Array sizes: h hidden variables of d values, n = h·d values, and m > n vectors of r components, of which
number n is the row's.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.tuning import STEPS_PER_CHECK
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW
from dmcmc.inference.bounds.semidefinite.agent_buffers import AgentBuffers, distinct_pairs
from dmcmc.inference.bounds.semidefinite.certificate import row_vectors
from dmcmc.inference.bounds.semidefinite.node_steps import NodeDescent, NodeInputs, NodeSchedule
from dmcmc.inference.bounds.semidefinite.utility_matrix import FORBIDDEN_UTILITY, DescentPoint, Float32Array, SharedTerm
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import MAX_CHECK_INTERVAL


class NodeStarts(NamedTuple):
    """Nodes with their initial points: parallel arrays with one element per node.

    Attributes
    ----------
    agents : (k,) int64
        The agents' indices in the buffers.
    rows : (k,) int64
        Rows of the nodes.
    allowed : (k, h, d) bool
        Values that each variable may take; none of a padded variable.
    entries : (k,) int64
        Buffer entry of the initial point: the node's own one, its parent's, or the entry number ``agent``, which holds
        the term that all rows of the agent share.
    """

    agents: Ints
    rows: Ints
    allowed: NDArray[np.bool_]
    entries: Ints

    def at(self, chosen: Any) -> "NodeStarts":
        """Return the chosen nodes."""
        return NodeStarts(self.agents[chosen], self.rows[chosen], self.allowed[chosen], self.entries[chosen])


class RowNodeBatch:
    """Nodes whose descents run together.

    Parameters
    ----------
    buffers : AgentBuffers
        The agents' data and the stored points.
    starts : NodeStarts
        The nodes.

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
    steps : NodeDescent
        The descents.
    """

    def __init__(self, buffers: AgentBuffers, starts: NodeStarts) -> None:
        self.buffers, self.starts = buffers, starts
        self.shape = buffers.shape._replace(nodes=starts.rows.size)
        is_fixed = starts.allowed.sum(axis=2) == 1
        self.sizes = np.where(is_fixed, 0, buffers.sizes[starts.agents]).astype(np.int32)
        self.exists = self.sizes > 0
        utilities, constant_utilities = self._gather_utilities(is_fixed)
        put = buffers.arrays.put
        given = NodeInputs(
            buffers.utilities,
            put(starts.agents.astype(np.int32)),
            put(self.sizes),
            put(self.exists.sum(axis=1).astype(np.float32)),
            utilities,
            constant_utilities,
        )
        self.steps = NodeDescent(self.shape, given, *self._initial_points(is_fixed), buffers.arrays)

    def run(self, schedule: NodeSchedule, stop: Deadline = NO_DEADLINE) -> int:
        """Make the steps of a schedule until the deadline; return the number of steps, at least one.

        The clock is read after at most ``STEPS_PER_CHECK`` steps, and after ``MAX_CHECK_INTERVAL`` seconds if steps
        go on to take as long as the last ones.
        """
        parameters = np.array([schedule.at(step) for step in range(schedule.steps)], dtype=np.float32)
        passes, made, at_once = self.steps.passes(parameters), 0, 1
        while made < schedule.steps - 1 and not stop.over:
            start, last = time.perf_counter(), min(made + at_once, schedule.steps - 1)
            self.steps.advance(passes, made, last, schedule.steps)
            self.buffers.arrays.get(self.steps.least_bound)  # waits until the steps are complete
            # 1e-9 seconds: avoids a division by zero
            step_seconds = max(1e-9, (time.perf_counter() - start) / (last - made))
            fitting = min(MAX_CHECK_INTERVAL, stop.left) / step_seconds
            made, at_once = last, max(1, min(STEPS_PER_CHECK, int(fitting)))
        self.steps.finish(passes, made)
        return made + 1

    def point(self, b: int) -> DescentPoint:
        """Return the best point of a node."""
        return self.buffers.extract(int(self.starts.agents[b]), *(part[b] for part in self.steps.best))

    def _gather_utilities(self, is_fixed: NDArray[np.bool_]) -> tuple[Any, Any]:
        """Compute the nodes' unary utilities, (nodes, n), and constants, (nodes,), on the device; return them in units.

        A fixed value adds its unary utility to the constant and its pairwise utilities to the other values. Values that
        are not allowed become forbidden.
        """
        buffers, put, xp, starts = self.buffers, self.buffers.arrays.put, self.buffers.arrays.module, self.starts
        rows = buffers.first_row[starts.agents] + starts.rows
        values, constants = xp.take(buffers.row_values, put(rows), axis=0), put(buffers.constants[rows])
        for nodes, fixed in self._fixed_values(is_fixed):
            at, position = put(nodes), put(fixed)
            constants[at] += values[at, position]
            values[at] += buffers.pairs[put(starts.agents[nodes]), position]
        is_allowed = put(starts.allowed.reshape(len(rows), -1))
        self.values, self.constants = xp.where(is_allowed, values, np.int64(FORBIDDEN)), buffers.arrays.get(constants)
        units = buffers.units[starts.agents]
        utilities = self.values.astype(np.float32) * put((1 / units).astype(np.float32))[:, None]
        forbidden = self.values < FORBIDDEN_BELOW
        return xp.where(forbidden, np.float32(FORBIDDEN_UTILITY), utilities), put(self.constants / units)

    def _fixed_values(self, is_fixed: NDArray[np.bool_]) -> Iterator[tuple[Ints, Ints]]:
        """Yield the fixed values of all nodes, at most one per node at a time: nodes, and positions of their values."""
        positions = np.arange(self.shape.h) * self.shape.d + self.starts.allowed.argmax(axis=2)
        # the variables of each node, fixed ones first, and the number of fixed ones
        order, counts = np.argsort(~is_fixed, axis=1, kind="stable"), is_fixed.sum(axis=1)
        for rank in range(int(counts.max(initial=0))):
            nodes = np.flatnonzero(counts > rank)
            yield nodes, positions[nodes, order[nodes, rank]]

    def _initial_points(self, is_fixed: NDArray[np.bool_]) -> tuple[Any, Any]:
        """Return the initial factor vectors, (nodes, m, r), and messages, (nodes, h, n), float32 on the device.

        The row's vector absorbs the vectors of the fixed values. Vectors and messages of fixed variables become zero;
        they are zero already if the parent had fixed them.
        """
        arrays, (d, n, m), starts = self.buffers.arrays, (self.shape.d, self.shape.n, self.shape.m), self.starts
        xp, count = arrays.module, starts.rows.size
        points, messages = (
            xp.take(part, arrays.put(starts.entries), axis=0).astype(np.float32)
            for part in (self.buffers.vectors, self.buffers.messages)
        )
        added = np.zeros((count, self.shape.r), dtype=np.float32)
        for b in np.flatnonzero(starts.entries == starts.agents).tolist():
            row_vector = _shared_row_vector(self.buffers.terms[starts.agents[b]], int(starts.rows[b]))
            added[b, : row_vector.size] = row_vector
        points[:, n] += arrays.put(added)
        for nodes, fixed in self._fixed_values(is_fixed):
            at, position = arrays.put(nodes), arrays.put(fixed)
            points[at, n] += points[at, position]
        value_mask = (np.arange(d) < self.sizes[:, :, None]).astype(np.float32).reshape(count, n)
        vector_mask = np.zeros((count, m), dtype=np.float32)
        vector_mask[:, :n], vector_mask[:, n] = value_mask, 1
        points *= arrays.put(vector_mask)[:, :, None]
        messages *= xp.repeat(arrays.put(distinct_pairs(self.exists).astype(np.float32)), d, axis=2)
        messages *= arrays.put(value_mask)[:, None, :]
        return points, messages


def _shared_row_vector(term: SharedTerm, row: int) -> Float32Array:
    """Return the factor vector of a row in the term that all rows share, (r,) float32."""
    matrix, vectors = term.matrix, term.point.vectors
    vector: Float32Array = row_vectors(matrix, vectors[matrix.variable_of.size :], matrix.digits(np.array([row])))[0]
    return vector
