"""Several eliminations on CPU and GPU at once: they share the way there and back, and all launches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.cuda.divide_work import Hybrid
from dmcmc.inference.elimination.cuda.eliminate import GpuElimination, eliminate_hybrid
from dmcmc.inference.elimination.eliminate import Elimination
from dmcmc.inference.elimination.merge_plans import Merged
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.elimination.semirings import MAX_PLUS, Semiring
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.runtime.deadline import NO_STOP, Stop

# All assignments of what is kept are looked up at once if that is so little: values of all variables, and look-ups on
# the CPU for each plan, which take about as long as a launch.
_MOST_VALUES, _LOOK_UPS = 1 << 17, 128


class Layout:
    """Where everything of each plan is in the whole that they make; worked out once for plans that are equal.

    Parameters
    ----------
    plans
        As they are on their own.
    merged, hybrid
        The same as one, and that divided between CPU and GPU.
    """

    def __init__(self, plans: Sequence[Plan], merged: Merged, hybrid: Hybrid) -> None:
        self.plans, self.merged, self.hybrid = plans, merged, hybrid

    @cached_property
    def numbers(self) -> list[NDArray[np.int64]]:
        """What each plan's tables are called in the whole."""
        return [self.hybrid.number[numbers] for numbers in self.merged.numbers]

    @cached_property
    def ranges(self) -> NDArray[np.int64]:
        """Where each plan's buckets start in A, G and C, (3, plans + 1)."""
        h, start = self.hybrid, self.merged.bucket_start
        given = h.plan.tables - h.plan.buckets
        before = np.argsort(h.number[given:])  # the merged plan's number of each bucket
        edges = (0, h.first, h.last, h.plan.buckets)
        return np.array([a + np.searchsorted(before[a:b], start) for a, b in pairwise(edges)])

    @cached_property
    def kept(self) -> list[tuple[list[int], tuple[int, ...]]]:
        """The variables that each plan's remaining tables are over, and their domain sizes."""
        found = []
        for plan in self.plans:
            kept = sorted({v for t in plan.remaining for v in plan.scope(t)})
            found.append((kept, tuple(plan.program.domains[kept].tolist())))
        return found

    @cached_property
    def rows(self) -> NDArray[np.int64] | None:
        """Every assignment of what is kept, (most rows, variables), if they are few: row r has number r of each plan.

        One launch for all of them takes hardly longer than for one.
        """
        most = max(prod(shape) for _, shape in self.kept)
        h, variables = self.hybrid, self.hybrid.plan.program.domains.size
        on_cpu = h.plan.buckets - (h.last - h.first)
        if most * variables > _MOST_VALUES or most * on_cpu > _LOOK_UPS * len(self.plans) or len(self.plans) >= 1 << 16:
            return None
        values = np.zeros((most, variables), dtype=np.int64)
        for kept, shape in self.kept:
            if kept:
                values[: prod(shape), kept] = np.indices(shape).reshape(len(shape), -1).T
        return values


class Batch:
    """Eliminations done together.

    Parameters
    ----------
    layout
        Where everything is.
    whole
        All of them, carried out.
    """

    def __init__(self, layout: Layout, whole: GpuElimination) -> None:
        self.layout, self.whole = layout, whole

    @cached_property
    def _all(self) -> NDArray[np.int64] | None:
        """The maximising values for every assignment of what is kept, (most rows, variables), if they are few."""
        if self.layout.rows is None:
            return None
        values = self.layout.rows.copy()
        self.whole.choose_rows(values, self.layout.ranges)
        return values

    def choose_all(self, index: int, values: NDArray[np.int64]) -> None:
        """Set the maximising values of one plan's variables in each row of ``values`` (rows, variables), in C order."""
        if self._all is None:
            self.whole.choose_rows(values, np.ascontiguousarray(self.layout.ranges[:, index : index + 2]))
            return
        kept, shape = self.layout.kept[index]
        rows = np.ravel_multi_index(tuple(values[:, kept].T), shape) if kept else np.zeros(len(values), dtype=np.int64)
        variables = self.layout.plans[index].program.variable
        values[:, variables] = self._all[rows[:, None], variables]


@dataclass(frozen=True)
class BatchedElimination(Elimination):
    """One of a batch. Its plan is its own, its tables lie in the batch's arena.

    Attributes
    ----------
    batch : Batch
    index : int
        Its place there.
    """

    batch: Batch = field(kw_only=True)
    index: int = field(kw_only=True)

    def table(self, t: int) -> Table:
        """Return table ``t`` of its plan."""
        return self.batch.whole.table(int(self.batch.layout.numbers[self.index][t]))

    def choose(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values; see :meth:`Elimination.choose`."""
        self.choose_all(values[None])

    def choose_all(self, values: NDArray[np.int64]) -> None:
        """Set the maximising values of several assignments; see :meth:`Elimination.choose_all`."""
        self.batch.choose_all(self.index, values)


def eliminate_batch(
    flat: FlatTables,
    plans: Sequence[Plan],
    merged: Merged,
    hybrid: Hybrid,
    arithmetic: Arithmetic,
    threads: int = 1,
    semiring: Semiring = MAX_PLUS,
    stop: Stop = NO_STOP,
) -> list[Elimination]:
    """Carry out several plans at once; the tables are those of :func:`eliminate_hybrid`, to the bit for integers.

    Parameters
    ----------
    flat
        Encoded tables: those of the first plan, then those of the second, ...
    merged, hybrid
        The plans as one, and that divided between CPU and GPU.
    stop
        When to give up.

    Raises
    ------
    OutOfTime
    """
    whole = eliminate_hybrid(flat, hybrid, arithmetic, threads, semiring, stop=stop)
    layout: Layout | None = hybrid.described.get("layout")
    if layout is None:
        hybrid.described["layout"] = layout = Layout(plans, merged, hybrid)
    batch = Batch(layout, whole)
    return [
        BatchedElimination(plan, whole.arena, arithmetic, semiring=semiring, batch=batch, index=i)
        for i, plan in enumerate(plans)
    ]
