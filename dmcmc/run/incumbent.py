"""The incumbent: the best assignment and the best proven bound so far, and whether to go on (for rank 0)."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.exact_sum import not_below
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.size_statistics import Kept
from dmcmc.results.outcome import Outcome, Proof, Worth, judge, worth_of
from dmcmc.results.result import KeptEntries, TracePoint
from dmcmc.run.monitoring.saved_incumbent import KeptIncumbent
from dmcmc.run.planning.divided_problem import Divided
from dmcmc.run.planning.setup import Setup
from dmcmc.run.scheduler.directive import Directive
from dmcmc.run.scheduler.proposal import COMBINE, SEARCH, Grant
from dmcmc.run.scheduler.rank_report import Report
from dmcmc.run.scheduler.scheduler import Controller, State

# To leave rows out, messages go up and down and the combination is made once more: some times what one takes, and half
# of what is left at most. The rest is the search's.
_PRUNING, _FOR_PRUNING = 2.5, 0.5


@dataclass
class Incumbent:
    """The best so far, and the points of the trace as it got better.

    Attributes
    ----------
    original : Problem
        What was asked, or what reductions have left of it.
    settings : Settings
    start : float
        When the solve began (``time.perf_counter``).
    deadline : float or None
        When it has to end; None for a single cycle.
    tell : callable
        Called with each new point of the trace.
    tell_better : callable
        Called when there is a better assignment that breaks nothing.
    parts : Divided or None
        What bounds are encoded by.
    setup : Setup or None
        None until all is planned.
    values : ndarray of int64 or None
        The best assignment, of the variables of the dense problem.
    worth : Worth or None
        What that is worth.
    answer : tuple or None
        Values and outcome that belong together, for other threads.
    timed_out : bool
        Whether the run ends for want of time, or because somebody asked for it.
    note : str or None
        Why it ended earlier than it had to.
    combining : float
        Seconds that the last cycle's combination took: the next one needs them too.
    controller : Controller or None
        Knows what time is best spent on.
    by, above : str
        What brings the next assignment, and the next bound where no agent's part of it is known.
    kept : KeptIncumbent or None
        Where the best assignment is kept on disk.
    filtered : Kept or None
        What the messages hold of agents that are eliminated without what cannot beat the incumbent.
    held : float or None
        Since when the clock stands still (``time.perf_counter``), as kernels are compiled; None while it runs.
    """

    original: Problem
    settings: Settings
    start: float
    deadline: float | None
    tell: Callable[[TracePoint], object] = lambda point: None
    parts: Divided | None = None
    setup: Setup | None = None
    values: NDArray[np.int64] | None = None
    worth: Worth | None = None
    answer: tuple[NDArray[np.int64], Outcome] | None = None
    timed_out: bool = False
    note: str | None = None
    combining: float = 0.0
    controller: Controller | None = None
    by: str = SEARCH
    above: str = ""
    kept: KeptIncumbent | None = None
    filtered: Kept | None = None
    held: float | None = None
    trace: list[TracePoint] = field(default_factory=list)
    tell_better: Callable[[], object] = lambda: None
    _bound: Number | None = None  # the best proven one on the utility, encoded
    _lock: threading.RLock = field(default_factory=threading.RLock)  # what finds and proves may have its own thread

    @property
    def elapsed(self) -> float:
        """Seconds of the run so far."""
        return (self.held or time.perf_counter()) - self.start

    @property
    def feasible(self) -> bool:
        """Whether the best assignment breaks nothing."""
        return self.worth is not None and self.worth.kept == 0

    @property
    def bound(self) -> Number | None:
        """The best proven bound on the utility, encoded; None if there is none."""
        return self._bound

    @property
    def bounded(self) -> bool:
        """Whether a bound is proven."""
        return self._bound is not None

    @property
    def utility(self) -> Number | None:
        """What the best is worth where it breaks nothing, rounded up to a table's numbers."""
        return None if self.worth is None or self.worth.kept else not_below(self.worth.utility)

    @property
    def outcome(self) -> Outcome:
        """What the best assignment and the best bound say together."""
        assert self.worth is not None, "there has been no assignment"
        return judge(self.original, self.worth, self._constants, self.proof)

    @property
    def proof(self) -> Proof | None:
        """The best bound as it is judged by; None where nothing is proven."""
        if self._bound is None:
            return None
        assert self.parts is not None
        return Proof([self._bound], self.parts.arithmetic, self.addends)

    @property
    def addends(self) -> int:
        """How many factors are added up."""
        assert self.parts is not None
        return len(self.parts.problem.factors)

    @cached_property
    def _constants(self) -> list[Factor]:
        return [factor for factor in self.original.factors if not factor.scope]

    @property
    def reached(self) -> bool:
        """Whether nothing more is wanted: all is proven, or the gap is as small as was asked for."""
        outcome, target = self.outcome, self.settings.budget.gap
        return outcome.status in ("optimal", "infeasible") or (outcome.gap is not None and 0 < target >= outcome.gap)

    def delay(self, seconds: float) -> None:
        """Move the start and the end of the run, whose clock goes on; the trace stays as it is."""
        self.start, self.held = self.start + seconds, None
        if self.deadline is not None:
            self.deadline += seconds

    def update(self, values: NDArray[np.int64], by: str | None = None) -> bool:
        """Take in an assignment of the dense problem's variables; return whether it is better than the best so far.

        Parameters
        ----------
        by
            What has found it, if that is not the run's own work.
        """
        worth = worth_of(self.original, values[: self.original.n_variables])
        with self._lock:
            better = worth.better(self.worth)
            if better:
                self.values, self.worth = values.copy(), worth
                self._point(by)
                if self.kept is not None:
                    self.kept.keep(self.values)
                if self.feasible:
                    self.tell_better()
        return better

    def update_bound(
        self, bound: Number | None, by: str | None = None, parts: Mapping[str, float] | None = None
    ) -> bool:
        """Take in an upper bound (encoded) on the utility; return whether it is tighter than the best so far.

        It may hold for solutions better than the best so far only: rows that cannot be in one are left out of it. An
        assignment has to be there first.

        Parameters
        ----------
        by
            What has proven it, if that is not the run's own work.
        parts
            Of that, by kinds of work: what each has closed of agents' parts of the gap, 1 together.
        """
        if bound is None:
            return False
        with self._lock:
            utility = self.utility
            if utility is not None:
                bound = max(bound, utility)
            tighter = self._bound is None or bound < self._bound
            if tighter:
                self._bound = bound
                self._point(by or ", ".join(parts or ()) or self.above, parts)
        return tighter

    def _point(self, by: str | None, parts: Mapping[str, float] | None = None) -> None:
        """Add a point to the trace where it says something new."""
        assert self.values is not None
        outcome = self.outcome
        self.answer = self.values, outcome
        kept = None if self.filtered is None else KeptEntries(*self.filtered)
        told = by or self.by
        point = TracePoint(self.elapsed, outcome.objective, outcome.bound, told, kept, dict(parts or {}))
        last = self.trace[-1] if self.trace else None
        if last is None or (last.objective, last.bound) != (point.objective, point.bound):
            self.trace.append(point)
            self.tell(point)

    def give_up(self, error: ResourceError) -> Directive:
        """End with what there is: tables had no time, or they did not fit the memory."""
        if isinstance(error, OutOfTime):
            self.timed_out = True
        else:
            self.note = f"for want of memory: {error}"
        return Directive(True)

    def direct(self, reports: Sequence[Report]) -> Directive:
        """Decide whether to go on, and with what.

        Parameters
        ----------
        reports
            Of all ranks; what they have found has been taken in.
        """
        setup, controller = self.setup, self.controller
        assert setup is not None and controller is not None
        state, reached = self._state(), self.reached
        controller.enter(state, [one for report in reports for one in report.brought])
        interrupted = any(report.asked for report in reports)
        over = state.left <= 0 or interrupted
        self.timed_out = over and not reached
        if reached or over:
            return Directive(True)
        grants = controller.decide([offer for report in reports for offer in report.offers])
        prune = self._prunes(reports, grants, state.left)
        if not grants and not prune:  # what is offered takes longer than there is time
            self.timed_out = any(report.offers for report in reports) and not controller.settled
            if controller.settled:
                self.note = "ended early: only the search was left, and it has long found nothing better"
            return Directive(True)
        roots = {agent: value for report in reports for agent, value in report.roots.items()}
        thresholds = self._thresholds(dict(sorted(roots.items())))
        best = self.values if self.feasible else None
        return Directive(False, thresholds, grants, prune, best, self.bounded, self.combining)

    def _prunes(self, reports: Sequence[Report], grants: Sequence[Grant], left: float) -> bool:
        """Return whether rows that cannot matter are left out: where that may help, and there is time for it."""
        helps = any(report.relaxed for report in reports) and any(report.pruned for report in reports)
        again = any(grant.kind == COMBINE for grant in grants)  # which begins from the same tables
        wanted = helps and self.feasible and self.settings.combine.method == "auto" and not again
        return wanted and _PRUNING * self.combining <= _FOR_PRUNING * left

    def _state(self) -> State:
        """Return where the run stands."""
        now, objective = time.perf_counter(), self.outcome.objective
        left = float("inf") if self.deadline is None else self.deadline - now - self.combining
        utility = None if self.utility is None else float(self.utility)
        bound = None if self._bound is None else float(self._bound)
        goal = 0.0 if objective is None else self.settings.budget.gap * max(1.0, abs(float(objective)))
        return State(now - self.start, left, utility, bound, goal)

    def _thresholds(self, roots: Mapping[int, Number | None]) -> dict[int, Number | None]:
        """Return what each component must be worth: the best so far less what all others can be worth."""
        assert self.setup is not None
        total = total_of(roots, self.setup.arithmetic)
        if self.utility is None or total is None or self.setup.arithmetic.is_lowest(total):
            return dict.fromkeys(roots)
        # A row goes only if it is worse by more than the rounding of all the sums that say so.
        slack = 4 * self.setup.arithmetic.rounding(self.addends)
        return {a: self.utility - (total - value) - slack for a, value in roots.items() if value is not None}


def total_of(roots: Mapping[int, Number | None], arithmetic: Arithmetic) -> Number | None:
    """Return the sum of the roots' upper values, clamped; None where one has none."""
    total: Number = 0
    for value in roots.values():
        if value is None:
            return None
        if arithmetic.is_lowest(value):
            return arithmetic.lowest
        total += value
    return total


def title_of(incumbent: Incumbent, kinds: Sequence[str], left: float) -> str:
    """Return what a user wants to see while it works on; ``left`` in seconds."""
    if incumbent.worth is None:  # not rank 0
        return "improving"
    outcome = incumbent.outcome
    gap = outcome.gap
    known = "no bound yet" if gap is None else f"bound {outcome.bound}, gap {100 * gap:.3g} %"
    time_left = f", {max(0.0, left):.0f} s left" if left < float("inf") else ""
    return f"improving: {outcome.objective}, {known}{time_left} ({', '.join(kinds) or 'prune'})"
