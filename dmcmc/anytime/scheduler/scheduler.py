"""Decide, on rank 0 after every cycle, which of the proposed work all ranks do in the next time slice.

The policy is *probability matching on a sliding window*, a bandit whose probabilities are parts of the slice: each
improver's part is proportional to its gain per second in the window (Thierens, GECCO 2005, section 2.2; windows:
Fialho, Da Costa, Schoenauer and Sebag, Annals of Mathematics and Artificial Intelligence 60, 2010). An improver that
has not been tried has the part that it declares; one that gains nothing is tried ever less often, as in the ε_n-greedy
policy (Auer, Cesa-Bianchi and Fischer, Machine Learning 47, 2002, figure 3). Work with an estimated cost is done first
if it gains more per second. Seconds that are too few to start are saved up by deficit round robin (Shreedhar and
Varghese, SIGCOMM 1995). A *cycle* is one combination of all agents' tables; a *slice* is the time between two cycles.
Gains of a slice are attributed to the improvers that made them, and measured costs correct estimated ones.
"""

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dmcmc.anytime.scheduler import tuning
from dmcmc.anytime.scheduler.proposal import (
    Allocation,
    Effect,
    MeasuredGain,
    Needs,
    Properties,
    Proposal,
    is_whole_problem,
)
from dmcmc.anytime.scheduler.tuning import MAX_COST_CORRECTION, MIN_SLICE_SECONDS
from dmcmc.solving.agent.bounds import ImproverRecord

_UNDECLARED = Properties(effect=Effect.ASSIGNMENTS | Effect.BOUNDS)  # engines report gains under their own names


class AttributedGain(NamedTuple):
    """The cost and the gain of an improver in a slice.

    Attributes
    ----------
    seconds : float
        Seconds taken, summed over agents.
    gain : float
        Utility by which it has closed the gap.
    estimated : bool
        Whether the work had an estimated cost.
    """

    seconds: float
    gain: float
    estimated: bool


@dataclass
class Credit:
    """The costs and gains of all improvers in this run.

    Attributes
    ----------
    properties : dict of Properties
        Declared properties by improver. Names that are not declared belong to engines of the whole problem.
    records : dict of ImproverRecord
        By improver, in the order of first use.
    """

    properties: Mapping[str, Properties]
    records: dict[str, ImproverRecord] = field(default_factory=dict)

    def effect_of(self, improver: str) -> Effect:
        """Return what the work of an improver changes."""
        return self.properties.get(improver, _UNDECLARED).effect

    def attribute(self, gains: Iterable[MeasuredGain], objective: float, bound: float) -> dict[str, AttributedGain]:
        """Add the costs and gains of a slice to the records; return them by improver.

        A gain of the bound is attributed in proportion to the gaps that improvers have closed. A gain of the objective
        is attributed to the improver that has reported it; the rest comes from combined lower tables, and is divided
        among the improvers of these in proportion to their seconds.

        Parameters
        ----------
        gains
            Measured gains of all ranks.
        objective, bound
            Utility by which the incumbent and the upper bound have improved.
        """
        totals = _totals_by_improver(gains)
        unattributed = max(0.0, objective - sum(total.objective_gain for total in totals.values()))
        table_seconds = {i: t.seconds for i, t in totals.items() if self.effect_of(i) & Effect.LOWER_TABLES}
        if not any(table_seconds.values()):
            table_seconds = {i: t.seconds for i, t in totals.items() if not self.effect_of(i) & Effect.ASSIGNMENTS}
        closed_gaps = {improver: total.closed_gap for improver, total in totals.items()}
        objective_shares = _split_in_proportion(unattributed, table_seconds)
        bound_shares = _split_in_proportion(bound, closed_gaps if any(closed_gaps.values()) else table_seconds)
        result = {}
        for improver, total in totals.items():
            objective_gain = total.objective_gain + objective_shares.get(improver, 0.0)
            bound_gain, estimated = bound_shares.get(improver, 0.0), total.estimated_seconds > 0
            record = self.records.setdefault(improver, ImproverRecord())
            record.seconds += total.seconds
            record.objective += objective_gain
            record.bound += bound_gain
            record.estimated_seconds += total.estimated_seconds
            record.seconds_with_estimate += total.seconds if estimated else 0.0
            result[improver] = AttributedGain(total.seconds, objective_gain + bound_gain, estimated)
        return result

    def corrected_cost(self, improver: str, seconds: float) -> float:
        """Return an estimated cost in seconds, corrected by the improver's past costs relative to their estimates.

        The factor is (seconds taken + 0.25) / (seconds estimated + 0.25) over this run, limited to 1/8 .. 8.
        """
        record = self.records.get(improver, ImproverRecord())
        factor = (record.seconds_with_estimate + MIN_SLICE_SECONDS) / (record.estimated_seconds + MIN_SLICE_SECONDS)
        return seconds * min(MAX_COST_CORRECTION, max(1 / MAX_COST_CORRECTION, factor))

    def shares_of_bound_gain(self, gains: Iterable[MeasuredGain]) -> dict[str, float]:
        """Return each improver's share in how much agents' work has lowered the upper bound, the largest share first.

        The shares add up to 1. Improvers that find whole assignments are left out: their bounds are reported when they
        are proven. The result is empty if no agent's part of the gap has shrunk.
        """
        totals = _totals_by_improver(gains).items()
        closed_gaps = {i: total.closed_gap for i, total in totals if not self.effect_of(i) & Effect.ASSIGNMENTS}
        return dict(sorted(_split_in_proportion(1.0, closed_gaps).items(), key=lambda share: -share[1]))


