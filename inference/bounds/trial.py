"""Provider ``dual+mini-bucket``: dual ascent, and mini-buckets of what it has shifted, by what each has lately brought.

Dual ascent is better where the graph is dense, mini-buckets where it is sparse; which, nobody knows before. A dual
ascent's shares add up to the agent's factors, so mini-buckets of them bound the same, mostly more tightly than those of
the factors, and than the sum of the shares' maxima.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import Pruned, Rows
from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.bounds.mini_bucket import MiniBucketState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table

_EVEN, _MOSTLY = 0.5, 0.8  # of the time for dual ascent: while nothing is known, and where it gains more


class TrialState:
    """A bound by dual ascent and mini-buckets; a :class:`.PruningState`.

    Attributes
    ----------
    dual : DualState
        Has the bounds of both.
    buckets : MiniBucketState
        Works on its shares, and lowers its bounds.
    """

    def __init__(self, local: LocalProblem, backend: Backend = CPU) -> None:
        self.dual = DualState(local, triangles=False, backend=backend)
        self.buckets = MiniBucketState(local, backend, self.dual)
        self._backend = backend
        self._gains: tuple[float, float] | None = None  # units of the bound a second, lately: dual ascent, mini-buckets

    @property
    def backend(self) -> Backend:
        """What work may take."""
        return self._backend

    @backend.setter
    def backend(self, backend: Backend) -> None:
        self._backend = self.dual.backend = self.buckets.backend = backend

    @property
    def whole(self) -> bool:
        """Whether all utilities are integers."""
        return self.dual.whole

    @property
    def exhausted(self) -> bool:
        """Whether no time would make the bound tighter."""
        return self.dual.exhausted and self.buckets.exhausted

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound; ``sweeps`` counts those of dual ascent, a step of mini-buckets comes after them."""
        if seconds is None:
            self.dual.improve(sweeps=sweeps, rows=rows)
            self._join(None)
            return
        share = self._share()
        ascent = self._timed(lambda: self.dual.improve(seconds=share * seconds, rows=rows))
        joined = self._timed(lambda: self._join((1 - share) * seconds))
        self._gains = ascent, joined

    def prune(
        self,
        thresholds: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        sweeps: int | None = None,
    ) -> Pruned:
        """Tighten the bound, and remove values with which a row cannot reach its threshold."""
        share = self._share()
        if seconds is not None:
            joined = self._timed(lambda: self._join((1 - share) * seconds))
            before, begun = self._total(), time.perf_counter()
            pruned = self.dual.prune(thresholds, rows, share * seconds)
            self._gains = self._gain(before, begun), joined
            return replace(pruned, state=self)
        self._join(None)
        return replace(self.dual.prune(thresholds, rows, None, sweeps), state=self)

    def lower(self, rows: Rows, values: Sequence[int | float]) -> None:
        """Take bounds that are known from elsewhere, one a row."""
        self.dual.lower(rows, values)

    def tables(self, arithmetic: Arithmetic) -> tuple[Table, ...]:
        """Return one table over the interface; small ones over its parts where it has too many rows."""
        return self.dual.tables(arithmetic) if self.dual.enumerated else self.buckets.tables(arithmetic)

    def _join(self, seconds: float | None) -> None:
        """Eliminate what dual ascent has left, with bounded tables."""
        self.buckets.shares_moved()
        self.buckets.improve(seconds, None if seconds is not None else 1)

    def _share(self) -> float:
        """Return the part of the time that dual ascent gets."""
        if self.buckets.exhausted or self.dual.exhausted:
            return float(self.buckets.exhausted)
        if self._gains is None or self._gains[0] == self._gains[1]:
            return _EVEN
        return _MOSTLY if self._gains[0] > self._gains[1] else 1 - _MOSTLY

    def _timed(self, work: Any) -> float:
        """Do something; return what the bound is lower by it, a second."""
        before, begun = self._total(), time.perf_counter()
        work()
        return self._gain(before, begun)

    def _gain(self, before: float, begun: float) -> float:
        return (before - self._total()) / max(1e-6, time.perf_counter() - begun)

    def _total(self) -> float:
        """Return at most what the agent can be worth, in the scale of its entries."""
        return float(self.dual.bounds.max(initial=np.iinfo(np.int64).min))


class TrialProvider:
    """Dual ascent and mini-buckets of what it has shifted."""

    name = "dual+mini-bucket"
    summary = "dual ascent, and mini-buckets of what it has shifted, by what each brings"

    def start(self, local: LocalProblem, backend: Backend = CPU) -> TrialState:
        """Return an agent's bound after one sweep of dual ascent."""
        return TrialState(local, backend)


PROVIDER = TrialProvider()
