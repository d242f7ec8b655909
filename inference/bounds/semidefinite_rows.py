"""Create and improve the semidefinite relaxations of agents' rows, on the CPU or on a GPU where that is faster.

A row is one assignment of an agent's interface (boundary) variables. A relaxation lowers the rows' upper bounds in the
agent's ``DualState``. A per-row relaxation belongs to a single row; only a GPU computes them.
"""

from collections.abc import Sequence
from functools import partial

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.relaxation import (
    RelaxationRequest,
    SemidefiniteRelaxation,
    is_suitable,
    runs_after_branch_and_bound,
)
from dmcmc.inference.bounds.tuning.semidefinite import MIN_SECONDS_AFTER_SEARCH
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.runtime.threads import run_parallel


def runs_on_gpu(backend: Backend, seconds: float) -> bool:
    """Return whether relaxations that may take ``seconds`` in all run on a GPU."""
    if not backend.bounds_on_gpu(seconds * backend.threads):
        return False
    from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import relaxation_gpu_problem

    return relaxation_gpu_problem() is None


def relaxation_pays(local: Subproblem, backend: Backend) -> bool:
    """Return whether a semidefinite relaxation of an agent would be useful in the time left until the deadline.

    If branch and bound runs first on the agent, the relaxation needs ``MIN_SECONDS_AFTER_SEARCH`` to improve on its
    bound.
    """
    left = backend.stop.left
    return is_suitable(local, runs_on_gpu(backend, left)) and (
        left >= MIN_SECONDS_AFTER_SEARCH or not runs_after_branch_and_bound(local)
    )


def relaxation_of(
    local: Subproblem, state: DualState, relaxation: SemidefiniteRelaxation | None = None
) -> SemidefiniteRelaxation | None:
    """Return an agent's relaxation, a new one if it has none; None if it would not be useful in the time left.

    Per-row relaxations are expected if the relaxation would run on a GPU.

    Parameters
    ----------
    local : Subproblem
    state : DualState
        The dual ascent of the agent, whose bounds the relaxation lowers.
    relaxation : SemidefiniteRelaxation or None
        The relaxation that the agent has already.
    """
    if not relaxation_pays(local, state.backend):
        return None
    relaxation = relaxation or SemidefiniteRelaxation(state)
    relaxation.per_row.expected = runs_on_gpu(state.backend, state.backend.stop.left)
    return relaxation


def improve_relaxations(requests: Sequence[RelaxationRequest], seconds: Sequence[float], backend: Backend) -> None:
    """Lower the bounds of several agents' rows: all at once on a GPU, or each agent on one thread.

    If the GPU cannot take the requests, the CPU carries them out.

    Parameters
    ----------
    requests : sequence of RelaxationRequest
    seconds : sequence of float
        Time for each request. On a GPU they share the sum. On threads each gets its own time multiplied by the number
        of requests that run at the same time.
    backend : Backend
        Threads, device and deadline.
    """
    total_seconds = sum(seconds)
    if runs_on_gpu(backend, total_seconds):
        from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import bound_on_gpu

        if bound_on_gpu(requests, backend, total_seconds):
            return
        for request in requests:
            request.relaxation.per_row.fail()  # per-row relaxations are not available then
    at_once = min(backend.threads, len(requests))
    tasks = [
        partial(request.relaxation.improve, at_once * own_seconds, None, request.rows, request.cutoffs)
        for request, own_seconds in zip(requests, seconds, strict=True)
    ]
    run_parallel(tasks, at_once, backend.stop)
