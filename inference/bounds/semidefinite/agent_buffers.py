"""The arrays of an agent's relaxation.

Buffers that all nodes of some agents share: utilities, and the factor vectors and messages that nodes start from.

A node is a row of an agent (an assignment of its boundary variables) with the values that each hidden variable may
take. Arrays are padded to the largest agent: h hidden variables of d values, n = h·d values, and m > n vectors of r
components, of which number n is the row's.

NumPy arrays for descents on the CPU, with the kernels of ``node_kernels``; everything is in single precision.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN
from dmcmc.inference.bounds.semidefinite import node_kernels as kernels
from dmcmc.inference.bounds.semidefinite.node_steps import (
    RANK_MULTIPLE,
    NodeArrays,
    NodeInputs,
    NodeShape,
    NodeStep,
    NodeWorkspace,
    StepPasses,
)
from dmcmc.inference.bounds.semidefinite.utility_matrix import (
    FORBIDDEN_UTILITY,
    DescentPoint,
    SharedTerm,
    UtilityMatrix,
)
from dmcmc.inference.runtime.types import Array, Ints


class AgentBuffers:
    """Data of some agents on the device, and a buffer for nodes' factor vectors and messages.

    Parameters
    ----------
    terms : sequence of SharedTerm
        The terms that the rows of each agent share.
    arrays : NodeArrays
        The array library.
    capacity : int
        Number of buffer entries in addition to one per agent.

    Attributes
    ----------
    terms : list of SharedTerm
        The terms of the agents.
    arrays : NodeArrays
        The array library.
    shape : NodeShape
        Array sizes of a single node.
    value_columns : list of (n,) int64
        Positions of each agent's values in padded arrays.
    sizes : (agents, h) int32
        Domain sizes; 0 for a padded variable.
    units : (agents,) float64
        Unit of each agent, in its scale.
    utilities : (agents, n, n) float32, on the device
        Pairwise utilities in units.
    pairs : (agents, n, n) int32, on the device
        Pairwise utilities in the scale.
    row_values : (rows, n) int64, on the device
        Unary utilities in all rows of all agents, one agent after the other.
    first_row : (agents,) int64
        First row of each agent.
    constants : (rows,) int64
        Utilities of the rows without hidden variables.
    vectors : (entries, m, r) float16, on the device
        Stored factor vectors. The first entries hold those that the rows of each agent share.
    messages : (entries, h, n) float16, on the device
        Stored messages.
    """

    def __init__(self, terms: Sequence[SharedTerm], arrays: NodeArrays, capacity: int) -> None:
        self.terms, self.arrays = list(terms), arrays
        self.shape = node_shape(terms)
        h, d, n, m, r = self.shape.h, self.shape.d, self.shape.n, self.shape.m, self.shape.r
        matrices, agents = [term.matrix for term in terms], len(terms)
        self.value_columns, self.sizes = [value_columns(matrix, d) for matrix in matrices], domain_sizes(matrices, h)
        self.units = np.array([term.unit for term in terms])
        digits = [matrix.digits(np.arange(math.prod(matrix.shape))) for matrix in matrices]
        self.first_row = np.cumsum([0, *map(len, digits)], dtype=np.int64)[:-1]
        self.constants = np.concatenate(
            [x.interface_utilities(row_digits) for x, row_digits in zip(matrices, digits, strict=True)]
        )
        rows = np.full((self.constants.size, n), FORBIDDEN, dtype=np.int64)
        utilities = np.full((agents, n, n), FORBIDDEN_UTILITY, dtype=np.float32)
        pairs = np.full((agents, n, n), FORBIDDEN, dtype=np.int32)
        vectors, messages = np.zeros((agents, m, r), dtype=np.float16), np.zeros((agents, h, n), dtype=np.float16)
        for b, (term, columns) in enumerate(zip(terms, self.value_columns, strict=True)):
            block, point = np.ix_(columns, columns), term.point
            values = term.matrix.value_utilities(digits[b])
            rows[self.first_row[b] : self.first_row[b] + len(values), columns] = values
            utilities[b][block] = term.in_units(term.matrix.pairs)
            pairs[b][block] = term.matrix.pairs
            vectors[b, columns, : point.vectors.shape[1]] = point.vectors[: columns.size]
            variables = term.matrix.starts.size - 1
            messages[b][:variables, columns] = point.messages[:variables, : columns.size]
        self.utilities, self.pairs, self.row_values = arrays.put(utilities), arrays.put(pairs), arrays.put(rows)
        self.vectors, self.messages = (self._allocate(part, capacity) for part in (vectors, messages))

    def _allocate(self, points: Any, capacity: int) -> Any:
        """Return a device array that starts with the given entries and has space for ``capacity`` more."""
        xp = self.arrays.module
        found = xp.zeros((len(points) + capacity, *points.shape[1:]), dtype=np.float16)
        found[: len(points)] = self.arrays.put(points)
        return found

    def store(self, point: tuple[Any, Any], chosen: Ints, entries: Ints) -> None:
        """Store the points of the chosen nodes of a batch in the given buffer entries.

        Parameters
        ----------
        point : tuple of arrays
            Factor vectors, (nodes, m, r), and messages, (nodes, h, n), of the batch.
        chosen : (k,) int64
            Indices of nodes in the batch.
        entries : (k,) int64
            Buffer entry of each chosen node.
        """
        if not entries.size:
            return
        at, into = self.arrays.put(chosen), self.arrays.put(entries)
        for stored, best in zip((self.vectors, self.messages), point, strict=True):
            stored[into] = self.arrays.module.take(best, at, axis=0).astype(np.float16)

    def extract(self, agent: int, vectors: Any, messages: Any) -> DescentPoint:
        """Return a node's point without padding: vectors of the hidden values, then of the row, and messages."""
        columns, term = self.value_columns[agent], self.terms[agent]
        rank, h = term.point.vectors.shape[1], term.matrix.starts.size - 1
        hidden = self.arrays.get(vectors)[np.append(columns, self.shape.n), :rank].astype(np.float32)
        return DescentPoint(hidden, self.arrays.get(messages)[:h, columns].astype(np.float32))


