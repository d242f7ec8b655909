"""NumPy arrays for descents on the CPU, with the kernels of ``node_kernels``; everything is in single precision."""

from typing import Any

import numpy as np

from dmcmc.inference.bounds.semidefinite import node_kernels as kernels
from dmcmc.inference.bounds.semidefinite.node_steps import NodeInputs, NodeShape, NodeStep, NodeWorkspace, StepPasses
from dmcmc.inference.runtime.types import Array


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
