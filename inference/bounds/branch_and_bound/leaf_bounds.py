"""Replace the bounds of leaves by their exact utilities.

A leaf's only assignment has the utility that its factors add up to. The bound that a bounder has computed for it may
be higher, since stored tables are rounded up; a search that ends with it would leave a gap open for ever.
"""

import math

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.bounder import JOB_ROW, LEAF, BatchResult, SearchBatch
from dmcmc.inference.bounds.dual.integer_scaling import Scale
from dmcmc.inference.model.arithmetic import exact_sum, round_up
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.types import Ints, Number


def with_exact_leaves(local: Subproblem, scale: Scale, batch: SearchBatch, results: BatchResult) -> BatchResult:
    """Return the results of a batch with the bounds of its leaves lowered to their utilities.

    Parameters
    ----------
    local : Subproblem
        The agent's problem.
    scale : Scale
        The agent's integer scale.
    batch : SearchBatch
        The jobs.
    results : BatchResult
        Their results.
    """
    leaves = np.flatnonzero(results.variables == LEAF)
    if not leaves.size:
        return results
    utilities = utilities_of(local, batch.jobs[leaves, JOB_ROW], results.masks[leaves].argmax(axis=2))
    bounds = results.bounds.copy()
    bounds[leaves] = np.minimum(bounds[leaves], [scale.encode_up(utility) for utility in utilities])
    return results._replace(bounds=bounds)


def utilities_of(local: Subproblem, rows: Ints, values: Ints) -> list[Number]:
    """Return the utilities of rows (k,) with values of the hidden variables (k, n), rounded up; −inf if forbidden."""
    digits = np.unravel_index(rows, local.interface_shape) if local.interface else ()
    value_of = dict(zip(local.interface, digits, strict=True)) | dict(zip(local.hidden, values.T, strict=True))
    entries = [
        np.broadcast_to(factor.table[tuple(value_of[v] for v in factor.scope)], rows.shape) for factor in local.factors
    ]
    is_forbidden = np.logical_or.reduce([forbidden(column) for column in entries])
    addends = zip(*(column.tolist() for column in entries), strict=True)
    return [
        -math.inf if barred else round_up(exact_sum(numbers))
        for barred, numbers in zip(is_forbidden, addends, strict=True)
    ]
