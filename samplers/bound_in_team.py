"""An agent's rows bounded by several ranks: its own, which is the first of a team, and those that own no agent.

The first sends where its shares are, whenever those have changed, and which rows it is about; each rank ascends in its
part of them, and the first takes their bounds and the values that are left. Others know nothing else of the bound.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dmcmc.inference.bounds.dual.graph import Graph, Shares
from dmcmc.inference.bounds.dual.row_ascent import Live, RowWork, ascend_rows
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.samplers.contract.team import Parts, Team, share_of

ROWS = 2.0  # says that rows are to be bounded, in the second place of what the first sends

_FEW, _LEAST = 4, 1 << 24  # rows a rank; entries: fewer are done sooner than told
_SENT = 8  # entries that are looked at while one is sent
_MOST = np.iinfo(np.int64).max


class RowsInTeam:
    """The first rank's way to the others; a :class:`.Helpers`."""

    def __init__(self, team: Team) -> None:
        self.size, self._team = team.size, team
        self._known: tuple[Shares, int] | None = None  # what the others have

    def wanted(self, work: RowWork) -> bool:
        """Return whether the work is worth the way to them."""
        sent = 0 if self._knows(work) else sum(part.size for part in work.shares)
        return work.rows.size >= _FEW * self.size and work.entries >= _LEAST + _SENT * sent

    def ascend(self, work: RowWork, bounds: Ints, backend: Backend) -> Live:
        """Lower the bounds of some rows, each rank those of its part."""
        self._team.together(lambda: self._told(work, backend))
        self._known = work.shares, work.done
        found = list[Live]()

        def own() -> Parts:
            found.append(ascend_rows(work.of(*share_of(work.rows.size, self._team)), bounds, backend)[0])
            return []

        for rank, part in enumerate(self._team.together(own)):
            if rank == 0:
                continue
            mine = work.of(*share_of(work.rows.size, self._team, rank))
            np.minimum.at(bounds, mine.rows, part[0])
            if work.limits is not None:
                whole = mine.untouched
                bits = np.unpackbits(part[1], count=whole.size).astype(np.bool_).reshape(whole.shape)
                found.append(bits if part[2].all() else bits | whole)  # nothing is known of rows without time
        return np.concatenate(found) if work.limits is not None else found[0]

    def _knows(self, work: RowWork) -> bool:
        """Return whether the others have these shares: the same arrays, which have not been ascended since."""
        return self._known is not None and self._known[0] is work.shares and self._known[1] == work.done

    def _told(self, work: RowWork, backend: Backend) -> Parts:
        """Return what the others need."""
        known, limits = self._knows(work), work.limits
        head = [backend.stop.left, ROWS, work.sweeps, work.warmth, limits is not None, known]
        now: list[Array] = [np.array(head, dtype=np.float64), work.rows]
        now.append(np.zeros(0, dtype=np.int64) if limits is None else limits)
        return now if known else [*now, work.slices, work.shape, *work.whole, *work.hidden, *work.shares]


class Helping:
    """One of the other ranks."""

    def __init__(self, backend: Backend, team: Team) -> None:
        self._backend, self._team = backend, team
        self._work: RowWork | None = None

    def ascend(self, told: Sequence[Array]) -> None:
        """Lower the bounds of this rank's part of what the first rank has told."""
        self._team.together(lambda: self._found(told))

    def _found(self, told: Sequence[Array]) -> Parts:
        begun, (head, rows, limits, *more) = time.perf_counter(), told
        left, _, sweeps, warmth, pruning, known = head.tolist()
        if not known:
            cut = 2 + len(Graph._fields)
            end = cut + len(Graph._fields)
            graphs = Graph(*more[2:cut]), Graph(*more[cut:end])
            self._work = RowWork(*graphs, Shares(*more[end:]), more[0], more[1], 0, rows, 0, np.float32(0), None)
        assert self._work is not None, "shares come first"
        work = self._work._replace(
            rows=rows, limits=limits if pruning else None, sweeps=int(sweeps), warmth=np.float32(warmth)
        ).of(*share_of(rows.size, self._team))
        bounds = np.full(int(np.prod(work.shape)), _MOST, dtype=np.int64)
        live, whole = ascend_rows(work, bounds, replace(self._backend, stop=self._stop(left, begun)))
        return [bounds[work.rows], np.packbits(live), np.array([whole])]

    def _stop(self, left: float, begun: float) -> Stop:
        """Return when to end: not where the first rank does not, either."""
        return NO_STOP if left == np.inf else self._backend.stop.by(begun + left)
