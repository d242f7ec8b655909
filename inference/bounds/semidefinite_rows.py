"""Semidefinite lifts of agents' rows: on the CPU, or on a GPU where that is worth it."""

from collections.abc import Sequence
from functools import partial

from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.relaxation import Lift, LiftRequest, follows_search, suits
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.threads import run_parallel

_OVERTAKES = 20.0  # seconds: about twice what it takes a lift to be as far as a search that goes before it


def on_gpu(backend: Backend, seconds: float) -> bool:
    """Return whether lifts that may take so many seconds are made on a GPU."""
    if not backend.bounds_on_gpu(seconds * backend.threads):
        return False
    from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import lift_problem

    return lift_problem() is None


def worth_lifting(local: LocalProblem, backend: Backend) -> bool:
    """Return whether a lift of an agent would be of use in the time that is left."""
    left = backend.stop.left
    return suits(local, on_gpu(backend, left)) and (left >= _OVERTAKES or not follows_search(local))


def lift_of(local: LocalProblem, state: DualState, lift: Lift | None = None) -> Lift | None:
    """Return a lift for an agent, that one if it has one; None where none would be of use in the time that is left."""
    if not worth_lifting(local, state.backend):
        return None
    lift = lift or Lift(state)
    lift.own.expected = on_gpu(state.backend, state.backend.stop.left)
    return lift


def lift_rows(requests: Sequence[LiftRequest], seconds: Sequence[float], backend: Backend) -> None:
    """Lower the bounds of several agents' rows: of all at once on a GPU, or each on a thread of its own.

    Parameters
    ----------
    seconds
        For each; on threads each has as much longer as there are others beside it, on a GPU all have those of all.
    """
    together = sum(seconds)
    if on_gpu(backend, together):
        from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import lift_on_gpu

        if lift_on_gpu(requests, backend, together):
            return
        for request in requests:
            request.lift.own.fail()  # nobody is to wait for squares of rows' own
    at_once = min(backend.threads, len(requests))
    work = [
        partial(request.lift.improve, at_once * own, None, request.rows, request.limits)
        for request, own in zip(requests, seconds, strict=True)
    ]
    run_parallel(work, at_once, backend.stop)
