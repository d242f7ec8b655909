"""Decide, on rank 0 after every cycle, which of the proposed work all ranks do in the next time slice.

``Incumbent.direct`` calls :meth:`Scheduler.record` and then :meth:`Scheduler.decide`. A *cycle* is one combination
of all agents' tables; a *slice* is the time between two cycles. A *gain rate* is the part of the optimality gap
that an improver is expected to close in a whole slice. Numeric constants without a reason are heuristic values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dmcmc.run.scheduler.improver_statistics import ImproverRecord, ImproverStatistics
from dmcmc.run.scheduler.proposal import (
    BOUND,
    BRANCH,
    EXTERNAL_SEARCH,
    FUNCTION_FILTERING,
    GPU_CHAINS,
    LOCAL_SEARCH,
    RECOMBINATION,
    SAMPLING,
    SEMIDEFINITE,
    Allocation,
    MeasuredGain,
    Proposal,
    is_union,
)
from dmcmc.run.scheduler.time_allocation import SliceBudget, allocate_slice
from dmcmc.run.scheduler.time_quanta import DeferredQuanta

_MIN_SLICE_SECONDS = 0.25  # seconds between two cycles, at least
# Largest part of the whole time for a slice, so that an improver that stops gaining is noticed at the end of a slice.
_MAX_SLICE_PART = 0.1
_DOMINANT_PART = 0.8  # part of the sum of all expected rates; a branch and bound with at least that has longer slices
_DOMINANT_SLICE_FACTOR = 2.0  # factor of the length of those slices
_AWAITED_SLICE_PART = 0.025  # part of the whole time that a slice may take while other work waits for its outcome
_NEARLY_CLOSED_GAP = 1e-3  # gap relative to the objective: at or below it the rest is proven, not searched for
_NEARLY_CLOSED_MIN_RATE = 0.3  # least expected rate of upper-bound improvers at such a gap
# Largest rates of other improvers, relative to the rate of per-row semidefinite relaxations.
_MAX_RATES_WITH_PER_ROW = {SAMPLING: 0.01, LOCAL_SEARCH: 0.05}
_LAST_SLICE_FACTOR = 1.5  # If less time is left than this number of slices, it becomes one slice.
_MIN_SPLIT_PART = 0.1  # least part of the gap that is attributed to tables split in the combination
_PATIENCE_SECONDS = 10.0  # seconds without improvement after which a local search ends that is the only work left
_PATIENCE_FACTOR = 10.0  # the same as a multiple of the seconds until the incumbent was found, whichever is longer
_OPEN_GAP_FACTOR = 10.0  # factor of the seconds above while a bound shows that the incumbent may not be optimal
# What function filtering can remove depends on the incumbent: until the local search has had a part of the whole time,
# it gets a fixed part of each slice in addition to function filtering.
_MIN_SEARCHED_PART = 0.1  # part of the whole time
_SEARCH_PART_WITH_FILTERING = 0.3  # part of each slice
_RATES_WITHOUT_SOLUTION = {
    SAMPLING: 0.4,
    LOCAL_SEARCH: 0.4,
    BOUND: 0.2,
}  # expected rates while hard constraints are violated


class SchedulingState(NamedTuple):
    """The state of a run after a cycle.

    Attributes
    ----------
    elapsed, left : float
        Seconds since the start, and until the end of the run less those of the next combination.
    utility : float or None
        Utility of the incumbent; None while it violates hard constraints.
    bound : float or None
        The best proven upper bound on the utility.
    allowed_gap : float
        Utility. The optimality gap at which the run may end.
    """

    elapsed: float
    left: float
    utility: float | None = None
    bound: float | None = None
    allowed_gap: float = 0.0

    @property
    def gap(self) -> float:
        """The optimality gap, utility; inf if it is not known."""
        return math.inf if self.utility is None or self.bound is None else max(0.0, self.bound - self.utility)

    @property
    def nearly_closed(self) -> bool:
        """Whether the gap is positive but tiny relative to the objective."""
        return self.utility is not None and 0 < self.gap <= _NEARLY_CLOSED_GAP * abs(self.utility)


@dataclass
class Scheduler:
    """The scheduler: it allocates time to improvers and keeps statistics of their gains.

    After each cycle, ``record`` has to be called once before ``decide``.

    Attributes
    ----------
    owner : sequence of int
        The rank of each agent, and of each part of the union of all agents (``ranks_of_work``).
    statistics : ImproverStatistics
        Costs and gains of all improvers so far.
    proposals : tuple of Proposal
        The last proposals, with corrected costs.
    search_converged : bool
        Whether only the local search is left, and it has found nothing better for so long that the run ends early.
        Updated by each call of ``decide`` in which no other work gets time.
    """

    owner: Sequence[int]
    statistics: ImproverStatistics = field(default_factory=ImproverStatistics)
    proposals: tuple[Proposal, ...] = ()
    search_converged: bool = False
    _deferred: DeferredQuanta = field(default_factory=DeferredQuanta)
    _found_at: float = 0.0  # seconds after the start at which the incumbent was found
    _last_state: SchedulingState | None = None

    def record(self, state: SchedulingState, gains: Sequence[MeasuredGain]) -> None:
        """Record the state of the run, and the costs and gains since the last call.

        When the gap becomes known, the local search has already run during the work that proved it. Its expected rate
        is then set to the part of the gap that it has gained in that time.
        """
        search_gain, has_last = (
            sum(gain.objective_gain for gain in gains if gain.improver == LOCAL_SEARCH),
            self._last_state is not None,
        )
        last, self._last_state = self._last_state or SchedulingState(0.0, 0.0), state
        objective = 0.0 if state.utility is None or last.utility is None else max(0.0, state.utility - last.utility)
        bound = 0.0 if state.bound is None or last.bound is None else max(0.0, last.bound - state.bound)
        if objective > 0 or (state.utility is not None and last.utility is None):
            self._found_at = state.elapsed
        last_gap, seconds = last.gap if math.isfinite(last.gap) else 0.0, state.elapsed - last.elapsed
        self.statistics.record(gains, objective, bound, last_gap, seconds, len(set(self.owner)))
        if not has_last and 0 < state.gap < math.inf and any(gain.improver == LOCAL_SEARCH for gain in gains):
            self.statistics.limit_rate(LOCAL_SEARCH, search_gain / state.gap)

    def decide(self, proposals: Sequence[Proposal]) -> tuple[Allocation, ...]:
        """Allocate the next time slice; return nothing if no work can gain anything, or the time is up.

        By default a slice is as long as all earlier ones together: one long effort gains more than several short ones,
        because dual ascent starts anew in each slice. Branch and bound over boundary assignments and per-row
        semidefinite relaxations continue where they stopped. Until they have been tried, and while they gain something,
        a slice takes at most a tenth of the whole time; twice as much if hardly anything but branch and bound gains.
        Slices are shorter still while semidefinite relaxations wait for the outcome of a branch and bound.

        An external search runs in the background of all other work; the run waits for it if there is no other work. GPU
        chains also run in the background, for a part of the slice in proportion to their expected gain.
        """
        state = self._last_state
        assert state is not None, "record has to be called before decide"
        if not proposals:
            self.proposals, self.search_converged = (), False
            return ()
        rates = self._rates(proposals, state)
        competing = self._without_duplicate_bounds(
            [proposal for proposal in proposals if proposal.improver not in (EXTERNAL_SEARCH, GPU_CHAINS)], state
        )
        seconds = self._slice_seconds(competing, state, rates)
        allocations = self._allocated(competing, state, seconds)
        if allocations and any(proposal.improver == GPU_CHAINS for proposal in proposals):
            best_rate = max(
                (rates.get(a.improver, 1.0) for a in allocations if a.improver != LOCAL_SEARCH), default=0.0
            )
            gpu_share = rates[GPU_CHAINS] / (rates[GPU_CHAINS] + best_rate)
            allocations = (*allocations, Allocation(GPU_CHAINS, None, gpu_share * min(state.left, seconds)))
        if any(proposal.improver == EXTERNAL_SEARCH for proposal in proposals):
            return (*allocations, Allocation(EXTERNAL_SEARCH, None, 0.0 if allocations else state.left))
        return allocations

    def _per_row_agents(self, proposals: Sequence[Proposal]) -> set[int | None]:
        """Return the agents whose per-row semidefinite relaxations may still gain something."""
        agents = {proposal.agent for proposal in proposals if proposal.resumable and proposal.improver == SEMIDEFINITE}
        return agents if self.statistics.may_gain(SEMIDEFINITE) else set()

    def _without_duplicate_bounds(self, proposals: Sequence[Proposal], state: SchedulingState) -> list[Proposal]:
        """Return the proposals without bounds that another method for the same agent makes redundant.

        Branch and bound and a semidefinite relaxation of an agent lower the bounds of the same rows, and neither uses
        the other's progress: only the one that gained more in its last slice is kept, or one that has not been tried.
        With per-row relaxations that gain, branch and bound and dual ascent are left out. If the gap is nearly closed,
        all of them may close the rest.
        """
        if state.nearly_closed:
            return list(proposals)
        relaxed, branched = (
            {proposal.agent for proposal in proposals if proposal.improver == improver}
            for improver in (SEMIDEFINITE, BRANCH)
        )
        per_row = self._per_row_agents(proposals)
        rates = {**self.statistics.expected_rates, **self.statistics.last_rates}
        weaker = SEMIDEFINITE if rates[SEMIDEFINITE] < rates[BRANCH] else BRANCH
        left_out = {BRANCH: per_row, BOUND: per_row}
        left_out[weaker] = left_out.get(weaker, set()) | (relaxed & branched) - per_row
        return [proposal for proposal in proposals if proposal.agent not in left_out.get(proposal.improver, ())]

    def _rates(self, proposals: Sequence[Proposal], state: SchedulingState) -> dict[str, float]:
        """Return the expected gain rate of each improver.

        With per-row semidefinite relaxations, sampling and the local search have small rates if they gained less in
        their last slices, or the relaxations have not been tried. If the gap is nearly closed, upper-bound improvers
        have at least a fixed rate.
        """
        rates = self.statistics.rates_among({proposal.improver for proposal in proposals})
        if self._per_row_agents(proposals):
            untried = SEMIDEFINITE not in self.statistics.last_rates
            limited = [
                improver
                for improver in _MAX_RATES_WITH_PER_ROW
                if untried or self.statistics.gained_less(improver, SEMIDEFINITE)
            ]
            rates |= {
                improver: min(rates[improver], _MAX_RATES_WITH_PER_ROW[improver] * rates[SEMIDEFINITE])
                for improver in limited
            }
        if state.utility is None:
            return rates | _RATES_WITHOUT_SOLUTION
        if state.nearly_closed:
            rates |= {improver: max(rates[improver], _NEARLY_CLOSED_MIN_RATE) for improver in (BOUND, BRANCH)}
        return rates

    def _slice_seconds(
        self, proposals: Sequence[Proposal], state: SchedulingState, rates: Mapping[str, float]
    ) -> float:
        """Return the length of a slice in seconds, unless little time is left.

        By default it is the elapsed time, at least 0.25 seconds. It is at most 1/40 of the whole time if other work
        waits for the outcome of proposed work, and at most 1/10 (1/5 for a dominant branch and bound) if per-row
        relaxations or branch and bound may gain something.
        """
        default, improvers = max(_MIN_SLICE_SECONDS, state.elapsed), {proposal.improver for proposal in proposals}
        if any(proposal.awaited for proposal in proposals):
            return min(default, max(_MIN_SLICE_SECONDS, _AWAITED_SLICE_PART * (state.elapsed + state.left)))
        resumable = any(proposal.resumable for proposal in proposals)
        if SEMIDEFINITE in improvers and not resumable and SEMIDEFINITE not in self.statistics.last_rates:
            return default
        if not (resumable or (BRANCH in improvers and self.statistics.may_gain(BRANCH))):
            return default
        dominant = BRANCH in improvers and rates[BRANCH] >= _DOMINANT_PART * sum(
            rates.get(improver, 0.0) for improver in improvers
        )
        return min(
            default,
            max(
                _MIN_SLICE_SECONDS,
                (_DOMINANT_SLICE_FACTOR if dominant else 1.0) * _MAX_SLICE_PART * (state.elapsed + state.left),
            ),
        )

    def _allocated(
        self, proposals: Sequence[Proposal], state: SchedulingState, seconds: float
    ) -> tuple[Allocation, ...]:
        """Allocate a slice of some seconds, or all remaining seconds, to the work of the ranks themselves."""
        default, rates = max(_MIN_SLICE_SECONDS, state.elapsed), self._rates(proposals, state)
        seconds = state.left if state.left < _LAST_SLICE_FACTOR * seconds else seconds
        needed_part = 1.0
        if 0 < state.gap < math.inf:
            needed_part = max(0.0, state.gap - state.allowed_gap) / state.gap
        agent_gains: dict[int, float] = {}
        for proposal in proposals:
            if proposal.agent is not None and not is_union(proposal.agent):
                agent_gains[proposal.agent] = max(proposal.gain, agent_gains.get(proposal.agent, 0.0))
        split_gain = state.gap
        if math.isfinite(state.gap):
            split_gain = max(_MIN_SPLIT_PART * state.gap, state.gap - sum(agent_gains.values()))
        self.proposals = tuple(self._corrected(proposal, state, split_gain) for proposal in proposals)
        search_part = _SEARCH_PART_WITH_FILTERING if self._has_searched_too_little(proposals, state) else 0.0
        allocations = allocate_slice(
            self.proposals,
            self.owner,
            rates,
            SliceBudget(seconds, state.left, needed_part, state.gap, search_part, default),
        )
        allocations = self._deferred.defer_short(allocations, self.owner, seconds)
        return (
            self._limit_lone_search(allocations, state)
            if all(allocation.improver == LOCAL_SEARCH for allocation in allocations)
            else allocations
        )

    def _has_searched_too_little(self, proposals: Sequence[Proposal], state: SchedulingState) -> bool:
        """Return whether the local search should continue before function filtering gets most of the time."""
        searched = self.statistics.records.get(LOCAL_SEARCH, ImproverRecord()).seconds
        filtering = any(proposal.improver == FUNCTION_FILTERING for proposal in proposals)
        return filtering and searched < _MIN_SEARCHED_PART * (state.elapsed + state.left)

    def _limit_lone_search(self, allocations: tuple[Allocation, ...], state: SchedulingState) -> tuple[Allocation, ...]:
        """Limit the seconds of a local search that is the only work left; return nothing if it has converged.

        It runs longer while an upper bound shows that there may be a better assignment.
        """
        factor = _OPEN_GAP_FACTOR if state.bound is not None else 1.0
        left = max(factor * _PATIENCE_SECONDS, _PATIENCE_FACTOR * self._found_at) - (state.elapsed - self._found_at)
        self.search_converged = bool(allocations) and left <= 0 and state.utility is not None
        if self.search_converged:
            return ()
        return tuple(
            allocation._replace(seconds=min(allocation.seconds, max(left, _MIN_SLICE_SECONDS)))
            for allocation in allocations
        )

    def _corrected(self, proposal: Proposal, state: SchedulingState, split_gain: float) -> Proposal:
        """Return a proposal with its cost corrected by this run's statistics, and a gain of at most the gap.

        ``split_gain`` is the part of the gap that belongs to no agent: it arises from tables split in the combination,
        and is the gain of a recombination.
        """
        seconds = (
            None if proposal.seconds is None else self.statistics.corrected_cost(proposal.improver, proposal.seconds)
        )
        if proposal.improver == RECOMBINATION:
            return replace(proposal, seconds=seconds, gain=split_gain)
        known = math.isfinite(proposal.gain) or proposal.agent is None
        return replace(proposal, seconds=seconds, gain=min(proposal.gain, state.gap) if known else proposal.gain)
