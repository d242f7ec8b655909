"""Choose the temperatures that suit a problem by successive halving (Jamieson and Talwalkar, 2016).

Chains over several temperature ranges run in rounds of a *tournament*; after each round the better half continues with
twice the sweeps. A range's chain continues where it ended in the previous round. So hot ranges, which forget their
start, are compared with cold ranges, which improve it, by their results from the same start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.local_search.chains import TemperatureRange
from dmcmc.samplers.tuning import local_search as tuning

TEMPERATURE_RANGES: tuple[TemperatureRange, ...] = tuple(TemperatureRange(*span) for span in tuning.COMPETING_RANGES)
HARD_CONSTRAINT_RANGES: tuple[TemperatureRange, ...] = tuple(TemperatureRange(*span) for span in tuning.HARD_RANGES)

Values = NDArray[np.int64]


@dataclass
class ScheduledChain:
    """A chain of the next round.

    Attributes
    ----------
    span : TemperatureRange
        Its temperatures.
    values : (n,) int64 or None
        Where it begins; None for the best known assignment.
    utility
        Score of ``values``, see ``ChainStart``; None if unknown.
    """

    span: TemperatureRange
    values: Values | None = None
    utility: Any = None


class ChainResult(Protocol):
    """A chain that has finished a round."""

    @property
    def end_score(self) -> Any:
        """The score of its final assignment."""
        ...

    def end_values(self) -> Values:
        """Return its final assignment."""
        ...


class SuccessiveHalving:
    """The chains of the next round and their number of sweeps.

    Parameters
    ----------
    spans : sequence of TemperatureRange
        The ranges to compare.
    survivors : int
        Number of ranges that remain until the end of a tournament.
    slow : bool
        Whether sweeps take so long that few rounds are expected.

    Attributes
    ----------
    entries : list of ScheduledChain
        Chains that continue, then as many that reheat the best assignment. In the first round of a tournament: one
        chain per range, from the best assignment or (in every other tournament) from random values.
    sweeps : int
        Sweeps of each chain in the next round; doubled from round to round. A tournament ends after
        ``MAX_ROUND_SWEEPS``; the next one begins with four times the first round's sweeps, but at most a
        quarter of that.
    """

    def __init__(
        self,
        spans: Sequence[TemperatureRange] = TEMPERATURE_RANGES,
        survivors: int = 2,
        slow: bool = False,
    ) -> None:
        self._spans, self._survivors = spans, survivors
        self._reduction = 4 if slow else 2  # one of this many chains continues
        self.sweeps = self._first_sweeps = tuning.FIRST_ROUND_SWEEPS * (tuning.SLOW_SWEEP_FACTOR if slow else 1)
        self._tournaments = 0
        self.entries = [ScheduledChain(span) for span in spans]
        self._continued = len(spans)

    def next_round(self, chains: Sequence[ChainResult], domains: NDArray[np.int64]) -> None:
        """Advance to the next round or to a new tournament; every other tournament begins at random values.

        Parameters
        ----------
        chains : sequence of ChainResult
            Results of the entries, in the same order.
        domains : (n,) int64
            Domain sizes.
        """
        ranking = sorted(range(self._continued), key=lambda i: (chains[i].end_score, -i), reverse=True)
        surviving = ranking[: max(self._survivors, self._continued // self._reduction)]
        self.sweeps *= 2
        if self.sweeps <= tuning.MAX_ROUND_SWEEPS:
            self.entries = [
                ScheduledChain(self.entries[i].span, chains[i].end_values(), chains[i].end_score)
                for i in sorted(surviving)
            ]
            self._continued = len(self.entries)
            self.entries += [ScheduledChain(_reheated(entry.span)) for entry in self.entries]
            return
        self._tournaments += 1
        self._first_sweeps = self.sweeps = min(self._first_sweeps * 4, tuning.MAX_ROUND_SWEEPS // 4)
        start = np.random.default_rng(self._tournaments).integers(0, domains) if self._tournaments % 2 else None
        self.entries, self._continued = [ScheduledChain(span, start) for span in self._spans], len(self._spans)


def tournament_of_rank(
    ranges: Sequence[TemperatureRange], rank: int, size: int, threads: int, slow: bool = False
) -> SuccessiveHalving:
    """Return the tournament of one of several ranks that search independently, with its share of the ranges.

    All ranks together have at least one chain per thread and one per range, and as many survivors as a single rank.
    """
    total = max(len(ranges), threads * size)
    spans = [ranges[i % len(ranges)] for i in range(rank, total, size)]
    return SuccessiveHalving(spans, max(1, max(2, threads * size // 2) // size), slow)


def _reheated(span: TemperatureRange) -> TemperatureRange:
    """Return a range that begins at a lower temperature, for chains that start from the best assignment."""
    return span._replace(first=max(span.last, 0.5 * span.first))
