"""Build the rows of one bucket's message block by block, depth first, so that only surviving rows are held.

The initial rows are cut into ranges, which threads carry through all steps. Finished ranges are retained when the time
is up, and the work can be resumed. The steps come from :mod:`dmcmc.inference.sparse.join_steps`.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np

from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.join_steps import JoinStep
from dmcmc.inference.sparse.row_kernels import best_of, extend, fill_vectors, join_rows
from dmcmc.inference.sparse.sparse_table import SparseTable

_ROWS_PER_BLOCK = 1 << 13  # rows per block: some milliseconds of a kernel
_MIN_RANGES = 256  # least number of ranges if there are as many rows
_TIMING_SAMPLE = 32  # one range in 32 runs on the CPU and is timed before the rest goes to the GPU
_COUNT_SAMPLE = 64  # one range in 64 estimates the number of candidates: on one thread, so the sample is small

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


class RowDevice(Protocol):
    """Another device that makes rows: a GPU."""

    def worth(self, seconds: float) -> bool:
        """Return whether work that takes one core this many seconds should run on the device."""
        ...

    def carry(self, builder: "RowBuilder", ranges: Sequence[tuple[int, int]], stop: Deadline) -> bool:
        """Carry consecutive ranges through all steps and pass the rows to :meth:`RowBuilder.add_ranges`.

        Returns
        -------
        bool
            Whether the device's memory sufficed.
        """
        ...


class RowBuilder:
    """The rows of one bucket's message while they are built.

    The states follow each other in this order: no ranges yet (``_ranges`` is None); ranges cut, by the first call of
    :meth:`estimate_candidates` or :meth:`resume`; ranges finished one by one (their rows are in ``_done``, by index of
    the range); all finished, so :meth:`resume` returns the message.

    Parameters
    ----------
    scope
        The scope of the message, in the order of its keys.
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
    seconds : float
        Seconds spent in :meth:`resume` so far.
    """

    def __init__(
        self,
        scope: tuple[int, ...],
        steps: Sequence[JoinStep],
        size: int,
        arithmetic: Arithmetic,
        threshold: int | float,
        row_limits: RowLimits,
    ) -> None:
        self.scope, self.steps, self.size, self.row_limits = scope, steps, size, row_limits
        self.dtype = arithmetic.dtype
        number = np.int64 if arithmetic.exact else np.float64
        self.lowest_and_threshold = arithmetic.dtype.type(arithmetic.lowest), number(threshold)
        self.seconds = 0.0
        self._n_candidates = 0  # approximate, because threads update it without a lock
        self._done: dict[int, list[Rows]] = {}
        self._ranges: list[tuple[int, int]] | None = None
        # The step and the rows at which the ranges start; None: the ranges are vectors of the first table.
        self._start: tuple[int, Rows] | None = None

    @property
    def fraction_done(self) -> float:
        """Return the fraction of the ranges that is finished; 0 before the ranges are cut."""
        return len(self._done) / max(1, len(self._ranges or [()]))

    def estimate_candidates(self, limit: float, stop: Deadline = NO_DEADLINE) -> float:
        """Estimate how many candidates all steps will check, from a sample of the ranges; these ranges are built.

        The estimate is the candidates of the sample times (number of ranges) / (ranges in the sample); 0 if there are
        no ranges.

        Parameters
        ----------
        limit
            The sample ends as soon as it proves that there are more candidates than this.
        stop
            The deadline.
        """
        self._ranges = self._cut_ranges(stop)
        if not self._ranges:
            return 0.0
        n_before, sample, estimate = (
            self._n_candidates,
            self._missing_shuffled()[: max(1, len(self._ranges) // _COUNT_SAMPLE)],
            0.0,
        )
        for n_rows, i in enumerate(sample, 1):
            self._build_range(i, stop)
            estimate = (self._n_candidates - n_before) * len(self._ranges) / n_rows
            if estimate * n_rows > limit * len(sample):
                break
        return estimate

    def _missing_shuffled(self) -> list[int]:
        """Return the unfinished ranges in random order, so that the finished fraction predicts the remaining time.

        The generator's seed is fixed, so the order is reproducible.
        """
        missing = [i for i in range(len(self._ranges or [])) if i not in self._done]
        return [missing[i] for i in np.random.Generator(np.random.Philox(0)).permutation(len(missing))]

    def resume(self, threads: int, stop: Deadline = NO_DEADLINE, row_device: RowDevice | None = None) -> SparseTable:
        """Build the ranges that are missing, and return the message.

        Parameters
        ----------
        threads
            Number of CPU threads.
        stop
            The deadline.
        row_device
            A device that builds all but a sample of the ranges, if the time of the sample shows that this is faster.

        Raises
        ------
        OutOfTime
            If the deadline passes; finished ranges are retained.
        TooManyRows
            If the rows exceed their limits.
        """
        begun = time.perf_counter()
        try:
            if self._ranges is None:
                self._ranges = self._cut_ranges(stop)
            tasks: list[Callable[[], None]] = [partial(self._build_range, i, stop) for i in self._missing_shuffled()]
            if row_device is not None and tasks:
                sample, start = tasks[: max(1, len(tasks) // _TIMING_SAMPLE)], time.perf_counter()
                tasks = tasks[len(sample) :]
                if not run_parallel(sample, 1, stop):
                    stop.check()
                seconds = (time.perf_counter() - start) * len(tasks) / len(sample)
                if tasks and row_device.worth(seconds) and self._build_on_device(row_device, stop):
                    return self._message()
            if not run_parallel(tasks, threads, stop):
                stop.check()
        finally:
            self.seconds += time.perf_counter() - begun
        return self._message()

    def _build_on_device(self, row_device: RowDevice, stop: Deadline) -> bool:
        """Build the missing ranges on another device, consecutive ones together; return whether its memory sufficed."""
        assert self._ranges is not None
        missing = [i for i in range(len(self._ranges)) if i not in self._done]
        cuts = [k for k in range(1, len(missing)) if missing[k] != missing[k - 1] + 1]
        for first, last in pairwise([0, *cuts, len(missing)]):
            if not row_device.carry(self, [self._ranges[i] for i in missing[first:last]], stop):
                return False
        return True

    @property
    def start(self) -> tuple[int, Rows] | None:
        """The step at which the ranges start, and the rows before it; None if they are vectors of the first table."""
        return self._start

    def add_ranges(self, ranges: Sequence[tuple[int, int]], rows: list[Rows]) -> None:
        """Store the rows that consecutive ranges have become: all under the first range, none under the others."""
        assert self._ranges is not None
        first = self._ranges.index(ranges[0])
        self._done |= {first + k: (list[Rows]() if k else rows) for k in range(len(ranges))}

    def _message(self) -> SparseTable:
        """Concatenate the ranges in the order of their keys."""
        blocks = [block for i in sorted(self._done) for block in self._done[i]]
        rows = sum(keys.size for keys, _ in blocks)
        MEMORY_ACCOUNT.claim(rows * (8 + self.dtype.itemsize), f"a message of {rows:,} rows")
        keys, values = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=self.dtype)
        at = 0
        for block_keys, block_values in blocks:
            keys[at : at + block_keys.size], values[at : at + block_keys.size] = block_keys, block_values
            at += block_keys.size
        return SparseTable(self.scope, keys, values)

    def _cut_ranges(self, stop: Deadline) -> list[tuple[int, int]]:
        """Cut the initial rows into ranges; if they are few, cut the rows of a later step."""
        assert self.steps[0].table is not None
        rows, n_ranges = self.steps[0].table.keys.size, _MIN_RANGES
        if rows < n_ranges:
            j, block = 1, self._first(0, rows)
            while block[0].size < n_ranges and j < len(self.steps):
                block = _concatenate([(k.copy(), v.copy()) for k, v in self._blocks(j, block, {}, stop)], block)
                j += 1
            self._start, rows = (j, block), block[0].size
        n_ranges = min(max(n_ranges, rows // _ROWS_PER_BLOCK + 1), max(1, rows))
        cuts = [rows * i // n_ranges for i in range(n_ranges + 1)]
        return [(a, b) for a, b in pairwise(cuts) if a < b]

    def _build_range(self, i: int, stop: Deadline) -> None:
        """Carry one range of rows through the steps."""
        assert self._ranges is not None
        begin, end = self._ranges[i]
        finished_rows: list[Rows] = []
        j, rows = 1, None
        if self._start is not None:
            j, (keys, vectors) = self._start
            rows = keys[begin:end], vectors[begin:end]
        self._run_steps(j, self._first(begin, end) if rows is None else rows, {}, finished_rows, stop)
        self._done[i] = finished_rows

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
        for block in self._blocks(j, rows, scratch, stop):
            self._run_steps(j + 1, block, scratch, finished_rows, stop)

    def _blocks(self, j: int, rows: Rows, scratch: dict[int, Rows], stop: Deadline) -> Iterator[Rows]:
        """Yield the rows that step ``j`` makes, one block at a time in the same buffers."""
        step, at = self.steps[j], np.zeros(3, dtype=np.int64)
        if j not in scratch:
            scratch[j] = (
                np.empty(_ROWS_PER_BLOCK, dtype=np.int64),
                np.empty((_ROWS_PER_BLOCK, self.size), dtype=self.dtype),
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
        self._n_candidates += int(at[2])

    def _first(self, begin: int, end: int) -> Rows:
        """Return vectors ``begin`` to ``end`` − 1 of the first table as rows."""
        step = self.steps[0]
        assert step.table is not None
        keys, vectors = np.empty(end - begin, dtype=np.int64), np.empty((end - begin, self.size), dtype=self.dtype)
        n_rows = fill_vectors(step.table, begin, end, step.lookups, *self.lowest_and_threshold, keys, vectors)
        return keys[:n_rows], vectors[:n_rows]


def _concatenate(blocks: Sequence[Rows], like: Rows) -> Rows:
    """Concatenate blocks; ``like`` gives the shapes if there are none."""
    blocks = blocks or [(like[0][:0], like[1][:0])]
    return np.concatenate([keys for keys, _ in blocks]), np.concatenate([vectors for _, vectors in blocks])