def _totals_by_improver(gains: Iterable[MeasuredGain]) -> dict[str, MeasuredGain]:
    """Return the sums of seconds and gains of each improver."""
    totals: dict[str, list[float]] = {}
    for gain in gains:
        sums = totals.get(gain.improver)
        if sums is None:
            # the fields after the name: seconds, estimated seconds, closed gap, objective gain
            sums = totals[gain.improver] = [*MeasuredGain(gain.improver, 0.0)[1:]]
        for field_index, number in enumerate(gain[1:]):
            sums[field_index] += number
    return {improver: MeasuredGain(improver, *sums) for improver, sums in totals.items()}


def _split_in_proportion(total: float, weights: Mapping[str, float]) -> dict[str, float]:
    """Split a total into parts in proportion to the positive weights; an empty result if no weight is positive."""
    positive = {improver: weight for improver, weight in weights.items() if weight > 0}
    weight_sum = sum(positive.values())
    return {improver: total * weight / weight_sum for improver, weight in positive.items()}


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
    lag : float
        Utility by which the bound of the last combination is above ``bound``; inf while bounding the whole problem
        directly is still to be tried. Larger combinations wait until it is 0.
    """

    elapsed: float
    left: float
    utility: float | None = None
    bound: float | None = None
    allowed_gap: float = 0.0
    lag: float = 0.0

    @property
    def gap(self) -> float:
        """The optimality gap, utility; inf if it is not known."""
        return math.inf if self.utility is None or self.bound is None else max(0.0, self.bound - self.utility)


class Scheduler:
    """The scheduler of a run. After each cycle, ``record`` has to be called once before ``decide``.

    Parameters
    ----------
    owner : sequence of int
        The rank of each agent, and of each part of the whole problem (``ranks_of_work``).
    properties : dict of Properties
        The properties that improvers declare, by name.

    Attributes
    ----------
    credit : Credit
        Costs and gains of all improvers so far.
    converged : bool
        Whether only searches are left, and they have found nothing better for so long that the run ends early.
    """

    def __init__(self, owner: Sequence[int], properties: Mapping[str, Properties]) -> None:
        self.credit, self.converged, self._owner = Credit(properties), False, owner
        self._window = defaultdict[str, deque[tuple[float, float]]](lambda: deque(maxlen=tuning.WINDOW_SLICES))
        self._idle, self._quanta = dict[str, int](), _DeficitRoundRobin(owner, properties)
        self._found_at, self._state = 0.0, SchedulingState(0.0, 0.0)

    def record(self, state: SchedulingState, gains: Sequence[MeasuredGain]) -> None:
        """Record the state of the run, and the costs and gains since the last call.

        If the gap was not known before, only work that reports its gain at once is judged, by the gap known now.
        """
        last, self._state = self._state, state
        objective = 0.0 if state.utility is None or last.utility is None else max(0.0, state.utility - last.utility)
        bound = 0.0 if state.bound is None or last.bound is None else max(0.0, last.bound - state.bound)
        if objective > 0 or (state.utility is not None and last.utility is None):
            self._found_at = state.elapsed
        known = math.isfinite(last.gap)
        stake, ranks = last.gap if known else state.gap, len(set(self._owner))
        for improver, took in self.credit.attribute(gains, objective, bound).items():
            properties = self._properties(improver)
            judged = known or Effect.ASSIGNMENTS in properties.effect
            if judged and 0 < stake < math.inf and took.seconds > 0 and not properties.gains_at_end:
                slice_seconds = (state.elapsed - last.elapsed) * (ranks if properties.needs is Needs.CORE else 1)
                share = 1.0 if took.estimated or not slice_seconds else min(1.0, took.seconds / slice_seconds)
                part = min(1.0, took.gain / stake)
                self._window[improver].append((part, max(tuning.MIN_SHARE, share)))
                self._idle[improver] = 0 if part > 0 else self._idle.get(improver, 0) + 1

    def expected_parts(self, improvers: Iterable[str]) -> dict[str, float]:
        """Return the part of the gap that each of some improvers is expected to close in a whole slice.

        Without a feasible assignment gains cannot be compared, and all parts are equal.
        """
        names = set(improvers)
        if self._state.utility is None:
            return dict.fromkeys(names, 1.0)
        windows = {improver: self._window[improver] for improver in names & self._window.keys()}
        measured = {i: min(1.0, sum(p for p, _ in w) / sum(s for _, s in w)) for i, w in windows.items()}
        first = {i: self._properties(i).first_part for i in names - measured.keys()}
        comparable = [part for i, part in first.items() if not self._properties(i).gains_at_end]
        best = max((p for p in (*measured.values(), *comparable) if p >= tuning.NEGLIGIBLE_PART), default=math.inf)
        floors = {i: tuning.EXPLORATION * best / max(1, self._idle[i]) for i in measured}
        return first | {i: max(p, min(self._properties(i).idle_part, floors[i])) for i, p in measured.items()}

    def decide(self, proposals: Sequence[Proposal]) -> tuple[Allocation, ...]:
        """Allocate the next time slice; return nothing if no work can gain anything, or the time is up.

        Work in the background goes on during all other work. A process gets no seconds, unless the run waits for it
        because there is no other work; a GPU gets a part of the slice by the expected gain of its work.
        """
        state, self.converged = self._state, False
        needs = {proposal.improver: self._properties(proposal.improver).needs for proposal in proposals}
        competing = [proposal for proposal in proposals if not needs[proposal.improver].in_background]
        parts = self.expected_parts(needs)
        chosen = _without_excluded(self._with_gains(competing), parts)
        seconds = self._slice_seconds(chosen)
        allocations = _SliceDivision(self._owner, parts, seconds, state).allocate(chosen)
        open_ended = {proposal.improver for proposal in chosen if proposal.seconds is None}
        allocations = self._limited(self._quanta.without_short(allocations, open_ended, seconds))
        best = max((parts[a.improver] for a in allocations if a.agent is not None), default=0.0)
        result = list(allocations)
        for improver, needed in needs.items():
            if needed is Needs.PROCESS:
                result.append(Allocation(improver, None, 0.0 if allocations else state.left))
            elif needed is Needs.GPU and allocations:
                share = parts[improver] / (parts[improver] + best)
                result.append(Allocation(improver, None, share * min(state.left, seconds)))
        return tuple(result)

    def _properties(self, improver: str) -> Properties:
        """Return what an improver declares; the defaults if it is not registered."""
        return self.credit.properties.get(improver, Properties())

    def _with_gains(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Return the proposals with corrected costs and known gains, those of equal work of all ranks once.

        An agent whose gain is not known has a part of the gap by its weight. Work with a cost on the whole problem can
        gain the part of the gap that belongs to no agent, or nothing while the last combination lags behind.
        """
        gap, of_all, result = self._state.gap, dict[str, Proposal](), list[Proposal]()
        agent_gains: dict[int, float] = {}
        for proposal in proposals:
            if proposal.seconds is not None:
                proposal = replace(proposal, seconds=self.credit.corrected_cost(proposal.improver, proposal.seconds))
            if proposal.agent is not None:
                result.append(proposal)
                agent_gains[proposal.agent] = max(proposal.gain, agent_gains.get(proposal.agent, 0.0))
            else:
                other = of_all.get(proposal.improver, replace(proposal, weight=0.0))
                seconds = None if proposal.seconds is None else max(proposal.seconds, other.seconds or 0.0)
                weight = proposal.weight + other.weight
                of_all[proposal.improver] = replace(proposal, seconds=seconds, weight=weight)
        if not math.isfinite(gap):
            return [replace(p, gain=p.weight if p.gain > 0 else 0.0) for p in (*result, *of_all.values())]
        explained = sum(gain for agent, gain in agent_gains.items() if not is_whole_problem(agent))
        for proposal in of_all.values():
            gain = min(proposal.gain, gap)
            if proposal.seconds is not None:
                gain = 0.0 if self._state.lag > 0 else min(gain, max(tuning.EXPLORATION * gap, gap - explained))
            result.append(replace(proposal, gain=gain))
        if any(agent_gains.values()) and all(map(math.isfinite, agent_gains.values())):
            return [replace(proposal, gain=min(proposal.gain, gap)) for proposal in result]
        open_agents = {agent for agent, gain in agent_gains.items() if gain > 0 or not any(agent_gains.values())}
        weights = {p.agent: p.weight for p in result if p.agent in open_agents}
        scale = gap / sum(weights.values()) if weights else 0.0
        return [p if p.agent is None else replace(p, gain=scale * weights.get(p.agent, 0.0)) for p in result]

    def _slice_seconds(self, proposals: Sequence[Proposal]) -> float:
        """Return the length of a slice in seconds: as long as all earlier ones, unless short slices are as good.

        Work that starts anew in each slice gains more in one long slice than in several short ones.
        """
        seconds, total = max(tuning.MIN_SLICE_SECONDS, self._state.elapsed), self._state.elapsed + self._state.left
        if any(proposal.awaited for proposal in proposals):
            seconds = min(seconds, max(tuning.MIN_SLICE_SECONDS, tuning.AWAITED_SLICE_PART * total))
        elif any(p.resumable and self._may_gain(p.improver) for p in proposals):
            seconds = min(seconds, max(tuning.MIN_SLICE_SECONDS, tuning.RESUMABLE_SLICE_PART * total))
        return self._state.left if seconds > tuning.MAX_FINAL_PART * self._state.left else seconds

    def _may_gain(self, improver: str) -> bool:
        """Return whether an improver has not been tried, or has gained more than little in its last slice."""
        window = self._window.get(improver)
        return not window or window[-1][0] / window[-1][1] >= tuning.NEGLIGIBLE_PART

    def _limited(self, allocations: list[Allocation]) -> list[Allocation]:
        """Limit the seconds of searches that are the only work left; return nothing if they have converged."""
        if not allocations or any(self._properties(a.improver).effect != Effect.ASSIGNMENTS for a in allocations):
            return allocations
        patience = tuning.PATIENCE_FACTOR * max(1.0, self._found_at)
        patience *= 1.0 if self._state.bound is None else tuning.PATIENCE_FACTOR
        left = patience - (self._state.elapsed - self._found_at)
        self.converged = left <= 0 and self._state.utility is not None
        seconds = max(left, tuning.MIN_SLICE_SECONDS) if self._state.utility is not None else math.inf
        return [] if self.converged else [a._replace(seconds=min(a.seconds, seconds)) for a in allocations]


