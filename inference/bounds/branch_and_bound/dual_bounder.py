"""Bounds of nodes by dual ascent, and the buffers that hold the nodes.

Bound the nodes of a branch and bound by dual ascent, on threads; ``cuda.dual_bounder`` does so on a GPU.

The dual bound is the sum of the maxima of reparametrised tables; sweeps of dual ascent, which move utility between
tables, lower it. A branch starts from the tables of its parent. A group of jobs runs in order on one thread, since a
job may inherit tables from the job before it.

Tables of the nodes of a branch and bound with dual ascent: stored ones in a buffer, and working tables.

A node is a row (an assignment of the agent's boundary variables) with the values that each hidden variable may take. A
node's tables are the reparametrised potentials of a dual ascent over its n hidden variables; a sweep of the ascent
moves utility between the tables of all factors once. W is the number of columns of a table: the largest domain size,
rounded up to a multiple of 8. A triplet region is a triangle a, b, c of three pairs; t is the number of them.

Tables are compacted on the CPU: the values of a variable that remain are moved to its first positions. ``value_of``
gives the original value of each position. Masks are always indexed by original values.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import BatchResult, Bounder, NodeWork, SearchBatch
from dmcmc.inference.bounds.branch_and_bound.node_kernels import run_nodes
from dmcmc.inference.bounds.contract.tuning import BATCH_SIZE, NODE_SWEEPS, ROOT_SWEEPS
from dmcmc.inference.bounds.dual.graph import DualGraph, DualPotentials, empty_potentials
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import SCRATCH_TABLES
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.inference.runtime.types import Ints

if TYPE_CHECKING:
    from dmcmc.inference.bounds.dual.dual_bound import DualState


class WorkingTables(NamedTuple):
    """Working memory for one node: the reparametrised tables of its hidden variables.

    Attributes
    ----------
    graph : DualGraph
        The hidden graph, with the domain sizes of the compacted tables.
    potentials : DualPotentials
        Of ``graph``.
    value_of : (n, W) int16
        Original value of each position in a variable's compacted tables.
    """

    graph: DualGraph
    potentials: DualPotentials
    value_of: NDArray[np.int16]


class NodeTableBuffer(NamedTuple):
    """Stored tables of nodes, one entry per node, in a compact form.

    Attributes
    ----------
    unary : (entries, n, W) int32
        Unary tables.
    pair : (entries, pairs, W, W) int32
        Pairwise tables.
    higher_order : (entries, size) int32
        Tables of the factors of three or more variables, one after the other.
    triplet : (entries, t, 3, W, W) int16
        Tables of the triplet regions, divided by 2 to the power of ``bit_shifts``.
    domains : (entries, n) int64
        Domain sizes of the compacted tables.
    value_of : (entries, n, W) int16
        Original value of each position.
    bit_shifts : (entries,) int64
        Right shift of the triplet tables, in bits.
    row_constants : (entries,) int64
        Utility of the row without hidden variables, in the agent's integer scale.
    sweeps_made : (entries,) int64
        Sweeps of dual ascent since the row's boundary variables were fixed.
    """

    unary: NDArray[np.int32]
    pair: NDArray[np.int32]
    triplet: NDArray[np.int16]
    higher_order: NDArray[np.int32]
    domains: Ints
    value_of: NDArray[np.int16]
    bit_shifts: Ints
    row_constants: Ints
    sweeps_made: Ints


def entry_bytes(hidden: DualGraph, width: int) -> int:
    """Return the bytes of a buffer entry for a hidden graph whose tables have ``width`` columns.

    These are 4 per unary, pairwise and higher-order entry, 2 per triplet entry and per value, 8 per domain size, and 24
    for the shift, the constant and the number of sweeps.
    """
    n, table_size = hidden.domains.size, width * width
    entries = n * width + len(hidden.pairs) * table_size + int(hidden.entry_start[-1])
    return 4 * entries + 6 * len(hidden.triangles) * table_size + n * (2 * width + 8) + 24


def make_node_buffer(hidden: DualGraph, width: int, capacity: int) -> NodeTableBuffer:
    """Allocate a buffer of ``capacity`` entries; the operating system assigns memory as entries are used."""
    n, m, t = hidden.domains.size, len(hidden.pairs), len(hidden.triangles)
    return NodeTableBuffer(
        np.empty((capacity, n, width), dtype=np.int32),
        np.empty((capacity, m, width, width), dtype=np.int32),
        np.empty((capacity, t, 3, width, width), dtype=np.int16),
        np.empty((capacity, int(hidden.entry_start[-1])), dtype=np.int32),
        np.empty((capacity, n), dtype=np.int64),
        np.empty((capacity, n, width), dtype=np.int16),
        *(np.empty(capacity, dtype=np.int64) for _ in range(3)),
    )


def make_working_tables(hidden: DualGraph, width: int) -> WorkingTables:
    """Allocate the working memory for one node."""
    graph = hidden._replace(domains=np.empty_like(hidden.domains), widths=np.empty_like(hidden.widths))
    return WorkingTables(graph, empty_potentials(hidden, width), np.empty((graph.domains.size, width), dtype=np.int16))


DUAL_WORK = NodeWork(root=ROOT_SWEEPS, restored=ROOT_SWEEPS // 2, branch=NODE_SWEEPS)


def allowed_values(state: "DualState") -> NDArray[np.bool_]:
    """Return the allowed values of the hidden variables, (n, W) bool; from then on, the state's layout is fixed."""
    state.layout_fixed = True
    allowed: NDArray[np.bool_] = state.potentials.unary[: state.layout.n_hidden] >= FORBIDDEN_BELOW
    return allowed


