"""Carry rows through the steps of a bucket: joins with tables and new variables, one block of rows at a time."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse import tuning
from dmcmc.inference.sparse.join_steps import JoinStep
from dmcmc.inference.sparse.row_kernels import best_of, extend, fill_vectors, join_rows

# Keys (n,) int64 and vectors (n, x_size), one utility per value of the bucket's variable; of finished rows: keys and
# values (n,), the largest utility of each vector.
Rows = tuple[Ints, Array]


class TooManyRows(OutOfMemory):
    """The rows exceed the memory or the admissible work."""


@dataclass
class RowLimits:
    """The rows that may still be made; all threads count on the same object.

    Attributes
    ----------
    message_rows : int
        Remaining rows of the message.
    step_rows : int
        Remaining rows of all steps; the default 2^62 means no limit.
    """

    message_rows: int
    step_rows: int = 1 << 62
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, message_rows: int, step_rows: int) -> None:
        """Count rows of the message and of all steps.

        Raises
        ------
        TooManyRows
            If either count exceeds its limit.
        """
        with self._lock:
            self.message_rows -= message_rows
            self.step_rows -= step_rows
            if self.message_rows < 0:
                raise TooManyRows("a sparse message of an elimination has more rows than fit the memory limit")
            if self.step_rows < 0:
                raise TooManyRows("an elimination exceeds its limit on the number of rows made")


class RowSteps:
    """The steps of a bucket, which rows pass one after another.

    Parameters
    ----------
    steps
        The steps, from :func:`steps_of`.
    size
        Domain size of the bucket's variable.
    arithmetic
        The arithmetic of the tables.
    threshold
        The sum of a row's value and the bound on the remaining tables must exceed it.
    row_limits
        The number of rows that may still be made.

    Attributes
    ----------
    lowest_and_threshold : tuple
        The −∞ of the arithmetic, and the threshold as int64 or float64.
    candidates : int
        Number of candidates that were checked; approximate, because threads update it without a lock.
    """

    def __init__(
        self,
        steps: Sequence[JoinStep],
        size: int,
        arithmetic: Arithmetic,
        threshold: int | float,
        row_limits: RowLimits,
    ) -> None:
        self.steps, self.size, self.row_limits, self.dtype = steps, size, row_limits, arithmetic.dtype
        number = np.int64 if arithmetic.exact else np.float64
        self.lowest_and_threshold = arithmetic.dtype.type(arithmetic.lowest), number(threshold)
        self.candidates = 0

    def finished(self, j: int, rows: Rows, stop: Deadline) -> list[Rows]:
        """Return what rows become in the steps from ``j`` on, in blocks."""
        finished_rows = list[Rows]()
        self._run_steps(j, rows, {}, finished_rows, stop)
        return finished_rows

    def first(self, begin: int, end: int) -> Rows:
        """Return vectors ``begin`` to ``end`` − 1 of the first table as rows."""
        step = self.steps[0]
        assert step.table is not None
        keys, vectors = np.empty(end - begin, dtype=np.int64), np.empty((end - begin, self.size), dtype=self.dtype)
        n_rows = fill_vectors(step.table, begin, end, step.lookups, *self.lowest_and_threshold, keys, vectors)
        return keys[:n_rows], vectors[:n_rows]

    def blocks(self, j: int, rows: Rows, scratch: dict[int, Rows], stop: Deadline) -> Iterator[Rows]:
        """Yield the rows that step ``j`` makes, one block at a time in the same buffers."""
        step, at = self.steps[j], np.zeros(3, dtype=np.int64)
        if j not in scratch:
            scratch[j] = (
                np.empty(tuning.ROWS_PER_BLOCK, dtype=np.int64),
                np.empty((tuning.ROWS_PER_BLOCK, self.size), dtype=self.dtype),
            )
        keys, vectors = scratch[j]
        while at[0] < rows[0].size:
            stop.check()
            if step.partner is not None:
                n_rows = join_rows(*rows, step.lookups, step.partner, *self.lowest_and_threshold, at, keys, vectors)
            else:
                n_rows = extend(
                    *rows, step.lookups, step.size, step.bits, *self.lowest_and_threshold, at, keys, vectors
                )
            if n_rows:
                yield keys[:n_rows], vectors[:n_rows]
        self.candidates += int(at[2])

    def _run_steps(
        self, j: int, rows: Rows, scratch: dict[int, Rows], finished_rows: list[Rows], stop: Deadline
    ) -> None:
        """Carry rows through the steps from ``j`` on; append each finished block to ``finished_rows``.

        ``scratch`` holds the output block of each step, by its number; it is filled on demand.
        """
        last = j == len(self.steps)
        self.row_limits.count(rows[0].size if last else 0, rows[0].size)
        if last:
            best = np.empty(rows[0].size, dtype=self.dtype)
            best_of(rows[1], best)
            finished_rows.append((rows[0].copy(), best))
            return
        for block in self.blocks(j, rows, scratch, stop):
            self._run_steps(j + 1, block, scratch, finished_rows, stop)
