"""Cases of squares on the CPU: what rows' trees come to can be seen without a GPU.

A case takes a core 10 ms a step for 25 variables of 24 values, two thousand times what a GPU takes; bounds are the same
to 0.02 %, by which half precision differs. Between the passes numbers stay in arrays of single precision here; of a
batch's own only those are filled that steps and trees look at.
"""

from typing import Any

import numpy as np

from benchmarks.bounds import tree_kernels as kernels
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import (
    CaseGiven,
    CaseShape,
    CaseStep,
    CaseWork,
    ExactGiven,
    Passes,
)


class NumbaCases:
    """NumPy's arrays and compiled loops; a :class:`dmcmc.inference.bounds.semidefinite.per_row.node_steps.CaseArrays`."""

    module: Any = np

    def put(self, array: Any) -> Any:
        """Return a copy."""
        return array.copy()

    def get(self, array: Any) -> Any:
        """Return a copy."""
        return array.copy()

    def passes(self, given: CaseGiven, work: CaseWork, schedule: Any, shape: CaseShape) -> Passes:
        """Return the passes for the steps of a schedule."""
        n, domain = shape.n, shape.d
        products, weights = (np.zeros((shape.cases, shape.m, shape.m), dtype=np.float32) for _ in range(2))
        slopes, means = np.zeros_like(work.points), np.zeros_like(work.points)
        weights[:, n, n], plan = 1, [CaseStep(*words) for words in schedule]
        tables = given.utilities, given.agents, products, work.shifts, given.sizes, domain

        def multiply(at: int) -> None:
            np.matmul(work.points, work.points.transpose(0, 2, 1), out=products)
            work.products[:, n, n] = products[:, n, n]

        def alone(at: int) -> None:
            own = given.values, given.sizes, domain, plan[at].slope, weights, work.best
            kernels.alone_of(products, work.shifts, work.reached, *own)

        def move(at: int) -> None:
            kernels.move_all(work.points, slopes, means, work.spreads, plan[at].step, plan[at].even)

        return Passes(
            multiply,
            lambda at: kernels.reach_of(*tables, plan[at].slope, work.reached),
            alone,
            lambda at: kernels.smooth_of(*tables, plan[at].slope, weights, work.maxima),
            lambda at: np.matmul(weights, work.points, out=slopes),
            move,
        )

    def exact_products(self, vectors: Any) -> Any:
        """Return products of vectors in double precision with themselves."""
        return vectors @ vectors.transpose(0, 2, 1)

    def maxima(self, given: ExactGiven, shape: CaseShape) -> Any:
        """Return the exact maxima of pairs whose first variable comes first; NEVER where no entry is live."""
        found = np.zeros((shape.cases, shape.h, shape.h), dtype=np.int64)
        kernels.exact_maxima(*given, shape.d, found)
        return found
