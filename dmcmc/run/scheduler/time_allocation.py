"""Divide a time slice over proposals by their expected gain per second.

The scheduler calls :func:`allocate_slice`. All functions here are pure, so that they can be tested on made-up
numbers. A proposal has an estimated cost (``seconds``), or is *open-ended*: it can use any number of seconds. A
*gain rate* is the part of a proposal's gain that is reached in a whole slice; ``rates`` maps improvers to theirs,
and is 1 for improvers that are not in it. A *slice* is the time between two cycles (combinations of all agents'
tables).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dmcmc.run.scheduler.proposal import LOCAL_SEARCH, RECOMBINATION, Allocation, Proposal

_MAX_FINAL_PART = 0.8  # part of the remaining time that eliminations may take that would end the run
_MIN_SECONDS = 0.01  # seconds of the shortest allocation
_FINAL_SEARCH_SHARE = 0.1  # part of a slice for the local search while eliminations end the run
_MAX_SEARCH_SHARE = 0.7  # largest part of a slice for the local search while there is other work


@dataclass(frozen=True)
class SliceBudget:
    """The time that can be divided.

    Attributes
    ----------
    slice_seconds : float
        Seconds until the next cycle, at least.
    seconds_left : float
        Seconds until the end of the run, less those of the next combination.
    needed_part : float
        Part of the gap that has to be closed: 1, or less if a gap is allowed.
    gap : float
        Utility. The whole optimality gap; inf if it is not known.
    min_search_share : float
        Smallest part of a slice for the local search, unless eliminations end the run.
    final_slice_seconds : float
        Seconds until the next cycle, at least, if eliminations end the run.
    """

    slice_seconds: float
    seconds_left: float
    needed_part: float = 1.0
    gap: float = math.inf
    min_search_share: float = 0.0
    final_slice_seconds: float = 0.0


class _RankProposals(NamedTuple):
    """The proposals of one rank: those with an estimated cost, and those that can use any number of seconds."""

    with_cost: list[Proposal]
    open_ended: list[Proposal]


def allocate_slice(
    proposals: Sequence[Proposal], owner: Sequence[int], rates: Mapping[str, float], time: SliceBudget
) -> tuple[Allocation, ...]:
    """Choose the work of all ranks until the next cycle.

    Proposals with an estimated cost are accepted in the order of their gain per second. If all of them together fit the
    remaining time and no other work would close the gap sooner, they are all accepted and end the run. Otherwise, each
    has to gain more per second than the open-ended work of its rank, which gets the rest of the slice in proportion to
    its expected gains. A proposal longer than the slice is accepted alone if nothing on its rank gains more per second;
    it makes the slice longer. A recombination is never accepted with other work, because it starts from unchanged
    tables.

    Parameters
    ----------
    proposals
        With corrected costs; their order does not matter.
    owner
        The rank of each agent.
    rates
        Expected gain rate by improver: the part of a proposal's gain that is reached in a whole slice.
    time
        The time that can be divided.

    Returns
    -------
    tuple of Allocation
        Empty if no proposal can gain anything.
    """
    proposals = [
        proposal
        for proposal in _with_known_gains(proposals, time)
        if proposal.gain > 0 and (proposal.seconds or 0.0) <= time.seconds_left
    ]
    if time.seconds_left <= 0 or not proposals:
        return ()
    ranks = _by_rank(proposals, owner)
    search_proposals = [proposal for proposal in proposals if proposal.improver == LOCAL_SEARCH]
    recombinations = sorted(
        (proposal for proposal in proposals if proposal.improver == RECOMBINATION),
        key=lambda proposal: -(proposal.seconds or 0.0),
    )
    ends_run = not recombinations and _ends_run(ranks, rates, time)
    slice_length = max(_slice_length(rank, rates, time, ends_run) for rank in ranks) if ranks else time.slice_seconds
    slice_length = min(max(slice_length, time.final_slice_seconds) if ends_run else slice_length, time.seconds_left)
    is_last_slice = ends_run and all(_total_cost(rank) <= slice_length for rank in ranks)
    search_share = 0.0 if is_last_slice else _search_share(search_proposals, ranks, rates, ends_run, time)
    if recombinations and _recombines(recombinations[0], ranks, rates, time):
        return (Allocation(RECOMBINATION, None, recombinations[0].seconds or 0.0),)
    busiest, allocations = 0.0, list[Allocation]()
    for rank in ranks:
        rank_allocations = _allocate_rank(rank, rates, time, slice_length, search_share, ends_run)
        busiest = max(busiest, sum(allocation.seconds for allocation in rank_allocations))
        allocations += rank_allocations
    seconds = min(search_share * slice_length, time.seconds_left - busiest)
    if search_proposals and seconds >= _MIN_SECONDS:
        allocations.append(Allocation(LOCAL_SEARCH, None, seconds))
    return tuple(allocations)


def _with_known_gains(proposals: Sequence[Proposal], time: SliceBudget) -> list[Proposal]:
    """Return the proposals with numbers in place of unknown gains: each agent has a part of the gap by its weight.

    This is also done if no agent has a part of the gap, because a combination with mini-buckets hides the agents'
    parts.
    """
    if not math.isfinite(time.gap):
        return [replace(proposal, gain=proposal.weight if proposal.gain > 0 else 0.0) for proposal in proposals]
    gains = [proposal.gain for proposal in proposals if proposal.agent is not None]
    if any(gains) and all(map(math.isfinite, gains)):
        return list(proposals)
    weights = {
        proposal.agent: proposal.weight
        for proposal in proposals
        if proposal.agent is not None and (proposal.gain > 0 or not any(gains))
    }
    weight_sum = sum(weights.values())
    return [
        proposal
        if proposal.agent is None
        else replace(proposal, gain=time.gap * weights.get(proposal.agent, 0.0) / weight_sum)
        for proposal in proposals
    ]


def _by_rank(proposals: Sequence[Proposal], owner: Sequence[int]) -> list[_RankProposals]:
    """Return the proposals for agents, grouped by rank."""
    ranks: dict[int, _RankProposals] = {}
    for proposal in sorted(
        (proposal for proposal in proposals if proposal.agent is not None),
        key=lambda proposal: (proposal.agent or 0, proposal.improver),
    ):
        rank = ranks.setdefault(owner[proposal.agent or 0], _RankProposals([], []))
        (rank.open_ended if proposal.seconds is None else rank.with_cost).append(proposal)
    return [ranks[r] for r in sorted(ranks)]


def _total_cost(rank: _RankProposals) -> float:
    """Return the estimated seconds of all proposals of a rank that have a cost."""
    return sum(proposal.seconds or 0.0 for proposal in rank.with_cost)


def _rate(proposal: Proposal, rates: Mapping[str, float]) -> float:
    """Return the expected gain per second of a proposal with an estimated cost: gain * rate / seconds."""
    # at least a nanosecond, so that an estimate of 0 seconds does not divide by zero
    return proposal.gain * rates.get(proposal.improver, 1.0) / max(1e-9, proposal.seconds or 0.0)


def _open_ended_rate(rank: _RankProposals, rates: Mapping[str, float], time: SliceBudget) -> float:
    """Return the expected gain per second of a rank's open-ended work, if each improver gets its share of the time.

    With expected gains g of the improvers, each gets the share g / sum(g) of a slice. The result is therefore
    sum(g * g) / sum(g) / (seconds of a slice); 0 if nothing is gained.
    """
    gains: dict[str, float] = {}
    for proposal in rank.open_ended:
        gains[proposal.improver] = gains.get(proposal.improver, 0.0) + proposal.gain * rates.get(proposal.improver, 1.0)
    total = sum(gains.values())
    return sum(gain * gain for gain in gains.values()) / total / time.slice_seconds if total > 0 else 0.0


def _ends_run(ranks: Sequence[_RankProposals], rates: Mapping[str, float], time: SliceBudget) -> bool:
    """Return whether the proposals with a cost close all gaps in the remaining time, and nothing closes them sooner.

    It is False if an agent has open-ended work only, or the busiest rank would need over 0.8 of the remaining time.
    Open-ended work closes the needed part of the gap in needed part * gain / (open-ended rate) seconds.
    """
    if any(
        {proposal.agent for proposal in rank.open_ended} - {proposal.agent for proposal in rank.with_cost}
        for rank in ranks
    ):
        return False
    cost = max(map(_total_cost, ranks), default=math.inf)
    if cost > _MAX_FINAL_PART * time.seconds_left:
        return False
    if time.needed_part >= 1:
        return True
    gain = sum(proposal.gain for rank in ranks for proposal in rank.with_cost)
    open_ended_rate = sum(_open_ended_rate(rank, rates, time) for rank in ranks)
    return cost <= time.needed_part * gain / open_ended_rate if open_ended_rate > 0 else True


def _accepted(rank: _RankProposals, rates: Mapping[str, float], time: SliceBudget, ends_run: bool) -> list[Proposal]:
    """Return the proposals with a cost that a rank accepts, in descending order of gain per second."""
    min_rate = 0.0 if ends_run else _open_ended_rate(rank, rates, time)
    accepted = [proposal for proposal in rank.with_cost if _rate(proposal, rates) >= min_rate]
    return sorted(accepted, key=lambda proposal: (-_rate(proposal, rates), proposal.agent or 0))


def _slice_length(rank: _RankProposals, rates: Mapping[str, float], time: SliceBudget, ends_run: bool) -> float:
    """Return the length of a slice for a rank in seconds: longer if its best proposal takes longer."""
    accepted = _accepted(rank, rates, time, ends_run)
    return max(time.slice_seconds, accepted[0].seconds or 0.0) if accepted else time.slice_seconds


def _allocate_rank(
    rank: _RankProposals,
    rates: Mapping[str, float],
    time: SliceBudget,
    slice_length: float,
    search_share: float,
    ends_run: bool,
) -> list[Allocation]:
    """Return the allocations of a rank in a slice, of which the local search has a share.

    Proposals with a cost are placed first, in the order of ``_accepted``; the first of them may also use the local
    search's share. Agents without such a proposal divide the rest of the slice in proportion to their expected gains.
    """
    free_seconds, allocations, agents_done = slice_length, list[Allocation](), set[int | None]()
    for proposal in _accepted(rank, rates, time, ends_run):
        seconds = proposal.seconds or 0.0
        if seconds <= (free_seconds - search_share * slice_length if allocations else free_seconds):
            allocations.append(Allocation(proposal.improver, proposal.agent, seconds))
            agents_done.add(proposal.agent)
            free_seconds -= seconds
    free_seconds -= search_share * slice_length
    open_ended = [
        (proposal, proposal.gain * rates.get(proposal.improver, 1.0))
        for proposal in rank.open_ended
        if proposal.agent not in agents_done
    ]
    gain_sum = sum(gain for _, gain in open_ended)
    if not ends_run and free_seconds >= _MIN_SECONDS and gain_sum > 0:
        allocations += [
            Allocation(proposal.improver, proposal.agent, free_seconds * gain / gain_sum)
            for proposal, gain in open_ended
        ]
    return allocations


def _search_share(
    search_proposals: Sequence[Proposal],
    ranks: Sequence[_RankProposals],
    rates: Mapping[str, float],
    ends_run: bool,
    time: SliceBudget,
) -> float:
    """Return the part of a slice in which all ranks run the local search.

    It is 1 if there is no other work for agents, and 0 if the local search gains nothing. Otherwise it is g / (g + h),
    within its limits, with the expected gains g of the local search and h of the open-ended work.
    """
    if not search_proposals:
        return 0.0
    if not ranks:
        return 1.0
    if ends_run:
        return _FINAL_SEARCH_SHARE
    search_gain = sum(proposal.gain * rates.get(LOCAL_SEARCH, 1.0) for proposal in search_proposals)
    other_gains = sum(
        proposal.gain * rates.get(proposal.improver, 1.0) for rank in ranks for proposal in rank.open_ended
    )
    return (
        min(_MAX_SEARCH_SHARE, max(time.min_search_share, search_gain / (search_gain + other_gains)))
        if search_gain > 0
        else 0.0
    )


def _recombines(
    proposal: Proposal, ranks: Sequence[_RankProposals], rates: Mapping[str, float], time: SliceBudget
) -> bool:
    """Return whether recombining with larger tables is worth its cost, which may be underestimated by far.

    It has to gain at least as much per second as the open-ended work, and to take at most 0.8 of the remaining time.
    """
    open_ended_rate = sum(_open_ended_rate(rank, rates, time) for rank in ranks)
    return (
        _rate(proposal, rates) >= open_ended_rate and (proposal.seconds or 0.0) <= _MAX_FINAL_PART * time.seconds_left
    )
