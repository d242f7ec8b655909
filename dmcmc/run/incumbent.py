"""The incumbent: the best assignment and the best proven bound so far, and whether to go on (for rank 0)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.exact_sum import Exact, not_below
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.results.outcome import Outcome, judge
from dmcmc.results.result import TracePoint
from dmcmc.run.setup import Setup

_SLICE = 0.25  # seconds between two cycles, at least
_SAMPLED_FIRST, _SAMPLED, _SAMPLED_LAST = 0.8, 0.35, 0.1  # of a slice: without an answer, usually, when it is of no use


class Directive(NamedTuple):
    """What rank 0 says after a cycle.

    Attributes
    ----------
    stop : bool
    thresholds : dict
        For each root: what a solution must be worth in its component to be better than the best so far (encoded); None
        where any would be.
    seconds : float
        How long to improve the tables before the next cycle.
    sampled : float
        The part of that which goes to sampling.
    best : ndarray or None
        The best assignment so far, if it breaks nothing.
    bounded : bool
        Whether every component has a bound.
    """

    stop: bool
    thresholds: Mapping[int, Number | None]
    seconds: float = 0.0
    sampled: float = 0.0
    best: NDArray[np.int64] | None = None
    bounded: bool = False


@dataclass
class Incumbent:
    """The best so far.

    Attributes
    ----------
    start : float
        When the solve began (``time.perf_counter``).
    deadline : float or None
        When it has to end; None for a single cycle.
    tell : callable
        Called with each new point of the trace.
    answer : tuple or None
        Values and outcome that belong together, for other threads.
    timed_out : bool
        Whether the run ends for want of time, or because somebody asked for it.
    note : str or None
        Why it ended earlier than it had to.
    combining : float
        Seconds that the last cycle's combination took: the next one needs them too.
    """

    setup: Setup
    start: float
    deadline: float | None
    tell: Callable[[TracePoint], object] = lambda point: None
    values: NDArray[np.int64] | None = None
    outcome: Outcome | None = None
    answer: tuple[NDArray[np.int64], Outcome] | None = None
    timed_out: bool = False
    note: str | None = None
    combining: float = 0.0
    trace: list[TracePoint] = field(default_factory=list)
    _history: list[tuple[Number | None, Number | None]] = field(default_factory=list)
    _worth: tuple[int, Exact] | None = None  # of the best assignment: (−violations, exact utility without constants)
    _utility: Number | None = None  # the same utility where nothing is violated, rounded up to a table's numbers
    _bound: Number | None = None  # the best proven one, likewise

    def update(self, values: NDArray[np.int64], roots: Mapping[int, Number | None]) -> None:
        """Take in an assignment and the roots' upper UTIL values.

        The upper values may hold for solutions better than the best so far only: rows that cannot be in one are left
        out of them.
        """
        setup = self.setup
        first = self.outcome is None
        evaluation = setup.original.evaluate(values[: setup.original.n_variables])
        worth = -evaluation.violation, setup.original.utility_inside(values[: setup.original.n_variables])
        if self._worth is None or worth > self._worth:
            self.values, self._worth = values, worth
            if evaluation.violation == 0:
                self._utility = not_below(worth[1])
        bound = self._total(roots)
        if bound is not None:
            if self._utility is not None:
                bound = max(bound, self._utility)
            if self._bound is None or bound < self._bound:
                self._bound = bound
        assert self.values is not None
        self.outcome = judge(
            setup.original, self.values[: setup.original.n_variables],
            None if self._bound is None else [self._bound], setup.arithmetic,
            setup.division.constants, len(setup.problem.factors),
        )  # fmt: skip
        self.answer = self.values, self.outcome
        point = TracePoint(time.perf_counter() - self.start, self.outcome.objective, self.outcome.bound)
        self._history.append((point.objective, point.bound))
        last = self.trace[-1] if self.trace else None
        if first or last is None or (last.objective, last.bound) != (point.objective, point.bound):
            self.trace.append(point)
            self.tell(point)

    def give_up(self, error: ResourceError) -> Directive:
        """End with what there is: a later combination had no time, or lists of rows took more memory than tables."""
        if isinstance(error, OutOfTime):
            self.timed_out = True
        else:
            self.note = f"ended early for want of memory: {error}"
        return Directive(True, {})

    def direct(
        self, roots: Mapping[int, Number | None], may_improve: bool, may_prune: bool, interrupted: bool
    ) -> Directive:
        """Decide whether to go on.

        Parameters
        ----------
        may_improve
            Whether time could make some agent's table better.
        may_prune
            Whether the combination was relaxed, and leaving rows out has not yet been tried, or has helped.
        """
        assert self.outcome is not None
        gap, target = self.outcome.gap, self.setup.config.budget.gap
        reached = self.outcome.status in ("optimal", "infeasible") or (gap is not None and 0 < target >= gap)
        left = float("inf") if self.deadline is None else self.deadline - time.perf_counter() - self.combining
        late = left <= 0
        self.timed_out = (late or interrupted) and not reached
        best = self.values if self._utility is not None else None
        go_on = not (reached or late or interrupted)
        if go_on and self.deadline is not None and may_improve:
            # Each slice is as long as all before it: one long effort gains more than several short ones.
            seconds = max(_SLICE, time.perf_counter() - self.start)
            seconds = left if left < 1.5 * seconds else seconds
            return Directive(False, self._thresholds(roots), seconds, self._sampled(), best, self._bound is not None)
        if go_on and may_prune and best is not None and self.setup.config.combine.method == "auto":
            return Directive(False, self._thresholds(roots), 0.0, 0.0, best, self._bound is not None)
        return Directive(True, {})

    def _sampled(self) -> float:
        """Return the part of the time that sampling gets: less when it has brought nothing twice."""
        objectives = [point for point, _ in self._history[-3:]]
        if self._utility is None:
            return _SAMPLED_FIRST
        stuck = len(objectives) == 3 and len(set(objectives)) == 1
        return _SAMPLED_LAST if stuck else _SAMPLED

    def _total(self, roots: Mapping[int, Number | None]) -> Number | None:
        """Return the sum of the roots' upper values, clamped."""
        total: Number = 0
        for value in roots.values():
            if value is None:
                return None
            if self.setup.arithmetic.is_lowest(value):
                return self.setup.arithmetic.lowest
            total += value
        return total

    def _thresholds(self, roots: Mapping[int, Number | None]) -> dict[int, Number | None]:
        """Return what each component must be worth: the best so far less what all others can be worth."""
        total = self._total(roots)
        if self._utility is None or total is None or self.setup.arithmetic.is_lowest(total):
            return dict.fromkeys(roots)
        # A row goes only if it is worse by more than the rounding of all the sums that say so.
        slack = 4 * self.setup.arithmetic.rounding(len(self.setup.problem.factors))
        return {a: self._utility - (total - value) - slack for a, value in roots.items() if value is not None}
