"""Steps of many descents side by side, written for any array library: the same as those of :mod:`.descent`.

All descents' arrays are as large: h variables of d values each, n = h·d values, r vectors' entries, o values of the
interface, k rows. What one has not is left out of all sums: entries of vectors are 0 and stay so, values are
forbidden, variables have no pairs, rows are far below their limits.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from dmcmc.inference.bounds.semidefinite.descent import LOOK
from dmcmc.inference.runtime.types import Array

Launch = Callable[[int], None]  # of a pass, for a step of a schedule


class Arrays(Protocol):
    """Where arrays live, and the two passes over them that an array library has not."""

    module: Any

    def put(self, array: Array) -> Any:
        """Return a copy there."""
        ...

    def get(self, array: Any) -> Array:
        """Return a copy here."""
        ...

    def product(self, left: Any, right: Any, out: Any, turned: bool = False, rough: bool = False) -> None:
        """Set ``out`` to products of matrices, (agents, ., .) each.

        Parameters
        ----------
        turned
            Whether those on the right are turned round.
        rough
            Whether what is multiplied may be rounded to 11 bits (TF32, on tensor cores).
        """
        ...

    def smooth(self, given: tuple[Any, ...], found: tuple[Any, ...], shape: tuple[int, int, int]) -> Launch:
        """Return what finds weights, marginals and maxima of all pairs for a step of the schedule."""
        ...

    def adam(self, arrays: tuple[Any, ...], schedule: Any, agents: int) -> Launch:
        """Return what moves an array against its slopes for a step of the schedule."""
        ...


class Shape(NamedTuple):
    """Sizes that all agents' arrays have."""

    agents: int
    h: int
    d: int
    r: int
    o: int
    k: int

    @property
    def n(self) -> int:
        """Values."""
        return self.h * self.d

    @property
    def bytes(self) -> int:
        """That a batch takes, about."""
        per_agent = (
            3 * self.n**2 + 8 * (self.n + self.o) * self.r + 8 * self.h * self.n + 8 * self.k * (self.n + self.r)
        )
        return 4 * self.agents * per_agent


class Given(NamedTuple):
    """What stands still while descents make steps.

    Attributes
    ----------
    utilities : (agents, n, n) float32
    sizes : (agents, h) int32
        Of domains, 0 where there is no variable.
    live : (agents, 1, h) float32
        Whether there is one.
    moves : (agents, h, n) float32
        Whether there is such a shift.
    select : (agents, k, o) float32
        Which values of the interface a row has.
    values : (agents, k, n) float32
    constants : (agents, k) float64
    """

    utilities: Any
    sizes: Any
    live: Any
    moves: Any
    select: Any
    values: Any
    constants: Any


