"""The bound of ``dual`` and ``triangles``: one dual ascent with the interface free, then one for every row.

The first one's shifts are where every row starts from: most of what it would have to find is found once. A row's
state is not kept; with more time, rows are done again with more sweeps, from a better start.
"""

import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.protocol import Pruned, Rows
from dmcmc.inference.bounds.dual import pair_kernels as kernels
from dmcmc.inference.bounds.dual import row_kernels as rows
from dmcmc.inference.bounds.dual.decomposed_bounds import Part, encode_parts, maxima
from dmcmc.inference.bounds.dual.graph import CLUSTER_BYTES, Layout, Shares, add_triangles, lay_out, spread
from dmcmc.inference.bounds.dual.integer_scaling import encode_bounds
from dmcmc.inference.bounds.dual.row_ascent import Helpers, RowWork, ascend_rows
from dmcmc.inference.bounds.dual.row_kernels import FIRST_SHIFTS
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import ROWS, SCRATCH
from dmcmc.inference.bounds.dual.triplet_regions import frustrated
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.deadline import NO_STOP
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.threads import run_watched

MOST_ROWS = 1 << 20  # more are not enumerated: the bound is then what the interface alone tells
SHIFTS = 10  # sweeps with the interface free for each sweep that every row gets: better than 3 or 30
FIRST_SHARE = 0.6  # of the time is for the first FIRST_SHIFTS with the interface free, at most
WARMTH, _WARMTH = 0.15, 0.08  # of how far a pair's entries are apart is the temperature of the first sweeps, at most;
# and for each triangle of a pair
_ENOUGH, _WARMER = 12, 1.3  # with fewer sweeps than this warm ones lead less far; what they take, of a sweep without
_FIX = 0.5  # sweeps: what it takes to fix a row
_PARTS = 6  # in which rows are done, so that the time that is left is met
_BATCH = 0.2  # seconds of sweeps with the interface free between two looks at the time
_KEPT = 3  # batches of sweeps whose paces are kept: the least is taken, since others may have had the core for a moment
_FEW = 4  # pairs for each triangle: where there are fewer, more triangles cost more than they bring
_PAYS = 0.05  # of what the bound fell by a sweep before triangles were added is enough for more
_LIVE = 1 << 26  # bytes of rows' values that are kept
_Live = tuple[NDArray[np.int64], NDArray[np.bool_]]  # places of rows, and which values are left of each


class Elsewhere(Protocol):
    """Another place that has a state's shares, ascends there, and brings them when it is asked."""

    def shares(self) -> Shares:
        """Return the shares as they are there."""
        ...


def _joined(live: Sequence[_Live]) -> _Live:
    """Return several rows' places and values as one."""
    return np.concatenate([places for places, _ in live]), np.concatenate([values for _, values in live])


