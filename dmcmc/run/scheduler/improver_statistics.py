"""What each kind of work has taken and brought in this run: by it prices are corrected and hopes raised or lowered."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dmcmc.run.scheduler.proposal import (
    BOUND,
    BRANCH,
    BRANCH_AND_BOUND,
    COMBINE,
    ELIMINATE,
    FILTER,
    GPU_SEARCH,
    SAMPLE,
    SEARCH,
    SEMIDEFINITE,
    TOULBAR2,
    Brought,
)

# The part of what is at stake that a kind should bring if it had all of a slice, before it has been tried.
_FIRST_HOPES = {
    ELIMINATE: 1.0,
    FILTER: 1.0,
    COMBINE: 0.5,
    BOUND: 0.65,
    BRANCH: 0.65,
    SEMIDEFINITE: 0.65,
    SAMPLE: 0.25,
    SEARCH: 0.25,
    GPU_SEARCH: 0.25,
}
# Of the first hope is left to what has brought nothing lately: it is tried now and then. Where neither a bound nor the
# search brings anything, the search has most of the time.
_LEAST = {BOUND: 0.03, BRANCH: 0.03, SEMIDEFINITE: 0.03, SEARCH: 0.25}
_LEAST_ELSE = 0.15
# Times the hope of what still brings most, at most, is hoped of what has brought nothing lately; less for each slice
# that brought nothing at all: after n of them the next one does with a chance of about one in n.
_IDLE = {SEARCH: 0.25}
_IDLE_ELSE = 0.1
_LUCK = (SAMPLE, BOUND, GPU_SEARCH)  # beside a search in rows that brings something: no more hope than that where a
# slice has brought nothing, since that one goes on bringing a little less each time, and these end all at once
_SOME = 0.003  # of what is at stake, in all of a slice, is worth going on with
_BESIDE = (SEARCH, GPU_SEARCH, TOULBAR2, BRANCH_AND_BOUND)  # of all: what they find is told at once
_DECODED = (ELIMINATE, FILTER, SAMPLE, COMBINE)  # of tables from below: what is combined of them is theirs
_SURE = (ELIMINATE, FILTER)  # what an elimination closes, at its end, is no matter of luck
_WHOLE = (COMBINE, GPU_SEARCH)  # nothing shares their time with them
_NEW = 0.7  # weight of the last slice, as long as all before it
_MOST_TIMES = 10.0  # times what a part of a slice has brought is hoped of all of it, at most: little may be luck
_TRUST = 0.2  # seconds of work as estimated that a correction starts from
_MOST = 8.0  # times the estimate, either way
_ENGINES = (TOULBAR2, BRANCH_AND_BOUND)  # they bring what they bring, whatever is hoped


@dataclass
class Account:
    """What a kind has taken (seconds, summed over agents) and brought (utility)."""

    seconds: float = 0.0
    objective: float = 0.0
    bound: float = 0.0
    estimated: float = 0.0
    priced: float = 0.0  # seconds of what had an estimate


@dataclass
class Ledger:
    """What each kind of work has taken and brought.

    Attributes
    ----------
    accounts : dict of Account
        By kind, in the order of their first use.
    hopes : dict of float
        The part of what is at stake that a kind should bring if it had all of a slice: what it has lately brought a
        second. So time goes to what earns most with it, not to what has had most of it.
    last : dict of float
        The same of the last slice alone, of what has been tried.
    in_vain : dict of int
        How often, since it last brought anything, each has been tried.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    hopes: dict[str, float] = field(default_factory=lambda: dict(_FIRST_HOPES))
    last: dict[str, float] = field(default_factory=dict)
    in_vain: dict[str, int] = field(default_factory=dict)

    def price(self, kind: str, seconds: float) -> float:
        """Return an estimate, corrected by what the kind has taken so far against what it should have taken."""
        account = self.accounts.get(kind, Account())
        times = (account.priced + _TRUST) / (account.estimated + _TRUST)
        return seconds * min(_MOST, max(1 / _MOST, times))

    def enter(
        self,
        brought: Iterable[Brought],
        objective: float,
        bound: float,
        stake: float,
        seconds: float = 0.0,
        ranks: int = 1,
    ) -> None:
        """Take in what a slice of time has brought.

        Parameters
        ----------
        objective, bound
            How much better the best assignment and the bound are, utility. Each kind is given its part: of the
            objective what it has brought itself, and of the rest, which tables from below have brought, by seconds; of
            the bound by what it has closed.
        stake
            The gap before; 0 where that is not known: then hopes stay as they are.
        seconds, ranks
            How long the slice was, and how many ranks had so long for their agents; 0 where only what a kind has had
            itself is known.
        """
        parts = _by_kind(brought)
        rest = max(0.0, objective - sum(part.objective for part in parts.values()))
        decoding = {kind: part.seconds for kind, part in parts.items() if kind in _DECODED}
        if not any(decoding.values()):
            decoding = {kind: part.seconds for kind, part in parts.items() if kind not in _BESIDE}
        closing = {kind: part.closed for kind, part in parts.items()}
        raised, lowered = _split(rest, decoding), _split(bound, closing if any(closing.values()) else decoding)
        for kind, part in parts.items():
            account = self.accounts.setdefault(kind, Account())
            gained = part.objective + raised.get(kind, 0.0), lowered.get(kind, 0.0)
            account.seconds += part.seconds
            account.objective += gained[0]
            account.bound += gained[1]
            account.estimated += part.estimated
            account.priced += part.seconds if part.estimated > 0 else 0.0
            if stake > 0 and part.seconds > 0 and kind not in _ENGINES:
                whole = part.seconds if kind in _WHOLE else seconds if kind == SEARCH else seconds * ranks
                times = min(_MOST_TIMES, max(1.0, whole / part.seconds))
                self._learn(kind, times * sum(gained) / stake)

    def hope(self, kind: str, part: float) -> None:
        """Hope for a part of what is at stake from a kind; for no more than at first."""
        self.hopes[kind] = min(_FIRST_HOPES.get(kind, 1.0), part)

    def may_bring(self, kind: str) -> bool:
        """Return whether a kind has not been tried yet, or has lately brought something."""
        return self.last.get(kind, 1.0) >= _SOME

    def brings_less(self, kind: str, other: str) -> bool:
        """Return whether a kind has last brought less than another one; not before both have been tried."""
        return kind in self.last and other in self.last and self.last[kind] < self.last[other]

    def hopes_among(self, kinds: Iterable[str]) -> dict[str, float]:
        """Return the hopes where some kinds are offered: for a little at least, less beside what brings more."""
        tried = [kind for kind in kinds if kind not in _SURE and self.last.get(kind, 1.0) >= _SOME]
        most = max((self.hopes.get(kind, 0.0) for kind in tried), default=math.inf)
        idle = {kind: self._idle(kind) * most for kind in self.hopes}
        hopes = {kind: max(hope, min(_least(kind), idle[kind])) for kind, hope in self.hopes.items()}
        if BRANCH in tried and BRANCH in self.last:
            hopes |= {kind: min(hopes[kind], idle[kind]) for kind in _LUCK if self.last.get(kind, 1.0) < _SOME}
        return hopes

    def _idle(self, kind: str) -> float:
        """Return times the hope of what brings most a kind has at least."""
        return _IDLE.get(kind, _IDLE_ELSE) / max(1, self.in_vain.get(kind, 0))

    def _learn(self, kind: str, brought: float) -> None:
        if kind not in _SURE:
            self.in_vain[kind] = 0 if brought > 0 else self.in_vain.get(kind, 0) + 1
            self.last[kind] = min(1.0, brought)
            self.hopes[kind] = (1 - _NEW) * self.hopes.get(kind, 1.0) + _NEW * self.last[kind]


