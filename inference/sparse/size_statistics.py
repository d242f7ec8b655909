"""Sizes of sparse messages: a forecast before the elimination, and the actual sizes afterwards."""

from collections.abc import Sequence
from typing import NamedTuple

from dmcmc.inference import tuning
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.sparse.sparse_table import is_nearly_full
from dmcmc.inference.sparse.tuning import CELLS_PER_DENSE_ENTRY, CELLS_PER_ROW, CELLS_PER_VALUE, PARALLEL_START_CELLS


class SizeStatistics(NamedTuple):
    """Sizes of an elimination's messages.

    Attributes
    ----------
    messages, sparse_messages : int
        Number of messages, and number of sparse ones.
    dense_entries : float
        Entries of all messages if they were dense.
    stored_entries : float
        Entries of dense messages and rows of sparse ones.
    bytes : int
        Memory of all messages in bytes.
    """

    messages: int
    sparse_messages: int
    dense_entries: float
    stored_entries: float
    bytes: int


class BucketCost(NamedTuple):
    """The estimated cost of a bucket's elimination, in units of the time per dense joined cell.

    Attributes
    ----------
    cells : float
        Number of joined cells.
    size : int
        Domain size of the eliminated variable.
    """

    cells: float
    size: int

    @property
    def work(self) -> float:
        """The cost with dense tables, including the comparison of the message with its bound."""
        return self.cells * (1 + CELLS_PER_DENSE_ENTRY / self.size)

    @property
    def is_short(self) -> bool:
        """Whether it takes less time with dense tables than starting all cores for rows."""
        return self.work <= PARALLEL_START_CELLS

    @property
    def candidates(self) -> float:
        """The number of candidates for rows that take as long as dense tables."""
        return self._candidates(self.work)

    @property
    def candidates_after_start(self) -> float:
        """The same number if all cores have to be started first."""
        return self._candidates(max(0.0, self.work - PARALLEL_START_CELLS))

    def _candidates(self, work: float) -> float:
        """Return the number of candidates that take as long as some work."""
        return work / (CELLS_PER_ROW + CELLS_PER_VALUE * self.size)


def max_dense_cells() -> int:
    """Return the joined cells up to which dense tables take less time than calling the kernels of sparse rows."""
    return tuning.SMALL_STEP_CELLS


def total_statistics(statistics: Sequence[SizeStatistics]) -> SizeStatistics | None:
    """Return the total over several eliminations; None if there are none.

    >>> total_statistics([SizeStatistics(2, 1, 64.0, 9.0, 72), SizeStatistics(1, 0, 8.0, 8.0, 32)])
    SizeStatistics(messages=3, sparse_messages=1, dense_entries=72.0, stored_entries=17.0, bytes=104)
    """
    return SizeStatistics(*map(sum, zip(*statistics, strict=True))) if statistics else None


def forecast(plan: EliminationPlan, fills: Sequence[float], itemsize: int) -> SizeStatistics:
    """Return the expected message sizes without filtering, if the allowed entries of different tables are independent.

    An entry of the join is allowed with probability p, the product of the fractions of the bucket's tables; an entry of
    the message with probability 1 − (1 − p)^d, where d is the domain size of the eliminated variable. A stored row
    takes 8 bytes for its key and ``itemsize`` for its value.

    Parameters
    ----------
    plan
        The plan of the elimination with dense tables.
    fills
        Fraction of each input's entries that is allowed.
    itemsize
        Bytes per entry.

    Examples
    --------
    >>> import numpy as np
    >>> from dmcmc.inference.elimination.plan import plan_elimination
    >>> plan = plan_elimination([(0, 1), (0, 2)], np.array([128, 128, 128]), [0, 1, 2])
    >>> forecast(plan, [0.01, 0.01], 8).sparse_messages
    1
    """
    fill, domains = dict(enumerate(fills)), plan.program.domains.tolist()
    n_sparse, entries, rows, memory = 0, 0.0, 0.0, 0.0
    variables, cells = plan.program.variable.tolist(), plan.program.cells.tolist()
    for b, variable in enumerate(variables):
        joint_fill = 1.0
        for t in plan.inputs(b):
            joint_fill *= fill[t]
        message, size = plan.output(b), float(plan.sizes[plan.output(b)])
        fill[message] = 1.0 - (1.0 - joint_fill) ** domains[variable]
        is_sparse = cells[b] > max_dense_cells() and not is_nearly_full(fill[message] * size, size, itemsize)
        n_sparse += is_sparse
        entries += size
        rows += fill[message] * size if is_sparse else size
        memory += fill[message] * size * (8 + itemsize) if is_sparse else size * itemsize
    return SizeStatistics(plan.buckets, n_sparse, entries, rows, int(memory))
