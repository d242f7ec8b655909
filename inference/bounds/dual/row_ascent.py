"""Dual ascent of an agent's rows from where its shares are: by this process alone, or in parts by several.

All that the work needs is arrays, so that a process can do it which knows nothing else of the agent. Rows need nothing
of each other: their bounds are the same to the bit, whoever does which of them.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual import row_kernels as rows
from dmcmc.inference.bounds.dual.graph import Graph, Shares
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.dual.pair_kernels import THRESHOLD
from dmcmc.inference.bounds.dual.smoothed_triangle_kernels import SCRATCH
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.threads import run_watched
from dmcmc.inference.runtime.types import Ints

Live = NDArray[np.bool_]  # (rows, hidden, W): which values are left of each


class RowWork(NamedTuple):
    """What is to be done with some rows.

    Attributes
    ----------
    whole, hidden : Graph
    shares : Shares
        With the interface free: where each row starts from.
    slices : (stars of the hidden graph,) int64
    shape : (interface,) int64
    done : int
        Sweeps that the shares have had: with more of them, they are others.
    rows : (k,) int64
    sweeps : int
    warmth : float32
    limits : (k,) int64 or None
        Values with which a row stays below are removed; None removes nothing.
    """

    whole: Graph
    hidden: Graph
    shares: Shares
    slices: Ints
    shape: Ints
    done: int
    rows: Ints
    sweeps: int
    warmth: np.float32
    limits: Ints | None

    def of(self, first: int, last: int) -> "RowWork":
        """Return the same for some of the rows."""
        return self._replace(
            rows=self.rows[first:last], limits=None if self.limits is None else self.limits[first:last]
        )

    @property
    def entries(self) -> int:
        """Entries that are looked at, about."""
        hidden, width = self.hidden, self.shares.unary.shape[1]
        graph = (hidden.pairs.shape[0] + 3 * hidden.triangles.shape[0]) * width * width + int(hidden.star_at[-1])
        return int(self.rows.size * (1 + self.sweeps) * graph)

    @property
    def untouched(self) -> Live:
        """What is left of rows that nothing was done with."""
        hidden = self.hidden.domains.size
        return np.broadcast_to(
            self.shares.unary[:hidden] >= THRESHOLD, (self.rows.size, hidden, self.shares.unary.shape[1])
        )


class Helpers(Protocol):
    """Others that do a part of the rows."""

    size: int

    def wanted(self, work: RowWork) -> bool:
        """Return whether the work is worth the way to them."""
        ...

    def ascend(self, work: RowWork, bounds: Ints, backend: Backend) -> Live:
        """Do what :func:`ascend_rows` does, together with them."""
        ...


def ascend_rows(work: RowWork, bounds: Ints, backend: Backend) -> tuple[Live, bool]:
    """Lower the bounds of some rows.

    Parameters
    ----------
    bounds : (rows of the interface,) int64
        Taken down.

    Returns
    -------
    live : (k, hidden, W)
        Which values are left; (0, 0, 0) without limits. Of rows that there was no time for, nothing.
    whole : bool
        Whether there was time for all.
    """
    width, pruning, count = work.shares.unary.shape[1], work.limits is not None, work.rows.size
    live: Live = np.zeros((count, work.hidden.domains.size, width) if pruning else (0, 0, 0), dtype=np.bool_)
    thresholds = np.full(count, NEVER, dtype=np.int64) if work.limits is None else work.limits
    pieces = max(1, min(backend.threads, count))
    cuts = [count * i // pieces for i in range(pieces + 1)]
    kernel, halt = cast(Callable[..., None], rows.run_rows), np.zeros(1, dtype=np.uint8)

    def piece(first: int, last: int) -> None:
        kernel(
            work.whole,
            work.shares,
            work.hidden,
            _room(work.hidden, width),
            work.slices,
            work.rows[first:last],
            work.shape,
            work.sweeps,
            work.warmth,
            thresholds[first:last],
            bounds,
            live[first:last] if pruning else live,
            np.zeros((SCRATCH, width, width), dtype=np.int32),
            halt,
        )

    tasks = [partial(piece, a, b) for a, b in itertools.pairwise(cuts)]
    return live, run_watched(tasks, backend.threads, backend.stop, halt)


def _room(hidden: Graph, width: int) -> Shares:
    """Return room for the shares of the hidden graph."""
    return Shares(
        np.empty((hidden.domains.size, width), dtype=np.int32),
        np.empty((hidden.pairs.shape[0], width, width), dtype=np.int32),
        np.empty((hidden.triangles.shape[0], 3, width, width), dtype=np.int32),
        np.empty(int(hidden.star_at[-1]), dtype=np.int32),
    )
