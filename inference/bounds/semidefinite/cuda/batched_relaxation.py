"""Run the semidefinite relaxations of several agents at once on a GPU, with set-up and certificates on CPU threads.

A row is an assignment of an agent's boundary variables. The bound adds a positive semidefinite term to the utilities; a
certificate is the exact integer bound that follows. Each agent first gets ``SHARED_STEPS`` steps of a descent whose
term all of its rows share, batched over the agents. The remaining time goes to per-row terms, which bound single rows
by branch and bound.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearch
from dmcmc.inference.bounds.dual.integer_scaling import Scale
from dmcmc.inference.bounds.semidefinite.batched_steps import BatchShape
from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import MAX_DOMAIN, DeviceArrays
from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import DeviceNodeArrays
from dmcmc.inference.bounds.semidefinite.cuda.node_kernels import tables_per_block
from dmcmc.inference.bounds.semidefinite.descent import STEPS_PER_CHECK, Descent, DescentPoint, Float32Array, Target
from dmcmc.inference.bounds.semidefinite.descent_batch import DescentBatch, batch_shape
from dmcmc.inference.bounds.semidefinite.per_row.bound_single_rows import bound_single_rows
from dmcmc.inference.bounds.semidefinite.per_row.bounder import MAX_BRANCHES, SemidefiniteRunner, max_nodes_per_batch
from dmcmc.inference.bounds.semidefinite.per_row.certificates import certificates
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import AgentBuffers, entry_bytes, node_shape
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import NodeStarts, RowNodeBatch
from dmcmc.inference.bounds.semidefinite.per_row.node_steps import NodeShape
from dmcmc.inference.bounds.semidefinite.per_row.nodes import ROOT_SCHEDULE
from dmcmc.inference.bounds.semidefinite.relaxation import MAX_ROWS_PER_DESCENT, ActiveRelaxation, RelaxationRequest
from dmcmc.inference.bounds.semidefinite.step_throughput import step_allowance
from dmcmc.inference.bounds.semidefinite.utility_matrix import UtilityMatrix
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import GPU_CLAIMS, is_out_of_memory, shared_device
from dmcmc.inference.runtime.matrix_products import products_on_one_thread
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import run_parallel

SHARED_STEPS = 600  # descent steps per agent for the term that all of its rows share; more steps gain little
_FREE_MEMORY_SHARE = 0.75  # of the free device memory is used; the rest is left to libraries and other work
_FACTORS_SHARE = 0.5  # of that memory goes to stored factor vectors
_MAX_STORED_FACTORS = 1 << 17  # nodes whose factor vectors are stored
_MAX_LOADED_AGENTS = 16  # agents in the step that loads kernels and libraries
_WIDE_ARRAY_BYTES = 1 << 31  # array libraries use other kernels for larger arrays
_MAX_ARRAY_ENTRIES = 1 << 31  # kernels use 32-bit indices
_LOG = logging.getLogger(__name__)


def bound_on_gpu(
    requests: Sequence[RelaxationRequest], backend: Backend, seconds: float | None = None, steps: int | None = None
) -> bool:
    """Lower the bounds of several agents' rows within a common time budget, without dual ascents.

    An ascent would run on the CPU, mostly in Python, and take as long as thousands of steps for many agents. Without a
    time budget, only the shared term is used.

    Parameters
    ----------
    requests : sequence of RelaxationRequest
        The agents' relaxations, rows and cutoffs.
    backend : Backend
        Threads, memory and deadline.
    seconds : float or None
        Time budget for all agents together.
    steps : int or None
        Number of descent steps, in place of a time budget; 10 if both are None.

    Returns
    -------
    bool
        False if the device memory does not suffice: the caller then runs the relaxations one by one. True also if the
        time did not suffice for a step.
    """
    # rounds: agents per thread, since each thread sets up one agent after the other
    start, rounds = time.perf_counter(), -(-len(requests) // backend.threads)
    if seconds is not None and seconds < rounds * max((r.relaxation.min_seconds for r in requests), default=0.0):
        return True  # the set-up would use up the time
    prepared = dict[int, ActiveRelaxation]()

    def begin(number: int, request: RelaxationRequest) -> None:
        """Prepare the task of a relaxation."""
        task = request.relaxation.prepare(request.rows, request.cutoffs)
        if task is not None:
            prepared[number] = ActiveRelaxation(request, task)

    for request in requests:
        if not request.relaxation.exhausted and not backend.stop.over:
            request.relaxation.utility_matrix()
    with products_on_one_thread():
        run_parallel(
            [partial(begin, *numbered_request) for numbered_request in enumerate(requests)],
            backend.threads,
            backend.stop,
        )
        relaxations = [prepared[number] for number in sorted(prepared)]
        shared = [
            active
            for active in relaxations
            if seconds is None or active.relaxation.steps < SHARED_STEPS or active.relaxation.per_row.failed
        ]
        if shared and not backend.stop.over:
            end = None if seconds is None else start + seconds
            if not _descend_shared(shared, backend, end, steps):
                return False
            for active in shared:  # the gain of the shared term says nothing about the per-row terms
                active.relaxation.exhausted = active.relaxation.exhausted and (
                    seconds is None or active.relaxation.per_row.failed
                )
        if seconds is not None:
            _bound_single_rows(relaxations, backend, start + seconds)
    return True


def _descend_shared(
    relaxations: Sequence[ActiveRelaxation], backend: Backend, end: float | None, steps: int | None
) -> bool:
    """Lower rows by a term that all rows of an agent share; return False if the device memory does not suffice.

    Parameters
    ----------
    relaxations : sequence of ActiveRelaxation
        The agents' relaxations.
    backend : Backend
        Threads, memory and deadline.
    end : float or None
        Time at which certificates have to be complete, on the clock ``time.perf_counter``; None for no limit.
    steps : int or None
        Number of steps if ``end`` is None; None for 10.
    """
    start, steps_before = time.perf_counter(), relaxations[0].relaxation.steps
    if not _fits_on_device(
        batch_shape([active.task.descent for active in relaxations], _max_rows(relaxations)), backend
    ):
        return False
    if end is None:
        steps_to_make = _fixed_steps(10 if steps is None else steps, backend.stop)
    else:
        rounds = -(-len(relaxations) // backend.threads)
        # time for the certificates, which follow on the CPU threads
        reserve = rounds * max(
            active.relaxation.finishing_seconds(active.task, will_ascend=False) for active in relaxations
        )
        end = min(end, start + backend.stop.left) - reserve
        if start >= end:
            return True  # no time for a step
        steps_to_make = _until_time(end, backend.stop)
        if not any(active.relaxation.per_row.failed for active in relaxations):
            steps_to_make = _limited(
                SHARED_STEPS - min(active.relaxation.steps for active in relaxations), steps_to_make
            )
    with GPU_CLAIMS.claim():
        points = _run_descents(relaxations, DeviceArrays(), steps_to_make)
    if points is None:
        return False
    descended = time.perf_counter()
    run_parallel(
        [partial(x.relaxation.finish, x.task, point, False) for x, point in zip(relaxations, points, strict=True)],
        backend.threads,
    )
    _LOG.info(
        f"semidefinite bounds of {len(relaxations)} agents: {relaxations[0].relaxation.steps - steps_before} steps in"
        f" {descended - start:.2f} s, certificates {time.perf_counter() - descended:.2f} s"
    )
    return True


def _bound_single_rows(relaxations: Sequence[ActiveRelaxation], backend: Backend, end: float) -> None:
    """Lower rows by per-row terms as long as there is time.

    Any failure of the device, a driver or a library switches the per-row bounds off for good. They are also switched
    off if a pairwise table exceeds a block's shared memory.
    """
    relaxations = [
        x
        for x in relaxations
        if not x.relaxation.exhausted and not x.relaxation.per_row.failed and x.relaxation.steps >= SHARED_STEPS
    ]
    if not relaxations or time.perf_counter() >= end or backend.stop.over:
        return
    if not tables_per_block(node_shape([active.task.descent for active in relaxations]).d):
        for active in relaxations:
            active.relaxation.per_row.fail()
        return
    arrays = DeviceNodeArrays()
    try:
        new = [active for active in relaxations if active.relaxation.per_row.search is None]
        if new:
            _create_searches(new, backend, arrays)
        with GPU_CLAIMS.claim():
            bound_single_rows(relaxations, end - time.perf_counter())
    except Exception as error:  # a device, its driver or a library may raise anything; the shared term remains
        for active in relaxations:
            active.relaxation.per_row.fail()
        log = _LOG.info if is_out_of_memory(error) else _LOG.warning
        log(f"dmcmc: no per-row bounds on the GPU: {type(error).__name__}: {' '.join(str(error).split())[:100]}")
        _LOG.debug("traceback of the failure", exc_info=True)
    finally:
        arrays.close()


def _create_searches(relaxations: Sequence[ActiveRelaxation], backend: Backend, arrays: DeviceNodeArrays) -> None:
    """Create the searches of some agents; their buffers stay on the device as long as one of them is used."""
    descents = [active.task.descent for active in relaxations]
    max_nodes, stored = _batch_sizes(node_shape(descents), _usable_bytes(backend))
    capacity = stored // len(descents)
    if max_nodes < 1 or capacity <= MAX_BRANCHES:
        raise MemoryError("out of memory: not enough device memory for per-row semidefinite bounds")
    runner = SemidefiniteRunner(descents, arrays, capacity, max_nodes, backend.threads)
    for active, bounder in zip(relaxations, runner.bounders, strict=True):
        active.relaxation.per_row.search = BoundarySearch(active.relaxation.state, bounder)


def _batch_sizes(shape: NodeShape, free_bytes: int) -> tuple[int, int]:
    """Return the number of nodes per batch and of buffer entries for which the given memory suffices.

    A buffer entry stores the factor vectors and messages of one node of the searches.
    """
    stored = min(_MAX_STORED_FACTORS, int(_FACTORS_SHARE * free_bytes) // entry_bytes(shape))
    return max_nodes_per_batch(shape, free_bytes - stored * entry_bytes(shape)), stored


def load_relaxation_kernels(locals_: Sequence[LocalProblem], backend: Backend) -> None:
    """Compile the kernels that the given agents use on the GPU, or load them from disk; load the libraries.

    Kernels depend on the sizes of sums, so this runs a step of agents of the same sizes with synthetic utilities.
    """
    locals_ = locals_[:_MAX_LOADED_AGENTS]
    descents = [Descent(_synthetic_matrix(local), _zero_start) for local in locals_]
    targets = [Target(descent.matrix.digits(np.arange(_rows_of_agent(local))), np.zeros(_rows_of_agent(local)))
               for descent, local in zip(descents, locals_, strict=True)]  # fmt: skip
    DescentBatch(descents, targets, DeviceArrays(), rows=max(map(_rows_of_agent, locals_))).run(_fixed_steps(1))
    _load_per_row(max(descents, key=lambda descent: descent.matrix.variable_of.size), backend)


def _load_per_row(descent: Descent, backend: Backend) -> None:
    """Load the kernels of the per-row bounds, for two agents: libraries compile other kernels for a single one.

    The first batch has nodes without fixed variables, the second one nodes with a fixed variable and a restricted
    domain, which start from stored points.
    """
    if not tables_per_block(node_shape([descent]).d):
        return
    arrays = DeviceNodeArrays()
    try:
        count, capacity = _load_sizes(node_shape([descent]), _usable_bytes(backend))
        buffers = AgentBuffers([descent, descent], arrays, max(capacity, count))
        numbers, allowed = np.arange(count), np.arange(buffers.shape.d) < buffers.sizes[:, :, None]
        agents = numbers % 2
        starts = NodeStarts(agents, np.zeros(count, dtype=np.int64), allowed[agents], agents)
        for is_root in (True, False):
            batch = RowNodeBatch(buffers, starts)
            batch.run(ROOT_SCHEDULE._replace(steps=2), _fixed_steps(1))
            certificates(batch)
            if is_root:
                buffers.store(batch.steps.best, numbers, 2 + numbers)
                starts.allowed[:, 0, 1:] = starts.allowed[:, 1:2, 2:] = False
                starts = starts._replace(entries=2 + numbers)
    except Exception as error:  # the same error is raised again when the bounds are computed
        _LOG.info(f"dmcmc: kernels of the per-row semidefinite bounds are not loaded: {type(error).__name__}: {error}")
    finally:
        arrays.close()


def _load_sizes(shape: NodeShape, free_bytes: int) -> tuple[int, int]:
    """Return the number of nodes and of buffer entries to load the per-row bounds with.

    Libraries use other kernels for arrays of more than 2 GiB, so large arrays are loaded in the size of a run;
    otherwise 2 nodes and 0 entries suffice.
    """
    nodes, stored = _batch_sizes(shape, free_bytes)
    return (
        # bytes of the largest float32 array: (nodes, m, m) or (nodes, m, r)
        nodes if 4 * nodes * shape.m * max(shape.m, shape.r) > _WIDE_ARRAY_BYTES else 2,
        stored if stored * entry_bytes(shape) > _WIDE_ARRAY_BYTES else 0,
    )


def _synthetic_matrix(local: LocalProblem) -> UtilityMatrix:
    """Return a synthetic utility matrix of the size of an agent's."""
    sizes = [int(local.domains[v]) for v in local.hidden]
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    n, variable_of = int(starts[-1]), np.repeat(np.arange(len(sizes)), sizes)
    # any utilities that vary, so that the tables are not constant
    pairs = np.add.outer(np.arange(n), np.arange(n)).astype(np.int32) % 7
    pairs[variable_of[:, None] == variable_of] = 0
    shape = local.interface_shape
    interface_pairs = tuple(np.zeros((d, n), dtype=np.int64) for d in shape)
    return UtilityMatrix(
        starts, variable_of, pairs, np.zeros(n, dtype=np.int64), interface_pairs, (), shape, Scale(0, True, 0, 0)
    )


