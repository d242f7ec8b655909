"""Exact bounds of single nodes, computed from the utility matrix of each node: the reference for batches of nodes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN
from dmcmc.inference.bounds.semidefinite.certificate import bounds_with_term, round_psd_term
from dmcmc.inference.bounds.semidefinite.node_batch import RowNodeBatch
from dmcmc.inference.bounds.semidefinite.utility_matrix import DescentPoint, SharedTerm, UtilityMatrix
from dmcmc.inference.runtime.types import Floats, Ints


class RowNode(NamedTuple):
    """A node: a row with the values that each hidden variable may take.

    Attributes
    ----------
    row : int
        Number of the row.
    allowed : (h, W) bool
        Values that each of the agent's hidden variables may take; W is at least the largest domain size.
    """

    row: int
    allowed: NDArray[np.bool_]

    def is_free(self) -> NDArray[np.bool_]:
        """Return which hidden variables are not fixed, (h,) bool."""
        free: NDArray[np.bool_] = self.allowed.sum(axis=1) != 1
        return free


def node_of(batch: RowNodeBatch, b: int) -> RowNode:
    """Return a node of a batch without the padding."""
    hidden = batch.buffers.terms[int(batch.starts.agents[b])].matrix.starts.size - 1
    return RowNode(int(batch.starts.rows[b]), batch.starts.allowed[b, :hidden])


def certified_bounds(matrix: UtilityMatrix, vectors: Floats, messages: Floats, rows: Ints) -> Ints | None:
    """Return exact upper bounds of the given rows in the matrix's scale, rounded up; None if the numbers are too large.

    Parameters
    ----------
    matrix : UtilityMatrix
        The agent's utilities.
    vectors : (n + interface values + 1, r) float64
        Factor vectors l of the n hidden values, then of the boundary variables' values and of the constant, in square
        roots of the scale. The vector w_b of row b is the sum of those of its boundary values and of the constant.
    messages : (h, n) float64
        Messages in the scale, see ``certificate.pair_maxima_sum``.
    rows : (k,) int64
        Numbers of the rows.

    Returns
    -------
    (k,) int64 or None
        ``MINUS_INFINITY`` for a row that is proven infeasible.
    """
    term = round_psd_term(matrix, vectors, messages)
    return None if term is None else bounds_with_term(matrix, term, rows)


def node_utilities(matrix: UtilityMatrix, node: RowNode) -> tuple[Ints, int]:
    """Return the hidden values' unary utilities in a node, (n,) int64, and its constant.

    Fixed variables add their pairwise utilities to the values and their unary ones to the constant. Values that are not
    allowed become forbidden.
    """
    digits = matrix.digits(np.array([node.row], dtype=np.int64))
    values, constant = matrix.value_utilities(digits)[0], int(matrix.interface_utilities(digits)[0])
    offsets = np.arange(matrix.variable_of.size) - matrix.starts[matrix.variable_of]
    is_allowed = node.allowed[matrix.variable_of, offsets]
    for fixed in np.flatnonzero(is_allowed & ~node.is_free()[matrix.variable_of]).tolist():
        constant += int(values[fixed])
        values += matrix.pairs[fixed]
    values[~is_allowed] = FORBIDDEN
    return values, constant


def node_matrix(matrix: UtilityMatrix, node: RowNode) -> UtilityMatrix:
    """Return the utility matrix of a node: there are no boundary variables, and the fixed variables are removed."""
    values, constant = node_utilities(matrix, node)
    free = node.is_free()
    is_free_value = free[matrix.variable_of]
    sizes = np.diff(matrix.starts)[free]
    starts, variable_of = np.cumsum([0, *sizes], dtype=np.int64), np.repeat(np.arange(sizes.size), sizes)
    tables = (((), np.array(constant, dtype=np.int64)),)
    pairs = matrix.pairs[np.ix_(is_free_value, is_free_value)]
    return UtilityMatrix(starts, variable_of, pairs, values[is_free_value], (), tables, (), matrix.scale)


def certified_node_bound(term: SharedTerm, node: RowNode, point: DescentPoint) -> int | None:
    """Return the exact bound of a node in the agent's scale, computed on the CPU; None if the numbers are too large.

    Parameters
    ----------
    term : SharedTerm
        The agent's term, for its matrix and unit.
    node : RowNode
        The node.
    point : DescentPoint
        Factor vectors of all hidden values, then of the row, and the messages, in units.
    """
    matrix, (vectors, messages) = term.matrix, term.scaled(point)
    free = node.is_free()
    is_free_value = free[matrix.variable_of]
    bounds = certified_bounds(
        node_matrix(matrix, node),
        vectors[np.append(is_free_value, True)],
        messages[np.ix_(free, is_free_value)],
        np.zeros(1, dtype=np.int64),
    )
    return None if bounds is None else int(bounds[0])
