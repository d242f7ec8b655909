"""State and schedule of the descent to the positive semidefinite term that bounds rows best, in single precision.

The descent, whose steps are in ``batched_steps``, minimises the bounds that ``certificate`` then proves; the term is
the squared norm defined there. A bound is a sum of maxima, convex in the Gram matrix S = L Lᵀ of the factor vectors. If
L has at least as many columns as the optimal S has rank, descent in L finds the minimum without eigenvalue computations
(Burer and Monteiro, Math. Program. 95, 2003). The maxima are smoothed with a temperature that decreases. The softmax
weights of their entries give the gradient, and the steps are those of Adam (Kingma and Ba, 2015).

A row is an assignment of the agent's boundary variables (its interface). The excess of a row is its bound minus its
cutoff.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.bounds.semidefinite.initial_factors import spectral_start
from dmcmc.inference.bounds.semidefinite.utility_matrix import UtilityMatrix
from dmcmc.inference.runtime.types import Floats, Ints

Float32Array = NDArray[np.float32]
InitialFactors = Callable[[UtilityMatrix, float], tuple[Float32Array, Float32Array]]

# The schedule was tuned on meeting problems of 50 variables with both kinds of utility tables. Temperature and step
# size decay with the number of steps made, independently of the time available.
_INITIAL_TEMPERATURE = 0.4  # units
_INITIAL_STEP_SIZE = 0.03  # units
_DECAY_STEPS = 30.0  # time constant of the power-law decay, in steps
_STEPS_SAVED_BY_START = 50  # steps from a random start that reach what the spectral start gives
_TEMPERATURE_EXPONENT = 1.3  # of the power-law decay of the temperature
_STEP_SIZE_EXPONENT = 1.2  # of the power-law decay of the step size
_ROW_TEMPERATURE_FACTOR = 20.0  # a row's bound is a sum of many maxima: its smoothing is wider by this factor
MOMENTUM = 0.9  # decay of the running mean of gradients (Adam's beta_1)
SECOND_MOMENT_DECAY = 0.99  # decay of the running mean of squared gradients (Adam's beta_2)
FORBIDDEN_UTILITY = -1e9  # units: stands for minus infinity in float32
STEPS_PER_CHECK = 10  # steps between two checks for the best point so far
TRIAL_STEPS = 60  # steps after which the attainable bound can be extrapolated


class Target(NamedTuple):
    """Rows whose largest excess a descent minimises, and their cutoffs.

    Attributes
    ----------
    digits : (k, interface) int64
        Values of the boundary variables in each row.
    cutoffs : (k,) float64
        Utility that each row has to exceed to matter, in the matrix's scale.
    """

    digits: Ints
    cutoffs: Floats


class DescentPoint(NamedTuple):
    """Variables of a descent, or their gradients or moments, in units.

    Attributes
    ----------
    vectors : (n + interface values, r) float32
        Factor vectors of the hidden values, then of the values of the boundary variables.
    messages : (h, n) float32
        ``messages[v, a]`` is moved from the table of the pair (u, v) to value a of u.
    """

    vectors: Float32Array
    messages: Float32Array

    def copy(self) -> "DescentPoint":
        """Return a deep copy."""
        return DescentPoint(self.vectors.copy(), self.messages.copy())


class StepParameters(NamedTuple):
    """Parameters of one descent step.

    Attributes
    ----------
    inverse_temperature : float
        Inverse temperature of the maxima over values and over pairs, per unit.
    row_inverse_temperature : float
        Inverse temperature of the maximum over rows, per unit.
    step_size : float
        Step size in units, with Adam's bias correction of the first moment.
    bias_correction : float
        Factor for the root of the second moment, which starts at zero.
    """

    inverse_temperature: float
    row_inverse_temperature: float
    step_size: float
    bias_correction: float


def step_parameters(steps: int) -> StepParameters:
    """Return the parameters of the step that follows the given number of steps.

    The temperature is T₀ (1 + (s₀ + s) / τ)^-1.3 after s steps, and the step size falls likewise with the exponent 1.2;
    s₀ is ``_STEPS_SAVED_BY_START`` and τ ``_DECAY_STEPS``.
    """
    temperature_decay, step_size_decay = (1 + (_STEPS_SAVED_BY_START + s) / _DECAY_STEPS for s in (steps, steps + 1))
    inverse_temperature = temperature_decay**_TEMPERATURE_EXPONENT / _INITIAL_TEMPERATURE
    step_size = _INITIAL_STEP_SIZE / step_size_decay**_STEP_SIZE_EXPONENT / (1 - MOMENTUM ** (steps + 1))
    return StepParameters(
        inverse_temperature,
        inverse_temperature / _ROW_TEMPERATURE_FACTOR,
        step_size,
        1 / (1 - SECOND_MOMENT_DECAY ** (steps + 1)) ** 0.5,
    )


def workspace_bytes(n: int) -> int:
    """Return the bytes of workspace of a run with n hidden values."""
    return 24 * n * n  # int32 and float32 utilities, products, weights; at first eigenvectors and their workspace


class Descent:
    """A descent for one agent, resumable; ``descent_batch`` makes its steps.

    Parameters
    ----------
    matrix : UtilityMatrix
        The agent's utilities.
    initialise : callable
        Returns the factor vectors of the hidden values and the messages to start from, given the matrix and the unit.

    Attributes
    ----------
    matrix : UtilityMatrix
        The agent's utilities.
    unit : float
        Unit of all single-precision numbers, in the matrix's scale; 0 if every table is constant.
    steps : int
        Number of steps made.
    point : DescentPoint
        Current factor vectors and messages.
    first_moment, second_moment : DescentPoint
        Running means of the gradients and of their squares (Adam's m and v).
    trial : list of float
        Excess of the target after half of ``TRIAL_STEPS`` steps and after all of them, in the matrix's scale,
        approximately.
    """

    def __init__(self, matrix: UtilityMatrix, initialise: InitialFactors = spectral_start) -> None:
        self.matrix, self.unit, self.steps = matrix, matrix.unit, 0
        self.trial: list[float] = []
        if self.unit <= 0:
            return  # every table is constant
        hidden, messages = initialise(matrix, self.unit)
        vectors = np.concatenate([hidden, np.zeros((sum(matrix.shape), hidden.shape[1]), dtype=np.float32)])
        self.point = DescentPoint(vectors, messages)
        self.first_moment = DescentPoint(np.zeros_like(vectors), np.zeros_like(self.point.messages))
        self.second_moment = self.first_moment.copy()

    def scaled(self, point: DescentPoint) -> tuple[Floats, Floats]:
        """Return a point's factor vectors and messages as float64, converted from units to the matrix's scale."""
        return point.vectors.astype(np.float64) * np.sqrt(self.unit), point.messages.astype(np.float64) * self.unit

    def in_units(self, integers: Ints | NDArray[np.int32]) -> Float32Array:
        """Return integers of the matrix's scale in units; forbidden entries become ``FORBIDDEN_UTILITY``."""
        scaled_values: Float32Array = integers.astype(np.float32) * np.float32(1 / self.unit)
        scaled_values[integers < FORBIDDEN_BELOW] = FORBIDDEN_UTILITY
        return scaled_values

    @property
    def next_trial_check(self) -> int | None:
        """Number of steps at which the next entry of ``trial`` is recorded; None if both are.

        The entries are recorded after half of ``TRIAL_STEPS`` steps and after all of them.
        """
        return TRIAL_STEPS * (1 + len(self.trial)) // 2 if len(self.trial) < 2 else None