def node_shape(terms: Sequence[SharedTerm]) -> NodeShape:
    """Return the array sizes of a single node of some agents."""
    sizes = [np.diff(term.matrix.starts) for term in terms]
    rank = max(term.point.vectors.shape[1] for term in terms)
    return NodeShape(1, max(map(len, sizes)), int(max(map(max, sizes))), -(-rank // RANK_MULTIPLE) * RANK_MULTIPLE)


def entry_bytes(shape: NodeShape) -> int:
    """Return the bytes of a buffer entry."""
    return 2 * (shape.m * shape.r + shape.h * shape.n)


def domain_sizes(matrices: Sequence[UtilityMatrix], h: int) -> NDArray[np.int32]:
    """Return the domain sizes of the agents' hidden variables, (agents, h) int32; 0 for a padded variable."""
    padded = np.zeros((len(matrices), h), dtype=np.int32)
    for sizes, matrix in zip(padded, matrices, strict=True):
        sizes[: matrix.starts.size - 1] = np.diff(matrix.starts)
    return padded


def distinct_pairs(exists: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which pairs consist of two different existing variables, (agents, h, h), given which variables exist."""
    are_distinct: NDArray[np.bool_] = exists[:, :, None] & exists[:, None, :] & ~np.eye(exists.shape[1], dtype=bool)
    return are_distinct


def value_columns(matrix: UtilityMatrix, d: int) -> Ints:
    """Return the positions of an agent's values in padded arrays with d values per variable, (n,) int64."""
    columns: Ints = matrix.variable_of * d + np.arange(matrix.variable_of.size) - matrix.starts[matrix.variable_of]
    return columns


class CpuArrays:
    """Arrays in host memory, a ``NodeArrays``; the work is done on the calling thread."""

    module: Any = np
    half: Any = np.float32

    def put(self, array: Array) -> Any:
        """Return a copy."""
        return array.copy()

    def get(self, array: Any) -> Array:
        """Return a copy."""
        found: Array = array.copy()
        return found

    def passes(self, given: NodeInputs, work: NodeWorkspace, schedule: Any, shape: NodeShape) -> StepPasses:
        """Return the passes for the steps of a schedule, (steps, 3) float32 with the fields of ``NodeStep``."""
        steps = [NodeStep(*record) for record in schedule]
        tables = given.utilities, given.agents, work.products, work.messages, given.sizes, shape.d
        unary = work.products, work.messages, work.value_maxima, given.values, given.sizes, shape.d
        vectors = work.vectors, work.gradients, work.first_moment, work.second_moment
        return StepPasses(
            lambda step: np.matmul(work.vectors, work.vectors.transpose(0, 2, 1), out=work.products),
            lambda step: kernels.smooth_value_maxima(*tables, steps[step].inverse_temperature, work.value_maxima),
            lambda step: kernels.update_messages(*unary, steps[step].inverse_temperature, work.weights, work.best),
            lambda step: kernels.weigh_pairs(*tables, steps[step].inverse_temperature, work.weights, work.maxima),
            lambda step: np.matmul(work.weights, work.vectors, out=work.gradients),
            lambda step: kernels.make_adam_step(*vectors, steps[step].step_size, steps[step].bias_correction),
        )
