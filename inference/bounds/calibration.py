"""Bound providers ``dual+mini-bucket`` and ``triangles+mini-bucket``: divide the time between methods by measured gain.

Dual ascent bounds dense graphs better and mini-buckets sparse ones, and it is not known beforehand which suits an
agent. The potentials of a dual ascent add up to the agent's factors, so mini-buckets of the potentials give a valid
bound. It is usually tighter than that of mini-buckets of the factors, and than the sum of the potentials' maxima. The
tables of a triangle either form one table of three variables or are added to the pairs: both are tried. The method that
has recently lowered the bound fastest gets most of the time.

A row is one assignment of an agent's interface (boundary) variables; a sweep of dual ascent passes messages once
between all tables of a graph. A triangle is a triplet region of the dual ascent: three variables and their pairs.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import Rows
from dmcmc.inference.bounds.contract.tuning import ENTRIES_PER_SWEEP, INITIAL_SWEEPS, LEADER_WEIGHT, STEP_FRACTION
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import triplets_fit
from dmcmc.inference.bounds.mini_bucket import MINI_BUCKET_BOUNDS, MiniBucketState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.tuning import MAX_CHECK_INTERVAL


@dataclass
class _BoundMethod:
    """One method that can lower the bound, with its measured gain.

    Attributes
    ----------
    estimate : callable
        ``estimate(spent)`` returns the estimated seconds of the next step, given the seconds that the method has used;
        inf if the method has no next step.
    run : callable
        ``run(seconds)`` carries out a step.
    spent : float
        Seconds that the method has used.
    rate : float
        Decrease of the bound, in the integer scale, per second in its last step; inf before the first.
    """

    estimate: Callable[[float], float]
    run: Callable[[float], object]
    spent: float = 0.0
    rate: float = math.inf

    @property
    def next_seconds(self) -> float:
        """Estimated seconds of the next step; inf if the method has none."""
        return self.estimate(self.spent)


class FourCycleAscent:
    """A dual ascent with additional triangles for cycles of four variables, on a copy of another dual ascent.

    The copy is made at the first step. It lowers the bounds of the other ascent.

    Parameters
    ----------
    dual : DualState
        The other dual ascent, whose layout is fixed.
    """

    def __init__(self, dual: DualState) -> None:
        self._dual = dual
        self._copy: DualState | None = None

    @property
    def may_gain(self) -> bool:
        """Whether a step may lower bounds: after the initial sweeps of ``dual``, unless no triangles can be added."""
        if self._dual.exhausted or not self._dual.enumerated or self._dual.sweeps_done < INITIAL_SWEEPS:
            return False
        return self._copy is None or not self._copy.layout_fixed or self._has_triangles(self._copy)

    def ascend(self, seconds: float) -> None:
        """Add triangles if some may gain, and ascend for some seconds."""
        if self._copy is None:
            self._copy = self._dual.duplicate()
        self._copy.backend = self._dual.backend
        self._copy.tighten()
        if self._has_triangles(self._copy):
            self._copy.improve(seconds=seconds)
            np.minimum(self._dual.bounds, self._copy.bounds, out=self._dual.bounds)

    def _has_triangles(self, copy: DualState) -> bool:
        """Return whether the copy has additional triangles."""
        return len(copy.layout.whole.triangles) > len(self._dual.layout.whole.triangles)


class CalibratedBoundState:
    """Bound of one agent by dual ascent and mini-buckets; implements ``PruningState``.

    There are up to four methods: the dual ascent, mini-buckets of its potentials with and without tables of three
    variables, and a second dual ascent with additional triangles for cycles of four variables. The second ascent is a
    copy that is made at its first step; it is available once the first ascent has made its initial sweeps. In a run
    with a time budget, the dual ascent begins alone if the kernels of mini-buckets are still being compiled.

    Parameters
    ----------
    local : LocalProblem
    triangles : bool
        Whether the dual ascent uses the triangles of the factor graph.
    backend : Backend
        Threads, device and deadline.

    Attributes
    ----------
    dual : DualState
        The dual ascent, which also stores the best bounds of all methods.
    buckets : list of MiniBucketState
        Mini-bucket bounds on the potentials of ``dual``; they lower its bounds.
    cycles : FourCycleAscent
        The second dual ascent, which lowers the bounds of ``dual``.
    """

    def __init__(self, local: LocalProblem, triangles: bool, backend: Backend = CPU) -> None:
        self.dual = DualState(local, triangles, backend)
        has_triplets = bool(len(self.dual.layout.whole.triangles)) and triplets_fit(self.dual.layout.whole)
        triplet_choices = [False, True] if has_triplets else [False]
        self.buckets = [MiniBucketState(local, backend, self.dual, as_triplets) for as_triplets in triplet_choices]
        self.dual.has_mini_buckets = True
        self.dual.layout_fixed = True  # mini-buckets depend on it, so triangles of four-cycles are added to a copy
        self.cycles = cycles = FourCycleAscent(self.dual)
        self._cycle_ascent = _BoundMethod(lambda s: _ascent_seconds(s) if cycles.may_gain else math.inf, cycles.ascend)
        self._ascent = _BoundMethod(_ascent_seconds, self.dual.improve)
        self._other_methods = [*map(_bucket_method, self.buckets), self._cycle_ascent]
        self._backend = backend

    @property
    def backend(self) -> Backend:
        """Threads, device and deadline of the work."""
        return self._backend

    @backend.setter
    def backend(self, backend: Backend) -> None:
        """Replace the backend of the dual ascent and of the mini-buckets as well."""
        self._backend = self.dual.backend = backend
        for bucket in self.buckets:
            bucket.backend = backend

    @property
    def integral(self) -> bool:
        """Whether all utilities are integers."""
        return self.dual.integral

    @property
    def exhausted(self) -> bool:
        """Whether no work can tighten the bound."""
        return self.dual.exhausted and all(bucket.exhausted for bucket in self.buckets)

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound.

        Parameters
        ----------
        seconds : float, optional
            Time that the methods share.
        sweeps : int, optional
            Sweeps of the dual ascent; one mini-bucket step of a proportional size follows.
        rows : sequence of int, optional
            The rows that still matter; None for all.
        """
        if seconds is None:
            self.dual.improve(sweeps=sweeps, rows=rows)
            self._run_buckets(10 if sweeps is None else sweeps)
            return
        end, dual = time.perf_counter() + seconds, self.dual
        self._ascent.run = lambda step_seconds: dual.improve(seconds=step_seconds, rows=rows)
        while (seconds_left := end - time.perf_counter()) > 0 and not self.backend.stop.over:
            method, is_only = self._next_method(seconds_left)
            self._run_step(method, lambda method=method: method.run(min(seconds_left, method.next_seconds)))  # type: ignore[misc]
            if is_only and method.rate <= 0:
                return

    def prune(
        self,
        thresholds: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        sweeps: int | None = None,
    ) -> None:
        """Tighten the bounds of rows; values with which a row cannot reach its threshold do not count.

        ``thresholds`` is one utility per row; the other parameters are as for ``improve``.
        """
        if seconds is None:
            self._run_buckets(10 if sweeps is None else sweeps)
            self.dual.prune(thresholds, rows, None, sweeps)
            return
        fraction = self._pruning_fraction()
        self.improve((1 - fraction) * seconds, rows=rows)
        self._run_step(self._ascent, lambda: self.dual.prune(thresholds, rows, fraction * seconds))

    def tables(self, arithmetic: Arithmetic) -> tuple[EncodedTable, ...]:
        """Return one table over the interface, or a sum of small tables if there are too many rows."""
        return self.dual.tables(arithmetic) if self.dual.enumerated else self.buckets[0].tables(arithmetic)

    def _next_method(self, seconds_left: float) -> tuple[_BoundMethod, bool]:
        """Return the method that has used least of its share of the time, and whether no other method can make a step.

        Only methods whose next step fits into ``seconds_left`` are considered, and dual ascent.
        """
        candidates = [
            (seconds, method) for method in self._other_methods if (seconds := method.next_seconds) <= seconds_left
        ]
        if not candidates or not self.dual.exhausted:
            candidates.append((self._ascent.next_seconds, self._ascent))
        leader = self._leader()
        _, method = min(
            candidates,
            key=lambda candidate: (
                (candidate[0] + candidate[1].spent) / (LEADER_WEIGHT if candidate[1] is leader else 1.0)
            ),
        )
        return method, len(candidates) == 1

    def _leader(self) -> _BoundMethod | None:
        """Return the method that has lowered the bound fastest in its last step; None if none has."""
        improving = [method for method in (self._ascent, *self._other_methods) if 0 < method.rate < math.inf]
        return max(improving, key=lambda method: method.rate, default=None)

    def _run_step(self, method: _BoundMethod, work: Callable[[], None]) -> None:
        """Carry out a step of a method and measure its gain."""
        before, start = self._largest_bound(), time.perf_counter()
        work()
        elapsed = max(1e-6, time.perf_counter() - start)
        method.spent += elapsed
        method.rate = (before - self._largest_bound()) / elapsed
        if method is self._ascent:
            for bucket in self.buckets:
                bucket.refresh_potentials()

    def _run_buckets(self, sweeps: int) -> None:
        """Bound by one step of mini-buckets of a size in proportion to ``sweeps``, on the present potentials."""
        for bucket in self.buckets if MINI_BUCKET_BOUNDS.is_ready() else ():
            bucket.refresh_potentials()
            bucket.raise_z(ENTRIES_PER_SWEEP * sweeps)
            bucket.improve(sweeps=1)

    def _pruning_fraction(self) -> float:
        """Return the fraction of the time for the dual ascent that removes values."""
        if self.dual.exhausted or all(bucket.exhausted for bucket in self.buckets):
            return 1.0
        leader = self._leader()
        weight = 1.0 if leader is None else LEADER_WEIGHT if leader is self._ascent else 1 / LEADER_WEIGHT
        return weight / (1 + weight)

    def _largest_bound(self) -> float:
        """Return the upper bound on the agent's utility: the largest bound of a row, in the integer scale."""
        return float(self.dual.bounds.max(initial=np.iinfo(np.int64).min))


def _ascent_seconds(spent: float) -> float:
    """Return the seconds of the next step of a dual ascent that has used some seconds."""
    return max(MAX_CHECK_INTERVAL, STEP_FRACTION * spent)


def _bucket_method(buckets: MiniBucketState) -> _BoundMethod:
    """Return the method that makes mini-bucket steps, each of which takes as long as it takes."""
    return _BoundMethod(
        lambda spent: buckets.estimated_seconds if MINI_BUCKET_BOUNDS.is_ready() else math.inf,
        lambda seconds: buckets.step(),
    )
