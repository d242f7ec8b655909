"""Degrees of violation as functions of loads: the form in which local search keeps global constraints up to date.

A constraint has *cells*, for instance one per value, per time, or per place and time. Each *item* adds its weight to
the loads of a range of consecutive cells; the range depends on the values of one or two variables, for instance on a
start and its place. The degree is a function of the loads, so a move changes it by the cells of the moved items only.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class CellItem(NamedTuple):
    """An addition to the loads of a range of cells, which depends on one or two variables.

    Attributes
    ----------
    positions : tuple of int
        One or two positions in the constraint's scope, on whose values the range depends.
    first : ndarray of int32, shape (values,) or (values, values)
        First cell of the range for each combination of values; −1 if there is no range.
    length : int
        Number of cells of the range.
    weight : int
        The load that the item adds to each cell of the range, at least 1.
    """

    positions: tuple[int, ...]
    first: NDArray[np.int32]
    length: int
    weight: int


class CellLoads(NamedTuple):
    """Cells, items, and the degree as a function of the loads.

    Attributes
    ----------
    items : tuple of CellItem
        The items.
    cells : int
        Number of cells.
    penalty : ndarray of int64, shape (largest argument + 1,)
        The degree is Σ_cells ``penalty[load]``; with ``counts_runs`` it is ``penalty[number of runs]``.
    counts_runs : bool
        Whether the degree is a function of the number of maximal runs of consecutive cells with a positive load.
    """

    items: tuple[CellItem, ...]
    cells: int
    penalty: NDArray[np.int64]
    counts_runs: bool = False

    def degree(self, values: Sequence[int]) -> int:
        """Return the degree of violation of one combination of values of the constraint's scope."""
        change = np.zeros(self.cells + 1, dtype=np.int64)
        for item in self.items:
            first = int(item.first[tuple([values[i] for i in item.positions])])
            if first >= 0:
                change[first] += item.weight
                change[first + item.length] -= item.weight
        loads = np.cumsum(change[:-1])
        if self.counts_runs:
            occupied = loads > 0
            return int(self.penalty[np.count_nonzero(occupied[1:] & ~occupied[:-1]) + int(occupied[:1].any())])
        return int(self.penalty[loads].sum())


def excess_penalty(capacity: int, largest: int, unit: int = 1) -> NDArray[np.int64]:
    """Return ``unit`` · max(0, load − ``capacity``) for the loads 0, ..., ``largest``."""
    return unit * np.maximum(0, np.arange(largest + 1, dtype=np.int64) - capacity)


def time_grid(
    starts: Sequence[NDArray[np.int64]], durations: Sequence[int]
) -> tuple[int, int, list[NDArray[np.int64]], list[int]]:
    """Return a grid of steps of time on which all intervals start and end.

    Parameters
    ----------
    starts : sequence of ndarray of int64, shape (values,)
        For each interval, the time of each value of its start.
    durations : sequence of int
        The duration of each interval.

    Returns
    -------
    steps : int
        Number of steps from the earliest start to the latest end.
    unit : int
        Duration of a step: the largest one for which all starts and durations are whole numbers of steps.
    start_steps : list of ndarray of int64
        The starts in steps, from 0.
    lengths : list of int
        The durations in steps.
    """
    earliest = min((int(s.min()) for s in starts), default=0)
    shifted = [s - earliest for s in starts]
    unit = max(1, int(np.gcd.reduce(np.concatenate([[0], durations, *shifted]).astype(np.int64))))
    start_steps, lengths = [s // unit for s in shifted], [d // unit for d in durations]
    steps = max((int(s.max()) + d for s, d in zip(start_steps, lengths, strict=True)), default=0)
    return max(1, steps), unit, start_steps, lengths
