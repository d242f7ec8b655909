"""Lifts of several agents at once, on a GPU: what comes before and after the steps goes to threads."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.dual.scale import Scale
from dmcmc.inference.bounds.semidefinite.batch import Batch, shape_of
from dmcmc.inference.bounds.semidefinite.cuda.arrays import MOST_DOMAIN, DeviceArrays
from dmcmc.inference.bounds.semidefinite.descent import LOOK, Descent, Point, Singles, Target
from dmcmc.inference.bounds.semidefinite.lift import ROWS, Lift, LiftRequest, Opened
from dmcmc.inference.bounds.semidefinite.network import Network
from dmcmc.inference.bounds.semidefinite.steps import Shape
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import PIECE, Stop
from dmcmc.inference.runtime.device import CLAIMS, is_out_of_memory, shared_device
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.products import products_on_one_thread
from dmcmc.inference.runtime.threads import run_parallel

_LOADED = 16  # agents, at most, of a step that loads what all use
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
    """Compile what such agents use on the GPU, or find it on disk; open the libraries for it.

    Kernels depend on how many numbers are added up, so this is a step of agents as large, of made-up utilities.
    """
    locals_ = locals_[:_LOADED]
    descents = [Descent(_made_up(local), _from_nothing) for local in locals_]
    targets = [Target(descent.network.digits(np.arange(_rows_of(local))), np.zeros(_rows_of(local)))
               for descent, local in zip(descents, locals_, strict=True)]  # fmt: skip
    Batch(descents, targets, DeviceArrays(), rows=max(map(_rows_of, locals_))).run(_by_steps(1))


def _made_up(local: LocalProblem) -> Network:
    """Return a network of the size of an agent's."""
    sizes = [int(local.domains[v]) for v in local.hidden]
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    n, owner = int(starts[-1]), np.repeat(np.arange(len(sizes)), sizes)
    pairs = np.add.outer(np.arange(n), np.arange(n)).astype(np.int32) % 7
    pairs[owner[:, None] == owner] = 0
    shape = local.interface_shape
    crossing = tuple(np.zeros((d, n), dtype=np.int64) for d in shape)
    return Network(starts, owner, pairs, np.zeros(n, dtype=np.int64), crossing, (), shape, Scale(0, True, 0, 0))


def _from_nothing(network: Network, unit: float) -> tuple[Singles, Singles]:
    """Return vectors and shifts that are 0."""
    n, h = network.owner.size, network.starts.size - 1
    return np.zeros((n, max(1, n // 3)), dtype=np.float32), np.zeros((h, n), dtype=np.float32)


def _rows_of(local: LocalProblem) -> int:
    """Return how many rows are laid out for an agent: fewer may matter."""
    return min(ROWS, local.rows)


def _rows(turns: Sequence[_Turn]) -> int:
    return max(_rows_of(turn.lift.state.local) for turn in turns)


def _fits(shape: Shape, backend: Backend) -> bool:
    """Return whether the device has room, and kernels can count what there is."""
    room = min(backend.limit(), shared_device().unused() // backend.sharers) // 2
    left = ACCOUNT.left()  # here it is laid out first
    if left is not None and shape.bytes > left // 2:
        return False
    return shape.d <= MOST_DOMAIN and shape.bytes <= room and shape.agents * shape.n**2 < _LARGEST


def _descend(turns: Sequence[_Turn], arrays: DeviceArrays, more: Callable[[int], int]) -> list[Point] | None:
    """Make steps; None where the device's memory is used up."""
    try:
        descents, targets = [t.opened.descent for t in turns], [t.opened.target for t in turns]
        return Batch(descents, targets, arrays, rows=_rows(turns)).run(more)
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