class Steps:
    """Makes steps.

    Parameters
    ----------
    shape : Shape
    given : Given
    points
        Vectors of hidden values (agents, n, r) and of the interface's (agents, o, r) and shifts (agents, h, n): where
        descents are, the means of their slopes and of those's squares.
    arrays : Arrays

    Attributes
    ----------
    points
        Those.
    best
        Where the least was left.
    least : (agents,) float64
        What that was.
    """

    def __init__(self, shape: Shape, given: Given, points: Sequence[Sequence[Any]], arrays: Arrays) -> None:
        self.shape, self.points, self._given, self._arrays = shape, points, given, arrays
        xp, agents, h, n, k = arrays.module, shape.agents, shape.h, shape.n, shape.k
        self._slopes = [xp.zeros_like(part) for part in points[0]]
        self.best = [part.copy() for part in points[0]]
        self.least = xp.full(agents, np.inf)
        self._products, self._weights = xp.zeros_like(given.utilities), xp.zeros_like(given.utilities)
        self._marginals = xp.zeros((agents, h, n), dtype=np.float32)
        self._maxima = xp.zeros((agents, h, h), dtype=np.float32)
        self._entries = xp.zeros((agents, k, n), dtype=np.float32)
        self._squares = xp.zeros((agents, k, k), dtype=np.float32)

    def make(self, schedules: Array, made: int, rough: bool) -> None:
        """Make steps, (steps, agents, 4) of :class:`.descent.Schedule`, after so many; see now and then for the best.

        Parameters
        ----------
        rough
            Whether products may be.
        """
        words = self._arrays.put(schedules)
        smooth, moves = self._launches(words)
        for i in range(len(schedules)):
            beyond = self._look(smooth, words, i, rough)
            if (made + i) % LOOK == 0:
                self._keep(beyond)
            for move in moves:
                move(i)

    def end(self, schedule: Array, rough: bool) -> None:
        """See whether this is the best, by what the next step has, (1, agents, 4)."""
        words = self._arrays.put(schedule)
        self._keep(self._look(self._launches(words)[0], words, 0, rough))

    def _keep(self, beyond: Any) -> None:
        """Keep the points of descents that are better than before."""
        xp, better = self._arrays.module, beyond < self.least
        self.least = xp.where(better, beyond, self.least)
        for best, here in zip(self.best, self.points[0], strict=True):
            xp.copyto(best, here, where=better[:, None, None])

    def _launches(self, words: Any) -> tuple[Launch, list[Launch]]:
        """Return the passes for the steps of a schedule: over pairs, and what moves each array."""
        agents, h, d = self.shape[:3]
        given = self._given.utilities, self._products, self.points[0][2], self._given.sizes, words
        smooth = self._arrays.smooth(given, (self._weights, self._marginals, self._maxima), (agents, h, d))
        parts = zip(self.points[0], self._slopes, *self.points[1:], strict=True)
        return smooth, [self._arrays.adam(part, words, agents) for part in parts]

    def _look(self, smooth: Launch, words: Any, at: int, rough: bool) -> Any:
        """Find the slopes here; return what is left of the targets, about."""
        xp, size, given = self._arrays.module, self.shape, self._given
        hidden, outer, shifts = self.points[0]
        slope_hidden, slope_outer, slope_shifts = self._slopes
        agents, k, by_variable = size.agents, size.k, (size.agents, size.k, size.h, size.d)
        product = partial(self._arrays.product, rough=rough)
        product(hidden, hidden, self._products, turned=True)
        around = xp.matmul(given.select, outer)
        product(around, hidden, self._entries, turned=True)
        smooth(at)
        own = self._products.reshape(agents, -1)[:, :: size.n + 1] + shifts.sum(axis=1)
        entries = 2 * self._entries
        entries += own[:, None, :]
        entries += given.values
        entries = entries.reshape(by_variable)
        best = entries.max(axis=3)
        total = self._maxima.sum(axis=(1, 2), dtype=np.float64) / 2
        product(around, around, self._squares, turned=True)
        squares = self._squares.reshape(agents, -1)[:, :: k + 1]
        left = given.constants + squares + (best * given.live).sum(axis=2, dtype=np.float64)
        left += total[:, None]
        most = left.max(axis=1)

        rows = xp.exp((left - most[:, None]) * words[at, :, 1, None]).astype(np.float32)
        rows /= rows.sum(axis=1, keepdims=True)
        entries -= best[..., None]
        entries *= words[at, :, 0, None, None, None]
        chosen = xp.exp(entries)
        chosen *= (rows[:, :, None] * given.live / chosen.sum(axis=3))[..., None]
        chosen = chosen.reshape(agents, k, size.n)
        share = chosen.sum(axis=1)

        self._weights.reshape(agents, -1)[:, :: size.n + 1] = share  # a value's own square
        product(self._weights, hidden, slope_hidden)
        slope_hidden += xp.matmul(chosen.transpose(0, 2, 1), around)
        outward = xp.matmul(chosen, hidden)
        outward += rows[:, :, None] * around
        xp.matmul(given.select.transpose(0, 2, 1), outward, out=slope_outer)
        xp.subtract(share[:, None, :], self._marginals, out=slope_shifts)
        slope_shifts *= given.moves
        return most
