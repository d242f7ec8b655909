"""Replace the bounds of leaves by their exact utilities.

A leaf's only assignment has the utility that its factors add up to. The bound that a bounder has computed for it may
be higher, since stored tables are rounded up; a search that ends with it would leave a gap open for ever.
"""

import math

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.bounder import JOB_ROW, LEAF, BatchResult, SearchBatch
from dmcmc.inference.bounds.dual.integer_scaling import Scale
from dmcmc.inference.model.exact_sum import exact_sum, round_up
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
    bounds = results.bounds.copy()
    for job in leaves.tolist():
        utility = _utility(local, int(batch.jobs[job, JOB_ROW]), results.masks[job].argmax(axis=1))
        bounds[job] = min(int(bounds[job]), scale.encode_up(utility))
    return results._replace(bounds=bounds)


def _utility(local: Subproblem, row: int, values: Ints) -> Number:
    """Return the utility of a row with values of its hidden variables, rounded up; −inf if it is forbidden."""
    digits = np.unravel_index(row, local.interface_shape) if local.interface else ()
    value_of = dict(zip(local.interface, map(int, digits), strict=True))
    value_of |= dict(zip(local.hidden, values.tolist(), strict=True))
    entries = list[Number]()
    for factor in local.factors:
        index = tuple(value_of[v] for v in factor.scope)
        entry = factor.table[index]
        if forbidden(np.asarray(entry)).any():
            return -math.inf
        entries.append(entry.item())
    return round_up(exact_sum(entries))
