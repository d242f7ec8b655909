"""Dual ascent of an agent's rows from the potentials of the whole graph, on this process or split over several.

A row is one assignment of the agent's interface (boundary) variables. ``DualState`` creates a ``RowAscentTask`` and
calls ``ascend_rows``, or ``RowHelpers`` if other processes take a part of the rows. The task consists of arrays only,
so a process can carry it out that knows nothing else about the agent. Rows are independent: their bounds are identical
to the bit, whichever process or thread computes them.

The whole graph has the hidden and the interface variables; the hidden graph is what remains once a row is fixed. A
sweep passes messages once between all tables of a graph. W is the number of columns of a table. Bounds and cutoffs are
int64 in the agent's integer scale.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, cast

import numpy as np

from dmcmc.inference.bounds.dual import ascent_kernels as rows
from dmcmc.inference.bounds.dual.graph import DualPotentials, RowGraphs, empty_potentials
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import SCRATCH_TABLES
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.threads import run_until_deadline
from dmcmc.inference.runtime.types import Ints


class RowAscentTask(NamedTuple):
    """Rows to bound, and all data that this needs.

    Attributes
    ----------
    graphs : RowGraphs
        Graphs over all variables and over the hidden ones.
    potentials : DualPotentials
        Potentials of the whole graph, from which each row's ascent starts.
    sweeps_done : int
        Number of sweeps that the potentials have had; identifies their version.
    rows : (k,) int64
        Row numbers.
    sweeps : int
        Sweeps per row.
    initial_temperature : float32
        Temperature of the first sweep of a row, in the integer scale.
    cutoffs : (k,) int64 or None
        Values with which a row stays below its cutoff are removed; None removes nothing.
    """

    graphs: RowGraphs
    potentials: DualPotentials
    sweeps_done: int
    rows: Ints
    sweeps: int
    initial_temperature: np.float32
    cutoffs: Ints | None

    def of(self, first: int, last: int) -> "RowAscentTask":
        """Return the task for rows ``first`` to ``last`` - 1 of this one."""
        return self._replace(
            rows=self.rows[first:last], cutoffs=None if self.cutoffs is None else self.cutoffs[first:last]
        )

    @property
    def entries(self) -> int:
        """Estimate the number of table entries that are read.

        Per row, conditioning and each sweep read the hidden graph once: W * W entries per pair, 3 W * W per triangle,
        and the entries of the higher-order factors.
        """
        hidden, width = self.graphs.hidden, self.potentials.unary.shape[1]
        graph = (hidden.pairs.shape[0] + 3 * hidden.triangles.shape[0]) * width * width + int(hidden.entry_start[-1])
        return int(self.rows.size * (1 + self.sweeps) * graph)


class RowHelpers(Protocol):
    """Other processes that bound a part of the rows.

    Attributes
    ----------
    size : int
        Number of processes, including this one.
    """

    size: int

    def wanted(self, work: RowAscentTask) -> bool:
        """Return whether the task is large enough to pay for the communication."""
        ...

    def ascend(self, work: RowAscentTask, bounds: Ints, backend: Backend) -> None:
        """Do the work of ``ascend_rows`` together with the other processes."""
        ...


def ascend_rows(work: RowAscentTask, bounds: Ints, backend: Backend) -> None:
    """Lower the bounds of some rows, on the backend's threads.

    Parameters
    ----------
    work : RowAscentTask
    bounds : (rows of the interface,) int64
        Lowered in place.
    backend : Backend
        Threads and deadline; rows that there is no time for keep their bounds.
    """
    width, count = work.potentials.unary.shape[1], work.rows.size
    cutoffs = np.full(count, MINUS_INFINITY, dtype=np.int64) if work.cutoffs is None else work.cutoffs
    n_parts = max(1, min(backend.threads, count))
    part_bounds = [count * i // n_parts for i in range(n_parts + 1)]
    # ``run_until_deadline`` sets ``halt`` to 1 at the deadline; the kernel checks it.
    kernel, halt = cast(Callable[..., None], rows.bound_rows), np.zeros(1, dtype=np.uint8)

    def bound_part(first: int, last: int) -> None:
        """Bound the rows ``first`` to ``last`` - 1 of the task with separate workspace."""
        kernel(
            work.graphs,
            work.potentials,
            empty_potentials(work.graphs.hidden, width),
            work.rows[first:last],
            work.sweeps,
            work.initial_temperature,
            cutoffs[first:last],
            bounds,
            np.zeros((SCRATCH_TABLES, width, width), dtype=np.int32),
            halt,
        )

    tasks = [partial(bound_part, a, b) for a, b in itertools.pairwise(part_bounds)]
    run_until_deadline(tasks, backend.threads, backend.stop, halt)
