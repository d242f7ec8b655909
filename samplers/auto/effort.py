"""Estimate the time of a planned elimination on one core of a nominal machine, per bucket, in nanoseconds.

A *bucket* eliminates one variable: it joins its input tables; *cells* are the entries of the joined table.
"""

from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.plan import EliminationPlan

_MIN_REFINED_CELLS = 1 << 15  # joined cells of a bucket; for smaller ones a refined estimate is not worth its time
_NS_PER_BUCKET = 1e4  # nanoseconds per bucket, whatever its size (all rates here: chosen by measurement)
_NS_PER_SMALL_CELL = 0.4  # per joined cell of a small bucket
_NS_PER_CELL = 0.06  # per joined cell of a large bucket
_NS_PER_ROW = 30.0  # per row of trailing variables of a large bucket
_NS_CONTIGUOUS = 0.1  # per cell and table added to a row, contiguous in memory
_NS_GATHERED = 0.55  # likewise, gathered from several places


def bucket_efforts(plan: EliminationPlan) -> NDArray[np.float64]:
    """Return each bucket's time in nanoseconds.

    :mod:`dmcmc.inference.elimination.join_kernels` adds tables to rows of trailing variables. A table that depends on
    the last variable before the row is added for every row, others less often; the cells of a row share its cost.
    """
    program = plan.program
    efforts = _NS_PER_BUCKET + _NS_PER_SMALL_CELL * np.minimum(program.cells, _MIN_REFINED_CELLS)
    for b in np.flatnonzero(program.cells >= _MIN_REFINED_CELLS).tolist():
        efforts[b] = _NS_PER_BUCKET + float(program.cells[b]) * _nanoseconds_per_cell(plan, b)
    return efforts


def _nanoseconds_per_cell(plan: EliminationPlan, b: int) -> float:
    """Return the nanoseconds per joined cell of bucket b."""
    domains, row_axes = plan.program.domains, int(plan.program.row_axes[b])
    separator = plan.scope(plan.output(b))
    row = set(separator[len(separator) - row_axes :])
    fastest = separator[-row_axes - 1] if row_axes < len(separator) else -1
    cost = _NS_PER_CELL + _NS_PER_ROW / prod(int(domains[v]) for v in row)
    for t in plan.inputs(b):
        others = plan.scope(t)[1:]
        inside = sum(v in row for v in others)
        if inside and inside < len(others):
            frequency = 1.0 if fastest in others else 1.0 / int(domains[fastest])
            cost += frequency * (_NS_CONTIGUOUS if inside == row_axes else _NS_GATHERED)
    return cost
