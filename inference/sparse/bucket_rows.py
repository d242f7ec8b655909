"""Build the rows of one bucket's message block by block, depth first, so that only surviving rows are held.

The initial rows are cut into ranges, which threads carry through all steps. Finished ranges are retained when the time
is up, and the work can be resumed. The steps come from :mod:`dmcmc.inference.sparse.join_steps`.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.sparse.join_steps import JoinStep, RowLimits, Rows, RowSteps
from dmcmc.inference.sparse.sparse_table import SparseTable


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
    :meth:`cut_ranges`, :meth:`estimate_candidates` or :meth:`resume`; ranges finished one by one (their rows are in
    ``_done``, by index of the range); all finished, so :meth:`resume` returns the message.

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
    row_steps : RowSteps
        The steps, and the rows that may still be made.
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
        self.scope, self.row_steps = scope, RowSteps(steps, size, arithmetic, threshold, row_limits)
        self.seconds = 0.0
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
        ranges = self.cut_ranges(stop)
        if not ranges:
            return 0.0
        n_before = self.row_steps.candidates
        sample = self._missing_shuffled()[: max(1, int(tuning.SAMPLED_SHARE * len(ranges)))]
        estimate = 0.0
        for n_rows, i in enumerate(sample, 1):
            self._build_range(i, stop)
            estimate = (self.row_steps.candidates - n_before) * len(ranges) / n_rows
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
            self.cut_ranges(stop)
            tasks: list[Callable[[], None]] = [partial(self._build_range, i, stop) for i in self._missing_shuffled()]
            if row_device is not None and tasks:
                sample, start = tasks[: max(1, int(tuning.SAMPLED_SHARE * len(tasks)))], time.perf_counter()
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
        MEMORY_ACCOUNT.claim(rows * (8 + self.row_steps.dtype.itemsize), f"a message of {rows:,} rows")
        keys, values = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=self.row_steps.dtype)
        at = 0
        for block_keys, block_values in blocks:
            keys[at : at + block_keys.size], values[at : at + block_keys.size] = block_keys, block_values
            at += block_keys.size
        return SparseTable(self.scope, keys, values)

    def cut_ranges(self, stop: Deadline) -> list[tuple[int, int]]:
        """Return the first and the end of each range of initial rows; the first call cuts them.

        If the rows of the first table are few, the ranges are of the rows of a later step (:attr:`start`).

        Raises
        ------
        OutOfTime
            If the deadline passes.
        """
        if self._ranges is not None:
            return self._ranges
        assert self.row_steps.steps[0].table is not None
        rows, n_ranges = self.row_steps.steps[0].table.keys.size, tuning.MIN_RANGES
        if rows < n_ranges:
            j, block = 1, self.row_steps.first(0, rows)
            while block[0].size < n_ranges and j < len(self.row_steps.steps):
                block = _concatenate(
                    [(k.copy(), v.copy()) for k, v in self.row_steps.blocks(j, block, {}, stop)], block
                )
                j += 1
            self._start, rows = (j, block), block[0].size
        n_ranges = min(max(n_ranges, rows // tuning.ROWS_PER_BLOCK + 1), max(1, rows))
        cuts = [rows * i // n_ranges for i in range(n_ranges + 1)]
        self._ranges = [(a, b) for a, b in pairwise(cuts) if a < b]
        return self._ranges

    def _build_range(self, i: int, stop: Deadline) -> None:
        """Carry one range of rows through the steps."""
        assert self._ranges is not None
        begin, end = self._ranges[i]
        j, rows = 1, None
        if self._start is not None:
            j, (keys, vectors) = self._start
            rows = keys[begin:end], vectors[begin:end]
        self._done[i] = self.row_steps.finished(j, self.row_steps.first(begin, end) if rows is None else rows, stop)


def _concatenate(blocks: Sequence[Rows], like: Rows) -> Rows:
    """Concatenate blocks; ``like`` gives the shapes if there are none."""
    blocks = blocks or [(like[0][:0], like[1][:0])]
    return np.concatenate([keys for keys, _ in blocks]), np.concatenate([vectors for _, vectors in blocks])
