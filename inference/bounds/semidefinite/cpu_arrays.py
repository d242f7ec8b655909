"""NumPy arrays for descents on the CPU, with the kernels of ``node_kernels``; everything is in single precision."""

from typing import Any

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite import node_kernels as kernels
from dmcmc.inference.bounds.semidefinite.node_steps import (
    ExactInputs,
    NodeInputs,
    NodeShape,
    NodeStep,
    NodeWorkspace,
    StepPasses,
)
from dmcmc.inference.runtime.types import Array, Ints


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

    def exact_products(self, vectors: Any) -> Any:
        """Return the Gram matrices, (nodes, m, m) float64, of integer vectors, (nodes, m, r) float64."""
        return vectors @ vectors.transpose(0, 2, 1)

    def maxima_sums(self, given: ExactInputs, shape: NodeShape) -> Ints:
        """Return the sums of the exact maxima of the nodes' pairwise tables, (nodes,) int64; see ``NodeArrays``."""
        sums, columns = np.zeros(shape.nodes, dtype=np.int64), np.arange(shape.n).reshape(-1, shape.d)
        for node, (agent, sizes) in enumerate(zip(given.agents.tolist(), given.sizes, strict=True)):
            free = np.flatnonzero(sizes)
            values = columns[free][np.arange(shape.d) < sizes[free, None]]
            starts, block = np.cumsum([0, *sizes[free]], dtype=np.int64), np.ix_(values, values)
            utilities, products = given.utilities[agent][block], given.products[node][block]
            messages = given.messages[node][np.ix_(free, values)]
            found = [
                kernels.pair_maxima(
                    utilities,
                    np.ascontiguousarray(products[starts[u] : starts[u + 1], starts[u + 1] :]),
                    messages,
                    2 * given.bits[node],
                    starts,
                    u,
                )
                for u in range(free.size - 1)
            ]
            sums[node] = MINUS_INFINITY if MINUS_INFINITY in found else sum(found)
        return sums