def _least(kind: str) -> float:
    """Return what is always hoped of a kind where nothing brings anything."""
    return _LEAST.get(kind, _LEAST_ELSE) * _FIRST_HOPES.get(kind, 1.0)


def lowered_by(brought: Iterable[Brought]) -> dict[str, float]:
    """Return the parts of kinds of work, 1 together, in how much lower agents' work has made the bound; most first.

    Of what is beside them each bound is told when it is proven. Nothing where no agent's part of the gap is less.
    """
    closed = {kind: part.closed for kind, part in _by_kind(brought).items() if kind not in _BESIDE}
    parts = _split(1.0, closed)
    return dict(sorted(parts.items(), key=lambda one: -one[1]))


def decoded_by(kinds: Iterable[str]) -> list[str]:
    """Return those of some kinds of work that an assignment comes of which is combined from tables; all if none."""
    kinds = list(dict.fromkeys(kinds))
    return [kind for kind in kinds if kind in _DECODED] or kinds


def _by_kind(brought: Iterable[Brought]) -> dict[str, Brought]:
    """Return the sums of what each kind has taken and brought."""
    numbers: dict[str, list[float]] = {}
    for one in brought:
        sums = numbers.get(one.kind)
        if sums is None:
            sums = numbers[one.kind] = [*Brought(one.kind, 0.0)[1:]]
        for place, number in enumerate(one[1:]):
            sums[place] += number
    return {kind: Brought(kind, *sums) for kind, sums in numbers.items()}


def _split(total: float, weights: Mapping[str, float]) -> dict[str, float]:
    """Return a total in parts, in proportion to weights."""
    positive = {kind: weight for kind, weight in weights.items() if weight > 0}
    whole = sum(positive.values())
    return {kind: total * weight / whole for kind, weight in positive.items()}
