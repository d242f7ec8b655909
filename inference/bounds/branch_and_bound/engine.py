"""Engines, which store and process the search nodes of one agent, and runners of the batches of several engines.

A node is an assignment of the agent's boundary variables (a row) with the values that each hidden variable may take. A
job bounds one node; a group of jobs runs in order on one thread, since a job may inherit tables from the job before
it. The CPU engine of this module processes nodes on threads; ``cuda.engine`` has one for a GPU. ``row_search`` calls
``run_batches`` with one batch per agent.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound import node_kernels
from dmcmc.inference.bounds.branch_and_bound.node_buffers import (
    NO_VARIABLE,
    NOT_PROCESSED,
    BatchResult,
    SearchBatch,
    WorkingTables,
    entry_bytes,
    make_node_buffer,
    make_working_tables,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import SCRATCH_TABLES
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.threads import run_watched

BATCH_SIZE = 64  # nodes that a batch branches on the CPU; constant: results do not depend on the number of threads


class BatchRunner(Protocol):
    """Runs the batches of several engines together."""

    def run(self, work: "Sequence[tuple[NodeEngine, SearchBatch]]", stop: Deadline) -> list[BatchResult]:
        """Process one batch of each engine; nodes that are not reached before ``stop`` stay unprocessed.

        Parameters
        ----------
        work : sequence of (NodeEngine, SearchBatch)
            Engines with this runner, with the batch of each.
        stop : Deadline
            Soon after it, no further node is processed.

        Returns
        -------
        list of BatchResult
            One per batch, in order; the bound of an unprocessed node is ``NOT_PROCESSED``.
        """
        ...


class NodeEngine(Protocol):
    """Stores and processes the search nodes of one agent."""

    @property
    def capacity(self) -> int:
        """Number of nodes whose tables can be stored."""
        ...

    @property
    def batch_size(self) -> int:
        """Number of nodes to branch per batch, all agents together."""
        ...

    @property
    def runner(self) -> BatchRunner:
        """Runner of the batches; the same object for engines whose batches can run together."""
        ...


class CpuBatchRunner:
    """Runs batches on threads; a thread that becomes free takes the next group of jobs of any agent."""

    def run(self, work: "Sequence[tuple[NodeEngine, SearchBatch]]", stop: Deadline) -> list[BatchResult]:
        """Process a batch of each engine."""
        halt, tasks, results, threads = np.zeros(1, dtype=np.uint8), list[Callable[[], None]](), list[BatchResult](), 1
        for engine, batch in work:
            assert isinstance(engine, CpuNodeEngine)
            group_tasks, batch_results = engine.tasks(batch, halt)
            tasks += group_tasks
            results.append(batch_results)
            threads = max(threads, engine.state.backend.threads)
        run_watched(tasks, threads, stop, halt)
        return results


_CPU_RUNNER = CpuBatchRunner()


class CpuNodeEngine:
    """Stores nodes in memory and processes them on threads; a ``NodeEngine``.

    Parameters
    ----------
    state : DualState
        The agent's dual ascent.
    memory_limit : int
        Bytes for the nodes' tables.
    """

    def __init__(self, state: DualState, memory_limit: int) -> None:
        hidden, width = state.layout.hidden, state.width
        self.capacity = memory_limit // entry_bytes(hidden, width)
        self.batch_size, self.runner, self.state = BATCH_SIZE, _CPU_RUNNER, state
        self._shape = np.array(state.local.interface_shape, dtype=np.int64)
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
        state, layout, width = self.state, self.state.layout, self.state.width
        count = len(batch.jobs)
        results = BatchResult(
            np.full(count, NOT_PROCESSED, dtype=np.int64),
            batch.masks.copy(),
            np.full(count, NO_VARIABLE, dtype=np.int64),
            np.zeros((count, width), dtype=np.bool_),
        )
        kernel, potentials = cast(Callable[..., None], node_kernels.run_nodes), state.potentials

        def process_group(first: int, last: int) -> None:
            """Process the jobs ``first`` to ``last`` - 1, a group, with working tables that no other thread uses."""
            tables = self._free_tables.pop() if self._free_tables else make_working_tables(layout.hidden, width)
            kernel(
                layout.whole, potentials, layout.hidden, layout.sliced_factors, self._shape, self._buffer, tables,
                batch.jobs[first:last], results.masks[first:last], results.bounds[first:last],
                results.variables[first:last], results.first_values[first:last], state.row_temperature,
                np.zeros((SCRATCH_TABLES, width, width), dtype=np.int32), halt,
            )  # fmt: skip
            self._free_tables.append(tables)

        return [partial(process_group, first, last) for first, last in pairwise(batch.groups.tolist())], results


def run_batches(work: Sequence[tuple[NodeEngine, SearchBatch]], stop: Deadline) -> list[BatchResult]:
    """Process one batch of each engine, those with the same runner together; return one result per batch, in order."""
    results: list[BatchResult | None] = [None] * len(work)
    for runner in {id(engine.runner): engine.runner for engine, _ in work}.values():
        indices = [k for k, (engine, _) in enumerate(work) if engine.runner is runner]
        for k, result in zip(indices, runner.run([work[k] for k in indices], stop), strict=True):
            results[k] = result
    return [result for result in results if result is not None]
