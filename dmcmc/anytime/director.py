"""The director: what all ranks do after a combination in a run with a time budget, decided on rank 0.

After each cycle it records what the ranks report, and answers with a directive: to stop, or which improvers work for
how long (``Scheduler``), and whether rows that cannot be part of a better solution are removed. It also limits the next
combination: tables are made only as large as the time allows; ``RecombinationImprover`` may ask for larger ones if they
are worth their cost.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmcmc.anytime.scheduler.proposal import (
    Allocation,
    Directive,
    Effect,
    MeasuredGain,
    Proposal,
    RankReport,
    is_whole_problem,
)
from dmcmc.anytime.scheduler.scheduler import Scheduler, SchedulingState
from dmcmc.config.settings import Settings
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfMemory, OutOfTime, ResourceError
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.sparse_table import total_statistics
from dmcmc.results.result import RECOMBINATION
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.solving.coordinator import roots_of
from dmcmc.solving.incumbent import Incumbent, component_cutoffs, total_of
from dmcmc.solving.planning.combination_plan import relaxation_of
from dmcmc.tuning import run as tuning

if TYPE_CHECKING:
    pass


class Director:
    """Decides on rank 0 what follows a combination.

    Parameters
    ----------
    incumbent : Incumbent
        The best assignment and the best bound; it ends the run when it reaches the goal.
    scheduler : Scheduler
        It allocates the time of the improvers.
    """

    def __init__(self, incumbent: Incumbent, scheduler: Scheduler) -> None:
        self.incumbent, self.scheduler = incumbent, scheduler
        incumbent.improver_records = scheduler.credit.records
        self._has_tried_union = False  # whether there was work on the whole problem

    def decide(self, reports: Sequence[RankReport]) -> Directive:
        """Record what all ranks have proven, and return the directive of the next cycle.

        Parameters
        ----------
        reports
            Reports of all ranks. Their assignments have already been recorded.
        """
        incumbent, scheduler = self.incumbent, self.scheduler
        assert incumbent.setup is not None
        roots = roots_of(report.roots for report in reports)
        combined = total_of(roots, incumbent.setup.divided.arithmetic)
        incumbent.filtered = total_statistics([sizes for report in reports for sizes in report.filtered_sizes])
        gains = [gain for report in reports for gain in report.gains]
        incumbent.update_bound(combined, parts=scheduler.credit.shares_of_bound_gain(gains))
        proposals = [proposal for report in reports for proposal in report.proposals]
        awaits_union = not self._has_tried_union and any(is_whole_problem(proposal.agent) for proposal in proposals)
        state = self._state(float("inf") if awaits_union else combined)
        reached = incumbent.reached
        scheduler.record(state, gains)
        time_is_up = state.left <= 0 or any(report.stop_requested for report in reports)
        incumbent.timed_out = time_is_up and not reached
        if reached or time_is_up:
            return Directive(True)
        allocations = scheduler.decide(proposals)
        self._has_tried_union |= any(is_whole_problem(allocation.agent) for allocation in allocations)
        prune = self._should_prune(reports, allocations, state)
        if not allocations and not prune:  # every proposal takes longer than the time that is left
            incumbent.timed_out = bool(proposals) and not scheduler.converged
            if scheduler.converged:
                incumbent.note = (
                    "ended early: local search has found nothing better for a long time, and nothing else is left to do"
                )
            return Directive(True)
        cutoffs, best = component_cutoffs(incumbent, roots), incumbent.values if incumbent.feasible else None
        return Directive(
            False, cutoffs, allocations, prune, best, incumbent.bound is not None, incumbent.combination_seconds
        )

    def decide_on_whole_problem(
        self, proposals: Sequence[Proposal], gains: Sequence[MeasuredGain]
    ) -> tuple[Allocation, ...]:
        """Return the next work on the whole problem, while there are no tables of agents (rank 0)."""
        self.scheduler.record(self._state(None), gains)
        return self.scheduler.decide(proposals)

    def _should_prune(
        self, reports: Sequence[RankReport], allocations: Sequence[Allocation], state: SchedulingState
    ) -> bool:
        """Return whether to prune rows that cannot beat the incumbent: it may help, and there is time for it.

        A row is one assignment of an agent's boundary variables. Pruning may help if tables were split in the
        combination, the last pruning (if there was one) has removed rows, and the combination's bound is the best. It
        changes the tables, so it waits while a recombination starts from the last ones.
        """
        incumbent, effect_of = self.incumbent, self.scheduler.credit.effect_of
        can_help = any(report.relaxed for report in reports) and any(report.pruned for report in reports)
        recombines = any(Effect.LOWER_TABLES in effect_of(one.improver) for one in allocations if one.agent is None)
        can_help = can_help and incumbent.feasible and incumbent.settings.combine.method == "auto"
        has_time = sampler_tuning.PAYBACK_FACTOR * incumbent.combination_seconds <= state.left
        return can_help and has_time and not recombines and not state.lag

    def _state(self, combined: Number | None) -> SchedulingState:
        """Return the state of the run for the scheduler.

        ``combined`` is the encoded bound of the last combination, or inf while work on the whole problem is still to be
        tried.
        """
        incumbent, now = self.incumbent, time.perf_counter()
        objective, utility, bound = incumbent.outcome.objective, incumbent.utility, incumbent.bound
        left = float("inf") if incumbent.deadline is None else incumbent.deadline - now - incumbent.combination_seconds
        goal = 0.0 if objective is None else incumbent.settings.budget.gap * max(1.0, abs(float(objective)))
        lag = 0.0 if combined is None or bound is None else max(0.0, float(combined) - float(bound))
        return SchedulingState(
            now - incumbent.start,
            left,
            None if utility is None else float(utility),
            None if bound is None else float(bound),
            goal,
            lag,
        )


def title_of(incumbent: Incumbent, improvers: Sequence[str], left: float) -> str:
    """Return the progress title of an improvement cycle; ``left`` is the remaining time in seconds."""
    if incumbent.quality is None:  # not rank 0
        return "improving"
    outcome = incumbent.outcome
    gap = outcome.gap
    bound_text = "no bound yet" if gap is None else f"bound {outcome.bound}, gap {100 * gap:.3g} %"
    time_left = f", {max(0.0, left):.0f} s left" if left < float("inf") else ""
    return f"improving: {outcome.objective}, {bound_text}{time_left} ({', '.join(improvers) or 'prune'})"


class CombinationLimits:
    """The table size and the deadline of the next combination.

    An enlargement goes through these states: ``enlarge`` raises ``size_factor`` and sets ``enlarged_seconds``; the next
    combination is either completed (``finish``) or given up (``undo_enlargement``, which also excludes that size for
    the rest of the run). Both set ``enlarged_seconds`` to None.

    Attributes
    ----------
    size_factor : float
        Table size in the next combination, relative to the size that the time budget allows.
    enlarged_seconds : float or None
        Estimated seconds of the next combination if it is repeated with larger tables; None otherwise.
    """

    def __init__(self) -> None:
        self.size_factor, self._excluded_factor = 1.0, float("inf")
        self.enlarged_seconds: float | None = None

    def deadline(self, stop: Deadline, budget: float, start_time: float, previous_seconds: float) -> Deadline:
        """Return the deadline of a combination: that of the run, plus half a second and a small delay.

        The delay is the seconds of the previous combination, but at most 2 % of the time budget. A combination with
        larger tables is also given up after four times its estimated seconds (or half a second, if that is more).

        Parameters
        ----------
        stop, budget
            The deadline of the run, and its time budget in seconds.
        start_time
            Time at which the combination starts (``time.perf_counter``).
        previous_seconds
            Seconds that the previous combination took.
        """
        delay = min(previous_seconds, sampler_tuning.UNNOTICED_SHARE * budget)
        stop = stop.later(sampler_tuning.GRACE_SECONDS, extension=delay)
        return (
            stop
            if self.enlarged_seconds is None
            else stop.by(
                start_time + tuning.TABLE_GROWTH_FACTOR * max(sampler_tuning.GRACE_SECONDS, self.enlarged_seconds)
            )
        )

    def finish(self, seconds: float) -> list[MeasuredGain]:
        """End a completed combination; return its cost as a measured gain if it was made for larger tables."""
        estimated, self.enlarged_seconds = self.enlarged_seconds, None
        return [] if estimated is None else [MeasuredGain(RECOMBINATION, seconds, estimated)]

    def undo_enlargement(self, seconds: float) -> MeasuredGain:
        """Return to the table size of the last combination, because larger tables took too much time or memory."""
        assert self.enlarged_seconds is not None
        gain = MeasuredGain(RECOMBINATION, seconds, self.enlarged_seconds)
        self.size_factor, self.enlarged_seconds, self._excluded_factor = (
            self.size_factor / tuning.TABLE_GROWTH_FACTOR,
            None,
            self.size_factor,
        )
        return gain

    def enlarge(self, seconds: float) -> None:
        """Let the next combination have larger tables; it is estimated to take some seconds."""
        self.size_factor, self.enlarged_seconds = tuning.TABLE_GROWTH_FACTOR * self.size_factor, seconds

    @property
    def may_enlarge(self) -> bool:
        """Whether larger tables have not failed yet."""
        return tuning.TABLE_GROWTH_FACTOR * self.size_factor < self._excluded_factor


def may_end_with_incumbent(settings: Settings, error: ResourceError) -> bool:
    """Return whether the run may end with the incumbent if its first combination fails; not if a fixed z was asked for.

    Tables that do not fit the memory are an error in a run without time budget: more time would not help.
    """
    relaxation = relaxation_of(settings.combine)
    z_is_free = relaxation.chooses_z or (settings.budget.time is not None and relaxation.z is None)
    return isinstance(error, OutOfTime | OutOfMemory) or z_is_free
