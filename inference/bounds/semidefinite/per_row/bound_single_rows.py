"""Lower the bounds of agents' rows by branch and bound with per-row semidefinite bounds."""

import logging
import time
from collections.abc import Sequence

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearchRequest,
    next_above,
    run_boundary_searches,
)
from dmcmc.inference.bounds.semidefinite.relaxation import ActiveRelaxation

_LOG = logging.getLogger(__name__)


def bound_single_rows(
    relaxations: Sequence[ActiveRelaxation], seconds: float | None = None, batches: int | None = None
) -> None:
    """Lower rows until the time is over or no row can be lowered; a relaxation without such rows is exhausted.

    Parameters
    ----------
    relaxations : sequence of ActiveRelaxation
        Relaxations that have a search.
    seconds : float or None
        Time budget; None for no limit.
    batches : int or None
        Maximum number of batches; None for no limit.
    """
    start, requests = time.perf_counter(), list[BoundarySearchRequest]()
    for active in relaxations:
        search, cutoffs = active.relaxation.per_row.search, active.request.cutoffs
        assert search is not None
        if cutoffs is None:
            cutoffs = np.full(active.relaxation.state.bounds.size, -np.inf)
        thresholds = next_above(cutoffs) if search.bounder.scale.integral else cutoffs
        requests.append(BoundarySearchRequest(search, thresholds, cutoffs, active.task.rows))
    run_boundary_searches(requests, seconds, batches)
    for active, (search, *_) in zip(relaxations, requests, strict=True):
        per_row = active.relaxation.per_row
        per_row.has_branched, per_row.nodes = per_row.has_branched or search.all_branched, search.nodes
        if search.exhausted:
            active.relaxation.exhausted, per_row.search = True, None
    nodes = sum(search.nodes for search, *_ in requests)
    _LOG.info(
        f"per-row semidefinite bounds of {len(relaxations)} agents in {time.perf_counter() - start:.2f} s:"
        f" {nodes} nodes so far"
    )
