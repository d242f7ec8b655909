"""GPU arrays for a batch of nodes: CuPy's arrays, cuBLAS products of matrices, and the kernels of ``node_kernels``.

A node is a row of an agent (an assignment of its boundary variables) with some hidden variables fixed. It has h hidden
variables of d values, n = h·d values, and m > n factor vectors of r components.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dmcmc.inference.bounds.semidefinite.cuda import node_kernels as kernels
from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import DeviceArrays, launch_shape
from dmcmc.inference.bounds.semidefinite.node_steps import NodeInputs, NodeShape, NodeWorkspace, PassLaunch, StepPasses

_ADAM_BLOCK = (32, 8)  # threads per factor vector (a warp), factor vectors per block
_SIMULATED_BLOCK = (2, 2)  # the same under the simulator


class DeviceNodeArrays(DeviceArrays):
    """Device arrays for nodes, a ``NodeArrays``; NumPy arrays under Numba's simulator."""

    half: Any = np.float16

    def passes(self, inputs: NodeInputs, work: NodeWorkspace, schedule: Any, shape: NodeShape) -> StepPasses:
        """Return launches of the passes of a step.

        In order: Gram matrices of the vectors, max-marginals of the pairwise tables, message update, weights of the
        pairwise tables, gradient, and Adam step. A block of a pass over pairs handles one variable and several
        partners.

        Parameters
        ----------
        inputs : NodeInputs
            Arrays that stay constant during the steps.
        work : NodeWorkspace
            Arrays that the steps change.
        schedule : (steps, 3) float32
            Parameters of the steps: inverse temperature, step size, bias correction.
        shape : NodeShape
            Sizes of the arrays.
        """
        h, d, m, vector_count = shape.h, shape.d, shape.m, shape.nodes * shape.m
        _, threads = launch_shape(h, d, self._simulated)
        pairs_per_block = min(threads[1], kernels.tables_per_block(d))
        pair_grid, pair_block = (max(1, -(-(h - 1) // pairs_per_block)), h, shape.nodes), (d, pairs_per_block)
        tables = inputs.utilities, inputs.agents, work.products, work.messages, inputs.sizes, schedule
        message_arguments = (
            work.products, work.messages, work.value_maxima, inputs.values, inputs.sizes, inputs.table_counts, schedule,
            work.weights, work.best, h, m,
        )  # fmt: skip
        adam_arguments = (
            work.vectors,
            work.half_vectors,
            work.gradients,
            work.first_moment,
            work.second_moment,
            schedule,
            vector_count,
            shape.r,
        )
        adam_block = _SIMULATED_BLOCK if self._simulated else _ADAM_BLOCK
        return StepPasses(
            lambda step: self.multiply(work.half_vectors, work.half_vectors, work.products, transposed=True),
            self._launched(kernels.value_maxima_kernel(d), (*tables, work.value_maxima, h, m), pair_grid, pair_block),
            self._launched(kernels.message_kernel(d), message_arguments, (1, h, shape.nodes), threads),
            self._launched(
                kernels.pair_weights_kernel(d), (*tables, work.weights, work.maxima, h, m), pair_grid, pair_block
            ),
            lambda step: self.multiply(work.weights, work.half_vectors, work.gradients),
            self._launched(kernels.adam_step, adam_arguments, -(-vector_count // adam_block[1]), adam_block),
        )

    def _launched(self, kernel: Any, arguments: tuple[Any, ...], blocks: Any, threads: Any) -> PassLaunch:
        """Return a launch of a kernel whose last argument is the index of the step.

        ``arguments`` are all other arguments; ``blocks`` and ``threads`` are the sizes of the grid and of a block.
        """
        flat = [self._flat(argument) if hasattr(argument, "reshape") else argument for argument in arguments]
        launch: Callable[..., None] = self._device.prepare_launch(kernel, (*flat, 0), len(flat))
        return lambda step: launch(step, blocks, threads)
