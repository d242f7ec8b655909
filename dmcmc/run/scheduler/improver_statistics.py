"""Keep running statistics of each improver: the seconds that it has taken and what it has gained.

Estimated costs are corrected by these statistics, and expected gain rates are raised or lowered. A gain rate is the
part of the optimality gap (the stake) that an improver closes if it has a whole time slice to itself.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dmcmc.run.scheduler.proposal import (
    BOUND,
    BRANCH,
    BRANCH_AND_BOUND,
    EXACT_ELIMINATION,
    FUNCTION_FILTERING,
    GPU_CHAINS,
    LOCAL_SEARCH,
    RECOMBINATION,
    SAMPLING,
    SEMIDEFINITE,
    TOULBAR2,
    MeasuredGain,
)

# Expected gain rate of an improver before it has been tried: part of the gap per whole slice. Heuristic values.
_INITIAL_RATES = {
    EXACT_ELIMINATION: 1.0,
    FUNCTION_FILTERING: 1.0,
    RECOMBINATION: 0.5,
    BOUND: 0.65,
    BRANCH: 0.65,
    SEMIDEFINITE: 0.65,
    SAMPLING: 0.25,
    LOCAL_SEARCH: 0.25,
    GPU_CHAINS: 0.25,
}
# Part of its initial rate that an improver without recent gains keeps, so that it is tried now and then. The local
# search keeps more: it gets most of the time where neither a bound nor the local search gains anything.
_MIN_RATE_SHARES = {BOUND: 0.03, BRANCH: 0.03, SEMIDEFINITE: 0.03, LOCAL_SEARCH: 0.25}
_DEFAULT_MIN_RATE_SHARE = 0.15
# Multiple of the best rate that an improver without recent gains keeps. It is divided by the number n of slices
# without gain: the next slice then gains something with a probability of about 1 / n.
_IDLE_SHARES = {LOCAL_SEARCH: 0.25}
_DEFAULT_IDLE_SHARE = 0.1
# While branch and bound gains, these fall to the idle rate at their first slice without gain. Branch and bound
# gains a little less in each slice, while these stop gaining all at once.
_YIELDING_TO_BRANCH = (SAMPLING, BOUND, GPU_CHAINS)
_MIN_COUNTED_RATE = 0.003  # part of the gap per whole slice: an improver that gains less counts as one without gain
# These belong to no agent, and their results are reported as soon as they are found.
_WHOLE_PROBLEM_IMPROVERS = (LOCAL_SEARCH, GPU_CHAINS, TOULBAR2, BRANCH_AND_BOUND)
_LOWER_TABLE_IMPROVERS = (
    EXACT_ELIMINATION,
    FUNCTION_FILTERING,
    SAMPLING,
    RECOMBINATION,
)  # improve lower tables, from which assignments are combined
_WITHOUT_RATE = (
    EXACT_ELIMINATION,
    FUNCTION_FILTERING,
)  # close their gap at their very end, so that no rate can be learned
_UNSHARED = (RECOMBINATION, GPU_CHAINS)  # share their time with no other improver
_LAST_SLICE_WEIGHT = 0.7  # weight of the last slice in the running mean of the rates; all earlier slices have the rest
# Largest extrapolation from a part of a slice to the whole slice: a gain in little time may be luck
_MAX_EXTRAPOLATION = 10.0
_PRIOR_SECONDS = 0.2  # seconds of correctly estimated work that precede the first correction
_MAX_COST_CORRECTION = 8.0  # largest correction of an estimated cost, as a factor, up or down
_ENGINES = (TOULBAR2, BRANCH_AND_BOUND)  # run on whatever they are expected to gain


@dataclass
class ImproverRecord:
    """Totals of one improver in this run.

    Attributes
    ----------
    seconds : float
        Seconds taken, summed over agents.
    objective, bound : float
        Utility by which the objective was raised and by which the upper bound was lowered.
    estimated_seconds : float
        Estimated seconds of the work that had an estimate.
    seconds_with_estimate : float
        Seconds that this work has taken.
    """

    seconds: float = 0.0
    objective: float = 0.0
    bound: float = 0.0
    estimated_seconds: float = 0.0
    seconds_with_estimate: float = 0.0


@dataclass
class ImproverStatistics:
    """Costs and gains of all improvers in this run.

    An improver's gain rate in a slice is r = f * (objective gain + bound gain) / stake, at most 1. The stake is the gap
    before the slice. f extrapolates from the improver's seconds to a whole slice, by a factor from 1 to 10. Its
    expected rate is then updated: 0.3 * (expected rate) + 0.7 * r.

    Attributes
    ----------
    records : dict of ImproverRecord
        By improver, in the order of first use.
    expected_rates : dict of float
        Expected gain rate by improver: a running mean, so that time goes to the improver that recently gained most per
        second.
    last_rates : dict of float
        Gain rate in the last slice alone, of improvers that have been tried.
    slices_without_gain : dict of int
        Number of slices since the improver's last gain.
    """

    records: dict[str, ImproverRecord] = field(default_factory=dict)
    expected_rates: dict[str, float] = field(default_factory=lambda: dict(_INITIAL_RATES))
    last_rates: dict[str, float] = field(default_factory=dict)
    slices_without_gain: dict[str, int] = field(default_factory=dict)

    def corrected_cost(self, improver: str, seconds: float) -> float:
        """Return an estimated cost in seconds, corrected by the improver's past costs relative to their estimates.

        The factor is (seconds taken + 0.2) / (seconds estimated + 0.2) over this run, limited to 1/8 .. 8.
        """
        record = self.records.get(improver, ImproverRecord())
        factor = (record.seconds_with_estimate + _PRIOR_SECONDS) / (record.estimated_seconds + _PRIOR_SECONDS)
        return seconds * min(_MAX_COST_CORRECTION, max(1 / _MAX_COST_CORRECTION, factor))

    def record(
        self,
        gains: Iterable[MeasuredGain],
        objective: float,
        bound: float,
        stake: float,
        seconds: float = 0.0,
        ranks: int = 1,
    ) -> None:
        """Record the costs and gains of a time slice.

        Parameters
        ----------
        gains
            Measured gains of all ranks.
        objective, bound
            Utility by which the incumbent and the upper bound have improved. The bound gain is attributed to improvers
            in proportion to the gaps they closed. An objective gain is attributed to the improver that reported it; the
            rest comes from combined lower tables and is attributed by seconds.
        stake
            The optimality gap before the slice; 0 if it is not known: then the expected rates do not change.
        seconds, ranks
            Length of the slice, and the number of ranks that worked on agents for that long; 0 if only the improvers'
            own seconds are known.
        """
        totals = _totals_by_improver(gains)
        unattributed = max(0.0, objective - sum(total.objective_gain for total in totals.values()))
        lower_table_seconds = {
            improver: total.seconds for improver, total in totals.items() if improver in _LOWER_TABLE_IMPROVERS
        }
        if not any(lower_table_seconds.values()):
            lower_table_seconds = {
                improver: total.seconds
                for improver, total in totals.items()
                if improver not in _WHOLE_PROBLEM_IMPROVERS
            }
        closed_gaps = {improver: total.closed_gap for improver, total in totals.items()}
        objective_shares, bound_shares = (
            _split_in_proportion(unattributed, lower_table_seconds),
            _split_in_proportion(bound, closed_gaps if any(closed_gaps.values()) else lower_table_seconds),
        )
        for improver, total in totals.items():
            record = self.records.setdefault(improver, ImproverRecord())
            objective_and_bound_gain = (
                total.objective_gain + objective_shares.get(improver, 0.0),
                bound_shares.get(improver, 0.0),
            )
            record.seconds += total.seconds
            record.objective += objective_and_bound_gain[0]
            record.bound += objective_and_bound_gain[1]
            record.estimated_seconds += total.estimated_seconds
            record.seconds_with_estimate += total.seconds if total.estimated_seconds > 0 else 0.0
            if stake > 0 and total.seconds > 0 and improver not in _ENGINES:
                # Seconds of a slice that belongs to the improver alone, in the unit of its own seconds: those of all
                # ranks together for work on agents, the length of the slice for the local search.
                slice_seconds = (
                    total.seconds if improver in _UNSHARED else seconds if improver == LOCAL_SEARCH else seconds * ranks
                )
                factor = min(_MAX_EXTRAPOLATION, max(1.0, slice_seconds / total.seconds))
                self._learn_rate(improver, factor * sum(objective_and_bound_gain) / stake)

    def limit_rate(self, improver: str, rate: float) -> None:
        """Set an improver's expected gain rate to ``rate``, but at most to its initial rate."""
        self.expected_rates[improver] = min(_INITIAL_RATES.get(improver, 1.0), rate)

    def may_gain(self, improver: str) -> bool:
        """Return whether an improver has not been tried yet, or gained more than a negligible part of the gap last."""
        return self.last_rates.get(improver, 1.0) >= _MIN_COUNTED_RATE

    def gained_less(self, improver: str, other: str) -> bool:
        """Return whether an improver gained less than another one in its last slice; False before both are tried."""
        return (
            improver in self.last_rates
            and other in self.last_rates
            and self.last_rates[improver] < self.last_rates[other]
        )

    def rates_among(self, improvers: Iterable[str]) -> dict[str, float]:
        """Return the expected gain rates where these improvers make proposals.

        An improver without recent gains keeps a small rate: the smaller of a fixed one, and a multiple of the best rate
        of the improvers that gain. The multiple falls with the number of slices without gain.
        """
        gaining = [
            improver
            for improver in improvers
            if improver not in _WITHOUT_RATE and self.last_rates.get(improver, 1.0) >= _MIN_COUNTED_RATE
        ]
        best_rate = max((self.expected_rates.get(improver, 0.0) for improver in gaining), default=math.inf)
        idle_rates = {improver: self._idle_share(improver) * best_rate for improver in self.expected_rates}
        rates = {
            improver: max(rate, min(_min_rate(improver), idle_rates[improver]))
            for improver, rate in self.expected_rates.items()
        }
        if BRANCH in gaining and BRANCH in self.last_rates:
            rates |= {
                improver: min(rates[improver], idle_rates[improver])
                for improver in _YIELDING_TO_BRANCH
                if self.last_rates.get(improver, 1.0) < _MIN_COUNTED_RATE
            }
        return rates

    def _idle_share(self, improver: str) -> float:
        """Return the multiple of the best rate that an improver without recent gains keeps."""
        return _IDLE_SHARES.get(improver, _DEFAULT_IDLE_SHARE) / max(1, self.slices_without_gain.get(improver, 0))

    def _learn_rate(self, improver: str, rate: float) -> None:
        """Update an improver's rates by its gain rate in the last slice."""
        if improver not in _WITHOUT_RATE:
            self.slices_without_gain[improver] = 0 if rate > 0 else self.slices_without_gain.get(improver, 0) + 1
            self.last_rates[improver] = min(1.0, rate)
            self.expected_rates[improver] = (1 - _LAST_SLICE_WEIGHT) * self.expected_rates.get(
                improver, 1.0
            ) + _LAST_SLICE_WEIGHT * self.last_rates[improver]


def _min_rate(improver: str) -> float:
    """Return the gain rate that an improver keeps where no improver gains anything."""
    return _MIN_RATE_SHARES.get(improver, _DEFAULT_MIN_RATE_SHARE) * _INITIAL_RATES.get(improver, 1.0)


def shares_of_bound_gain(gains: Iterable[MeasuredGain]) -> dict[str, float]:
    """Return each improver's share in how much agents' work has lowered the upper bound, the largest share first.

    The shares add up to 1. Improvers of the whole problem are left out: their bounds are reported when they are proven.
    The result is empty if no agent's part of the gap has shrunk.
    """
    closed_gaps = {
        improver: total.closed_gap
        for improver, total in _totals_by_improver(gains).items()
        if improver not in _WHOLE_PROBLEM_IMPROVERS
    }
    shares = _split_in_proportion(1.0, closed_gaps)
    return dict(sorted(shares.items(), key=lambda share: -share[1]))


def improvers_of_assignment(improvers: Iterable[str]) -> list[str]:
    """Return those of some improvers whose lower tables assignments are combined from; all if there are none."""
    improvers = list(dict.fromkeys(improvers))
    return [improver for improver in improvers if improver in _LOWER_TABLE_IMPROVERS] or improvers


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