class CpuBatchRunner:
    """Runs batches on threads; a thread that becomes free takes the next group of jobs of any agent."""

    def run(self, work: Sequence[tuple[Bounder, SearchBatch]], stop: Deadline) -> list[BatchResult]:
        """Process a batch of each bounder."""
        halt, tasks, results, threads = np.zeros(1, dtype=np.uint8), list[Callable[[], None]](), list[BatchResult](), 1
        for bounder, batch in work:
            assert isinstance(bounder, CpuDualBounder)
            group_tasks, batch_results = bounder.tasks(batch, halt)
            tasks += group_tasks
            results.append(batch_results)
            threads = max(threads, bounder.state.backend.threads)
        run_until_deadline(tasks, threads, stop, halt)
        return results


_CPU_RUNNER = CpuBatchRunner()


class CpuDualBounder:
    """Stores nodes in memory and processes them on threads; a ``Bounder``.

    Parameters
    ----------
    state : DualState
        The agent's dual ascent.
    memory_limit : int
        Bytes for the nodes' tables.
    """

    def __init__(self, state: "DualState", memory_limit: int) -> None:
        hidden, width = state.layout.hidden, state.width
        self.scale, self.allowed, self.work = state.layout.scale, allowed_values(state), DUAL_WORK
        self.capacity = memory_limit // entry_bytes(hidden, width)
        self.max_branches, self.batch_size, self.runner, self.state = 2, BATCH_SIZE, _CPU_RUNNER, state
        self._buffer = make_node_buffer(hidden, width, self.capacity)
        self._free_tables = list[WorkingTables]()  # those that no thread uses at the moment

    def tasks(self, batch: SearchBatch, halt: NDArray[np.uint8]) -> tuple[list[Callable[[], None]], BatchResult]:
        """Prepare a batch for threads.

        Parameters
        ----------
        batch : SearchBatch
            The jobs, in groups.
        halt : (1,) uint8
            The tasks end early once this is 1.

        Returns
        -------
        tasks : list of callables
            One call per group of jobs.
        results : BatchResult
            Arrays that the calls write their results to; the bounds are ``NOT_PROCESSED`` before.
        """
        state, width, results = self.state, self.state.width, BatchResult.unprocessed(batch)
        kernel, graphs, potentials = cast(Callable[..., None], run_nodes), state.layout.row_graphs, state.potentials

        def process_group(first: int, last: int) -> None:
            """Process the jobs ``first`` to ``last`` - 1, a group, with working tables that no other thread uses."""
            tables = self._free_tables.pop() if self._free_tables else make_working_tables(graphs.hidden, width)
            part = slice(first, last)
            kernel(
                graphs, potentials, self._buffer, tables, batch.jobs[part], results.masks[part], results.bounds[part],
                results.variables[part], results.parts[part].view(np.bool_), state.row_temperature,
                np.zeros((SCRATCH_TABLES, width, width), dtype=np.int32), halt,
            )  # fmt: skip
            self._free_tables.append(tables)

        return [partial(process_group, first, last) for first, last in pairwise(batch.groups.tolist())], results
