"""Run several eliminations on CPU and GPU together: they share the transfers and all launches.

The plans are merged into one plan, whose buckets ``divide_work`` orders into three groups: A runs on the CPU before the
GPU, G on the GPU, C on the CPU afterwards. Kept variables are those that a plan does not eliminate. For each of their
assignments, maximising values of the eliminated variables can be looked up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference import tuning
from dmcmc.inference.elimination.cuda.divide_work import HybridPlan
from dmcmc.inference.elimination.cuda.eliminate import GpuElimination, eliminate_hybrid
from dmcmc.inference.elimination.eliminate import Elimination, MergedPlan, assignments_of
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.elimination.tuning import MAX_LOOKUPS_PER_PLAN
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline


class BatchLayout:
    """The position of each plan's tables and buckets in the merged plan; cached for equal plans.

    All its properties are computed at first use and do not depend on the entries of the tables.

    Parameters
    ----------
    plans
        The single plans.
    merged
        The merged plan.
    hybrid
        The merged plan divided between CPU and GPU.
    """

    def __init__(self, plans: Sequence[EliminationPlan], merged: MergedPlan, hybrid: HybridPlan) -> None:
        self.plans, self.merged, self.hybrid = plans, merged, hybrid

    @cached_property
    def numbers(self) -> list[NDArray[np.int64]]:
        """The number in the hybrid plan of each table, (tables,) int64 for each plan."""
        return [self.hybrid.renumbered[numbers] for numbers in self.merged.numbers]

    @cached_property
    def ranges(self) -> NDArray[np.int64]:
        """First bucket of each plan within the groups A, G and C of ``divide_work``, (3, plans + 1) int64."""
        hybrid, start = self.hybrid, self.merged.bucket_start
        given = hybrid.plan.tables - hybrid.plan.buckets
        merged_order = np.argsort(hybrid.renumbered[given:])  # the merged plan's number of each bucket
        edges = (0, hybrid.first, hybrid.last, hybrid.plan.buckets)
        return np.array([a + np.searchsorted(merged_order[a:b], start) for a, b in pairwise(edges)])

    @cached_property
    def kept_scopes(self) -> list[tuple[list[int], tuple[int, ...]]]:
        """For each plan the variables of its remaining tables, and their domain sizes."""
        found = []
        for plan in self.plans:
            kept_variables = sorted({v for t in plan.remaining for v in plan.scope(t)})
            found.append((kept_variables, tuple(plan.program.domains[kept_variables].tolist())))
        return found

    @cached_property
    def max_rows(self) -> int:
        """The largest number of assignments of the kept variables of a plan."""
        return max(prod(shape) for _, shape in self.kept_scopes)

    @cached_property
    def few_rows(self) -> NDArray[np.int64] | None:
        """The :meth:`rows`, or None if looking up all of them takes much longer than one."""
        hybrid = self.hybrid
        on_cpu = hybrid.plan.buckets - (hybrid.last - hybrid.first)
        if (
            self.max_rows * hybrid.plan.program.domains.size > tuning.SMALL_STEP_CELLS
            or self.max_rows * on_cpu > MAX_LOOKUPS_PER_PLAN * len(self.plans)
        ):
            return None
        return self.rows()

    def rows(self) -> NDArray[np.int64]:
        """Return all assignments of the kept variables, (rows, variables) int64.

        Row r holds assignment number r of every plan. One launch for all rows takes hardly longer than for one row.
        """
        values = np.zeros((self.max_rows, self.hybrid.plan.program.domains.size), dtype=np.int64)
        for kept_variables, shape in self.kept_scopes:
            values[: prod(shape), kept_variables] = assignments_of(np.array(shape, dtype=np.int64))
        return values


class EliminationBatch:
    """Several eliminations that were run as one.

    The first look-up of maximising values computes those of all assignments of the kept variables at once, if they are
    few enough; later look-ups read them. Otherwise each look-up runs on its own.

    Parameters
    ----------
    layout
        The position of each plan in the merged plan.
    merged_elimination
        The elimination of the merged plan.
    """

    def __init__(self, layout: BatchLayout, merged_elimination: GpuElimination) -> None:
        self.layout, self.merged_elimination = layout, merged_elimination

    @cached_property
    def _few_values(self) -> NDArray[np.int64] | None:
        """Maximising values per assignment of the kept variables, (rows, variables) int64; None if too many."""
        if self.layout.few_rows is None:
            return None
        values = self.layout.few_rows.copy()
        self.merged_elimination.choose_rows(values, self.layout.ranges)
        return values

    @cached_property
    def all_values(self) -> NDArray[np.int64]:
        """Maximising values per assignment of the kept variables, (rows, variables) int64."""
        if self._few_values is not None:
            return self._few_values
        values = self.layout.rows()
        self.merged_elimination.choose_rows(values, self.layout.ranges)
        return values

    def choose(self, values: NDArray[np.int64]) -> None:
        """Set maximising values of all plans in ``values`` (variables,) int64, which holds all kept variables.

        This takes one launch.
        """
        self.merged_elimination.choose_rows(values[None], self.layout.ranges)

    def choose_all(self, index: int, values: NDArray[np.int64]) -> None:
        """Set the maximising values of one plan's variables in each row of ``values`` (rows, variables) int64.

        ``index`` is the index of the plan in the batch; each row holds the values of its kept variables.
        """
        if self._few_values is None:
            self.merged_elimination.choose_rows(values, np.ascontiguousarray(self.layout.ranges[:, index : index + 2]))
            return
        kept_variables, shape = self.layout.kept_scopes[index]
        rows = (
            np.ravel_multi_index(tuple(values[:, kept_variables].T), shape)
            if kept_variables
            else np.zeros(len(values), dtype=np.int64)
        )
        variables = self.layout.plans[index].program.variable
        values[:, variables] = self._few_values[rows[:, None], variables]


@dataclass(frozen=True)
class BatchedElimination(Elimination):
    """One elimination of a batch. It has its own plan; its tables lie in the batch's arena.

    Attributes
    ----------
    batch : EliminationBatch
        The batch.
    index : int
        The index of this elimination in the batch.
    """

    batch: EliminationBatch = field(kw_only=True)
    index: int = field(kw_only=True)

    def table(self, t: int) -> EncodedTable:
        """Return table ``t`` of this elimination's plan."""
        return self.batch.merged_elimination.table(int(self.batch.layout.numbers[self.index][t]))

    @property
    def chooser(self) -> EliminationBatch:
        """The batch, which sets the values of several of its eliminations in one launch."""
        return self.batch

    def values_of_rows(self, kept: Sequence[int], wanted: Sequence[int]) -> NDArray[np.int32]:
        """Return maximising values for every assignment of the kept variables, from one look-up for the whole batch."""
        if self.batch.layout.max_rows * self.plan.program.domains.size > tuning.MAX_EXPANDED_ENTRIES:
            return super().values_of_rows(kept, wanted)
        kept_variables, shape = self.batch.layout.kept_scopes[self.index]
        assignments = assignments_of(self.plan.program.domains[list(kept)])
        columns = [list(kept).index(v) for v in kept_variables]
        rows = (
            np.ravel_multi_index(tuple(assignments[:, columns].T), shape)
            if columns
            else np.zeros(len(assignments), int)
        )
        return self.batch.all_values[rows[:, None], list(wanted)].astype(np.int32)

    def choose(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values; see :meth:`Elimination.choose`."""
        self.choose_all(values[None])

    def choose_all(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values of several assignments; see :meth:`Elimination.choose_all`."""
        self.batch.choose_all(self.index, values)


def eliminate_batch(
    flat: FlatTables,
    plans: Sequence[EliminationPlan],
    merged: MergedPlan,
    hybrid: HybridPlan,
    arithmetic: Arithmetic,
    threads: int = 1,
    semiring: Semiring = MAX_PLUS,
    stop: Deadline = NO_DEADLINE,
) -> list[Elimination]:
    """Run several plans at once.

    The tables equal those of :func:`eliminate_hybrid` for each plan, bit by bit for integers.

    Parameters
    ----------
    flat
        Encoded tables: those of the first plan, then those of the second, ...
    plans
        The single plans.
    merged, hybrid
        The merged plan, and the merged plan divided between CPU and GPU.
    arithmetic
        The arithmetic of the tables.
    threads
        Number of CPU threads.
    semiring
        The semiring.
    stop
        The deadline.

    Returns
    -------
    list of Elimination
        One per plan.

    Raises
    ------
    OutOfTime
        If the deadline passes.
    """
    merged_elimination = eliminate_hybrid(flat, hybrid, arithmetic, threads, semiring, stop=stop)
    layout: BatchLayout | None = hybrid.launch_cache.get("layout")
    if layout is None:
        hybrid.launch_cache["layout"] = layout = BatchLayout(plans, merged, hybrid)
    batch = EliminationBatch(layout, merged_elimination)
    return [
        BatchedElimination(plan, merged_elimination.arena, arithmetic, semiring=semiring, batch=batch, index=i)
        for i, plan in enumerate(plans)
    ]
