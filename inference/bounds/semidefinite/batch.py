"""Descents of several agents side by side: the same steps as :mod:`.descent`, written for any array library.

All agents' arrays are as large: h variables of d values each, n = h·d values, r vectors' entries, o values of the
interface, k rows. What an agent has not is left out of all sums: entries of vectors are 0 and stay so, values are
forbidden, variables have no pairs, rows are far below their limits.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from dmcmc.inference.bounds.semidefinite.descent import DEAD, LOOK, Descent, Point, Target, schedule
from dmcmc.inference.runtime.types import Array, Ints

Launch = Callable[[int], None]  # of a pass, for a step of a schedule

ROUGH = 1000  # steps of a descent in which products may be rough: later they would cost more than they save
_FAR = 1e15  # units: the limit of a row that is none
_ROUND = 8  # vectors' lengths are multiples of it


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


def shape_of(descents: Sequence[Descent], rows: int) -> Shape:
    """Return the sizes for some descents with so many rows at most."""
    networks = [descent.network for descent in descents]
    longest = max(descent.point.vectors.shape[1] for descent in descents)
    return Shape(
        len(descents),
        max(network.starts.size - 1 for network in networks),
        max(int(np.diff(network.starts).max()) for network in networks),
        -(-longest // _ROUND) * _ROUND,
        max(1, *(sum(network.shape) for network in networks)),
        rows,
    )


class Batch:
    """Descents that make their steps together.

    Parameters
    ----------
    descents
        Go on from where they are.
    targets
        One for each.
    arrays : Arrays
    rough : int
        Steps of a descent in which products may be.
    rows : int
        At least so many rows are laid out: array libraries compile for what they add up.
    """

    def __init__(
        self,
        descents: Sequence[Descent],
        targets: Sequence[Target],
        arrays: Arrays,
        rough: int = ROUGH,
        rows: int = 0,
    ) -> None:
        self.descents, self._arrays, self._rough = descents, arrays, rough
        self.shape = shape_of(descents, max(rows, *(target.limits.size for target in targets)))
        size, put, xp = self.shape, arrays.put, arrays.module
        agents, h, d, n = size.agents, size.h, size.d, size.n
        self._columns = [_columns(descent, d) for descent in descents]
        self._points = [self._laid_out([getattr(x, name) for x in descents]) for name in ("point", "means", "squares")]
        self._slopes = [xp.zeros_like(part) for part in self._points[0]]
        self._best = [part.copy() for part in self._points[0]]
        self._least = xp.full(agents, np.inf)
        sizes = np.zeros((agents, h), dtype=np.int32)
        utilities = np.zeros((agents, n, n), dtype=np.float32)
        for b, (descent, columns) in enumerate(zip(descents, self._columns, strict=True)):
            own = np.diff(descent.network.starts)
            sizes[b, : own.size] = own
            utilities[b][np.ix_(columns, columns)] = descent.in_units(descent.network.pairs)
        there = sizes > 0
        self._utilities, self._sizes, self._live = put(utilities), put(sizes), put(there.astype(np.float32)[:, None, :])
        apart = there[:, :, None] & there[:, None, :] & ~np.eye(h, dtype=bool)
        self._moves = put(np.repeat(apart, d, axis=2).astype(np.float32))  # shifts that there are
        self._products, self._weights = xp.zeros_like(self._utilities), xp.zeros_like(self._utilities)
        self._marginals = xp.zeros((agents, h, n), dtype=np.float32)
        self._maxima = xp.zeros((agents, h, h), dtype=np.float32)
        self._entries = xp.zeros((agents, size.k, n), dtype=np.float32)
        self._squares = xp.zeros((agents, size.k, size.k), dtype=np.float32)
        self._take_rows(targets)

    def run(self, more: Callable[[int], int]) -> list[Point]:
        """Make steps; return each descent's best point on the way.

        Parameters
        ----------
        more
            Told how many steps have been made now, says how many more there shall be before it is asked again; none
            end it. Those before have then been waited for.
        """
        made = 0
        while (wanted := more(made)) > 0:
            wanted = min([wanted, *(x.told_at - x.steps for x in self.descents if x.told_at is not None)])
            self._make(made, wanted)
            made += wanted
            self._tell(made)
        self._make(made, 0)
        self._return()
        best = [self._arrays.get(part) for part in self._best]
        return [self._taken_out(b, best) for b in range(self.shape.agents)]

    def _make(self, made: int, wanted: int) -> None:
        """Make steps; without any look whether this is the best point so far."""
        xp = self._arrays.module
        steps = [[schedule(descent.steps + i) for descent in self.descents] for i in range(max(1, wanted))]
        words = self._arrays.put(np.array(steps, dtype=np.float32))
        smooth, moves = self._launches(words)
        for i in range(max(1, wanted)):
            beyond = self._look(smooth, words, i)
            if not wanted or (made + i) % LOOK == 0:
                better = beyond < self._least
                self._least = xp.where(better, beyond, self._least)
                for best, here in zip(self._best, self._points[0], strict=True):
                    xp.copyto(best, here, where=better[:, None, None])
            if wanted:
                for move in moves:
                    move(i)
        for descent in self.descents:
            descent.steps += wanted

    def _launches(self, words: Any) -> tuple[Launch, list[Launch]]:
        """Return the passes for the steps of a schedule: over pairs, and what moves each array."""
        agents, h, d = self.shape[:3]
        smooth = self._arrays.smooth(
            (self._utilities, self._products, self._points[0][2], self._sizes, words),
            (self._weights, self._marginals, self._maxima),
            (agents, h, d),
        )
        parts = zip(self._points[0], self._slopes, *self._points[1:], strict=True)
        return smooth, [self._arrays.adam(part, words, agents) for part in parts]

    def _look(self, smooth: Launch, words: Any, at: int) -> Any:
        """Find the slopes here; return what is left of the targets, about."""
        xp, size = self._arrays.module, self.shape
        hidden, outer, shifts = self._points[0]
        slope_hidden, slope_outer, slope_shifts = self._slopes
        agents, k, by_variable = size.agents, size.k, (size.agents, size.k, size.h, size.d)
        product = partial(self._arrays.product, rough=all(descent.steps < self._rough for descent in self.descents))
        product(hidden, hidden, self._products, turned=True)
        smooth(at)
        around = xp.matmul(self._select, outer)
        own = self._products.reshape(agents, -1)[:, :: size.n + 1] + shifts.sum(axis=1)
        product(around, hidden, self._entries, turned=True)
        entries = 2 * self._entries
        entries += own[:, None, :]
        entries += self._values
        entries = entries.reshape(by_variable)
        best = entries.max(axis=3)
        total = self._maxima.sum(axis=(1, 2), dtype=np.float64) / 2
        product(around, around, self._squares, turned=True)
        squares = self._squares.reshape(agents, -1)[:, :: k + 1]
        left = self._constants + squares + (best * self._live).sum(axis=2, dtype=np.float64)
        left += total[:, None]
        most = left.max(axis=1)

        rows = xp.exp((left - most[:, None]) * words[at, :, 1, None]).astype(np.float32)
        rows /= rows.sum(axis=1, keepdims=True)
        entries -= best[..., None]
        entries *= words[at, :, 0, None, None, None]
        chosen = xp.exp(entries)
        chosen *= (rows[:, :, None] * self._live / chosen.sum(axis=3))[..., None]
        chosen = chosen.reshape(agents, k, size.n)
        share = chosen.sum(axis=1)

        self._weights.reshape(agents, -1)[:, :: size.n + 1] = share  # a value's own square
        product(self._weights, hidden, slope_hidden)
        slope_hidden += xp.matmul(chosen.transpose(0, 2, 1), around)
        outward = xp.matmul(chosen, hidden)
        outward += rows[:, :, None] * around
        xp.matmul(self._select.transpose(0, 2, 1), outward, out=slope_outer)
        xp.subtract(share[:, None, :], self._marginals, out=slope_shifts)
        slope_shifts *= self._moves
        return most

    def _take_rows(self, targets: Sequence[Target]) -> None:
        """Lay out the rows of all agents."""
        agents, k, n = self.shape.agents, self.shape.k, self.shape.n
        select = np.zeros((agents, k, self.shape.o), dtype=np.float32)
        values = np.full((agents, k, n), DEAD, dtype=np.float32)
        constants = np.full((agents, k), -_FAR)
        for b, (descent, target) in enumerate(zip(self.descents, targets, strict=True)):
            network, own = descent.network, target.limits.size
            values[b, :own, self._columns[b]] = descent.in_units(network.values(target.digits)).T
            constants[b, :own] = (network.constants(target.digits) - target.limits) / descent.unit
            for row, column in np.ndindex(*target.digits.shape):
                select[b, row, sum(network.shape[:column]) + target.digits[row, column]] = 1
        put = self._arrays.put
        self._select, self._values, self._constants = put(select), put(values), put(constants)

    def _tell(self, made: int) -> None:
        """Wait for what was asked for; note what is left of the targets where that is told."""
        if any(descent.steps == descent.told_at for descent in self.descents):
            self._make(made, 0)
        least = self._arrays.get(self._least)
        for descent, one in zip(self.descents, least.tolist(), strict=True):
            if descent.steps == descent.told_at:
                descent.trial.append(one * descent.unit)

    def _laid_out(self, points: Sequence[Point]) -> list[Any]:
        """Return the agents' vectors of hidden values and of the interface's, and their shifts."""
        agents, h, n, r, o = self.shape.agents, self.shape.h, self.shape.n, self.shape.r, self.shape.o
        sizes = (agents, n, r), (agents, o, r), (agents, h, n)
        parts = [np.zeros(size, dtype=np.float32) for size in sizes]
        for b, (point, columns) in enumerate(zip(points, self._columns, strict=True)):
            own, long = columns.size, point.vectors.shape[1]
            parts[0][b, columns, :long] = point.vectors[:own]
            parts[1][b, : len(point.vectors) - own, :long] = point.vectors[own:]
            parts[2][b][: len(point.shifts), columns] = point.shifts
        return [self._arrays.put(part) for part in parts]

    def _taken_out(self, b: int, parts: Sequence[Array]) -> Point:
        """Return an agent's point of some that were laid out."""
        columns, (vectors, shifts) = self._columns[b], self.descents[b].point
        long, outer = vectors.shape[1], len(vectors) - columns.size
        found = np.concatenate([parts[0][b, columns, :long], parts[1][b, :outer, :long]])
        return Point(found, np.ascontiguousarray(parts[2][b][: len(shifts), columns]))

    def _return(self) -> None:
        """Let descents be where they have come to."""
        points = [[self._arrays.get(part) for part in point] for point in self._points]
        for b, descent in enumerate(self.descents):
            descent.point, descent.means, descent.squares = (self._taken_out(b, parts) for parts in points)


def _columns(descent: Descent, d: int) -> Ints:
    """Return where an agent's values are among those of a batch with d values a variable."""
    network = descent.network
    found: Ints = network.owner * d + np.arange(network.owner.size) - network.starts[network.owner]
    return found
