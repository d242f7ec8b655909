"""Nodes of the branch and bound in a row: schedules of their descents, and their exact bounds on the CPU.

A row is an assignment of the agent's boundary variables (its interface). A node is a row with the values that each
hidden variable may take. A variable with one value is *fixed*; removed values of other variables are forbidden. In a
node the interface has a single value, whose factor vector is the sum of the row's boundary vectors, plus the vectors of
the fixed values.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN
from dmcmc.inference.bounds.semidefinite.certificate import certified_bounds, row_vectors
from dmcmc.inference.bounds.semidefinite.node_steps import NodeStep
from dmcmc.inference.bounds.semidefinite.shared_term import DescentPoint, Float32Array, SharedTerm
from dmcmc.inference.bounds.semidefinite.utility_matrix import UtilityMatrix
from dmcmc.inference.bounds.tuning.semidefinite import (
    BRANCH_STEP_SIZE,
    BRANCH_STEPS,
    FINAL_STEP_SIZE,
    FINAL_TEMPERATURE,
    INITIAL_TEMPERATURE,
    MOMENTUM,
    ROOT_STEP_SIZE,
    ROOT_STEPS,
    SECOND_MOMENT_DECAY,
    STEP_SIZE_EXPONENT,
    TEMPERATURE_EXPONENT,
    WARM_UP_SHARE,
)
from dmcmc.inference.runtime.types import Ints


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


class NodeSchedule(NamedTuple):
    """Number of steps of a node's descent, with temperatures and step sizes, in units.

    A unit is half the root mean variance of the agent's pairwise tables. With the share p of steps made, the
    temperature is T₀ (T₁ / T₀)^(p^3.7) and the step size s₀ (s₁ / s₀)^(p²), times a linear warm-up over the first fifth
    of the steps. Both decrease late: the steps with a high temperature and a large step size gain most.

    Attributes
    ----------
    steps : int
        Number of steps.
    initial_temperature, final_temperature : float
        Temperatures of the first and last step.
    initial_step_size, final_step_size : float
        Step sizes of the first (after the warm-up) and last step, without Adam's bias correction.
    """

    steps: int
    initial_temperature: float
    final_temperature: float
    initial_step_size: float
    final_step_size: float

    def at(self, step: int) -> NodeStep:
        """Return the parameters of a step, numbered from 0."""
        progress = step / max(1, self.steps - 1)
        inverse_temperature = 1 / (
            self.initial_temperature
            * (self.final_temperature / self.initial_temperature) ** progress**TEMPERATURE_EXPONENT
        )
        step_size = (
            self.initial_step_size
            * (self.final_step_size / self.initial_step_size) ** progress**STEP_SIZE_EXPONENT
            * min(1.0, (progress + 1 / self.steps) / WARM_UP_SHARE)
        )
        return NodeStep(
            inverse_temperature,
            step_size / (1 - MOMENTUM ** (step + 1)),
            (1 - SECOND_MOMENT_DECAY ** (step + 1)) ** -0.5,
        )


ROOT_SCHEDULE = NodeSchedule(ROOT_STEPS, INITIAL_TEMPERATURE, FINAL_TEMPERATURE, ROOT_STEP_SIZE, FINAL_STEP_SIZE)
BRANCH_SCHEDULE = NodeSchedule(BRANCH_STEPS, INITIAL_TEMPERATURE, FINAL_TEMPERATURE, BRANCH_STEP_SIZE, FINAL_STEP_SIZE)


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


def shared_row_vector(term: SharedTerm, row: int) -> Float32Array:
    """Return the factor vector of a row in the term that all rows share, (r,) float32."""
    matrix, vectors = term.matrix, term.point.vectors
    vector: Float32Array = row_vectors(matrix, vectors[matrix.variable_of.size :], matrix.digits(np.array([row])))[0]
    return vector


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
