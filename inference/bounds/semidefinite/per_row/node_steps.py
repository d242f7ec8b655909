"""Steps of many cases' squares side by side: a case has one row, so the row's vector is one more of its points' rows.

With the row's vector below those of values, the Gram matrix of all of them has each pair's products, each value's with
the row, and the row's own; with what entries count below and beside those of pairs, their product with the points is
the slope of all vectors. So a step is two products of matrices, in half precision (11 bits, sums in single), and six
passes between: what values reach in their tables, which are made alike (a step of all variables' stars at once), both
twice; what values count in pairs; and the vectors' step. Both variables of a pair make its values alike at once, each
without knowing of the other: what that leaves wrong is put right the second time.

All cases' arrays are as large: h variables of d values each, n = h·d values, m > n rows of r entries. What a case
has not is 0 in its points and weights, and stays so; variables that are not there have no values.

A step is Adam's (Kingma and Ba, 2015), but that all entries of a vector have one spread: bounds are as low, or lower,
with a fifth less to read and write.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from dmcmc.inference.bounds.semidefinite.descent import LOOK
from dmcmc.inference.runtime.types import Array

DEEP = 50.0  # units: a value is not taken for worse than the best of its variable by more
DAMPED, STARS = 0.8, 2  # part of a star's step that is made; how often stars are made alike in a step
MOMENTUM, SPREAD = 0.9, 0.6  # of slopes, and of a vector's mean square of them
LEAST_LENGTH = 1e-6  # of slopes, as Adam has it
_LATE = 0.5  # of the steps: before, none is the best

Pass = Callable[[int], None]  # for a step of a schedule


class CaseStep(NamedTuple):
    """What a step has.

    Attributes
    ----------
    slope : float
        One over the temperature of maxima.
    step : float
        Its length.
    even : float
        What spreads are multiplied by: they have begun at 0.
    """

    slope: float
    step: float
    even: float


class CaseShape(NamedTuple):
    """Sizes that all cases' arrays have."""

    cases: int
    h: int
    d: int
    r: int

    @property
    def n(self) -> int:
        """Values."""
        return self.h * self.d

    @property
    def m(self) -> int:
        """Rows of points: values, the row's, and none, so that rows are as tensor cores take them."""
        return -(-(self.n + 1) // 8) * 8

    @property
    def bytes(self) -> int:
        """Of a batch, about."""
        per_case = 4 * self.m**2 + 20 * self.m * self.r + 12 * self.h * self.n + 16 * self.n
        return self.cases * per_case


class CaseGiven(NamedTuple):
    """What stands still while cases make steps.

    Attributes
    ----------
    utilities : (agents, n, n) float32
        Of pairs; values that a variable has not are forbidden.
    agents : (cases,) int32
    sizes : (cases, h) int32
        Of domains, 0 where there is no variable.
    tables : (cases,) float32
        In how many tables a variable is, its own counted.
    values : (cases, n) float32
        What each is worth by itself.
    constants : (cases,) float64
    """

    utilities: Any
    agents: Any
    sizes: Any
    tables: Any
    values: Any
    constants: Any


class CaseWork(NamedTuple):
    """What changes from step to step.

    Attributes
    ----------
    points : (cases, m, r) float32
        Vectors.
    halves : (cases, m, r) float16
        The same.
    slopes, means : (cases, m, r) float16
        Where they go down, and the means of that so far.
    spreads : (cases, m) float32
        Of vectors: means of slopes' squares so far.
    products : (cases, m, m) float16
        Of points.
    weights : (cases, m, m) float16
        How much entries count.
    shifts, reached : (cases, h, n) float32
    best : (cases, h) float32
        Maxima of variables.
    maxima : (cases, h, h) float32
        Of pairs, twice each.
    """

    points: Any
    halves: Any
    slopes: Any
    means: Any
    spreads: Any
    products: Any
    weights: Any
    shifts: Any
    reached: Any
    best: Any
    maxima: Any


class Passes(NamedTuple):
    """The passes of a step, in their order."""

    multiply: Pass
    reach: Pass
    alone: Pass
    smooth: Pass
    slope: Pass
    move: Pass


class ExactGiven(NamedTuple):
    """Pairs' tables in whole numbers.

    Attributes
    ----------
    utilities : (agents, n, n) int32
    agents : (cases,) int32
    products : (cases, m, m) float64
        Of points; whole numbers, 4^bits times as large as utilities; shifts too.
    shifts : (cases, h, n) int64
    sizes : (cases, h) int32
    bits : (cases,) int64
    """

    utilities: Any
    agents: Any
    products: Any
    shifts: Any
    sizes: Any
    bits: Any


class CaseArrays(Protocol):
    """Where arrays live, and the passes over them."""

    module: Any

    def put(self, array: Array) -> Any:
        """Return a copy there."""
        ...

    def get(self, array: Any) -> Array:
        """Return a copy here; waits for all that was asked for."""
        ...

    def passes(self, given: CaseGiven, work: CaseWork, schedule: Any, shape: CaseShape) -> Passes:
        """Return the passes for the steps of a schedule, (steps, 3) of :class:`CaseStep`."""
        ...

    def exact_products(self, vectors: Any) -> Any:
        """Return products of (cases, m, r) float64 with themselves, (cases, m, m)."""
        ...

    def maxima(self, given: ExactGiven, shape: CaseShape) -> Any:
        """Return the exact maxima of pairs whose first variable comes first, (cases, h, h) int64.

        NEVER where no entry is live, 0 where there is no such pair.
        """
        ...


class CaseSteps:
    """Makes steps of cases.

    Parameters
    ----------
    shape : CaseShape
    given : CaseGiven
    points : (cases, m, r) float32
        Where they begin, there.
    shifts : (cases, h, n) float32
    arrays : CaseArrays

    Attributes
    ----------
    best
        Points and shifts where the least was left; where they begin as long as nothing was.
    least : (cases,) float64
        What that was, in units.
    """

    def __init__(self, shape: CaseShape, given: CaseGiven, points: Any, shifts: Any, arrays: CaseArrays) -> None:
        self.shape, self._given, self._arrays, xp = shape, given, arrays, arrays.module
        cases, h, n, m = shape.cases, shape.h, shape.n, shape.m

        def empty(*sizes: int, dtype: Any = np.float32) -> Any:
            return xp.zeros((cases, *sizes), dtype=dtype)

        halves = points.astype(np.float16)
        self.work = CaseWork(
            points, halves, xp.zeros_like(halves), xp.zeros_like(halves), empty(m),
            empty(m, m, dtype=np.float16), empty(m, m, dtype=np.float16), shifts, empty(h, n), empty(h), empty(h, h),
        )  # fmt: skip
        self.work.weights[:, n, n] = 1
        self.best = points.copy(), shifts.copy()
        self.least = xp.full(cases, np.inf)

    def passes(self, schedule: Array) -> Passes:
        """Return the passes for the steps of a schedule, (steps, 3) of :class:`CaseStep`."""
        return self._arrays.passes(self._given, self.work, self._arrays.put(schedule), self.shape)

    def make(self, passes: Passes, first: int, last: int, steps: int) -> None:
        """Make the steps from the first one until before the last one; look in the later ones for the best."""
        for at in range(first, last):
            self._look(passes, at)
            if at % LOOK == 0 and at >= _LATE * steps:
                self._keep()
            passes.slope(at)
            passes.move(at)

    def end(self, passes: Passes, at: int) -> None:
        """See whether this is the best, by what a step has."""
        self._look(passes, at)
        self._keep()

    def _look(self, passes: Passes, at: int) -> None:
        """Find what entries count here."""
        passes.multiply(at)
        for _ in range(STARS):
            passes.reach(at)
            passes.alone(at)
        passes.smooth(at)

    def _keep(self) -> None:
        """Keep the points of cases that are better than before."""
        xp, n, work = self._arrays.module, self.shape.n, self.work
        left = self._given.constants + work.products[:, n, n].astype(np.float64)
        left += work.best.sum(axis=1, dtype=np.float64) + work.maxima.sum(axis=(1, 2), dtype=np.float64) / 2
        better = left < self.least
        self.least = xp.where(better, left, self.least)
        for best, here in zip(self.best, (work.points, work.shifts), strict=True):
            xp.copyto(best, here, where=better[:, None, None])
