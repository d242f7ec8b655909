"""The open nodes of a search in an agent's rows, best first, and what its rows' bounds are."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.leaf_assignments import Leaves
from dmcmc.inference.bounds.branch_and_bound.node_buffers import (
    JOB,
    JOB_ROW,
    JOB_SOURCE,
    JOB_SWEEPS,
    JOB_TARGET,
    JOB_THRESHOLD,
    LEAF,
    UNDONE,
    UNFIT,
    Found,
    Wave,
)
from dmcmc.inference.bounds.dual.integer_scaling import NEVER, Scale
from dmcmc.inference.runtime.types import Ints

MOST_NODES = 1 << 17  # that may be open before the search goes depth first
_NONE, _NEW = -1, -3  # no slot; a node that nothing has been done for yet, in place of a variable


class _Nodes(NamedTuple):
    """Open nodes, an entry of each array for each: what :class:`.Found` says of it, and where its tables are."""

    row: Ints
    bound: Ints
    slot: Ints
    variable: Ints
    first: NDArray[np.uint8]
    mask: NDArray[np.uint8]

    def where(self, chosen: NDArray[np.bool_]) -> "_Nodes":
        """Return some of them."""
        parts: list[Any] = [part[chosen] for part in self]
        return _Nodes(*parts)

    def joined(self, others: "_Nodes") -> "_Nodes":
        """Return these and others."""
        own, more = list[Any](self), list[Any](others)
        parts = [np.concatenate(pair) for pair in zip(own, more, strict=True)]
        return _Nodes(*parts)


class Tree:
    """Open nodes.

    Parameters
    ----------
    live : (n, W) bool
        The values of an agent's hidden variables.
    bounds : (rows,) int64
        Of the rows, in the agent's scale.
    slots : int
        For tables, at least 3.

    Attributes
    ----------
    thresholds : (rows,) int64
        What does not reach them does not matter.
    nodes : int
        That have been worked on.
    leaves : Leaves
        Assignments that it has come to.
    """

    def __init__(self, live: NDArray[np.bool_], bounds: Ints, scale: Scale, slots: int) -> None:
        self._shape, self._scale, self._start = live.shape, scale, bounds.copy()
        self.thresholds = np.full(bounds.size, NEVER, dtype=np.int64)
        self._limits = np.full(bounds.size, NEVER, dtype=np.int64)
        self._floors = np.full(bounds.size, NEVER, dtype=np.int64)  # what was closed is worth at most
        self._begun = np.zeros(bounds.size, dtype=np.bool_)
        self._free = list(range(slots - 1, -1, -1))
        self._all = np.packbits(live.reshape(1, -1), axis=1)
        self._open = self._roots(np.zeros(0, dtype=np.int64))
        self.nodes, self.leaves = 0, Leaves()

    @property
    def size(self) -> int:
        """How many nodes are open."""
        return int(self._open.row.size)

    def begin(self, bounds: Ints, rows: Ints, thresholds: Ints, limits: Ints) -> None:
        """Open rows that are not open yet, and raise thresholds; nodes that do not reach them are closed.

        Parameters
        ----------
        bounds : (all rows,)
            As they are known now.
        rows
            Those that matter.
        thresholds, limits
            Of these rows. The row whose bound is furthest beyond its limit goes first.
        """
        aside = np.ones(bounds.size, dtype=np.bool_)
        aside[rows] = False
        np.maximum.at(self.thresholds, rows, thresholds)
        self.thresholds[aside] = -NEVER
        self._limits[rows] = limits
        self._start = bounds.copy()
        self._open = self._open._replace(bound=np.minimum(self._open.bound, bounds[self._open.row]))
        new = rows[~self._begun[rows] & (bounds[rows] >= self.thresholds[rows])]
        self._begun[new] = True
        self._open = self._open.joined(self._roots(new))
        self._close()

    def bounds(self) -> tuple[Ints, Ints]:
        """Return the rows that have been searched, and at most what they are worth."""
        found = self._floors.copy()
        np.maximum.at(found, self._open.row, self._open.bound)
        rows = np.flatnonzero(self._begun)
        return rows, found[rows]

    def wave(self, most: int, root_sweeps: int, back_sweeps: int, sweeps: int) -> tuple[Ints, Wave]:
        """Return the best nodes, at most so many and as many as have slots, and the work that branches at them.

        A node without tables has a job of its own before its branches: it begins again at its row.
        """
        nodes, chosen = self._open, self._best(most)
        whole = nodes.variable[chosen] == _NEW
        chosen = chosen[: self._make_room(chosen, np.where(whole | (nodes.slot[chosen] >= 0), 1, 2))]
        whole, own = whole[: chosen.size], nodes.slot[chosen]
        without = own < 0
        own[without] = self._free[: -1 - int(without.sum()) : -1]
        del self._free[len(self._free) - int(without.sum()) :]
        groups = np.concatenate([[0], np.cumsum(without + np.where(whole, 0, 2))])
        of = np.repeat(np.arange(chosen.size), np.diff(groups))
        row_first = np.zeros(of.size, dtype=np.bool_)
        row_first[groups[:-1][without]] = True
        second = np.zeros(of.size, dtype=np.bool_)
        second[groups[1:][~whole] - 1] = True
        masks = self._masks(chosen)[of]
        branching = np.flatnonzero(~row_first)
        first = np.unpackbits(nodes.first[chosen], axis=1, count=self._shape[1]).astype(np.bool_)[of[branching]]
        masks[branching, nodes.variable[chosen][of[branching]]] &= first ^ second[branching, None]
        jobs = np.zeros((of.size, JOB), dtype=np.int64)
        jobs[:, JOB_ROW], jobs[:, JOB_SOURCE] = nodes.row[chosen][of], np.where(row_first, -1, own[of])
        jobs[:, JOB_TARGET] = own[of]
        others = np.flatnonzero(~row_first & ~second)
        jobs[others, JOB_TARGET] = [self._free.pop() for _ in range(others.size)]
        jobs[:, JOB_THRESHOLD] = self.thresholds[jobs[:, JOB_ROW]]
        jobs[:, JOB_SWEEPS] = np.where(row_first, np.where(whole[of], root_sweeps, back_sweeps), sweeps)
        return chosen, Wave(jobs, groups.astype(np.int64), masks)

    def take(self, chosen: Ints, wave: Wave, found: Found) -> None:
        """Put the nodes of a wave in the place of those that they come from."""
        nodes, of = self._open, np.repeat(np.arange(chosen.size), np.diff(wave.groups))
        undone = np.zeros(chosen.size, dtype=np.bool_)
        undone[of[found.bounds == UNDONE]] = True
        jobs, of, masks, found = _branches(wave, of, found)
        failed = found.bounds == UNFIT
        parents = nodes.bound[chosen]
        bounds = np.where(failed, parents[of], np.minimum(parents[of], found.bounds))
        stuck, leaf = found.variables < LEAF, found.variables == LEAF
        done = ~undone[of]
        self.nodes += int(done.sum())
        rows = jobs[:, JOB_ROW]
        # Nothing below a threshold is looked at, and values go: a row may be worth that much all the same.
        np.maximum.at(self._floors, rows[done], jobs[done, JOB_THRESHOLD] - 1)
        last = done & (leaf | (stuck & (jobs[:, JOB_SOURCE] < 0)))
        np.maximum.at(self._floors, rows[last], bounds[last])
        ended = last & leaf
        self._raise(rows[ended], bounds[ended])
        self.leaves.add(rows[ended], bounds[ended], found.masks[ended])
        again = done & stuck & ~last  # shifted too far: once more from its row
        keep = done & ~last
        masks = np.where(failed[:, None, None], masks, found.masks)
        slots = np.where(again, _NONE, jobs[:, JOB_TARGET])
        # What has not been done has left the tables that it would have begun with as they were.
        own = undone[of] & (jobs[:, JOB_TARGET] == nodes.slot[chosen][of])
        self._free += [int(s) for s in jobs[(~keep & ~own) | again, JOB_TARGET]]
        stay = np.ones(nodes.row.size, dtype=np.bool_)
        stay[chosen[~undone]] = False
        children = _Nodes(
            rows[keep], bounds[keep], slots[keep], np.where(stuck, _NEW, found.variables)[keep],
            np.packbits(found.firsts[keep], axis=1),
            np.packbits(masks[keep].reshape(-1, self._shape[0] * self._shape[1]), axis=1),
        )  # fmt: skip
        self._open = nodes.where(stay).joined(children)
        self._close()

    def _roots(self, rows: Ints) -> _Nodes:
        """Return rows as nodes."""
        k = rows.size
        return _Nodes(
            rows,
            self._start[rows],
            np.full(k, _NONE),
            np.full(k, _NEW),
            np.zeros((k, -(-self._shape[1] // 8)), dtype=np.uint8),
            np.repeat(self._all, k, axis=0),
        )

    def _masks(self, chosen: Ints) -> NDArray[np.bool_]:
        n, width = self._shape
        bits = np.unpackbits(self._open.mask[chosen], axis=1, count=n * width)
        return bits.astype(np.bool_).reshape(-1, n, width)

    def _slack(self) -> Ints:
        """Return by how much each node is beyond its row's limit: what it keeps the bound of the whole up by."""
        slack: Ints = self._open.bound - self._limits[self._open.row]
        return slack

    def _best(self, most: int) -> Ints:
        """Return the nodes with the most slack, the best first; of equal ones the oldest.

        Where very many are open, the newest: depth first, so that they do not get many more.
        """
        if self.size > MOST_NODES:
            return np.arange(self.size - 1, max(-1, self.size - 1 - most), -1)
        slack = self._slack()
        if self.size > 4 * most:  # a full sort of all of them would take longer than the work on a wave
            least = np.partition(slack, self.size - most)[self.size - most]
            among = np.flatnonzero(slack >= least)
            return among[np.argsort(-slack[among], kind="stable")][:most]
        return np.argsort(-slack, kind="stable")[:most]

    @property
    def slack(self) -> float:
        """By how much the worst open node is beyond its row's limit, utility; 0 where none is open."""
        if not self.size:
            return 0.0
        return max(0.0, math.ldexp(float(self._slack().max()), -self._scale.shift))

    def _make_room(self, chosen: Ints, needed: Ints) -> int:
        """Take slots from the nodes that come last, if needed; return how many of ``chosen`` have theirs."""
        missing = int(needed.sum()) - len(self._free)
        if missing > 0:
            slots, others = self._open.slot, np.ones(self._open.row.size, dtype=np.bool_)
            others[chosen] = False
            holders = np.flatnonzero((slots >= 0) & others)
            worst = holders[np.argsort(self._slack()[holders], kind="stable")][:missing]
            self._free += [int(s) for s in slots[worst]]
            slots[worst] = _NONE
        fitting = int(np.searchsorted(np.cumsum(needed), len(self._free), side="right"))
        if not fitting:  # all slots are those of chosen nodes
            later = chosen[1:][self._open.slot[chosen[1:]] >= 0]
            self._free += [int(s) for s in self._open.slot[later]]
            self._open.slot[later] = _NONE
            fitting = 1
        return fitting

    def _raise(self, rows: Ints, bounds: Ints) -> None:
        """Raise the thresholds of rows that are worth so much, if a bound is exact: less changes nothing any more."""
        step = 1 << max(0, self._scale.shift) if self._scale.whole else 1
        np.maximum.at(self.thresholds, rows, (bounds // step + 1) * step)

    def _close(self) -> None:
        """Close the nodes that do not reach their rows' thresholds."""
        closed = self._open.bound < self.thresholds[self._open.row]
        if not closed.any():
            return
        rows, bounds = self._open.row[closed], self._open.bound[closed]
        np.maximum.at(self._floors, rows, bounds)
        self._free += [int(s) for s in self._open.slot[closed] if s >= 0]
        self._open = self._open.where(~closed)


def _branches(wave: Wave, of: Ints, found: Found) -> tuple[Ints, Ints, NDArray[np.bool_], Found]:
    """Return the jobs that nodes come of, whose they are, their masks, and what is found of them.

    Others only bring a node's tables back.
    """
    kept = (wave.jobs[:, JOB_SOURCE] >= 0) | (np.diff(wave.groups)[of] == 1)
    parts: list[Any] = [part[kept] for part in found]
    return wave.jobs[kept], of[kept], wave.masks[kept], Found(*parts)
