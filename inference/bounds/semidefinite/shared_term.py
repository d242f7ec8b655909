"""The positive semidefinite term that all rows of an agent share, in single precision; descents start from it.

A row is an assignment of the agent's boundary variables (its interface). The term is the squared norm that
``certificate`` defines. ``relaxation`` chooses it by a descent on the *joint* agent, whose boundary variables are
hidden as well: a bound of the joint agent holds for every row, and so does each row's own certificate with the same
factor vectors, which is tighter. Bounds are convex in the Gram matrix S = L Lᵀ of the factor vectors. If L has at least
as many columns as the optimal S has rank, descent in L finds the minimum without eigenvalue computations (Burer and
Monteiro, Math. Program. 95, 2003).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.bounds.semidefinite.initial_factors import spectral_start
from dmcmc.inference.bounds.semidefinite.utility_matrix import UtilityMatrix, joint_matrix
from dmcmc.inference.runtime.types import Floats, Ints

Float32Array = NDArray[np.float32]
InitialFactors = Callable[[UtilityMatrix, float], tuple[Float32Array, Float32Array]]
FORBIDDEN_UTILITY = -1e9  # units: stands for minus infinity in float32


class DescentPoint(NamedTuple):
    """Variables of a descent, in units.

    Attributes
    ----------
    vectors : (n + interface values + 1, r) float32
        Factor vectors of the n hidden values, of the values of the boundary variables, and of the constant. The vector
        of a row is the sum of those of its boundary values and of the constant.
    messages : (variables, values) float32
        ``messages[v, a]`` is moved from the table of the pair (u, v) to value a of u. Hidden variables and their values
        come first, boundary variables may follow.
    """

    vectors: Float32Array
    messages: Float32Array


@dataclass
class SharedTerm:
    """Factor vectors and messages that bound all rows of an agent.

    Attributes
    ----------
    matrix : UtilityMatrix
        The agent's utilities.
    unit : float
        Unit of all single-precision numbers, in the matrix's scale.
    point : DescentPoint
        Factor vectors and messages.
    """

    matrix: UtilityMatrix
    unit: float
    point: DescentPoint

    @classmethod
    def initial(cls, matrix: UtilityMatrix, initialise: InitialFactors = spectral_start) -> "SharedTerm | None":
        """Return the term that a descent starts from; None if every table of two hidden variables is constant.

        ``initialise`` returns the factor vectors and messages of a joint matrix, given that matrix and the unit.
        """
        unit = matrix.unit
        if unit <= 0:
            return None
        rows = np.arange(math.prod(matrix.shape))
        vectors, messages = initialise(joint_matrix(matrix, rows, np.zeros(rows.size)), unit)
        return cls(matrix, unit, DescentPoint(np.concatenate([vectors, np.zeros_like(vectors[:1])]), messages))

    def joint(self, rows: Ints, cutoffs: Floats) -> "SharedTerm":
        """Return the term for the agent whose boundary variables are hidden as well; see ``joint_matrix``."""
        return SharedTerm(joint_matrix(self.matrix, rows, cutoffs), self.unit, self.point)

    def take(self, point: DescentPoint) -> None:
        """Replace the point by one that a descent has found.

        The descent leaves out variables with a single value. Messages move their tables to the other variables.
        """
        first, n = self.matrix.starts[:-1], self.matrix.variable_of.size
        for variable in np.flatnonzero(np.diff(self.matrix.starts) == 1).tolist():
            moved = self.in_units(self.matrix.pairs[first[variable]])
            point.messages[variable, :n] = np.where(moved > FORBIDDEN_UTILITY, moved, 0)
        self.point = point

    def scaled(self, point: DescentPoint) -> tuple[Floats, Floats]:
        """Return a point's vectors and the hidden variables' messages as float64, in the matrix's scale."""
        h, n = self.matrix.starts.size - 1, self.matrix.variable_of.size
        messages = point.messages[:h, :n].astype(np.float64) * self.unit
        return point.vectors.astype(np.float64) * np.sqrt(self.unit), messages

    def in_units(self, integers: Ints | NDArray[np.int32]) -> Float32Array:
        """Return integers of the matrix's scale in units; forbidden entries become ``FORBIDDEN_UTILITY``."""
        scaled_values: Float32Array = integers.astype(np.float32) * np.float32(1 / self.unit)
        scaled_values[integers < FORBIDDEN_BELOW] = FORBIDDEN_UTILITY
        return scaled_values
