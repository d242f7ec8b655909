"""Solve an agent without boundary variables exactly, by elimination with function filtering.

Function filtering removes tuples that cannot beat the incumbent from the (sparse) messages of an elimination; an upper
bound from mini-buckets decides which. *Mini-buckets* split the tables of an elimination step into groups of at most z
variables, which are maximised separately. An attempt that takes too long is followed by one with tighter bounds. The
agent's ``filter`` method calls this for the initial table and for the function filtering improver.
"""

import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

import dmcmc.solving.tuning as tuning
from dmcmc.inference.bounds.contract.protocol import BoundState
from dmcmc.inference.bounds.search_rows import Reparametrised, reparametrised
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.choose_processor import rows_on_gpu
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.function_filtering import FunctionFiltering, z_within
from dmcmc.inference.sparse.sparse_table import KeyTooWide, SizeStatistics
from dmcmc.samplers.contract.protocol import SampledTable

FILTERING = "filtering"


@dataclass
class FilteredTable:
    """Attempts at one agent's elimination with function filtering, each with tighter bounds than the last.

    An attempt starts in ``resume`` and continues over several quanta (the seconds of one call). It ends with an exact
    table, or is given up, which raises ``failed_attempts`` and lets the next attempt start. After the last one the
    table is ``exhausted``. Once an attempt has used reparametrised factors, attempts with the original factors follow.

    Attributes
    ----------
    memory : int
        Bytes that one elimination may take.
    timed : bool
        Whether the run has a time budget.
    elimination : FunctionFiltering or None
        The elimination in progress; None before an attempt starts or while its bounds are not ready.
    failed_attempts : int
        Number of eliminations that were given up.
    sizes : SizeStatistics or None
        Sizes of the messages of the current or last elimination.
    """

    memory: int
    timed: bool
    elimination: FunctionFiltering | None = None
    failed_attempts: int = 0
    sizes: SizeStatistics | None = None
    _last_z: int = 0  # mini-bucket limit of the last attempt
    _potentials: Reparametrised | None = None  # the factors of this attempt, reparametrised by a dual ascent
    _short_quanta: int = 0  # quanta of this attempt that ended before the bounds were ready
    _used_potentials: bool = False  # whether an attempt had reparametrised factors

    @property
    def exhausted(self) -> bool:
        """Whether all attempts have failed."""
        return self.failed_attempts >= len(self._attempts)

    @property
    def _attempts(self) -> tuple[tuple[int, int], ...]:
        """The attempts: those with reparametrised factors first, if there are any, then with the original factors."""
        return (
            (*tuning.REPARAMETRISED_ATTEMPTS, *tuning.FILTERING_ATTEMPTS[1:])
            if self._used_potentials
            else tuning.FILTERING_ATTEMPTS
        )

    def resume(
        self,
        local: LocalProblem,
        arithmetic: Arithmetic,
        best: NDArray[np.int64] | None,
        backend: Backend,
        left: float,
        bound: BoundState | None = None,
    ) -> SampledTable | None:
        """Continue the elimination; return the exact table if it is finished in time.

        The result is None if the deadline ends the call, or all attempts have failed.

        Parameters
        ----------
        local
            The agent's problem, without boundary variables.
        arithmetic
            Encoding of its factors.
        best : (n,) int64 or None
            Values of the incumbent; None if it violates hard constraints.
        backend
            Its deadline ends this quantum.
        left
            Seconds that remain for the elimination in this run; an attempt that would take longer is given up.
        bound
            The agent's bound: the reparametrised factors of a dual ascent are eliminated in place of the original ones.
        """
        start = time.perf_counter()
        while not self.exhausted:
            try:
                if self.elimination is None:
                    self.elimination = self._start_elimination(local, arithmetic, best, backend, bound)
                    if self.elimination is None:
                        self.failed_attempts += 1
                        continue
                elif best is not None:
                    self.elimination.incumbent = self._encoded(_utility(local, arithmetic, best))
                self.elimination.row_device = rows_on_gpu(backend)
                try:
                    answer = self.elimination.resume(backend.stop)
                finally:
                    self.sizes = self.elimination.size_statistics
            except OutOfTime:
                if (
                    self._bounds_too_slow(time.perf_counter() - start, left)
                    if self.elimination is None
                    else self._too_slow(left)
                ):
                    self._end_attempt()
                return None
            except KeyTooWide:
                # End all attempts: the width of a table's keys does not depend on the bounds.
                self.failed_attempts, self.elimination = len(self._attempts), None
                return None
            except OutOfMemory:
                self._end_attempt()
                continue
            self.elimination = None
            values = best if answer.values is None else answer.values
            return _exact_table(local, arithmetic, values, time.perf_counter() - start, self.sizes)
        return None

    def _end_attempt(self) -> None:
        """Give up the current attempt."""
        self.failed_attempts, self.elimination, self._short_quanta = self.failed_attempts + 1, None, 0

    def _bounds_too_slow(self, seconds: float, left: float) -> bool:
        """Return whether to give up after a quantum that ended before the bounds were ready."""
        self._short_quanta += 1
        return self._short_quanta > tuning.MAX_SHORT_QUANTA or seconds > left / tuning.MAX_SHORT_QUANTA

    def _too_slow(self, left: float) -> bool:
        """Return whether the current message is predicted to take longer than the remaining time.

        If a part p of its rows took t seconds, the rest is predicted to take t / p - t. If no row is finished, the
        message is too slow after five seconds or half of the remaining time, whichever is longer.
        """
        assert self.elimination is not None
        finished_part, seconds = self.elimination.message_progress
        is_last_attempt = self.failed_attempts + 1 >= len(
            tuning.REPARAMETRISED_ATTEMPTS if self._potentials is not None else self._attempts
        )
        if is_last_attempt and finished_part < tuning.CONCLUSIVE_PART and seconds < tuning.FIRST_ROWS_SECONDS:
            return False  # the first rows do not predict the rest
        if finished_part > 0:
            return seconds / finished_part - seconds > left
        return seconds > max(tuning.FIRST_ROWS_SECONDS, 0.5 * left)

    def _start_elimination(
        self,
        local: LocalProblem,
        arithmetic: Arithmetic,
        best: NDArray[np.int64] | None,
        backend: Backend,
        bound: BoundState | None,
    ) -> FunctionFiltering | None:
        """Start the next attempt; return None if its bounds would be those of the last attempt."""
        original_factors = self._used_potentials and self.failed_attempts >= len(tuning.REPARAMETRISED_ATTEMPTS)
        self._potentials = reparametrised(bound, local) if arithmetic.exact and not original_factors else None
        self._used_potentials |= self._potentials is not None
        if self._potentials is None:
            encoded = [arithmetic.encode(f) for f in local.factors]
            query = EliminationQuery(encoded, local.domains, local.order.variables, (), arithmetic)
        else:
            query = self._potentials.query
        if self.exhausted:
            return None
        entries, max_rows = self._attempts[self.failed_attempts]
        # The largest z whose mini-buckets have at most about this many entries, of 8 bytes each.
        z = z_within(query, min(entries, self.memory // (8 * tuning.FILTERING_MEMORY_DIVISOR)))
        if self.failed_attempts and z == self._last_z and not original_factors:
            return None
        self._last_z = z
        incumbent = None if best is None else self._encoded(_utility(local, arithmetic, best))
        max_rows = max_rows if self.timed else min(max_rows, tuning.MAX_UNTIMED_ROWS)
        return FunctionFiltering(query, incumbent, z, self.memory, backend.threads, backend.stop, max_rows)

    def _encoded(self, utility: Number) -> Number:
        """Return a utility in the encoding of the tables that are eliminated."""
        return utility if self._potentials is None else self._potentials.encode(int(utility))


def _utility(local: LocalProblem, arithmetic: Arithmetic, values: NDArray[np.int64]) -> Number:
    """Return the encoded utility of an assignment for an agent; −∞ if it violates a hard constraint."""
    total: Number = 0
    for factor in local.factors:
        entry = factor.entry([int(values[v]) for v in factor.scope])
        if entry is None:
            return arithmetic.lowest
        total += entry
    return total


def _exact_table(
    local: LocalProblem, arithmetic: Arithmetic, values: NDArray[np.int64] | None, seconds: float, sizes: SizeStatistics
) -> SampledTable:
    """Return an exact table of one number, the utility of the best values; −∞ if there are none."""
    utility = arithmetic.lowest if values is None else _utility(local, arithmetic, values)
    table = (EncodedTable((), np.array(utility, dtype=arithmetic.dtype)),)
    hidden_values = dict.fromkeys(local.hidden, 0) if values is None else {v: int(values[v]) for v in local.hidden}
    return SampledTable(
        table,
        table,
        partial(_stored_values, hidden_values),
        FILTERING,
        seconds,
        int(sizes.stored_entries),
        sparse_sizes=sizes,
    )


def _stored_values(hidden_values: dict[int, int], interface: object) -> dict[int, int]:
    """Return the hidden values, whatever the (empty) interface assignment."""
    return dict(hidden_values)


def deadline_after(stop: Deadline, seconds: float) -> Deadline:
    """Return a deadline after some seconds, or the given one if it is earlier."""
    return stop.by(time.perf_counter() + seconds)