def _without_excluded(proposals: Sequence[Proposal], parts: Mapping[str, float]) -> list[Proposal]:
    """Return the proposals without those that another one for the same agent makes redundant.

    If a proposal excludes another one, that with the larger expected part stays; the first one if they agree.
    """
    dropped = set[tuple[str, int | None]]()
    by_agent = {(p.improver, p.agent) for p in proposals}
    for proposal in proposals:
        for other in proposal.excludes:
            if (other, proposal.agent) in by_agent:
                loser = other if parts[proposal.improver] >= parts[other] else proposal.improver
                dropped.add((loser, proposal.agent))
    return [p for p in proposals if (p.improver, p.agent) not in dropped]


class _SliceDivision(NamedTuple):
    """A slice that is divided over proposals.

    Attributes
    ----------
    owner : sequence of int
        The rank of each agent.
    parts : dict of float
        Expected part of the gap that each improver closes in a whole slice.
    seconds : float
        Length of the slice; it gets longer if the best work with a cost takes longer.
    state : SchedulingState
        The state of the run.
    """

    owner: Sequence[int]
    parts: Mapping[str, float]
    seconds: float
    state: SchedulingState

    def allocate(self, proposals: Sequence[Proposal]) -> list[Allocation]:
        """Divide the slice over proposals with known gains; their order does not matter.

        Work with a cost on the whole problem is done alone, if it gains more per second than the open-ended work for
        agents. Otherwise searches of the whole problem, which all ranks do at the same time, get the part of the slice
        that they have in all expected gains.
        """
        left, parts, seconds = self.state.left, self.parts, self.seconds
        proposals = [p for p in proposals if p.gain > 0 and (p.seconds or 0.0) <= left]
        if left <= 0 or not proposals:
            return []
        ranks = [_RankWork.of(work, parts, seconds) for work in self._by_rank(proposals)]
        searches, alone = list[Proposal](), list[Proposal]()
        for proposal in sorted(proposals, key=lambda p: (-_rate(p, parts), p.improver)):
            if proposal.agent is None:
                (searches if proposal.seconds is None else alone).append(proposal)
        for proposal in alone:
            cost = proposal.seconds or 0.0
            if cost <= tuning.MAX_FINAL_PART * left and _rate(proposal, parts) >= sum(r.open_rate for r in ranks):
                return [Allocation(proposal.improver, None, cost)]
        ends_run = not alone and self._ends_run(ranks)
        minimum = [0.0 if ends_run else rank.open_rate for rank in ranks]
        accepted = [
            [p for p in rank.with_cost if _rate(p, parts) >= least] for rank, least in zip(ranks, minimum, strict=True)
        ]
        seconds = min(left, max([seconds, *(one[0].seconds or 0.0 for one in accepted if one)]))
        gains = {p.improver: p.gain * parts[p.improver] for p in searches}
        total = sum(gains.values()) + sum(sum(rank.gains.values()) for rank in ranks)
        shares = {i: 0.0 if ends_run or total <= 0 else gain / total for i, gain in gains.items()}
        result, free = list[Allocation](), left
        for rank, with_cost in zip(ranks, accepted, strict=True):
            of_rank = rank.allocate(with_cost, seconds, sum(shares.values()), ends_run)
            result, free = result + of_rank, min(free, left - sum(allocation.seconds for allocation in of_rank))
        seconds = min(seconds, free / max(1e-9, sum(shares.values())))
        return result + [Allocation(i, None, share * seconds) for i, share in shares.items() if share * seconds > 0]

    def _ends_run(self, ranks: Sequence["_RankWork"]) -> bool:
        """Return whether work with a cost closes all gaps in the remaining time, and nothing closes them sooner."""
        state, costs = self.state, [sum(p.seconds or 0.0 for p in rank.with_cost) for rank in ranks]
        if max(costs, default=math.inf) > tuning.MAX_FINAL_PART * state.left:
            return False
        if any({p.agent for p in r.open_ended} - {p.agent for p in r.with_cost} for r in ranks):
            return False
        gain, open_rate = sum(p.gain for r in ranks for p in r.with_cost), sum(r.open_rate for r in ranks)
        needed = 1.0 if not 0 < state.gap < math.inf else max(0.0, state.gap - state.allowed_gap) / state.gap
        return needed >= 1 or max(costs) * open_rate <= needed * gain

    def _by_rank(self, proposals: Iterable[Proposal]) -> list[list[Proposal]]:
        """Return the proposals for agents, grouped by rank."""
        ranks = defaultdict[int, list[Proposal]](list)
        for proposal in sorted((p for p in proposals if p.agent is not None), key=lambda p: (p.agent or 0, p.improver)):
            ranks[self.owner[proposal.agent or 0]].append(proposal)
        return [ranks[rank] for rank in sorted(ranks)]


