"""Lifts of several agents at once, on a GPU: what comes before and after the steps goes to threads."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.semidefinite.batch import Batch, Shape, shape_of
from dmcmc.inference.bounds.semidefinite.cuda.arrays import MOST_DOMAIN, DeviceArrays
from dmcmc.inference.bounds.semidefinite.descent import LOOK, Descent, Point, Target
from dmcmc.inference.bounds.semidefinite.lift import Lift, LiftRequest, Opened
from dmcmc.inference.bounds.semidefinite.network import lay_out
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.deadline import PIECE, Stop
from dmcmc.inference.runtime.device import CLAIMS, is_out_of_memory, shared_device
from dmcmc.inference.runtime.products import products_on_one_thread
from dmcmc.inference.runtime.threads import run_parallel

_LARGEST = 1 << 31  # entries of an array: kernels count them in 32 bits
_LOG = logging.getLogger(__name__)
_MOST_STEPS = 2 * LOOK  # between two looks at the time: nothing says beforehand that the device has become slow


class _Turn(NamedTuple):
    """A lift's turn that has begun."""

    lift: Lift
    opened: Opened


def lift_on_gpu(
    requests: Sequence[LiftRequest], backend: Backend, seconds: float | None = None, steps: int | None = None
) -> bool:
    """Lower the bounds of several agents' rows, all in the same seconds, without ascents.

    An ascent would be the CPU's, mostly Python's, and for many agents take as long as thousands of steps.

    Parameters
    ----------
    seconds, steps
        As in :meth:`.Lift.improve`, for all agents together.

    Returns
    -------
    bool
        False where the GPU has no room for them: the agents are then to be lifted one by one.
    """
    start, waves = time.perf_counter(), -(-len(requests) // backend.threads)
    if seconds is not None and seconds < waves * max((r.lift.least_seconds for r in requests), default=0.0):
        return True  # all of it would be setting out
    turns = list[_Turn]()

    def begin(request: LiftRequest) -> None:
        opened = request.lift.open(request.rows, request.limits)
        if opened is not None:
            turns.append(_Turn(request.lift, opened))

    for request in requests:
        if not request.lift.exhausted and not backend.stop.over:
            request.lift.lay_out()
    with products_on_one_thread():
        run_parallel([partial(begin, request) for request in requests], backend.threads, backend.stop)
        if not turns or backend.stop.over:
            return True
        begun, before = time.perf_counter(), turns[0].lift.steps
        if not _fits(shape_of([turn.opened.descent for turn in turns], _rows(turns)), backend):
            return False
        if seconds is None:
            more = _by_steps(10 if steps is None else steps, backend.stop)
        else:
            ending = waves * max(turn.lift.ending(turn.opened, ascends=False) for turn in turns)
            end = min(start + seconds, begun + backend.stop.left) - ending
            if begun >= end:
                return True  # it goes on from there
            more = _until(end, backend.stop)
        with CLAIMS.alone():
            points = _descend(turns, DeviceArrays(), more)
        if points is None:
            return False
        made = time.perf_counter()
        run_parallel(
            [partial(t.lift.close, t.opened, p, False) for t, p in zip(turns, points, strict=True)], backend.threads
        )
        _LOG.info(
            f"lifts of {len(turns)} agents: {begun - start:.2f} s to set out, {turns[0].lift.steps - before} steps"
            f" in {made - begun:.2f} s, certificates {time.perf_counter() - made:.2f} s; granted {seconds}"
        )
    return True


def load_lifts(locals_: Sequence[LocalProblem]) -> None:
    """Compile what such agents use on the GPU, or find it on disk; open the libraries for it."""
    for d in sorted({max(2, *(int(local.domains[v]) for v in local.hidden)) for local in locals_}):
        table = np.arange(d * d).reshape(d, d) % 7
        factors = tuple(Factor.of(scope, table) for scope in ((0, 1), (1, 2), (0, 2), (2, 3)))
        descent = Descent(lay_out(LocalProblem(0, (3,), (0, 1, 2), factors, np.full(4, d))))
        Batch([descent], [Target(np.zeros((1, 1), dtype=np.int64), np.zeros(1))], DeviceArrays()).run(_by_steps(1))


def _rows(turns: Sequence[_Turn]) -> int:
    return max(turn.opened.target.limits.size for turn in turns)


def _fits(shape: Shape, backend: Backend) -> bool:
    """Return whether the device has room, and kernels can count what there is."""
    room = min(backend.limit(), shared_device().unused() // backend.sharers) // 2
    return shape.d <= MOST_DOMAIN and shape.bytes <= room and shape.agents * shape.n**2 < _LARGEST


def _descend(turns: Sequence[_Turn], arrays: DeviceArrays, more: Callable[[int], int]) -> list[Point] | None:
    """Make steps; None where the device's memory is used up."""
    try:
        return Batch([t.opened.descent for t in turns], [t.opened.target for t in turns], arrays).run(more)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        arrays.close()


def _by_steps(steps: int, stop: Stop | None = None) -> Callable[[int], int]:
    """Return what allows so many steps, a look's at a time."""
    return lambda made: 0 if stop is not None and stop.over else min(LOOK, steps - made)


def _until(end: float, stop: Stop) -> Callable[[int], int]:
    """Return what allows steps until then: no more at a time than take a moment, by the pace of the last ones."""
    last, before = time.perf_counter(), 0

    def more(made: int) -> int:
        nonlocal last, before
        now = time.perf_counter()
        left = min(end - now, stop.left)
        if left <= 0:
            return 0
        if not made:
            last = now
            return 1
        pace = (now - last) / (made - before)
        last, before = now, made
        return min(int(left / pace), _MOST_STEPS, max(1, int(PIECE / pace)))

    return more
