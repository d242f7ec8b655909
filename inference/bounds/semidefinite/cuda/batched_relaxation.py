"""Run the semidefinite relaxations of several agents at once on a GPU, with set-up and certificates on CPU threads.

A row is an assignment of an agent's boundary variables. The bound adds a positive semidefinite term to the utilities; a
certificate is the exact integer bound that follows. Each agent first gets a descent for the term that all of its rows
share, batched over the agents. The remaining time goes to per-row terms, which bound single rows by branch and bound.
"""

import logging
import sys
import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearch
from dmcmc.inference.bounds.contract.tuning import MAX_STORED_FACTORS, TRIAL_STEPS
from dmcmc.inference.bounds.dual.integer_scaling import Scale
from dmcmc.inference.bounds.semidefinite.agent_buffers import AgentBuffers, entry_bytes, node_shape
from dmcmc.inference.bounds.semidefinite.bounder import MAX_BRANCHES, SemidefiniteRunner, max_nodes_per_batch
from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import DeviceNodeArrays
from dmcmc.inference.bounds.semidefinite.cuda.node_kernels import tables_per_block
from dmcmc.inference.bounds.semidefinite.node_batch import NodeStarts, RowNodeBatch
from dmcmc.inference.bounds.semidefinite.node_certificates import certificates
from dmcmc.inference.bounds.semidefinite.node_steps import ROOT_SCHEDULE, NodeShape
from dmcmc.inference.bounds.semidefinite.relaxation import (
    RelaxationRequest,
    RelaxationTask,
    bound_single_rows,
    lower_terms,
)
from dmcmc.inference.bounds.semidefinite.utility_matrix import Float32Array, SharedTerm, UtilityMatrix
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.runtime.device import GPU_CLAIMS, is_out_of_memory, shared_device
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import products_on_one_thread, run_parallel
from dmcmc.inference.tuning import DEVICE_SHARE, STORED_SHARE

_LOADED_VARIABLES = 3  # hidden variables of the synthetic agent that loads kernels: the fewest with several pairs
_FEW_NODES = (2, 0)  # nodes and buffer entries that load the kernels
_LARGE_VARIABLES, _LARGE_DOMAIN = 45, 24  # the same of an agent with large arrays, 1,080 values
_WIDE_ARRAY_BYTES = 1 << 31  # array libraries use other kernels for larger arrays
_LOG = logging.getLogger(__name__)


def bound_on_gpu(requests: Sequence[RelaxationRequest], backend: Backend, seconds: float | None = None) -> bool:
    """Lower the bounds of several agents' rows within a common time budget.

    Without a time budget, only the term that all rows of an agent share is used.

    Parameters
    ----------
    requests : sequence of RelaxationRequest
        The agents' relaxations, rows and cutoffs.
    backend : Backend
        Threads, memory and deadline.
    seconds : float or None
        Time budget for all agents together.

    Returns
    -------
    bool
        False if the device memory does not suffice, or a pairwise table exceeds a block's shared memory: the caller
        then runs the relaxations one by one. True also if the time did not suffice for a step.
    """
    start = time.perf_counter()
    now = requests if seconds is None else _set_up_in_time(requests, backend.threads, seconds)
    prepared = dict[int, RelaxationTask]()

    def begin(number: int, request: RelaxationRequest) -> None:
        """Prepare the task of a relaxation."""
        task = request.relaxation.prepare(request.rows, request.cutoffs)
        if task is not None:
            prepared[number] = task

    for request in now:
        if not request.relaxation.exhausted and not backend.stop.over:
            request.relaxation.utility_matrix()
    with products_on_one_thread():
        run_parallel([partial(begin, *numbered) for numbered in enumerate(now)], backend.threads, backend.stop)
        tasks = [prepared[number] for number in sorted(prepared)]
        shared = [task for task in tasks if seconds is None or task.relaxation.steps < TRIAL_STEPS]
        if shared and not backend.stop.over and not _lower_shared(shared, backend):
            return False
        if seconds is not None and len(now) == len(requests):  # the agents' searches share their buffers
            _bound_single_rows(tasks, backend, start + seconds)
    return True


def _set_up_in_time(requests: Sequence[RelaxationRequest], threads: int, seconds: float) -> list[RelaxationRequest]:
    """Return the first requests that threads of the host set up and certify within a time.

    An agent that was set up before needs less, so that all are included after some calls, however few the threads are.
    """
    used, found = [0.0] * threads, list[RelaxationRequest]()
    for request in requests:
        thread = used.index(min(used))
        used[thread] += request.relaxation.overhead_seconds
        if used[thread] > seconds:
            break
        found.append(request)
    return found