class _RankWork(NamedTuple):
    """The proposals for agents of one rank.

    Attributes
    ----------
    with_cost : list of Proposal
        Work with an estimated cost, that with the largest expected gain per second first.
    open_ended : list of Proposal
        Work that can use any number of seconds.
    gains : dict of float
        Expected gain of the open-ended work in a whole slice, by improver.
    open_rate : float
        Expected gain per second of the open-ended work, if each improver has its part of the slice: with gains g, that
        is sum(g²) / sum(g) / (seconds of the slice).
    """

    with_cost: list[Proposal]
    open_ended: list[Proposal]
    gains: dict[str, float]
    open_rate: float
    parts: Mapping[str, float]

    @classmethod
    def of(cls, proposals: Sequence[Proposal], parts: Mapping[str, float], seconds: float) -> "_RankWork":
        """Return the work of one rank in a slice of some seconds."""
        gains = defaultdict[str, float](float)
        open_ended = [proposal for proposal in proposals if proposal.seconds is None]
        for proposal in open_ended:
            gains[proposal.improver] += proposal.gain * parts[proposal.improver]
        total = sum(gains.values())
        open_rate = sum(gain * gain for gain in gains.values()) / total / seconds if total > 0 else 0.0
        with_cost = [proposal for proposal in proposals if proposal.seconds is not None]
        with_cost.sort(key=lambda proposal: (-_rate(proposal, parts), proposal.agent or 0))
        return cls(with_cost, open_ended, dict(gains), open_rate, parts)

    def allocate(self, accepted: Sequence[Proposal], seconds: float, shared: float, ends_run: bool) -> list[Allocation]:
        """Allocate a slice of some seconds, of which work of all ranks has a part ``shared``.

        Accepted work with a cost comes first, in its order; the first of it may also use the shared part. Agents
        without such work divide the rest in proportion to their expected gains.
        """
        free, result, done = seconds, list[Allocation](), set[int | None]()
        for proposal in accepted:
            cost = proposal.seconds or 0.0
            if cost <= (free - shared * seconds if result else free):
                result.append(Allocation(proposal.improver, proposal.agent, cost))
                done.add(proposal.agent)
                free -= cost
        free -= shared * seconds
        gains = [(p, p.gain * self.parts[p.improver]) for p in self.open_ended if p.agent not in done]
        total = sum(gain for _, gain in gains)
        if not ends_run and free > 0 and total > 0:
            result += [Allocation(p.improver, p.agent, free * gain / total) for p, gain in gains]
        return result


