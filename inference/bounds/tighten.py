"""Tighten the bounds of several agents: all at once on a GPU where that is quicker, else one after the other."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dmcmc.inference.bounds.contract.protocol import BoundRequest, Pruned
from dmcmc.inference.bounds.dual.cuda.batched_ascent import improve_on_gpu
from dmcmc.inference.bounds.dual.graph import padded
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.time_shares import Parts

_DUAL = ("dual", "triangles")  # providers that a GPU can work for
_LITTLE = 0.2  # of a bound's time: often enough


class Allowance(NamedTuple):
    """What tightening may take.

    Attributes
    ----------
    effort : float
        About the seconds of one core that it takes in all: what the way to a GPU and back is weighed against.
    seconds : sequence of float or None
        Of each bound. The result then depends on the machine.
    sweeps : int or None
        In place of seconds: how much work, in the provider's own unit.
    pass_on : bool
        Whether the seconds that one bound leaves go to those after it.
    """

    effort: float
    seconds: Sequence[float] | None = None
    sweeps: int | None = None
    pass_on: bool = False


class Tightened(NamedTuple):
    """What became of one bound: what is left of its rows where values were removed, and the seconds that it took."""

    pruned: Pruned | None
    seconds: float


def tighten(
    requests: Sequence[BoundRequest],
    backend: Backend,
    allowance: Allowance,
    enough: Callable[[int], bool] | None = None,
) -> list[Tightened]:
    """Tighten bounds.

    Parameters
    ----------
    requests
        What is wanted of each.
    enough
        Whether a bound, by its place among the requests, needs no more: asked after a little of its time where they
        are tightened one after the other.

    Returns
    -------
    list of Tightened
        One for each request, in order.
    """
    if not requests:
        return []
    start, seconds = time.perf_counter(), allowance.seconds
    if backend.bounds_on_gpu(allowance.effort) and not backend.stop.asked:
        found = improve_on_gpu(requests, backend, None if seconds is None else sum(seconds), allowance.sweeps)
        if found is not None:
            each = (time.perf_counter() - start) / len(requests)
            return [Tightened(pruned, each) for pruned in found]
    parts = Parts(seconds or []) if allowance.pass_on else None
    tightened = []
    for place, request in enumerate(requests):
        start = time.perf_counter()
        own = None if seconds is None else seconds[place] if parts is None else parts.next()
        pruned = _tighten(request, own, allowance.sweeps, enough and _at(enough, place))
        tightened.append(Tightened(pruned, time.perf_counter() - start))
    return tightened


def load_kernels(bounds: Sequence[tuple[str, LocalProblem]], backend: Backend, effort: float) -> None:
    """Load what tightening uses on a GPU, where so many seconds of one core would be worth the way there.

    Parameters
    ----------
    bounds
        Each agent's provider, by name, and its problem.
    """
    widths = {padded(local) for provider, local in bounds if provider in _DUAL}
    if widths and backend.bounds_on_gpu(effort):
        from dmcmc.inference.bounds.branch_and_bound.cuda import engine
        from dmcmc.inference.bounds.dual.cuda import device_ascent

        for width in sorted(widths):
            device_ascent.load_kernels(width)
            engine.load_kernels(width)


def _at(enough: Callable[[int], bool], place: int) -> Callable[[], bool]:
    return lambda: enough(place)


def _tighten(
    request: BoundRequest, seconds: float | None, sweeps: int | None, enough: Callable[[], bool] | None
) -> Pruned | None:
    """Tighten one bound."""
    if seconds is None or enough is None:
        return request.carry_out(seconds, sweeps)
    pruned = request.carry_out(_LITTLE * seconds)
    return pruned if enough() else request.carry_out((1 - _LITTLE) * seconds)