def _lower_shared(tasks: Sequence[RelaxationTask], backend: Backend) -> bool:
    """Lower rows by a term that all rows of an agent share; return False if the device cannot do so.

    The whole schedule takes well under a second, so only the deadline ends it early.
    """
    start, shape = time.perf_counter(), _joint_shape([task.term for task in tasks])._replace(nodes=len(tasks))
    host_bytes, n_bytes = MEMORY_ACCOUNT.available_bytes(), shape.bytes + 16 * len(tasks) * shape.n**2
    # half: a reserve for other arrays; the utilities of the agents are laid out on the host first
    too_large = n_bytes > _usable_bytes(backend) or (host_bytes is not None and n_bytes > host_bytes // 2)
    if too_large or not tables_per_block(shape.d) or max_nodes_per_batch(shape, _usable_bytes(backend)) < len(tasks):
        return False
    arrays = DeviceNodeArrays()
    try:
        with GPU_CLAIMS.claim():
            lowered = lower_terms(tasks, arrays, ROOT_SCHEDULE, backend.stop)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        arrays.close()
    descended = time.perf_counter()
    run_parallel(
        [partial(task.relaxation.finish, task, term) for task, term in zip(tasks, lowered, strict=True)],
        backend.threads,
    )
    for task in tasks:  # the gain of the shared term says nothing about the per-row terms
        task.relaxation.exhausted = False
    _LOG.info(
        f"semidefinite bounds of {len(tasks)} agents: {lowered[0].steps} steps in {descended - start:.2f} s,"
        f" certificates {time.perf_counter() - descended:.2f} s"
    )
    return True


def _joint_shape(terms: Sequence[SharedTerm]) -> NodeShape:
    """Return the array sizes of a node whose variables are all variables of an agent."""
    nothing = np.zeros(0, dtype=np.int64)
    return node_shape([term.joint(nothing, np.zeros(0)) for term in terms])


def _bound_single_rows(tasks: Sequence[RelaxationTask], backend: Backend, end: float) -> None:
    """Lower rows by per-row terms as long as there is time.

    Any failure of the device, a driver or a library switches the per-row bounds off for good.
    """
    tasks = [
        task
        for task in tasks
        if not task.relaxation.exhausted and not task.relaxation.per_row.failed and task.relaxation.steps >= TRIAL_STEPS
    ]
    if not tasks or time.perf_counter() >= end or backend.stop.over:
        return
    arrays = DeviceNodeArrays()
    try:
        new = [task for task in tasks if task.relaxation.per_row.search is None]
        if new:
            _create_searches(new, backend, arrays)
        with GPU_CLAIMS.claim():
            bound_single_rows(tasks, end - time.perf_counter())
    except Exception as error:  # a device, its driver or a library may raise anything; the shared term remains
        for task in tasks:
            task.relaxation.per_row.fail()
            task.relaxation.exhausted = True
        log = _LOG.info if is_out_of_memory(error) else _LOG.warning
        log(f"dmcmc: no per-row bounds on the GPU: {type(error).__name__}: {' '.join(str(error).split())[:100]}")
        _LOG.debug("traceback of the failure", exc_info=True)
    finally:
        arrays.close()


def _create_searches(tasks: Sequence[RelaxationTask], backend: Backend, arrays: DeviceNodeArrays) -> None:
    """Create the searches of some agents; their buffers stay on the device as long as one of them is used."""
    terms = [task.term for task in tasks]
    max_nodes, stored = _batch_sizes(node_shape(terms), _usable_bytes(backend))
    capacity = stored // len(terms)
    if max_nodes < 1 or capacity <= MAX_BRANCHES:
        raise MemoryError("out of memory: not enough device memory for per-row semidefinite bounds")
    runner = SemidefiniteRunner(terms, arrays, capacity, max_nodes)
    for task, bounder in zip(tasks, runner.bounders, strict=True):
        task.relaxation.per_row.search = BoundarySearch(task.relaxation.state, bounder)


def _batch_sizes(shape: NodeShape, free_bytes: int) -> tuple[int, int]:
    """Return the number of nodes per batch and of buffer entries for which the given memory suffices.

    A buffer entry stores the factor vectors and messages of one node of the searches.
    """
    stored = min(MAX_STORED_FACTORS, int(STORED_SHARE * free_bytes) // entry_bytes(shape))
    return max_nodes_per_batch(shape, free_bytes - stored * entry_bytes(shape)), stored


def largest_domains(locals_: Sequence[Subproblem]) -> list[int]:
    """Return the sizes of domains whose kernels the given agents use: of hidden variables alone, and of all variables.

    Both are the largest of all agents, since batches of several agents are padded to it.
    """
    hidden = max((int(local.domains[v]) for local in locals_ for v in local.hidden), default=0)
    boundary = max((size for local in locals_ for size in local.interface_shape), default=0)
    return sorted({hidden, max(hidden, boundary)})


def uses_large_arrays(local: Subproblem) -> bool:
    """Return whether arrays of an agent's relaxation exceed 2 GiB on a device with enough memory."""
    sizes = [int(local.domains[v]) for v in local.hidden]
    shape = NodeShape(1, len(sizes), max(sizes), len(sizes) * max(sizes) // 2)
    return _load_sizes(shape, sys.maxsize) != _FEW_NODES


def load_relaxation_kernels(domain: int, backend: Backend) -> None:
    """Compile the kernels of relaxations whose largest domain has ``domain`` values, or load them from disk.

    The library of arrays is loaded, too. This runs a few nodes of an agent with synthetic utilities.
    """
    if tables_per_block(domain):
        _load_nodes(_synthetic_term(_LOADED_VARIABLES, domain), _FEW_NODES)


def load_large_array_kernels(backend: Backend) -> None:
    """Compile the kernels that libraries use for arrays of more than 2 GiB, if the free memory suffices for such."""
    term = _synthetic_term(_LARGE_VARIABLES, _LARGE_DOMAIN)
    sizes = _load_sizes(node_shape([term]), _usable_bytes(backend))
    if sizes != _FEW_NODES:
        _load_nodes(term, sizes)


def _load_nodes(term: SharedTerm, sizes: tuple[int, int]) -> None:
    """Load the kernels of a term's nodes, for two agents: libraries compile other kernels for a single one.

    The first batch has nodes without fixed variables, the second one nodes with a fixed variable and a restricted
    domain, which start from stored points. ``sizes`` are the numbers of nodes and of buffer entries.
    """
    arrays = DeviceNodeArrays()
    try:
        count, capacity = sizes
        buffers = AgentBuffers([term, term], arrays, max(capacity, count))
        numbers, allowed = np.arange(count), np.arange(buffers.shape.d) < buffers.sizes[:, :, None]
        agents = numbers % 2
        starts = NodeStarts(agents, np.zeros(count, dtype=np.int64), allowed[agents], agents)
        for is_root in (True, False):
            batch = RowNodeBatch(buffers, starts)
            batch.run(ROOT_SCHEDULE._replace(steps=2))
            certificates(batch)
            if is_root:
                buffers.store(batch.steps.best, numbers, 2 + numbers)
                starts.allowed[:, 0, 1:] = starts.allowed[:, 1:2, 2:] = False
                starts = starts._replace(entries=2 + numbers)
    except Exception as error:  # the same error is raised again when the bounds are computed
        _LOG.info(f"dmcmc: kernels of the semidefinite bounds are not loaded: {type(error).__name__}: {error}")
    finally:
        arrays.close()


def _load_sizes(shape: NodeShape, free_bytes: int) -> tuple[int, int]:
    """Return the number of nodes and of buffer entries to load the per-row bounds with.

    Libraries use other kernels for arrays of more than 2 GiB, so large arrays are loaded in the size of a run;
    otherwise few suffice.
    """
    nodes, stored = _batch_sizes(shape, free_bytes)
    return (
        # bytes of the largest float32 array: (nodes, m, m) or (nodes, m, r)
        nodes if 4 * nodes * shape.m * max(shape.m, shape.r) > _WIDE_ARRAY_BYTES else _FEW_NODES[0],
        stored if stored * entry_bytes(shape) > _WIDE_ARRAY_BYTES else _FEW_NODES[1],
    )


def _synthetic_term(variables: int, domain: int) -> SharedTerm:
    """Return a term of a synthetic agent with a boundary variable, given its hidden variables and the domains' size."""
    starts = np.arange(0, variables * domain + 1, domain, dtype=np.int64)
    n, variable_of = variables * domain, np.repeat(np.arange(variables), domain)
    # any utilities that vary, so that the tables are not constant
    pairs = np.add.outer(np.arange(n), np.arange(n)).astype(np.int32) % 7
    pairs[variable_of[:, None] == variable_of] = 0
    boundary = (np.zeros((domain, n), dtype=np.int64),)
    matrix = UtilityMatrix(
        starts, variable_of, pairs, np.zeros(n, dtype=np.int64), boundary, (), (domain,), Scale(0, True, 0, 0)
    )
    term = SharedTerm.initial(matrix, _zero_start)
    assert term is not None, "the utilities vary"
    return term


def _zero_start(matrix: UtilityMatrix, unit: float) -> tuple[Float32Array, Float32Array]:
    """Return zero factor vectors of an estimated rank, and zero messages."""
    n, h = matrix.variable_of.size, matrix.starts.size - 1
    return np.zeros((n, max(1, n // 2)), dtype=np.float32), np.zeros((h, n), dtype=np.float32)


def _usable_bytes(backend: Backend) -> int:
    """Return the bytes of device memory that this process may use.

    That is ``DEVICE_SHARE`` of the limit or of the process's part of the free memory, whichever is smaller.
    """
    return int(DEVICE_SHARE * min(backend.limit(), shared_device().free_bytes() // backend.processes_per_gpu))