class DualState:
    """A bound by dual ascent; :class:`dmcmc.inference.bounds.contract.protocol.PruningState`.

    Attributes
    ----------
    layout : Layout
    bounds : (rows,) int64
        The best bound of each row in the layout's scale; empty where there are more than :data:`MOST_ROWS`.
    done : int
        Sweeps made with the interface free.
    fits : bool
        Whether all entries are within the limits, so that more can be made.
    enumerated : bool
        Whether there is a bound for each row.
    fixed : bool
        Whether the layout stays as it is: somebody else goes by it, or more triangles do not pay.
    elsewhere : Elsewhere or None
        Where the shares are as well, to go on with there.
    helpers : Helpers or None
        Others that do a part of the rows.
    warmth : float32
        The temperature of the first sweeps, in the scale; 0 where the graph has few triangles, and without a time
        budget: then bounds are a GPU's, to the bit.
    backend : Backend
        What its work may take.
    exhausted : bool
        Whether nothing more is to be gained.
    """

    def __init__(self, local: LocalProblem, triangles: bool, backend: Backend = CPU) -> None:
        self.local = local
        self.backend = CPU  # what comes first is never cut short
        self.layout: Layout = lay_out(local, triangles)
        self._shares = self.layout.shares
        self._behind = False  # whether they are newer elsewhere
        self.elsewhere: Elsewhere | None = None
        self.helpers: Helpers | None = None
        self.done = 0
        self.fits = True
        self.fixed = not triangles
        self._last: tuple[int, float, float] | None = None
        self._paces: tuple[float, ...] = ()  # seconds of a sweep with the interface free, in the last batches
        self._cooling = FIRST_SHIFTS  # sweeps with the interface free until which they cool
        width = self.width
        self._scratch = np.zeros((SCRATCH, width, width), dtype=np.int32)
        self.warmth = np.float32(0)
        self.enumerated = local.rows <= MOST_ROWS
        self._shape = np.array(local.interface_shape, dtype=np.int64)
        whole, apart = self.layout.whole, spread(self.shares)
        self._shift(1)
        timed = backend.stop.until < float("inf")
        if timed and self.enumerated and len(whole.triangles) >= max(1, len(whole.pairs)):
            self.warmth = np.float32(min(WARMTH, _WARMTH * len(whole.triangles) / len(whole.pairs)) * apart)
        found = kernels.bound(whole, self.shares)
        self.bounds = np.full(local.rows if self.enumerated else 0, found, dtype=np.int64)
        self.exhausted = not self.layout.n_hidden  # rows are sums of entries then
        if self.exhausted:
            self._run(self.rows(None), 0, None)
        self.backend = backend

    @property
    def shares(self) -> Shares:
        """The reparametrisation with the interface free."""
        if self._behind and self.elsewhere is not None:
            self._shares, self._behind = self.elsewhere.shares(), False
        return self._shares

    def moved(self, done: int, fits: bool) -> None:
        """Take note that it has been ascended to ``done`` sweeps elsewhere: shares are fetched when somebody asks."""
        self.done, self.fits, self._behind = done, fits, True

    def return_here(self) -> None:
        """Bring the shares back; what is elsewhere is out of date from now on."""
        self._shares, self.elsewhere = self.shares, None

    @property
    def width(self) -> int:
        """Columns of a table: the largest padded domain."""
        return int(self.layout.shares.unary.shape[1])

    @property
    def row_warmth(self) -> np.float32:
        """The temperature of the first sweeps of rows, and of nodes in them."""
        return np.float32(self.warmth * ROWS)

    @property
    def whole(self) -> bool:
        """Whether all utilities are integers."""
        return self.layout.scale.whole

    @property
    def pace(self) -> float:
        """Seconds of a sweep with the interface free; 0 where that is not known."""
        return min(self._paces, default=0.0)

    def copied(self) -> "DualState":
        """Return the same as it is now, to go on with in another way: with more triangles."""
        self.return_here()
        other = copy(self)
        other._shares = Shares(*(part.copy() for part in self._shares))
        other.layout = replace(self.layout, shares=other._shares)
        other.bounds, other._scratch = self.bounds.copy(), np.zeros_like(self._scratch)
        other.fixed, other._last = False, None
        return other

    def improve(self, seconds: float | None = None, sweeps: int | None = None, rows: Rows | None = None) -> None:
        """Tighten the bound; ``sweeps`` counts those of every row, and some with the interface free go with them."""
        self._work(self.rows(rows), seconds, sweeps, None)

    def prune(
        self,
        thresholds: NDArray[Any],
        rows: Rows | None = None,
        seconds: float | None = None,
        sweeps: int | None = None,
    ) -> Pruned:
        """Remove values with which a row cannot reach its threshold."""
        chosen, limits = self.reaching(thresholds, rows)
        places, live = self._work(chosen, seconds, sweeps, limits)
        if self.backend.stop.over:  # rows that were not looked at have nothing in ``live``
            places, live = places[:0], live[:0]
        return Pruned(self, chosen[places], np.asarray(thresholds)[chosen[places]], live)

    def reaching(
        self, thresholds: NDArray[Any], rows: Rows | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows whose bounds reach their thresholds, and those in the layout's scale."""
        chosen, scale = self.rows(rows), self.layout.scale
        limits = scale.encode_all(np.asarray(thresholds)[chosen])
        left = self.bounds[chosen] >= limits
        return chosen[left], limits[left]

    def pruned(
        self, chosen: NDArray[np.int64], limits: NDArray[np.int64], thresholds: NDArray[Any], live: NDArray[np.bool_]
    ) -> Pruned:
        """Return what is left of rows whose bounds have been lowered; ``live`` (k, hidden, W) are their values."""
        left = self.bounds[chosen] >= limits
        return Pruned(self, chosen[left], np.asarray(thresholds)[chosen[left]], live[left])

    def lower(self, rows: Rows, values: Sequence[int | float]) -> None:
        """Take bounds that are known from elsewhere, one a row."""
        encoded = np.array([self.layout.scale.encode_up(v) for v in values], dtype=np.int64)
        np.minimum.at(self.bounds, np.asarray(rows, dtype=np.int64), encoded)

    def tables(self, arithmetic: Arithmetic) -> tuple[Table, ...]:
        """Return one table over the interface; small ones over its parts where it has too many rows."""
        if self.enumerated:
            bounds = encode_bounds(self.bounds, self.layout.scale, arithmetic)
            return (Table(self.local.interface, bounds.reshape(tuple(self._shape))),)
        return encode_parts(self.parts(), self.layout.scale, self.local, arithmetic)

    def rows(self, wanted: Rows | None) -> NDArray[np.int64]:
        """Return wanted rows as an array: all that are enumerated if None."""
        return np.arange(self.bounds.size) if wanted is None else np.asarray(wanted, dtype=np.int64)

    def _work(
        self,
        chosen: NDArray[np.int64],
        seconds: float | None,
        sweeps: int | None,
        limits: NDArray[np.int64] | None,
    ) -> _Live:
        """Ascend with the interface free, then in some rows; return which values are left if there are limits."""
        if seconds is None:
            wanted = 10 if sweeps is None else sweeps
            self._shift(SHIFTS * wanted - self.done)
            return self._run(chosen, wanted, limits)
        start, lanes = time.perf_counter(), self._lanes(chosen)
        self.tighten()
        share = SHIFTS / (SHIFTS + chosen.size / lanes) if self.layout.n_hidden else 1.0
        batch, made, planned = 1, self.done, False
        while self.fits and not self.backend.stop.over:
            limit = max(share, FIRST_SHARE) if self.done < FIRST_SHIFTS else share
            if not planned:
                self._plan(start + limit * seconds - time.perf_counter())
                planned = len(self._paces) == _KEPT
            again = self.done == made and len(self._paces) < _KEPT  # the last sweep may have been held up by others
            if not again and time.perf_counter() + batch * self.pace > start + limit * seconds:
                break
            self._shift(batch)
            batch = min(2 * batch, 16)
        pace = (time.perf_counter() - start) / (self.done - made) if self.done > made else self.pace
        live = [self._none_live()]
        done, swept, begin = 0, 0.0, time.perf_counter()
        for part in np.array_split(chosen, min(_PARTS, -(-chosen.size // lanes))) if chosen.size else []:
            if self.backend.stop.over:
                break
            # On the average of all parts so far: cores that others use as well come and go.
            left = start + seconds - time.perf_counter()
            count = max(0, int(0.25 + left / max(pace, 1e-9) / -(-(chosen.size - done) // lanes)))
            places, values = self._run(part, count, None if limits is None else limits[done : done + part.size])
            live.append((places + done, values))
            done += part.size
            swept += (count + _FIX) * -(-part.size // lanes)
            pace = (time.perf_counter() - begin) / swept
        return _joined(live)

    def tighten(self) -> None:
        """Add triangles for cycles where the graph has few, as long as the bound goes on falling fast with them."""
        whole = self.layout.whole
        if self.fixed or not self.fits or self.done < FIRST_SHIFTS:
            return
        if self._last is None and _FEW * len(whole.triangles) > len(whole.pairs):
            self.fixed = True
            return
        self.return_here()
        now, before = float(kernels.bound(whole, self.shares)), self._last
        rate = (before[1] - now) / max(1, self.done - before[0]) if before is not None else 0.0
        if before is not None and rate <= _PAYS * before[2]:
            self.fixed = True
            return
        room = ACCOUNT.part(1 / 16, CLUSTER_BYTES) // (12 * self.width * self.width) - len(whole.triangles)
        triples = frustrated(self.layout, self.shares, min(len(whole.pairs), room)) if room > 1 else []
        self.fixed, self._last, self._paces = not triples, (self.done, now, rate), ()
        self.layout, self._shares = add_triangles(self.layout, self.shares, triples)

    def _plan(self, seconds: float) -> None:
        """Let sweeps with the interface free cool within the seconds that there are; a few have no temperature."""
        fitting = int(seconds / (_WARMER * self.pace)) if self.pace else 0
        self._cooling = min(FIRST_SHIFTS, self.done + fitting) if fitting >= _ENOUGH else 0

    def _shift(self, sweeps: int) -> None:
        """Ascend with the interface free."""
        if not self.fits or sweeps <= 0:
            return
        self.return_here()
        end = self.done + sweeps
        while self.fits and self.done < end and not (self.done and self.backend.stop.over):
            start, many = time.perf_counter(), end - self.done
            if self.backend.stop is not NO_STOP:
                many = min(many, max(1, int(_BATCH / self.pace))) if self.pace else 1
            last = self._ascend(many)
            if many < last:  # not in the first call, which may compile
                self._paces = (*self._paces[1 - _KEPT :], (time.perf_counter() - start) / many)

    def _ascend(self, sweeps: int) -> int:
        """Make sweeps with the interface free; return how many were made in all, then."""
        halt, made = np.zeros(1, dtype=np.uint8), list[int]()
        whole, shares, first = self.layout.whole, self.shares, self.done
        kernel = cast(Callable[..., int], rows.ascend)

        def ascend() -> None:
            made.append(
                kernel(whole, shares, first, first + sweeps, self.warmth, first, self._cooling, self._scratch, halt)
            )

        run_watched([ascend], 1, self.backend.stop, halt)
        self.done = made[0]
        self.fits = self.done == first + sweeps  # or it is time to end
        return self.done

    def _none_live(self) -> _Live:
        return np.zeros(0, dtype=np.int64), np.zeros((0, self.layout.n_hidden, self.width), dtype=np.bool_)

    def _run(self, chosen: NDArray[np.int64], sweeps: int, limits: NDArray[np.int64] | None) -> _Live:
        """Lower the bounds of some rows; return which values are left of those that reach their limits.

        No more than :data:`_LIVE` bytes of values are kept: rows beyond that only have their bounds lowered.
        """
        if limits is None:
            self._run_piece(chosen, sweeps, None)
            return self._none_live()
        found, most = [self._none_live()], max(1, _LIVE // max(1, self.layout.n_hidden * self.width))
        room = most
        for first in range(0, chosen.size, most):
            piece = slice(first, first + most)
            live = self._run_piece(chosen[piece], sweeps, limits[piece])
            left = np.flatnonzero(self.bounds[chosen[piece]] >= limits[piece])[:room]
            found.append((first + left, live[left]))
            room -= left.size
        return _joined(found)

    def _run_piece(self, chosen: NDArray[np.int64], sweeps: int, limits: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        """Lower the bounds of some rows; return which values are left of each if there are limits to reach."""
        work = self._row_work(chosen, sweeps, limits)
        if self.helpers is not None and self.helpers.wanted(work):
            return self.helpers.ascend(work, self.bounds, self.backend)
        return ascend_rows(work, self.bounds, self.backend)[0]

    def _row_work(self, chosen: NDArray[np.int64], sweeps: int, limits: NDArray[np.int64] | None) -> RowWork:
        layout = self.layout
        graphs, shares = (layout.whole, layout.hidden), self.shares
        return RowWork(*graphs, shares, layout.slices, self._shape, self.done, chosen, sweeps, self.row_warmth, limits)

    def _lanes(self, chosen: NDArray[np.int64]) -> int:
        """Return how many rows are worked on at once."""
        helped = self.helpers is not None and self.helpers.wanted(self._row_work(chosen, 1, None))
        return self.backend.threads * (self.helpers.size if self.helpers is not None and helped else 1)

    def parts(self) -> list[Part]:
        """Return the maxima over hidden variables of every table by itself."""
        return maxima(self.layout, self.shares, self.local.interface)