def _rate(proposal: Proposal, parts: Mapping[str, float]) -> float:
    """Return the expected gain per second of a proposal with an estimated cost: gain * part / seconds."""
    # at least a nanosecond, so that an estimate of 0 seconds does not divide by zero
    return proposal.gain * parts[proposal.improver] / max(1e-9, proposal.seconds or 0.0)


class _DeficitRoundRobin:
    """Saves up seconds that are too few for an improver to start.

    Parameters
    ----------
    owner : sequence of int
        The rank of each agent.
    properties : dict of Properties
        The properties that improvers declare, by name.
    """

    def __init__(self, owner: Sequence[int], properties: Mapping[str, Properties]) -> None:
        self.owner, self.properties = owner, properties
        self._owed = dict[tuple[int, str], float]()  # seconds by rank and improver

    def without_short(
        self, allocations: Sequence[Allocation], open_ended: Collection[str], seconds: float
    ) -> list[Allocation]:
        """Return the allocations of a slice without quanta that are too short; other improvers of the rank use them.

        An improver is due its seconds on a rank and those owed to it from earlier slices. If they are too few to start,
        it waits, unless all improvers of the rank would wait: then the one that is due most works. Those that work
        share the rank's seconds in proportion to what they are due. Work with a cost keeps its seconds.
        """
        result, ranks = list[Allocation](), defaultdict[int, list[Allocation]](list)
        for allocation in allocations:
            if allocation.agent is None or allocation.seconds <= 0 or allocation.improver not in open_ended:
                result.append(allocation)
            else:
                ranks[self.owner[allocation.agent]].append(allocation)
        for rank, work in sorted(ranks.items()):
            given = defaultdict[str, float](float)
            for allocation in work:
                given[allocation.improver] += allocation.seconds
            due = {improver: s + self._owed.get((rank, improver), 0.0) for improver, s in given.items()}
            quanta = {i: self.properties.get(i, Properties()).minimum_quantum for i in due}
            limit = {improver: min(quantum, tuning.MIN_SHARE * seconds) for improver, quantum in quanta.items()}
            waits = {improver for improver in due if due[improver] < limit[improver]}
            if len(waits) == len(due):
                waits.discard(max(due, key=lambda improver: due[improver]))
            self._owed |= {(rank, improver): due[improver] if improver in waits else 0.0 for improver in due}
            scale = sum(given.values()) / sum(s for improver, s in due.items() if improver not in waits)
            factors = {improver: scale * due[improver] / given[improver] for improver in due}
            result += [a._replace(seconds=a.seconds * factors[a.improver]) for a in work if a.improver not in waits]
        return result
