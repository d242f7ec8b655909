"""Sizes of sparse messages: a forecast before the elimination, and the actual sizes afterwards."""

from collections.abc import Sequence
from typing import NamedTuple

from dmcmc.inference.elimination.plan import EliminationPlan

# Joined cells up to which a dense elimination takes less time than calling the kernels of sparse rows (measured).
MAX_DENSE_CELLS = 1 << 17
MAX_ENTRIES_PER_ROW = 2  # entries per row up to which a message is stored densely


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
        is_sparse = cells[b] > MAX_DENSE_CELLS and size > MAX_ENTRIES_PER_ROW * fill[message] * size
        n_sparse += is_sparse
        entries += size
        rows += fill[message] * size if is_sparse else size
        memory += fill[message] * size * (8 + itemsize) if is_sparse else size * itemsize
    return SizeStatistics(plan.buckets, n_sparse, entries, rows, int(memory))