def _zero_start(matrix: UtilityMatrix, unit: float) -> tuple[Float32Array, Float32Array]:
    """Return zero factor vectors of an estimated rank, and zero messages."""
    n, h = matrix.variable_of.size, matrix.starts.size - 1
    return np.zeros((n, max(1, n // 2)), dtype=np.float32), np.zeros((h, n), dtype=np.float32)


def _rows_of_agent(local: LocalProblem) -> int:
    """Return the number of rows to lay out for an agent, an upper bound on those that matter."""
    return min(MAX_ROWS_PER_DESCENT, local.rows)


def _max_rows(relaxations: Sequence[ActiveRelaxation]) -> int:
    """Return the largest number of rows to lay out for an agent."""
    return max(_rows_of_agent(active.relaxation.state.local) for active in relaxations)


def _fits_on_device(shape: BatchShape, backend: Backend) -> bool:
    """Return whether host and device memory suffice, and kernels can index the arrays."""
    host_bytes = MEMORY_ACCOUNT.available_bytes()  # the arrays are laid out on the host first
    # half: a reserve for other arrays
    if host_bytes is not None and shape.bytes > host_bytes // 2:
        return False
    return (
        shape.d <= MAX_DOMAIN
        and shape.bytes <= _usable_bytes(backend)
        and shape.agents * shape.n**2 < _MAX_ARRAY_ENTRIES
    )


def _usable_bytes(backend: Backend) -> int:
    """Return the bytes of device memory that this process may use.

    That is ``_FREE_MEMORY_SHARE`` of the limit or of the process's part of the free memory, whichever is smaller.
    """
    return int(_FREE_MEMORY_SHARE * min(backend.limit(), shared_device().free_bytes() // backend.processes_per_gpu))


def _run_descents(
    relaxations: Sequence[ActiveRelaxation], arrays: DeviceArrays, steps_to_make: Callable[[int], int]
) -> list[DescentPoint] | None:
    """Make descent steps; return None if the device is out of memory."""
    try:
        descents, targets = [x.task.descent for x in relaxations], [x.task.target for x in relaxations]
        return DescentBatch(descents, targets, arrays, rows=_max_rows(relaxations)).run(steps_to_make)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        arrays.close()


def _fixed_steps(steps: int, stop: Deadline | None = None) -> Callable[[int], int]:
    """Return a function that allows a fixed number of steps, ``STEPS_PER_CHECK`` at a time."""
    return lambda steps_made: 0 if stop is not None and stop.over else min(STEPS_PER_CHECK, steps - steps_made)


def _limited(steps: int, steps_to_make: Callable[[int], int]) -> Callable[[int], int]:
    """Return a function that allows the steps of another one, up to a total."""
    return lambda steps_made: min(steps_to_make(steps_made), steps - steps_made)


def _until_time(end: float, stop: Deadline) -> Callable[[int], int]:
    """Return a function that allows steps until a point in time."""
    return step_allowance(_seconds_left(end, stop))


def _seconds_left(end: float, stop: Deadline) -> Callable[[], float]:
    """Return a function that returns the seconds until a point in time or the deadline."""
    return lambda: min(end - time.perf_counter(), stop.left)
