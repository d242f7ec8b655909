"""Dividing a slice of time among offers: a pure function, so that it can be tried on made-up numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dmcmc.run.scheduler.proposal import COMBINE, SEARCH, Grant, Offer

_COMFORT = 0.8  # of the time that is left may go to eliminations that would end the run
_LEAST = 0.01  # seconds that are worth granting
_SIDELINE = 0.1  # of a slice goes to the search while eliminations end the run
_MOST_SEARCH = 0.7  # of a slice goes to the search while there is other work


@dataclass(frozen=True)
class Time:
    """The time that can be divided.

    Attributes
    ----------
    slice : float
        Seconds until the next cycle, at least.
    left : float
        Seconds in all, less what combining takes.
    needed : float
        The part of the gap that has to be closed: all of it, or less where a gap is allowed.
    gap : float
        The whole gap, utility; inf where it is not known.
    search : float
        The part of a slice that the search has at least, unless eliminations end the run.
    ending : float
        Seconds of a slice in which eliminations end the run, if those are more.
    """

    slice: float
    left: float
    needed: float = 1.0
    gap: float = math.inf
    search: float = 0.0
    ending: float = 0.0


class _Rank(NamedTuple):
    """One rank's offers: those with a price, and those that take any seconds."""

    priced: list[Offer]
    others: list[Offer]


def divide_slice(
    offers: Sequence[Offer], owner: Sequence[int], hopes: Mapping[str, float], time: Time
) -> tuple[Grant, ...]:
    """Choose what is done until the next cycle.

    Offers with a price are taken by what they gain a second. Where all of them together fit what is left, and nothing
    else would be done sooner, there is nothing to weigh: they end the run. Else each has to gain more a second than
    the work on its rank that takes any seconds, which has the rest of the slice, divided by expected gains. One that
    is longer than the slice is taken alone where nothing on its rank gains more a second: the slice is as long as that.
    To combine again is done by itself: it is over or given up before tables are others.

    Parameters
    ----------
    offers
        With prices corrected; the order does not matter for what is done.
    owner
        The rank of each agent.
    hopes
        The part of its gain that each kind should bring if it had all of a slice.

    Returns
    -------
    tuple of Grant
        Empty where nothing is worth anything.
    """
    offers = [offer for offer in _known(offers, time) if offer.gain > 0 and (offer.seconds or 0.0) <= time.left]
    if time.left <= 0 or not offers:
        return ()
    ranks = _by_rank(offers, owner)
    searching = [offer for offer in offers if offer.kind == SEARCH]
    again = sorted((offer for offer in offers if offer.kind == COMBINE), key=lambda offer: -(offer.seconds or 0.0))
    ending = not again and _ends(ranks, hopes, time)
    length = max(_length(rank, hopes, time, ending) for rank in ranks) if ranks else time.slice
    length = min(max(length, time.ending) if ending else length, time.left)
    last = ending and all(_price_of(rank) <= length for rank in ranks)
    share = 0.0 if last else _search_share(searching, ranks, hopes, ending, time)
    if again and _worth_again(again[0], ranks, hopes, time):
        return (Grant(COMBINE, None, again[0].seconds or 0.0),)
    busiest, grants = 0.0, list[Grant]()
    for rank in ranks:
        own = _divide_rank(rank, hopes, time, length, share, ending)
        busiest = max(busiest, sum(grant.seconds for grant in own))
        grants += own
    seconds = min(share * length, time.left - busiest)
    if searching and seconds >= _LEAST:
        grants.append(Grant(SEARCH, None, seconds))
    return tuple(grants)


def _known(offers: Sequence[Offer], time: Time) -> list[Offer]:
    """Return the same with numbers for gains that are not known: then agents have parts of the gap by their weights.

    So they have where the gap is no agent's: a combination that is split hides what closes it.
    """
    if not math.isfinite(time.gap):
        return [replace(offer, gain=offer.weight if offer.gain > 0 else 0.0) for offer in offers]
    gains = [offer.gain for offer in offers if offer.agent is not None]
    if any(gains) and all(map(math.isfinite, gains)):
        return list(offers)
    weights = {
        offer.agent: offer.weight for offer in offers if offer.agent is not None and (offer.gain > 0 or not any(gains))
    }
    total = sum(weights.values())
    return [
        offer if offer.agent is None else replace(offer, gain=time.gap * weights.get(offer.agent, 0.0) / total)
        for offer in offers
    ]


