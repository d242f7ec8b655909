"""NumPy arrays for the descent of a single agent on the CPU, with the kernel of ``pair_kernels``; nothing is padded."""

from typing import Any

import numpy as np

from dmcmc.inference.bounds.semidefinite.batched_steps import StepLaunch
from dmcmc.inference.bounds.semidefinite.descent import MOMENTUM, SECOND_MOMENT_DECAY, StepParameters
from dmcmc.inference.bounds.semidefinite.pair_kernels import smooth_pairs
from dmcmc.inference.bounds.semidefinite.utility_matrix import UtilityMatrix
from dmcmc.inference.runtime.types import Array


class NumpyArrays:
    """Arrays of one agent in host memory, a ``BatchArrays``.

    Parameters
    ----------
    matrix : UtilityMatrix
        The agent's utilities, for the layout of the values.
    """

    module: Any = np
    padded = False

    def __init__(self, matrix: UtilityMatrix) -> None:
        self._starts, self._variable_of = matrix.starts, matrix.variable_of

    def put(self, array: Array) -> Any:
        """Return the array itself."""
        return array

    def get(self, array: Any) -> Array:
        """Return the array itself."""
        found: Array = array
        return found

    def product(self, left: Any, right: Any, out: Any, transposed: bool = False, low_precision: bool = False) -> None:
        """Compute ``out = left @ right`` for stacks of matrices, in single precision; see ``BatchArrays.product``."""
        np.matmul(left, right.transpose(0, 2, 1) if transposed else right, out=out)

    def value_maxima(self, entries: Any, variables: int) -> Any:
        """Return the maximum entry of each variable's values; see ``BatchArrays.value_maxima``."""
        return np.maximum.reduceat(entries, self._starts[:-1], axis=2)

    def value_weights(self, entries: Any, best: Any, inverse_temperatures: Any, totals: Any) -> Any:
        """Return the softmax weights of each variable's values; see ``BatchArrays.value_weights``."""
        weights = np.exp((entries - best[:, :, self._variable_of]) * inverse_temperatures[:, None, None])
        weights *= (totals / np.add.reduceat(weights, self._starts[:-1], axis=2))[:, :, self._variable_of]
        return weights

    def smooth(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], shape: tuple[int, int, int]) -> StepLaunch:
        """Return a launch of ``pair_kernels.smooth_pairs``; see ``BatchArrays.smooth``."""
        utilities, products, messages, _, schedule = inputs
        arrays = utilities[0], products[0], messages[0]
        results = [output[0] for output in outputs]
        return lambda step: smooth_pairs(*arrays, StepParameters(*schedule[step, 0]).inverse_temperature,
                                         self._starts, *results)  # fmt: skip

    def adam(self, arrays: tuple[Any, ...], schedule: Any, agents: int) -> StepLaunch:
        """Return a launch of Adam's step, which overwrites the gradient; see ``BatchArrays.adam``."""
        variables, gradient, first_moment, second_moment = arrays

        def launch(step: int) -> None:
            parameters = StepParameters(*schedule[step, 0])
            np.multiply(first_moment, np.float32(MOMENTUM), out=first_moment)
            np.add(first_moment, np.float32(1 - MOMENTUM) * gradient, out=first_moment)
            np.multiply(gradient, gradient, out=gradient)
            np.multiply(second_moment, np.float32(SECOND_MOMENT_DECAY), out=second_moment)
            np.add(second_moment, np.float32(1 - SECOND_MOMENT_DECAY) * gradient, out=second_moment)
            update = np.sqrt(second_moment)
            update *= parameters.bias_correction
            update += np.float32(1e-8)  # Adam's epsilon, which avoids a division by zero
            np.divide(first_moment, update, out=update)
            update *= parameters.step_size
            np.subtract(variables, update, out=variables)

        return launch
