"""Which temperatures suit a problem: chains over several ranges race, the better half goes on with twice the sweeps.

Each range has a lineage: its chain of a heat begins where that of the heat before has ended. So hot ranges, that forget
where they began, and cold ones, that improve it, are compared by what they make of the same start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.samplers.local_search.chains import Range

# The first suit problems whose factors are alike, the others those whose utilities have many magnitudes, or constraints
# written as large costs.
RANGES: tuple[Range, ...] = (
    Range(0.4, 0.1), Range(0.2, 0.02), Range(0.05, 0.005), Range(1.0, 0.01),
    Range(0.2, 0.002), Range(6.4, 0.05), Range(1.0, 0.1), Range(1.0, 0.001),
)  # fmt: skip
# Beside them where something is forbidden: first the violations cool, at temperatures that hardly see utilities.
STRICT: tuple[Range, ...] = (Range(6.4, 1.0, 16.0), Range(6.4, 0.05, 16.0))
REHEAT = 0.5  # of a range's first temperature: chains that go on from the best assignment
_FIRST, _LAST = 16, 1 << 14  # sweeps of a chain in the first heat of the first race; in the last of any
_GROWTH = 4  # of the first heat from race to race
_LEFT = 2  # ranges that go on to the end
_GO_ON, _FEW_GO_ON = 2, 4  # of so many lineages one goes on; where sweeps take long
_LONGER = 3  # times as long is the first heat there

Values = NDArray[np.int64]


@dataclass
class Entry:
    """A range, and where its chain goes on, with what that is worth; from the best assignment if that is None."""

    span: Range
    values: Values | None = None
    utility: Any = None


class Ended(Protocol):
    """A chain that has had its heat: where it is now, and what orders that."""

    @property
    def end(self) -> Any:
        """The worth of where it is now."""
        ...

    def last(self) -> Values:
        """Return where it is now."""
        ...


class Race:
    """Who runs the next heat, and how long.

    Parameters
    ----------
    spans
        The ranges that race.
    left : int
        How many of them go on to the end.
    slow : bool
        Whether sweeps take so long that there will be few heats.

    Attributes
    ----------
    entries : list of Entry
        Lineages first, then chains that reheat the best assignment.
    sweeps : int
        Of each chain.
    """

    def __init__(self, spans: Sequence[Range] = RANGES, left: int = _LEFT, slow: bool = False) -> None:
        self._spans, self._left, self._go_on = spans, left, _FEW_GO_ON if slow else _GO_ON
        self.sweeps = self._first = _LONGER * _FIRST if slow else _FIRST
        self._races = 0
        self.entries = [Entry(span) for span in spans]
        self._lineages = len(spans)

    def next(self, chains: Sequence[Ended], domains: NDArray[np.int64]) -> None:
        """Go on to the next heat, or to a new race: every other one begins at random values.

        Parameters
        ----------
        chains
            What the entries have done.
        domains
            Domain sizes.
        """
        ranking = sorted(range(self._lineages), key=lambda i: (chains[i].end, -i), reverse=True)
        kept = ranking[: max(self._left, self._lineages // self._go_on)]
        self.sweeps *= 2
        if self.sweeps <= _LAST:
            self.entries = [Entry(self.entries[i].span, chains[i].last(), chains[i].end) for i in sorted(kept)]
            self._lineages = len(self.entries)
            self.entries += [Entry(_reheated(entry.span)) for entry in self.entries]
            return
        self._races += 1
        self._first = self.sweeps = min(self._first * _GROWTH, _LAST // 4)
        start = np.random.default_rng(self._races).integers(0, domains) if self._races % 2 else None
        self.entries, self._lineages = [Entry(span, start) for span in self._spans], len(self._spans)


def part_of_race(ranges: Sequence[Range], rank: int, size: int, threads: int, slow: bool = False) -> Race:
    """Return the race of one of several ranks that search each on their own: its part of the ranges, in turn.

    Together they are as many as threads, or at least one of each, and as many go on as without ranks.
    """
    whole = max(len(ranges), threads * size)
    spans = [ranges[i % len(ranges)] for i in range(rank, whole, size)]
    return Race(spans, max(1, max(_LEFT, threads * size // 2) // size), slow)


def _reheated(span: Range) -> Range:
    return span._replace(first=max(span.last, REHEAT * span.first))
