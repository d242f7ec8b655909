"""Degrees of violation as functions of loads: the form in which local search keeps global constraints up to date.

A constraint has *cells*, for instance one per value, per time, or per place and time. Each *item* adds its weight to
the loads of a range of consecutive cells; the range depends on the values of one or two variables, for instance on a
start and its place. Cells have widths, for instance in units of time. The degree is a function of the loads, so a move
changes it by the cells of the moved items only.
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
    first, end : ndarray of int32, shape (values,) or (values, values)
        First cell of the range, and the cell after its last one, for each combination of values; −1 and −1 if there is
        no range.
    weight : int
        The load that the item adds to each cell of the range, at least 1.
    """

    positions: tuple[int, ...]
    first: NDArray[np.int32]
    end: NDArray[np.int32]
    weight: int

    @classmethod
    def of_cells(cls, positions: tuple[int, ...], cells: NDArray[np.int64], weight: int) -> "CellItem":
        """Return an item that occupies one cell for each combination of values; −1 for none."""
        return cls(positions, cells.astype(np.int32), np.where(cells < 0, -1, cells + 1).astype(np.int32), weight)


class CellLoads(NamedTuple):
    """Cells, items, and the degree as a function of the loads.

    Attributes
    ----------
    items : tuple of CellItem
        The items.
    width : ndarray of int64, shape (cells,)
        How often each cell counts, for instance its units of time.
    penalty : ndarray of int64, shape (largest argument + 1,)
        The degree is Σ_cells ``width[cell] · penalty[load]``; with ``counts_runs`` it is ``penalty[number of runs]``.
    counts_runs : bool
        Whether the degree is a function of the number of maximal runs of consecutive cells with a positive load.
    """

    items: tuple[CellItem, ...]
    width: NDArray[np.int64]
    penalty: NDArray[np.int64]
    counts_runs: bool = False

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.width.size

    @property
    def largest_degree(self) -> int:
        """An upper bound on the degree, exact for large numbers."""
        return max(0, int(self.penalty.max())) * (1 if self.counts_runs else sum(self.width.tolist()))

    def degree(self, values: Sequence[int]) -> int:
        """Return the degree of violation of one combination of values of the constraint's scope."""
        change = np.zeros(self.cells + 1, dtype=np.int64)
        for item in self.items:
            chosen = tuple([values[i] for i in item.positions])
            change[item.first[chosen]] += item.weight
            change[item.end[chosen]] -= item.weight
        loads = np.cumsum(change[:-1])
        if self.counts_runs:
            occupied = loads > 0
            return int(self.penalty[np.count_nonzero(occupied[1:] & ~occupied[:-1]) + int(occupied[:1].any())])
        return int((self.width * self.penalty[loads]).sum())


def excess_penalty(capacity: int, largest: int, unit: int = 1) -> NDArray[np.int64]:
    """Return max(0, ``unit`` · load − ``capacity``) for the loads 0, ..., ``largest``."""
    return np.maximum(0, unit * np.arange(largest + 1, dtype=np.int64) - capacity)


class TimeCells(NamedTuple):
    """The times between consecutive starts and ends of intervals, so that each interval occupies whole cells.

    The number of cells does not depend on the unit of time.

    Attributes
    ----------
    width : ndarray of int64, shape (cells,)
        Duration of each cell; at least one cell.
    first, end : list of ndarray of int64, shape (values,)
        For each interval and value of its start, its first cell and the cell after its last one.
    """

    width: NDArray[np.int64]
    first: list[NDArray[np.int64]]
    end: list[NDArray[np.int64]]


def time_cells(starts: Sequence[NDArray[np.int64]], durations: Sequence[int]) -> TimeCells:
    """Return the cells of time of some intervals.

    Parameters
    ----------
    starts : sequence of ndarray of int64, shape (values,)
        For each interval, the time of each value of its start.
    durations : sequence of int
        The duration of each interval.
    """
    ends = [start + duration for start, duration in zip(starts, durations, strict=True)]
    times = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *starts, *ends]))
    width = np.diff(times) if times.size > 1 else np.ones(1, dtype=np.int64)
    return TimeCells(width, [np.searchsorted(times, s) for s in starts], [np.searchsorted(times, e) for e in ends])
