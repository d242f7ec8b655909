"""Node arrays of the per-row semidefinite relaxation on the CPU, to study row trees without a GPU.

The bounds equal those of the GPU to about 0.02 %, because of the GPU's half precision. Arrays between the passes are in
single precision here. Of the workspace, only the arrays that steps and row trees read are filled.
"""

from typing import Any

import numpy as np

from benchmarks.bounds import node_kernels as kernels
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import (
    ExactInputs,
    NodeInputs,
    NodeShape,
    NodeStep,
    NodeWorkspace,
    StepPasses,
)


class NumbaNodeArrays:
    """Node arrays in NumPy with compiled loops, as the protocol ``NodeArrays`` of ``per_row/node_steps.py``."""

    module: Any = np

    def put(self, array: Any) -> Any:
        """Return a copy."""
        return array.copy()

    def get(self, array: Any) -> Any:
        """Return a copy."""
        return array.copy()

    def passes(self, inputs: NodeInputs, work: NodeWorkspace, schedule: Any, shape: NodeShape) -> StepPasses:
        """Return the passes of a step, with the parameters of each step of a schedule."""
        n, domain = shape.n, shape.d
        products, weights = (np.zeros((shape.nodes, shape.m, shape.m), dtype=np.float32) for _ in range(2))
        gradients, first_moments = np.zeros_like(work.vectors), np.zeros_like(work.vectors)
        weights[:, n, n], parameters = 1, [NodeStep(*record) for record in schedule]
        tables = inputs.utilities, inputs.agents, products, work.messages, inputs.sizes, domain

        def multiply(at: int) -> None:
            np.matmul(work.vectors, work.vectors.transpose(0, 2, 1), out=products)
            work.products[:, n, n] = products[:, n, n]

        def update_values(at: int) -> None:
            arguments = inputs.values, inputs.sizes, domain, parameters[at].inverse_temperature, weights, work.best
            kernels.update_values(products, work.messages, work.value_maxima, *arguments)

        def move(at: int) -> None:
            kernels.adam_step(
                work.vectors,
                gradients,
                first_moments,
                work.second_moment,
                parameters[at].step_size,
                parameters[at].bias_correction,
            )

        return StepPasses(
            multiply,
            lambda at: kernels.max_marginals(*tables, parameters[at].inverse_temperature, work.value_maxima),
            update_values,
            lambda at: kernels.pair_weights(*tables, parameters[at].inverse_temperature, weights, work.maxima),
            lambda at: np.matmul(weights, work.vectors, out=gradients),
            move,
        )

    def exact_products(self, vectors: Any) -> Any:
        """Return the products of float64 vectors with themselves."""
        return vectors @ vectors.transpose(0, 2, 1)

    def maxima(self, inputs: ExactInputs, shape: NodeShape) -> Any:
        """Return the exact maxima of all pairs ``u < v``; ``MINUS_INFINITY`` where no entry is allowed."""
        found = np.zeros((shape.nodes, shape.h, shape.h), dtype=np.int64)
        kernels.exact_maxima(*inputs, shape.d, found)
        return found
