"""The rows of one bucket's message: made block by block, depth first, so that only what is left is ever held.

The rows to begin with are cut into ranges, which threads carry through all steps. A range that is done stays so when
time is up: the work can be taken up again.
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
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.join_steps import Step
from dmcmc.inference.sparse.row_kernels import best_of, extend, fill_vectors, join_rows
from dmcmc.inference.sparse.sparse_table import Incomplete

_BLOCK = 1 << 13  # rows of a block: some milliseconds of a kernel
_RANGES = 256  # at least, where there are as many rows
_SAMPLE = 32  # one in so many ranges is carried here before the rest is carried elsewhere
_GLANCE = 64  # one in so many says how many candidates there will be: on one thread, so it has to be little

Rows = tuple[Ints, Array]


class TooMuch(OutOfMemory):
    """Rows that are more than memory, or the work allowed, has room for."""


@dataclass
class Room:
    """What may still be made, counted by all threads together.

    Attributes
    ----------
    rows : int
        Of a message.
    work : int
        Rows in all steps.
    """

    rows: int
    work: int = 1 << 62
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, rows: int, work: int) -> None:
        """Count rows of the message, and of all steps; :class:`TooMuch` beyond what there is."""
        with self._lock:
            self.rows -= rows
            self.work -= work
            if self.rows < 0:
                raise TooMuch("a message of an elimination has more rows than the memory has room for")
            if self.work < 0:
                raise TooMuch("an elimination makes more rows than its work allows")


class Elsewhere(Protocol):
    """Another place to carry rows: a GPU."""

    def worth(self, seconds: float) -> bool:
        """Return whether what takes one core so many seconds is worth the way there and back."""
        ...

    def carry(self, making: "Making", ranges: Sequence[tuple[int, int]], stop: Stop) -> bool:
        """Carry ranges, neighbours of each other, and call :meth:`Making.take`; return whether there was room."""
        ...


class Making:
    """The rows of one bucket's message in the making.

    Parameters
    ----------
    scope
        Of the message, in the order of its keys.
    steps
        From :func:`.steps_of`.
    size
        Values of the bucket's variable.
    threshold
        What a row and the bound on the rest have to exceed together.
    """

    def __init__(
        self,
        scope: tuple[int, ...],
        steps: Sequence[Step],
        size: int,
        arithmetic: Arithmetic,
        threshold: int | float,
        room: Room,
    ) -> None:
        self.scope, self.steps, self.size, self.room = scope, steps, size, room
        self.dtype = arithmetic.dtype
        number = np.int64 if arithmetic.exact else np.float64
        self.limits = arithmetic.dtype.type(arithmetic.lowest), number(threshold)
        self.seconds = 0.0
        self._tried = 0  # about, where threads meet
        self._done: dict[int, list[Rows]] = {}
        self._ranges: list[tuple[int, int]] | None = None
        self._from: tuple[int, Rows] | None = None  # where ranges begin, if not with the first table

    @property
    def part(self) -> float:
        """Return how much of it is done, about: the part of the ranges."""
        return len(self._done) / max(1, len(self._ranges or [()]))

    def expected(self, most: float, stop: Stop = NO_STOP) -> float:
        """Return about how many candidates all steps will judge, going by a sample of the ranges, which is made.

        Parameters
        ----------
        most
            No more of the sample is made once it alone says that there are more than so many.
        """
        self._ranges = self._cut(stop)
        if not self._ranges:
            return 0.0
        before, sample, found = self._tried, self._in_no_order()[: max(1, len(self._ranges) // _GLANCE)], 0.0
        for made, i in enumerate(sample, 1):
            self._carry(i, stop)
            found = (self._tried - before) * len(self._ranges) / made
            if found * made > most * len(sample):
                break
        return found

    def _in_no_order(self) -> list[int]:
        """Return the ranges that are missing, mixed: the part that is done tells what the rest will take."""
        missing = [i for i in range(len(self._ranges or [])) if i not in self._done]
        return [missing[i] for i in np.random.Generator(np.random.Philox(0)).permutation(len(missing))]

    def go_on(self, threads: int, stop: Stop = NO_STOP, elsewhere: Elsewhere | None = None) -> Incomplete:
        """Make what is missing, and return the message.

        Parameters
        ----------
        elsewhere
            Where all is carried but a sample, whose time says whether that is worth it.

        Raises
        ------
        OutOfTime
            What is done is kept.
        TooMuch
            If there is no room for it.
        """
        begun = time.perf_counter()
        try:
            if self._ranges is None:
                self._ranges = self._cut(stop)
            tasks: list[Callable[[], None]] = [partial(self._carry, i, stop) for i in self._in_no_order()]
            if elsewhere is not None and tasks:
                sample, start = tasks[: max(1, len(tasks) // _SAMPLE)], time.perf_counter()
                tasks = tasks[len(sample) :]
                if not run_parallel(sample, 1, stop):
                    stop.check()
                seconds = (time.perf_counter() - start) * len(tasks) / len(sample)
                if tasks and elsewhere.worth(seconds) and self._carry_there(elsewhere, stop):
                    return self._message()
            if not run_parallel(tasks, threads, stop):
                stop.check()
        finally:
            self.seconds += time.perf_counter() - begun
        return self._message()

    def _carry_there(self, elsewhere: Elsewhere, stop: Stop) -> bool:
        """Carry what is missing in another place, neighbouring ranges together; return whether there was room."""
        assert self._ranges is not None
        missing = [i for i in range(len(self._ranges)) if i not in self._done]
        cuts = [k for k in range(1, len(missing)) if missing[k] != missing[k - 1] + 1]
        for first, last in pairwise([0, *cuts, len(missing)]):
            if not elsewhere.carry(self, [self._ranges[i] for i in missing[first:last]], stop):
                return False
        return True

    @property
    def start(self) -> tuple[int, Rows] | None:
        """The step that ranges begin with, and the rows before it; None if they are vectors of the first table."""
        return self._from

    def take(self, ranges: Sequence[tuple[int, int]], rows: list[Rows]) -> None:
        """Take what neighbouring ranges have become."""
        assert self._ranges is not None
        first = self._ranges.index(ranges[0])
        self._done |= {first + k: (list[Rows]() if k else rows) for k in range(len(ranges))}

    def _message(self) -> Incomplete:
        """Put the ranges together; they are in the order of their keys."""
        blocks = [block for i in sorted(self._done) for block in self._done[i]]
        rows = sum(keys.size for keys, _ in blocks)
        ACCOUNT.claim(rows * (8 + self.dtype.itemsize), f"a message of {rows:,} rows")
        keys, values = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=self.dtype)
        at = 0
        for own_keys, own_values in blocks:
            keys[at : at + own_keys.size], values[at : at + own_keys.size] = own_keys, own_values
            at += own_keys.size
        return Incomplete(self.scope, keys, values)

    def _cut(self, stop: Stop) -> list[tuple[int, int]]:
        """Cut the rows to begin with into ranges; where they are few, those of a later step."""
        assert self.steps[0].table is not None
        rows, ranges = self.steps[0].table.keys.size, _RANGES
        if rows < ranges:
            j, block = 1, self._first(0, rows)
            while block[0].size < ranges and j < len(self.steps):
                block = _together([(k.copy(), v.copy()) for k, v in self._blocks(j, block, {}, stop)], block)
                j += 1
            self._from, rows = (j, block), block[0].size
        ranges = min(max(ranges, rows // _BLOCK + 1), max(1, rows))
        cuts = [rows * i // ranges for i in range(ranges + 1)]
        return [(a, b) for a, b in pairwise(cuts) if a < b]

    def _carry(self, i: int, stop: Stop) -> None:
        """Carry a range of rows through the steps."""
        assert self._ranges is not None
        begin, end = self._ranges[i]
        into: list[Rows] = []
        j, rows = 1, None
        if self._from is not None:
            j, (keys, vectors) = self._from
            rows = keys[begin:end], vectors[begin:end]
        self._through(j, self._first(begin, end) if rows is None else rows, {}, into, stop)
        self._done[i] = into

    def _through(self, j: int, rows: Rows, scratch: dict[int, Rows], into: list[Rows], stop: Stop) -> None:
        """Carry rows through the steps from ``j`` on."""
        last = j == len(self.steps)
        self.room.take(rows[0].size if last else 0, rows[0].size)
        if last:
            best = np.empty(rows[0].size, dtype=self.dtype)
            best_of(rows[1], best)
            into.append((rows[0].copy(), best))
            return
        for block in self._blocks(j, rows, scratch, stop):
            self._through(j + 1, block, scratch, into, stop)

    def _blocks(self, j: int, rows: Rows, scratch: dict[int, Rows], stop: Stop) -> Iterator[Rows]:
        """Yield what step ``j`` makes of rows, a block at a time in the same place."""
        step, at = self.steps[j], np.zeros(3, dtype=np.int64)
        if j not in scratch:
            scratch[j] = np.empty(_BLOCK, dtype=np.int64), np.empty((_BLOCK, self.size), dtype=self.dtype)
        keys, vectors = scratch[j]
        while at[0] < rows[0].size:
            stop.check()
            if step.partner is not None:
                made = join_rows(*rows, step.look, step.partner, *self.limits, at, keys, vectors)
            else:
                made = extend(*rows, step.look, step.size, step.bits, *self.limits, at, keys, vectors)
            if made:
                yield keys[:made], vectors[:made]
        self._tried += int(at[2])

    def _first(self, begin: int, end: int) -> Rows:
        """Return the first table's rows as vectors."""
        step = self.steps[0]
        assert step.table is not None
        keys, vectors = np.empty(end - begin, dtype=np.int64), np.empty((end - begin, self.size), dtype=self.dtype)
        made = fill_vectors(step.table, begin, end, step.look, *self.limits, keys, vectors)
        return keys[:made], vectors[:made]


def _together(blocks: Sequence[Rows], like: Rows) -> Rows:
    """Return blocks one after another."""
    blocks = blocks or [(like[0][:0], like[1][:0])]
    return np.concatenate([keys for keys, _ in blocks]), np.concatenate([vectors for _, vectors in blocks])