def _by_rank(offers: Sequence[Offer], owner: Sequence[int]) -> list[_Rank]:
    """Return the offers of agents, those of each rank together."""
    ranks: dict[int, _Rank] = {}
    for offer in sorted((o for o in offers if o.agent is not None), key=lambda o: (o.agent or 0, o.kind)):
        rank = ranks.setdefault(owner[offer.agent or 0], _Rank([], []))
        (rank.others if offer.seconds is None else rank.priced).append(offer)
    return [ranks[r] for r in sorted(ranks)]


def _price_of(rank: _Rank) -> float:
    """Return what all of a rank's offers with a price take."""
    return sum(offer.seconds or 0.0 for offer in rank.priced)


def _rate(offer: Offer, hopes: Mapping[str, float]) -> float:
    """Return what an offer with a price gains a second."""
    return offer.gain * hopes.get(offer.kind, 1.0) / max(1e-9, offer.seconds or 0.0)


def _other_rate(rank: _Rank, hopes: Mapping[str, float], time: Time) -> float:
    """Return what a rank's work that takes any seconds gains a second, when each kind has its part of them."""
    worth: dict[str, float] = {}
    for offer in rank.others:
        worth[offer.kind] = worth.get(offer.kind, 0.0) + offer.gain * hopes.get(offer.kind, 1.0)
    total = sum(worth.values())
    return sum(one * one for one in worth.values()) / total / time.slice if total > 0 else 0.0


def _ends(ranks: Sequence[_Rank], hopes: Mapping[str, float], time: Time) -> bool:
    """Return whether the offers with a price would close every gap in the time that is left, and nothing sooner."""
    if any({o.agent for o in rank.others} - {o.agent for o in rank.priced} for rank in ranks):
        return False
    takes = max(map(_price_of, ranks), default=math.inf)
    if takes > _COMFORT * time.left:
        return False
    if time.needed >= 1:
        return True
    gain = sum(offer.gain for rank in ranks for offer in rank.priced)
    others = sum(_other_rate(rank, hopes, time) for rank in ranks)
    return takes <= time.needed * gain / others if others > 0 else True


def _taken(rank: _Rank, hopes: Mapping[str, float], time: Time, ending: bool) -> list[Offer]:
    """Return a rank's offers with a price that are worth it, the most for a second first."""
    least = 0.0 if ending else _other_rate(rank, hopes, time)
    worth = [offer for offer in rank.priced if _rate(offer, hopes) >= least]
    return sorted(worth, key=lambda o: (-_rate(o, hopes), o.agent or 0))


def _length(rank: _Rank, hopes: Mapping[str, float], time: Time, ending: bool) -> float:
    """Return how long a slice is for a rank: longer where its best offer is."""
    taken = _taken(rank, hopes, time, ending)
    return max(time.slice, taken[0].seconds or 0.0) if taken else time.slice


def _divide_rank(
    rank: _Rank, hopes: Mapping[str, float], time: Time, length: float, share: float, ending: bool
) -> list[Grant]:
    """Return what a rank does in a slice of some length, of which a share is the search's."""
    room, grants, done = length, list[Grant](), set[int | None]()
    for offer in _taken(rank, hopes, time, ending):
        seconds = offer.seconds or 0.0
        if seconds <= (room - share * length if grants else room):
            grants.append(Grant(offer.kind, offer.agent, seconds))
            done.add(offer.agent)
            room -= seconds
    room -= share * length
    others = [(o, o.gain * hopes.get(o.kind, 1.0)) for o in rank.others if o.agent not in done]
    total = sum(worth for _, worth in others)
    if not ending and room >= _LEAST and total > 0:
        grants += [Grant(o.kind, o.agent, room * worth / total) for o, worth in others]
    return grants


def _search_share(
    searching: Sequence[Offer], ranks: Sequence[_Rank], hopes: Mapping[str, float], ending: bool, time: Time
) -> float:
    """Return the part of a slice that all ranks search in."""
    if not searching:
        return 0.0
    if not ranks:
        return 1.0
    if ending:
        return _SIDELINE
    own = sum(offer.gain * hopes.get(SEARCH, 1.0) for offer in searching)
    others = sum(offer.gain * hopes.get(offer.kind, 1.0) for rank in ranks for offer in rank.others)
    return min(_MOST_SEARCH, max(time.search, own / (own + others))) if own > 0 else 0.0


def _worth_again(offer: Offer, ranks: Sequence[_Rank], hopes: Mapping[str, float], time: Time) -> bool:
    """Return whether to combine with larger tables is worth its price: a guess, which may be too low by far."""
    others = sum(_other_rate(rank, hopes, time) for rank in ranks)
    return _rate(offer, hopes) >= others and (offer.seconds or 0.0) <= _COMFORT * time.left
