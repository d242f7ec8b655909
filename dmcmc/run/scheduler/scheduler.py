"""The controller (for rank 0): asked after every cycle, it divides the next slice of time among all that is offered."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dmcmc.run.scheduler.improver_statistics import Account, Ledger
from dmcmc.run.scheduler.proposal import (
    BESIDE,
    BOUND,
    BRANCH,
    COMBINE,
    FILTER,
    GPU_SEARCH,
    SAMPLE,
    SEARCH,
    SEMIDEFINITE,
    Brought,
    Grant,
    Offer,
)
from dmcmc.run.scheduler.time_allocation import Time, divide_slice
from dmcmc.run.scheduler.time_quanta import Turns

_SLICE = 0.25  # seconds between two cycles, at least
_LONGEST = 0.1  # of all the time: what brings nothing any more is found out at the end of a slice
_CLEAR, _LONGER = 0.8, 2.0  # of all hope is a search in rows': slices are so many times as long then
_TOLD = 0.025  # of all the time, as long as other work waits for what is shown
_NARROW, _PROOF = 1e-3, 0.3  # of the objective is a gap that is rather proven than closed; least hope of bounds then
_BESIDE_LIFTS = {SAMPLE: 0.01, SEARCH: 0.05}  # of what is hoped of lifts with squares of rows' own is hoped, at most
_LAST = 1.5  # slices: less is one slice
_OF_SPLITS = 0.1  # of the gap is at least what splitting tables in the combination is taken for
_PATIENCE, _TIMES = 10.0, 10.0  # seconds, and times what the best took to be found: so long a search alone goes on
_OPEN = 10.0  # times so many seconds where a gap is open
# What a filter can drop hangs on the best assignment: as long as the search has had less than a part of the time, it
# has a part of each slice beside a filter.
_FOR_FILTERS, _BESIDE_FILTERS = 0.1, 0.3
_WITHOUT_ANSWER = {SAMPLE: 0.4, SEARCH: 0.4, BOUND: 0.2}  # hopes as long as hard constraints are broken


class State(NamedTuple):
    """Where a run stands after a cycle.

    Attributes
    ----------
    elapsed, left : float
        Seconds since the start, and until the end less what combining takes.
    utility : float or None
        What the best assignment is worth; None while it breaks hard constraints.
    bound : float or None
        The best proven one on that.
    goal : float
        The gap that is allowed, utility.
    """

    elapsed: float
    left: float
    utility: float | None = None
    bound: float | None = None
    goal: float = 0.0

    @property
    def gap(self) -> float:
        """What is open; inf where that is not known."""
        return math.inf if self.utility is None or self.bound is None else max(0.0, self.bound - self.utility)

    @property
    def narrow(self) -> bool:
        """Whether next to nothing is open."""
        return self.utility is not None and 0 < self.gap <= _NARROW * abs(self.utility)


@dataclass
class Controller:
    """Decides what is done next, and keeps account of what that has brought.

    Attributes
    ----------
    owner : sequence of int
        The rank of each agent.
    ledger : Ledger
    offered : tuple of Offer
        What was last offered, with corrected prices.
    settled : bool
        Whether the search, alone, has found nothing better for so long that the run ends before its time.
    """

    owner: Sequence[int]
    ledger: Ledger = field(default_factory=Ledger)
    offered: tuple[Offer, ...] = ()
    settled: bool = False
    _turns: Turns = field(default_factory=Turns)
    _found: float = 0.0  # seconds after which the best assignment was there
    _last: State | None = None

    def enter(self, state: State, brought: Sequence[Brought]) -> None:
        """Take in where the run stands, and what was done since it was last asked.

        When the gap is first known, a search has been going on beside what it comes from: it may hope for as much more.
        """
        searched, known = sum(one.objective for one in brought if one.kind == SEARCH), self._last is not None
        last, self._last = self._last or State(0.0, 0.0), state
        objective = 0.0 if state.utility is None or last.utility is None else max(0.0, state.utility - last.utility)
        bound = 0.0 if state.bound is None or last.bound is None else max(0.0, last.bound - state.bound)
        if objective > 0 or (state.utility is not None and last.utility is None):
            self._found = state.elapsed
        stake, seconds = last.gap if math.isfinite(last.gap) else 0.0, state.elapsed - last.elapsed
        self.ledger.enter(brought, objective, bound, stake, seconds, len(set(self.owner)))
        if not known and 0 < state.gap < math.inf and any(one.kind == SEARCH for one in brought):
            self.ledger.hope(SEARCH, searched / state.gap)

    def decide(self, offers: Sequence[Offer]) -> tuple[Grant, ...]:
        """Return what is done in the next slice of time; nothing where nothing is worth anything, or time is up.

        Each slice is as long as all before it: one long effort gains more than several short ones, as bounds of rows
        begin anew in each. A search in rows goes on where it was: before it has been tried, and while it brings
        something, a slice is a tenth of the time at most, twice as long where hardly anything else does. So do lifts
        that have squares of rows' own; others want long slices. As long as lifts wait for what a search in rows shows,
        slices are shorter than that.

        A search engine goes on beside what is done; where that is nothing, the run waits for it. So does a search on
        the GPU, for a part of the slice by what it may be hoped to bring beside all else.
        """
        state = self._last
        assert state is not None, "enter comes first"
        if not offers:
            self.offered, self.settled = (), False
            return ()
        hopes = self._hopes(offers, state)
        own = self._left_by_lifts([offer for offer in offers if offer.kind not in (BESIDE, GPU_SEARCH)], state)
        seconds = self._slice(own, state, hopes)
        grants = self._divided(own, state, seconds)
        if grants and any(offer.kind == GPU_SEARCH for offer in offers):
            others = max((hopes.get(g.kind, 1.0) for g in grants if g.kind != SEARCH), default=0.0)
            share = hopes[GPU_SEARCH] / (hopes[GPU_SEARCH] + others)
            grants = (*grants, Grant(GPU_SEARCH, None, share * min(state.left, seconds)))
        if any(offer.kind == BESIDE for offer in offers):
            return (*grants, Grant(BESIDE, None, 0.0 if grants else state.left))
        return grants

    def _lifted(self, offers: Sequence[Offer]) -> set[int | None]:
        """Return whose lifts have squares of rows' own, as long as those may bring something."""
        lifted = {offer.agent for offer in offers if offer.steady and offer.kind == SEMIDEFINITE}
        return lifted if self.ledger.may_bring(SEMIDEFINITE) else set()

    def _left_by_lifts(self, offers: Sequence[Offer], state: State) -> list[Offer]:
        """Return offers without search in rows that are lifted, nor ascent where they have squares of their own.

        They lower the same rows, and what one of them has done is of no use to the others; a search in rows of agents
        that lifts suit comes less far in its time. Where next to nothing is open, all may do what is left.
        """
        if state.narrow or not self.ledger.may_bring(SEMIDEFINITE):
            return list(offers)
        lifted = {offer.agent for offer in offers if offer.kind == SEMIDEFINITE}
        left = {BRANCH: lifted, BOUND: self._lifted(offers)}
        return [offer for offer in offers if offer.agent not in left.get(offer.kind, ())]

    def _hopes(self, offers: Sequence[Offer], state: State) -> dict[str, float]:
        """Return what is hoped of each kind; of bounds at least so much where next to nothing is open.

        Beside lifts with squares of rows' own little is hoped of sampling and the search where those have last brought
        less, or lifts have not been tried.
        """
        hopes = self.ledger.hopes_among({offer.kind for offer in offers})
        if self._lifted(offers):
            new = SEMIDEFINITE not in self.ledger.last
            less = [kind for kind in _BESIDE_LIFTS if new or self.ledger.brings_less(kind, SEMIDEFINITE)]
            hopes |= {kind: min(hopes[kind], _BESIDE_LIFTS[kind] * hopes[SEMIDEFINITE]) for kind in less}
        if state.utility is None:
            return hopes | _WITHOUT_ANSWER
        if state.narrow:
            hopes |= {kind: max(hopes[kind], _PROOF) for kind in (BOUND, BRANCH)}
        return hopes

    def _slice(self, offers: Sequence[Offer], state: State, hopes: Mapping[str, float]) -> float:
        """Return how long a slice is, unless little is left."""
        whole, kinds = max(_SLICE, state.elapsed), {offer.kind for offer in offers}
        if any(offer.tells for offer in offers):
            return min(whole, max(_SLICE, _TOLD * (state.elapsed + state.left)))
        steady = any(offer.steady for offer in offers)
        if SEMIDEFINITE in kinds and not steady:
            return whole
        if not (steady or (BRANCH in kinds and self.ledger.may_bring(BRANCH))):
            return whole
        clear = BRANCH in kinds and hopes[BRANCH] >= _CLEAR * sum(hopes.get(kind, 0.0) for kind in kinds)
        return min(whole, max(_SLICE, (_LONGER if clear else 1.0) * _LONGEST * (state.elapsed + state.left)))

    def _divided(self, offers: Sequence[Offer], state: State, seconds: float) -> tuple[Grant, ...]:
        """Return what is done by the ranks themselves in a slice of so many seconds, or in all that are left."""
        whole, hopes = max(_SLICE, state.elapsed), self._hopes(offers, state)
        seconds = state.left if state.left < _LAST * seconds else seconds
        needed = 1.0
        if 0 < state.gap < math.inf:
            needed = max(0.0, state.gap - state.goal) / state.gap
        of_agents: dict[int, float] = {}
        for offer in offers:
            if offer.agent is not None:
                of_agents[offer.agent] = max(offer.gain, of_agents.get(offer.agent, 0.0))
        others = state.gap
        if math.isfinite(state.gap):
            others = max(_OF_SPLITS * state.gap, state.gap - sum(of_agents.values()))
        self.offered = tuple(self._corrected(offer, state, others) for offer in offers)
        search = _BESIDE_FILTERS if self._has_searched_too_little(offers, state) else 0.0
        grants = divide_slice(
            self.offered, self.owner, hopes, Time(seconds, state.left, needed, state.gap, search, whole)
        )
        grants = self._turns.gather(grants, self.owner, seconds)
        return self._patient(grants, state) if all(grant.kind == SEARCH for grant in grants) else grants

    def _has_searched_too_little(self, offers: Sequence[Offer], state: State) -> bool:
        """Return whether the search should go on before a filter has most of the time."""
        searched = self.ledger.accounts.get(SEARCH, Account()).seconds
        filters = any(offer.kind == FILTER for offer in offers)
        return filters and searched < _FOR_FILTERS * (state.elapsed + state.left)

    def _patient(self, grants: tuple[Grant, ...], state: State) -> tuple[Grant, ...]:
        """Return what a search is granted that is all there is to do: no more than it is worth waiting for.

        Longer where a bound says that there may be something better.
        """
        more = _OPEN if state.bound is not None else 1.0
        left = max(more * _PATIENCE, _TIMES * self._found) - (state.elapsed - self._found)
        self.settled = bool(grants) and left <= 0 and state.utility is not None
        if self.settled:
            return ()
        return tuple(grant._replace(seconds=min(grant.seconds, max(left, _SLICE))) for grant in grants)

    def _corrected(self, offer: Offer, state: State, others: float) -> Offer:
        """Return an offer with its price as this run has it, and a gain no larger than what is open.

        What is no agent's part of the gap is what combining can close.
        """
        seconds = None if offer.seconds is None else self.ledger.price(offer.kind, offer.seconds)
        if offer.kind == COMBINE:
            return replace(offer, seconds=seconds, gain=others)
        known = math.isfinite(offer.gain) or offer.agent is None
        return replace(offer, seconds=seconds, gain=min(offer.gain, state.gap) if known else offer.gain)
