"""An agent without interface made exact by an elimination that filters by the incumbent."""

import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import BoundState
from dmcmc.inference.bounds.reparametrised import Reparametrised, reparametrised
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.sparse_rows import rows_on_gpu
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.function_filtering import Filtering, z_within
from dmcmc.inference.sparse.size_statistics import Kept
from dmcmc.inference.sparse.sparse_table import TooWide
from dmcmc.samplers.contract.protocol import SampledTable

FILTERING = "filtering"
# Entries of the mini-buckets that bound the rest, and rows after which the next is tried: a tighter bound drops more.
_TRIES = ((20_000, 2_000_000), (6_000_000, 1 << 62), (60_000_000, 1 << 62))
_SHIFTED = (_TRIES[0], _TRIES[2])  # likewise, of tables that a dual ascent has shifted utilities between
_FIXED = 50_000_000  # rows where there is no time budget: about a minute
_SHARE = 8  # of the memory that those entries take at most
_SHORT = 4  # turns that end before there are bounds, and the part of what is left that one may take
_SLOW, _SURE = 5.0, 0.1  # seconds that the first rows of a message may take; a part that says how long the rest takes


@dataclass
class FilteredTable:
    """Eliminations of one agent, each with tighter bounds than the last.

    Attributes
    ----------
    memory : int
        Bytes that one may take.
    work : Filtering or None
        The one that is under way.
    tried : int
        How many were given up.
    kept : Kept or None
        What the messages of the last one hold that there is or was.
    """

    memory: int
    timed: bool
    work: Filtering | None = None
    tried: int = 0
    kept: Kept | None = None
    _entries: int = 0
    _tables: Reparametrised | None = None
    _short: int = 0
    _shifted: bool = False

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to try."""
        return self.tried >= len(self._tries)

    @property
    def _tries(self) -> tuple[tuple[int, int], ...]:
        """Shares first, where there are some; then the factors as they are, unless the bounds are small."""
        return (*_SHIFTED, *_TRIES[1:]) if self._shifted else _TRIES

    def go_on(
        self,
        local: LocalProblem,
        arithmetic: Arithmetic,
        best: NDArray[np.int64] | None,
        backend: Backend,
        left: float,
        bound: BoundState | None = None,
    ) -> SampledTable | None:
        """Return the exact table, if the time is enough for it.

        Parameters
        ----------
        best
            Values of all variables of the best assignment so far; None if that breaks hard constraints.
        backend
            With the end of this turn.
        left
            Seconds that there may be for it in all: what is bound to take longer is given up.
        bound
            What bounds the agent: the shares of a dual ascent are eliminated in place of its factors.
        """
        begun = time.perf_counter()
        while not self.exhausted:
            try:
                if self.work is None:
                    self.work = self._begin(local, arithmetic, best, backend, bound)
                    if self.work is None:
                        self.tried += 1
                        continue
                elif best is not None:
                    self.work.incumbent = self._encoded(_worth(local, arithmetic, best))
                self.work.elsewhere = rows_on_gpu(backend)
                try:
                    answer = self.work.go_on(backend.stop)
                finally:
                    self.kept = self.work.kept
            except OutOfTime:
                if self._unready(time.perf_counter() - begun, left) if self.work is None else self._too_slow(left):
                    self._give_up()
                return None
            except TooWide:
                self.tried, self.work = len(self._tries), None
                return None
            except OutOfMemory:
                self._give_up()
                continue
            self.work = None
            values = best if answer.values is None else answer.values
            return _table(local, arithmetic, values, time.perf_counter() - begun, self.kept)
        return None

    def _give_up(self) -> None:
        self.tried, self.work, self._short = self.tried + 1, None, 0

    def _unready(self, seconds: float, left: float) -> bool:
        """Return whether no longer turn is waited for, after one that was too short for the bounds."""
        self._short += 1
        return self._short > _SHORT or seconds > left / _SHORT

    def _too_slow(self, left: float) -> bool:
        """Return whether the message that is under way will not be done in time."""
        assert self.work is not None
        part, seconds = self.work.under_way
        last = self.tried + 1 >= len(_SHIFTED if self._tables is not None else self._tries)
        if last and part < _SURE and seconds < _SLOW:  # the first ranges of rows say little
            return False
        if part > 0:
            return seconds / part - seconds > left
        return seconds > max(_SLOW, 0.5 * left)

    def _begin(
        self,
        local: LocalProblem,
        arithmetic: Arithmetic,
        best: NDArray[np.int64] | None,
        backend: Backend,
        bound: BoundState | None,
    ) -> Filtering | None:
        """Begin the next one; None where its bounds would be those of the last."""
        plain = self._shifted and self.tried >= len(_SHIFTED)
        self._tables = reparametrised(bound, local) if arithmetic.exact and not plain else None
        self._shifted |= self._tables is not None
        if self._tables is None:
            encoded = [arithmetic.encode(f) for f in local.factors]
            query = Query(encoded, local.domains, local.order.variables, (), arithmetic)
        else:
            query = self._tables.query
        if self.exhausted:
            return None
        entries, work = self._tries[self.tried]
        z = z_within(query, min(entries, self.memory // (8 * _SHARE)))
        if self.tried and z == self._entries and not plain:
            return None
        self._entries = z
        incumbent = None if best is None else self._encoded(_worth(local, arithmetic, best))
        work = work if self.timed else min(work, _FIXED)
        return Filtering(query, incumbent, z, self.memory, backend.threads, backend.stop, work)

    def _encoded(self, worth: Number) -> Number:
        """Return what an assignment is worth in the tables that are eliminated."""
        return worth if self._tables is None else self._tables.encode(int(worth))


def _worth(local: LocalProblem, arithmetic: Arithmetic, values: NDArray[np.int64]) -> Number:
    """Return what an assignment is worth for an agent (encoded)."""
    total: Number = 0
    for factor in local.factors:
        entry = factor.entry([int(values[v]) for v in factor.scope])
        if entry is None:
            return arithmetic.lowest
        total += entry
    return total


def _table(
    local: LocalProblem, arithmetic: Arithmetic, values: NDArray[np.int64] | None, seconds: float, kept: Kept
) -> SampledTable:
    """Return an exact table of one number: what the best values are worth; −∞ without any."""
    worth = arithmetic.lowest if values is None else _worth(local, arithmetic, values)
    left = (Table((), np.array(worth, dtype=arithmetic.dtype)),)
    found = dict.fromkeys(local.hidden, 0) if values is None else {v: int(values[v]) for v in local.hidden}
    return SampledTable(left, left, partial(_all_of, found), FILTERING, seconds, int(kept.rows), kept=kept)


def _all_of(found: dict[int, int], interface: object) -> dict[int, int]:
    return dict(found)


def until(stop: Stop, seconds: float) -> Stop:
    """Return an end after some seconds, if the other does not come first."""
    return stop.by(time.perf_counter() + seconds)
