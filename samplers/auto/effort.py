"""What a planned elimination takes on one core, in nanoseconds of a nominal machine, bucket by bucket."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.plan import Plan

_TINY = 1 << 15  # joined cells of a bucket that is not looked at closely: to do so would take longer
_BUCKET, _TYPICAL = 1e4, 0.4  # of a bucket, whatever its size, and of a joined cell of a small one
# Of a joined cell: always, of a row, and of each table added to a row: contiguous, or picked from several places.
_CELL, _ROW, _DENSE, _GATHERED = 0.06, 30.0, 0.1, 0.55


def bucket_efforts(plan: Plan) -> NDArray[np.float64]:
    """Return each bucket's nanoseconds.

    :mod:`dmcmc.inference.elimination.join_kernels` adds tables up for rows of trailing variables. A table that varies
    with the last variable before the row is added for every row, others less often; what a row itself costs is shared
    by its cells.
    """
    program = plan.program
    efforts = _BUCKET + _TYPICAL * np.minimum(program.cells, _TINY)
    for b in np.flatnonzero(program.cells >= _TINY).tolist():
        efforts[b] = _BUCKET + float(program.cells[b]) * _cell(plan, b)
    return efforts


def _cell(plan: Plan, b: int) -> float:
    """Return the nanoseconds of one of a bucket's joined cells."""
    domains, low = plan.program.domains, int(plan.program.low[b])
    separator = plan.scope(plan.output(b))
    row = set(separator[len(separator) - low :])
    turning = separator[-low - 1] if low < len(separator) else -1
    cost = _CELL + _ROW / prod(int(domains[v]) for v in row)
    for t in plan.inputs(b):
        others = plan.scope(t)[1:]
        inside = sum(v in row for v in others)
        if inside and inside < len(others):
            often = 1.0 if turning in others else 1.0 / int(domains[turning])
            cost += often * (_DENSE if inside == low else _GATHERED)
    return cost
