"""Eliminate a variable with dense tables, and drop the entries of its message that cannot beat the incumbent."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Array, Number
from dmcmc.inference.sparse.join_steps import Bucket
from dmcmc.inference.tuning import SMALL_STEP_CELLS


def dense_message(bucket: Bucket, threads: int, stop: Deadline) -> EncodedTable:
    """Return the message of a bucket with all entries.

    Parameters
    ----------
    bucket : Bucket
        The bucket; its sparse input tables are expanded.
    threads : int
        Number of CPU threads.
    stop : Deadline
        When to give up with ``OutOfTime``.
    """
    tables = [bucket_input.table for bucket_input in bucket.inputs]
    dense = [t if isinstance(t, EncodedTable) else t.dense(bucket.domains, bucket.arithmetic) for t in tables]
    plan = plan_elimination([t.scope for t in dense], bucket.domains, [bucket.variable], bucket.separator)
    result = eliminate(dense, plan, bucket.arithmetic, threads, stop=stop).table(plan.output(0))
    return EncodedTable(result.scope, result.values.copy())


def drop_dominated(
    message: EncodedTable,
    bounds: Sequence[EncodedTable],
    threshold: Number,
    arithmetic: Arithmetic,
    threads: int,
    stop: Deadline,
) -> None:
    """Set entries to −∞ whose sum with the outside bounds does not exceed a threshold.

    Parameters
    ----------
    message : EncodedTable
        The message of a bucket; it is changed, in pieces that fit a core's cache.
    bounds : sequence of EncodedTable
        The outside bounds over variables of the message.
    threshold : number
        Number that the sum must exceed.
    arithmetic : Arithmetic
        The number type of all tables.
    threads : int
        Number of CPU threads.
    stop : Deadline
        When to give up with ``OutOfTime``.
    """
    tables = [_broadcast(table, message.scope) for table in bounds]
    number = np.int64 if arithmetic.exact else np.float64
    lowest, values = number(arithmetic.lowest), message.values
    axes, piece = 0, values.size
    while piece > SMALL_STEP_CELLS and axes < values.ndim:
        piece //= values.shape[axes]
        axes += 1

    def filter_pieces(pieces: Sequence[tuple[int, ...]]) -> None:
        """Filter the pieces at these indices."""
        for index in pieces:
            entries = values[index]
            bound = entries.astype(number)
            for table in tables:
                bound += table[tuple(i if n > 1 else 0 for i, n in zip(index, table.shape, strict=False))]
                np.maximum(bound, lowest, out=bound)
            dominated = bound <= threshold
            dominated |= entries < arithmetic.forbidden_below
            entries[dominated] = arithmetic.lowest

    pieces = list(np.ndindex(values.shape[:axes]))
    per_task = -(-len(pieces) // (4 * threads))  # four tasks per thread, so that all finish together
    tasks = [partial(filter_pieces, pieces[i : i + per_task]) for i in range(0, len(pieces), per_task)]
    if not run_parallel(tasks, threads if axes else 1, stop):
        stop.check()


def _broadcast(table: EncodedTable, scope: Sequence[int]) -> Array:
    """Return a table's entries with one axis per variable of ``scope``, which contains the table's scope."""
    axes = sorted(range(len(table.scope)), key=lambda axis: scope.index(table.scope[axis]))
    shape = [table.values.shape[table.scope.index(v)] if v in table.scope else 1 for v in scope]
    return table.values.transpose(axes).reshape(shape)
