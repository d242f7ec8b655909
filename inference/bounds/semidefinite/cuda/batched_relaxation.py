"""Lifts of several agents at once, on a GPU: what comes before and after the steps goes to threads."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dmcmc.inference.bounds.dual.integer_scaling import Scale
from dmcmc.inference.bounds.semidefinite.batched_steps import Shape
from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import MOST_DOMAIN, DeviceArrays
from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import DeviceCases
from dmcmc.inference.bounds.semidefinite.cuda.node_kernels import pairs_together
from dmcmc.inference.bounds.semidefinite.descent import LOOK, Descent, Point, Singles, Target
from dmcmc.inference.bounds.semidefinite.descent_batch import Batch, shape_of
from dmcmc.inference.bounds.semidefinite.per_row.bound_rows import OwnTurn, cases_at_once
from dmcmc.inference.bounds.semidefinite.per_row.certificates import certificates
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import Ground, case_shape, slot_bytes
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import CaseBatch, Start
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import CaseShape
from dmcmc.inference.bounds.semidefinite.per_row.nodes import ROW, Case
from dmcmc.inference.bounds.semidefinite.relaxation import ROWS, LiftRequest, Turn
from dmcmc.inference.bounds.semidefinite.row_tree import Part
from dmcmc.inference.bounds.semidefinite.step_throughput import as_long_as
from dmcmc.inference.bounds.semidefinite.utility_matrix import Network
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import CLAIMS, is_out_of_memory, shared_device
from dmcmc.inference.runtime.matrix_products import products_on_one_thread
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.threads import run_parallel

SHARED = 600  # steps of the square that all rows of an agent share: ten times as many would bring 0.3 % more
_ROOM = 0.75  # of what is free of the device's memory
_POINTS, _MOST_POINTS = 0.5, 1 << 17  # of the room goes to points that are kept; how many at most
_LOADED = 16  # agents, at most, of a step that loads what all use
_WIDE = 1 << 31  # bytes of an array: libraries have other kernels for larger ones
_LARGEST = 1 << 31  # entries of an array: kernels count them in 32 bits
_LOG = logging.getLogger(__name__)


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
    opened = dict[int, Turn]()

    def begin(number: int, request: LiftRequest) -> None:
        found = request.lift.open(request.rows, request.limits)
        if found is not None:
            opened[number] = Turn(request.lift, found)

    for request in requests:
        if not request.lift.exhausted and not backend.stop.over:
            request.lift.lay_out()
    with products_on_one_thread():
        run_parallel([partial(begin, *one) for one in enumerate(requests)], backend.threads, backend.stop)
        turns = [opened[number] for number in sorted(opened)]
        shared = [turn for turn in turns if seconds is None or turn.lift.steps < SHARED or turn.lift.own.failed]
        if shared and not backend.stop.over:
            end = None if seconds is None else start + seconds
            if not _share(shared, backend, end, steps):
                return False
            for turn in shared:  # what a common square brings does not tell what rows' own will
                turn.lift.exhausted = turn.lift.exhausted and (seconds is None or turn.lift.own.failed)
        if seconds is not None:
            _go_on_alone(turns, backend, start + seconds)
    return True


def _share(turns: Sequence[Turn], backend: Backend, end: float | None, steps: int | None) -> bool:
    """Lower rows by their agents' common squares; return False where the GPU has no room."""
    begun, before = time.perf_counter(), turns[0].lift.steps
    if not _fits(shape_of([turn.opened.descent for turn in turns], _rows(turns)), backend):
        return False
    if end is None:
        more = _by_steps(10 if steps is None else steps, backend.stop)
    else:
        waves = -(-len(turns) // backend.threads)
        ending = waves * max(turn.lift.ending(turn.opened, ascends=False) for turn in turns)
        end = min(end, begun + backend.stop.left) - ending
        if begun >= end:
            return True  # it goes on from there
        more = _until(end, backend.stop)
        if not any(turn.lift.own.failed for turn in turns):
            more = _at_most(SHARED - min(turn.lift.steps for turn in turns), more)
    with CLAIMS.alone():
        points = _descend(turns, DeviceArrays(), more)
    if points is None:
        return False
    made = time.perf_counter()
    run_parallel(
        [partial(t.lift.close, t.opened, p, False) for t, p in zip(turns, points, strict=True)], backend.threads
    )
    _LOG.info(
        f"lifts of {len(turns)} agents: {turns[0].lift.steps - before} steps in {made - begun:.2f} s,"
        f" certificates {time.perf_counter() - made:.2f} s"
    )
    return True


def _go_on_alone(turns: Sequence[Turn], backend: Backend, end: float) -> None:
    """Lower rows by squares of their own, as long as there is time; where anything fails, never again.

    Where variables have too many values for a block's memory, neither.
    """
    turns = [t for t in turns if not t.lift.exhausted and not t.lift.own.failed and t.lift.steps >= SHARED]
    if not turns or time.perf_counter() >= end or backend.stop.over:
        return
    if not pairs_together(case_shape([turn.opened.descent for turn in turns]).d):
        for turn in turns:
            turn.lift.own.fail()
        return
    arrays = DeviceCases()
    try:
        new = [turn for turn in turns if turn.lift.own.ground is None]
        if new:
            _lay_out_own(new, backend, arrays)
        grounds = {id(turn.lift.own.ground): turn.lift.own.ground for turn in turns}
        for left, ground in zip(range(len(grounds), 0, -1), grounds.values(), strict=True):
            assert isinstance(ground, Ground)
            now = time.perf_counter()
            _make_own([t for t in turns if t.lift.own.ground is ground], ground, backend, now + (end - now) / left)
    except Exception as error:  # whatever a device, its driver or a library raises: squares are shared then as before
        for turn in turns:
            turn.lift.own.fail()
        say = _LOG.info if is_out_of_memory(error) else _LOG.warning
        say(f"dmcmc: no squares of rows' own on the GPU: {type(error).__name__}: {' '.join(str(error).split())[:100]}")
        _LOG.debug("what failed", exc_info=True)
    finally:
        arrays.close()


def _lay_out_own(turns: Sequence[Turn], backend: Backend, arrays: DeviceCases) -> None:
    """Lay out what agents' squares share, and room for points: it stays on the device as long as a lift is of use."""
    descents = [turn.opened.descent for turn in turns]
    ground = Ground(descents, arrays, _points_kept(case_shape(descents), _room(backend)))
    for number, turn in enumerate(turns):
        turn.lift.own.ground, turn.lift.own.agent = ground, number


def _points_kept(shape: CaseShape, room: int) -> int:
    """Return how many points there is room for, in bytes."""
    return min(_MOST_POINTS, int(_POINTS * room) // slot_bytes(shape))


def _make_own(turns: Sequence[Turn], ground: Ground, backend: Backend, end: float) -> None:
    """Make them until then."""
    begun = time.perf_counter()
    most = cases_at_once(ground.shape, _room(backend))
    if most < 1:
        raise MemoryError("out of memory: no room for a row's square")
    with CLAIMS.alone():
        own = OwnTurn(turns, ground, most, _left(end, backend.stop), backend.threads)
        own.run()
    alone, longer, split = own.made
    _LOG.info(
        f"squares of rows of {len(turns)} agents in {time.perf_counter() - begun:.2f} s: {alone} rows, {split}"
        f" branches, {longer} for longer; {most} at a time, {len(ground.free)} points free"
    )


def load_lifts(locals_: Sequence[LocalProblem], backend: Backend) -> None:
    """Compile what such agents use on the GPU, or find it on disk; open the libraries for it.

    Kernels depend on how many numbers are added up, so this is a step of agents as large, of made-up utilities.
    """
    locals_ = locals_[:_LOADED]
    descents = [Descent(_made_up(local), _from_nothing) for local in locals_]
    targets = [Target(descent.network.digits(np.arange(_rows_of(local))), np.zeros(_rows_of(local)))
               for descent, local in zip(descents, locals_, strict=True)]  # fmt: skip
    Batch(descents, targets, DeviceArrays(), rows=max(map(_rows_of, locals_))).run(_by_steps(1))
    _load_own(max(descents, key=lambda descent: descent.network.owner.size), backend)


def _load_own(descent: Descent, backend: Backend) -> None:
    """Do so for squares of rows' own: of two agents alike, since libraries compile less for one of anything."""
    if not pairs_together(case_shape([descent]).d):
        return
    arrays = DeviceCases()
    try:
        cases, points = _loaded_with(case_shape([descent]), _room(backend))
        ground = Ground([descent, descent], arrays, max(points, 2 * cases))
        starts = [Start(b % 2, Case(0), b % 2) for b in range(cases)]
        for depth in (1, 2):
            batch = CaseBatch(ground, starts)
            batch.run(ROW._replace(steps=2), _by_steps(1))
            certificates(batch)
            if depth < len(ground.orders[0]):
                slots, (first, second) = ground.keep(batch.steps.best, range(cases)), ground.orders[0][:2]
                case = Case(0, ((first, 0),), Part(second, (0,)))
                starts = [Start(b % 2, case, slot, fixes=True) for b, slot in enumerate(slots)]
    except Exception as error:  # it is found out again where it is to be of use
        _LOG.info(f"dmcmc: squares of rows' own are not loaded: {type(error).__name__}: {error}")
    finally:
        arrays.close()


def _loaded_with(shape: CaseShape, room: int) -> tuple[int, int]:
    """Return how many cases and points squares are loaded with: few, or as many as a run has where they are large.

    Libraries compile anew for arrays that are larger than 2 GiB.
    """
    cases, points = cases_at_once(shape, room), _points_kept(shape, room)
    return (
        cases if 4 * cases * shape.m * max(shape.m, shape.r) > _WIDE else 2,
        points if points * slot_bytes(shape) > _WIDE else 0,
    )


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
    """Return vectors, about as long as they are, and shifts that are 0."""
    n, h = network.owner.size, network.starts.size - 1
    return np.zeros((n, max(1, n // 2)), dtype=np.float32), np.zeros((h, n), dtype=np.float32)


def _rows_of(local: LocalProblem) -> int:
    """Return how many rows are laid out for an agent: fewer may matter."""
    return min(ROWS, local.rows)


def _rows(turns: Sequence[Turn]) -> int:
    return max(_rows_of(turn.lift.state.local) for turn in turns)


def _fits(shape: Shape, backend: Backend) -> bool:
    """Return whether the device has room, and kernels can count what there is."""
    left = ACCOUNT.left()  # here it is laid out first
    if left is not None and shape.bytes > left // 2:
        return False
    return shape.d <= MOST_DOMAIN and shape.bytes <= _room(backend) and shape.agents * shape.n**2 < _LARGEST


def _room(backend: Backend) -> int:
    """Return the bytes of the device that may be taken."""
    return int(_ROOM * min(backend.limit(), shared_device().unused() // backend.sharers))


def _descend(turns: Sequence[Turn], arrays: DeviceArrays, more: Callable[[int], int]) -> list[Point] | None:
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


def _at_most(steps: int, more: Callable[[int], int]) -> Callable[[int], int]:
    """Return what allows what another one does, but no more steps than so many."""
    return lambda made: min(more(made), steps - made)


def _until(end: float, stop: Stop) -> Callable[[int], int]:
    """Return what allows steps until then."""
    return as_long_as(_left(end, stop))


def _left(end: float, stop: Stop) -> Callable[[], float]:
    """Return what tells the seconds until then."""
    return lambda: min(end - time.perf_counter(), stop.left)
