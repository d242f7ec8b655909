"""Attribute the gains of a time slice to the improvers that made them, and correct estimated costs by measured ones."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dmcmc.anytime.scheduler.proposal import Effect, MeasuredGain, Properties
from dmcmc.anytime.scheduler.tuning import MAX_COST_CORRECTION, MIN_SLICE_SECONDS
from dmcmc.solving.agent.gains import ImproverRecord

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
