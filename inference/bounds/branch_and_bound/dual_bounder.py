"""Bound the nodes of a branch and bound by dual ascent, on threads; ``cuda.dual_bounder`` does so on a GPU.

The dual bound is the sum of the maxima of reparametrised tables; sweeps of dual ascent, which move utility between
tables, lower it. A branch starts from the tables of its parent. A group of jobs runs in order on one thread, since a
job may inherit tables from the job before it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import BatchResult, Bounder, NodeWork, SearchBatch
from dmcmc.inference.bounds.branch_and_bound.node_buffers import (
    WorkingTables,
    entry_bytes,
    make_node_buffer,
    make_working_tables,
)
from dmcmc.inference.bounds.branch_and_bound.node_kernels import run_nodes
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import SCRATCH_TABLES
from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.bounds.tuning.search import BATCH_SIZE, NODE_SWEEPS, ROOT_SWEEPS
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.threads import run_until_deadline

if TYPE_CHECKING:
    from dmcmc.inference.bounds.dual.dual_bound import DualState

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
