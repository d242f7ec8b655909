"""Estimate the time of a planned elimination on one core of a nominal machine, per bucket, in nanoseconds.

A *bucket* eliminates one variable: it joins its input tables; *cells* are the entries of the joined table.
"""

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.samplers.tuning import auto as tuning


class BucketTimes(NamedTuple):
    """Nanoseconds of an elimination on one core, measured by ``benchmarks.elimination.buckets``.

    Attributes
    ----------
    bucket : float
        Per bucket, whatever its size.
    small_cell, cell : float
        Per joined cell of a small bucket, and of a large one.
    row : float
        Per row of trailing variables of a large bucket.
    contiguous, gathered : float
        Per cell and table that is added to a row: contiguous in memory, or gathered from several places.
    """

    bucket: float
    small_cell: float
    cell: float
    row: float
    contiguous: float
    gathered: float


NOMINAL_TIMES = BucketTimes(bucket=1e4, small_cell=0.4, cell=0.06, row=30.0, contiguous=0.1, gathered=0.55)


def bucket_efforts(plan: EliminationPlan) -> NDArray[np.float64]:
    """Return each bucket's time in nanoseconds.

    :mod:`dmcmc.inference.elimination.join_kernels` adds tables to rows of trailing variables. A table that depends on
    the last variable before the row is added for every row, others less often; the cells of a row share its cost.
    """
    program = plan.program
    efforts = NOMINAL_TIMES.bucket + NOMINAL_TIMES.small_cell * np.minimum(program.cells, tuning.REFINED_CELLS)
    for b in np.flatnonzero(program.cells >= tuning.REFINED_CELLS).tolist():
        efforts[b] = NOMINAL_TIMES.bucket + float(program.cells[b]) * _nanoseconds_per_cell(plan, b)
    return efforts


def _nanoseconds_per_cell(plan: EliminationPlan, b: int) -> float:
    """Return the nanoseconds per joined cell of bucket b."""
    domains, row_axes = plan.program.domains, int(plan.program.row_axes[b])
    separator = plan.scope(plan.output(b))
    row = set(separator[len(separator) - row_axes :])
    fastest = separator[-row_axes - 1] if row_axes < len(separator) else -1
    cost = NOMINAL_TIMES.cell + NOMINAL_TIMES.row / prod(int(domains[v]) for v in row)
    for t in plan.inputs(b):
        others = plan.scope(t)[1:]
        inside = sum(v in row for v in others)
        if inside and inside < len(others):
            frequency = 1.0 if fastest in others else 1.0 / int(domains[fastest])
            cost += frequency * (NOMINAL_TIMES.contiguous if inside == row_axes else NOMINAL_TIMES.gathered)
    return cost
