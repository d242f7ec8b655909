"""Providers ``dual+mini-bucket`` and ``triangles+mini-bucket``: what bounds an agent best is found out by trying.

Dual ascent is better where the graph is dense, mini-buckets where it is sparse; which, nobody knows before. A dual
ascent's shares add up to the agent's factors, so mini-buckets of them bound the same, mostly more tightly than those of
the factors, and than the sum of the shares' maxima. Shares of triangles are tables over three variables, or given back
to their pairs: both are tried. Whatever has lately brought most for its time has most of it.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import Pruned, Rows
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.row_kernels import FIRST_SHIFTS
from dmcmc.inference.bounds.mini_bucket import MiniBucketState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.memory import ACCOUNT

_EVEN, _MOSTLY = (
    0.5,
    0.8,
)  # of the time for dual ascent where values are removed: while nothing is known, where it leads
_LEADS = 4.0  # times the time of another way that the one has which has brought most
_TURN, _PART = 0.05, 0.25  # seconds of a turn of dual ascent, and the part of what it has had
_WORK = 1 << 20  # entries of mini-buckets for each sweep, where work is fixed
_CUBES, _MOST = 1 << 28, 10_000  # bytes of triangles as tables over three variables, and how many


@dataclass
class _Way:
    """One way to a bound: what its next turn takes, what it has had, and what its last turn has brought a second."""

    price: Callable[[], float]
    work: Callable[[float], None]
    spent: float = 0.0
    rate: float = math.inf


class TrialState:
    """A bound by dual ascent and mini-buckets; a :class:`.PruningState`.

    Attributes
    ----------
    dual : DualState
        Has the bounds of all.
    buckets : list of MiniBucketState
        Work on its shares, and lower its bounds.
    """

    def __init__(self, local: LocalProblem, triangles: bool, backend: Backend = CPU) -> None:
        self.dual = DualState(local, triangles, backend)
        whole, width = self.dual.layout.whole, self.dual.width
        count = whole.triangles.shape[0]
        kinds = (
            [False, True] if 0 < count <= _MOST and 8 * count * width**3 <= ACCOUNT.part(1 / 16, _CUBES) else [False]
        )
        self.buckets = [MiniBucketState(local, backend, self.dual, clusters) for clusters in kinds]
        self.dual.fixed = True  # mini-buckets go by its layout; triangles for cycles are added to a copy
        self._cycles: DualState | None = None
        self._around = _Way(self._price_around, self._go_around)
        self._ascent = _Way(lambda: max(_TURN, _PART * self._ascent.spent), lambda s: self.dual.improve(seconds=s))
        self._joins = [*(_Way(partial(_price, one), partial(_step, one)) for one in self.buckets), self._around]
        self._backend = backend

    @property
    def backend(self) -> Backend:
        """What work may take."""
        return self._backend

    @backend.setter
    def backend(self, backend: Backend) -> None:
        self._backend = self.dual.backend = backend
        for one in self.buckets:
            one.backend = backend

    @property
    def whole(self) -> bool:
        """Whether all utilities are integers."""
        return self.dual.whole

    @property
    def exhausted(self) -> bool:
        """Whether no time would make the bound tighter."""
        return self.dual.exhausted and all(one.exhausted for one in self.buckets)

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound.

        Parameters
        ----------
        sweeps
            Of dual ascent; a step of mini-buckets comes after them, as large as the sweeps would be.
        """
        if seconds is None:
            self.dual.improve(sweeps=sweeps, rows=rows)
            self._join(10 if sweeps is None else sweeps)
            return
        end = time.perf_counter() + seconds
        self._ascent.work = lambda given: self.dual.improve(seconds=given, rows=rows)
        while (left := end - time.perf_counter()) > 0 and not self.backend.stop.over:
            way, alone = self._next(left)
            self._take_turn(way, lambda way=way: way.work(min(left, way.price())))  # type: ignore[misc]
            if alone and way.rate <= 0:
                return

    def prune(
        self,
        thresholds: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        sweeps: int | None = None,
    ) -> Pruned:
        """Tighten the bound, and remove values with which a row cannot reach its threshold."""
        if seconds is None:
            self._join(10 if sweeps is None else sweeps)
            return replace(self.dual.prune(thresholds, rows, None, sweeps), state=self)
        share, found = self._share(), list[Pruned]()
        self.improve((1 - share) * seconds, rows=rows)
        self._take_turn(self._ascent, lambda: found.append(self.dual.prune(thresholds, rows, share * seconds)))
        return replace(found[0], state=self)

    def lower(self, rows: Rows, values: Sequence[int | float]) -> None:
        """Take bounds that are known from elsewhere, one a row."""
        self.dual.lower(rows, values)

    def tables(self, arithmetic: Arithmetic) -> tuple[Table, ...]:
        """Return one table over the interface; small ones over its parts where it has too many rows."""
        return self.dual.tables(arithmetic) if self.dual.enumerated else self.buckets[0].tables(arithmetic)

    def _next(self, left: float) -> tuple[_Way, bool]:
        """Return whose turn it is: the one that has had least for what it has brought; and whether no other can."""
        able = [(price, way) for way in self._joins if (price := way.price()) <= left]
        if not able or not self.dual.exhausted:
            able.append((self._ascent.price(), self._ascent))
        leader = self._leader()
        _, way = min(able, key=lambda one: (one[0] + one[1].spent) / (_LEADS if one[1] is leader else 1.0))
        return way, len(able) == 1

    def _leader(self) -> _Way | None:
        """Return what has lately brought most a second; None if nothing has."""
        known = [way for way in (self._ascent, *self._joins) if 0 < way.rate < math.inf]
        return max(known, key=lambda way: way.rate, default=None)

    def _take_turn(self, way: _Way, work: Callable[[], None]) -> None:
        """Do a way's work, and take note of what it has brought."""
        before, begun = self._total(), time.perf_counter()
        work()
        took = max(1e-6, time.perf_counter() - begun)
        way.spent += took
        way.rate = (before - self._total()) / took
        if way is self._ascent:
            for one in self.buckets:
                one.shares_moved()

    def _join(self, sweeps: int) -> None:
        """Eliminate what dual ascent has left, with tables of a fixed size."""
        for one in self.buckets:
            one.shares_moved()
            one.reach(_WORK * sweeps)
            one.improve(sweeps=1)

    def _price_around(self) -> float:
        """Return what a turn of the ascent with triangles for cycles takes, inf where they bring nothing."""
        done = self.dual.exhausted or not self.dual.enumerated or self.dual.done < FIRST_SHIFTS
        none = self._cycles is not None and self._cycles.fixed and not self._added()
        return math.inf if done or none else max(2 * _TURN, _PART * self._around.spent)

    def _go_around(self, seconds: float) -> None:
        """Ascend with triangles for cycles, beginning with the shares as they are when it is first done."""
        if self._cycles is None:
            self._cycles = self.dual.copied()
        self._cycles.backend = self._backend
        self._cycles.tighten()
        if self._added():
            self._cycles.improve(seconds=seconds)
            np.minimum(self.dual.bounds, self._cycles.bounds, out=self.dual.bounds)

    def _added(self) -> bool:
        """Return whether there are triangles for cycles."""
        assert self._cycles is not None
        return len(self._cycles.layout.whole.triangles) > len(self.dual.layout.whole.triangles)

    def _share(self) -> float:
        """Return the part of the time that dual ascent gets where it removes values, too."""
        if self.dual.exhausted or all(one.exhausted for one in self.buckets):
            return 1.0
        leader = self._leader()
        return _EVEN if leader is None else _MOSTLY if leader is self._ascent else 1 - _MOSTLY

    def _total(self) -> float:
        """Return at most what the agent can be worth, in the scale of its entries."""
        return float(self.dual.bounds.max(initial=np.iinfo(np.int64).min))


def _price(buckets: MiniBucketState) -> float:
    return buckets.price


def _step(buckets: MiniBucketState, seconds: float) -> None:
    buckets.step()


class TrialProvider:
    """Dual ascent, on triangles too or not, and mini-buckets of what it has shifted."""

    def __init__(self, name: str, summary: str, triangles: bool) -> None:
        self.name = name
        self.summary = summary
        self._triangles = triangles

    def start(self, local: LocalProblem, backend: Backend = CPU) -> TrialState:
        """Return an agent's bound after one sweep of dual ascent."""
        return TrialState(local, self._triangles, backend)


PAIRS = TrialProvider(
    "dual+mini-bucket", "dual ascent, and mini-buckets of what it has shifted, by what each brings", triangles=False
)
TRIANGLES = TrialProvider(
    "triangles+mini-bucket",
    "triangles, and mini-buckets of what they have shifted, by what each brings",
    triangles=True,
)
