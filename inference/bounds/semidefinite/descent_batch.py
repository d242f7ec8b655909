"""Descents of several agents side by side: what goes into :mod:`.steps` and comes out of it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.semidefinite.batched_steps import Arrays, Given, Shape, Steps
from dmcmc.inference.bounds.semidefinite.descent import DEAD, Descent, Point, Target, schedule
from dmcmc.inference.bounds.semidefinite.utility_matrix import Network
from dmcmc.inference.runtime.types import Array, Ints

ROUGH = 1000  # steps of a descent in which products may be rough: later they would cost more than they save
_FAR = 1e15  # units: the limit of a row that is none
_ROUND = 8  # vectors' lengths are multiples of it


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
        size, put = self.shape, arrays.put
        agents, h, d, n = size.agents, size.h, size.d, size.n
        self._columns = [columns_of(descent.network, d) for descent in descents]
        points = [self._laid_out([getattr(x, name) for x in descents]) for name in ("point", "means", "squares")]
        utilities = np.zeros((agents, n, n), dtype=np.float32)
        for b, (descent, columns) in enumerate(zip(descents, self._columns, strict=True)):
            utilities[b][np.ix_(columns, columns)] = descent.in_units(descent.network.pairs)
        sizes = sizes_of([descent.network for descent in descents], h)
        there = sizes > 0
        moves = put(np.repeat(apart(there), d, axis=2).astype(np.float32))  # shifts that there are
        live = put(there.astype(np.float32)[:, None, :])
        given = Given(put(utilities), put(sizes), live, moves, *self._rows(targets))
        self.steps = Steps(size, given, points, arrays)

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
        best = [self._arrays.get(part) for part in self.steps.best]
        return [self._taken_out(b, best) for b in range(self.shape.agents)]

    def _make(self, made: int, wanted: int) -> None:
        """Make steps; without any look whether this is the best point so far."""
        steps = [[schedule(descent.steps + i) for descent in self.descents] for i in range(max(1, wanted))]
        words, rough = np.array(steps, dtype=np.float32), all(x.steps < self._rough for x in self.descents)
        if wanted:
            self.steps.make(words, made, rough)
        else:
            self.steps.end(words, rough)
        for descent in self.descents:
            descent.steps += wanted

    def _rows(self, targets: Sequence[Target]) -> tuple[Any, Any, Any]:
        """Lay out the rows of all agents: which values of the interface they have, values, constants."""
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
        return put(select), put(values), put(constants)

    def _tell(self, made: int) -> None:
        """Wait for what was asked for; note what is left of the targets where that is told."""
        if any(descent.steps == descent.told_at for descent in self.descents):
            self._make(made, 0)
        least = self._arrays.get(self.steps.least)
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
        points = [[self._arrays.get(part) for part in point] for point in self.steps.points]
        for b, descent in enumerate(self.descents):
            descent.point, descent.means, descent.squares = (self._taken_out(b, parts) for parts in points)


def sizes_of(networks: Sequence[Network], h: int) -> NDArray[np.int32]:
    """Return the domain sizes of agents' hidden variables, (agents, h), 0 where there is no variable."""
    found = np.zeros((len(networks), h), dtype=np.int32)
    for own, network in zip(found, networks, strict=True):
        own[: network.starts.size - 1] = np.diff(network.starts)
    return found


def apart(there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which pairs of two variables that are there are pairs of unlike ones, (agents, h, h)."""
    found: NDArray[np.bool_] = there[:, :, None] & there[:, None, :] & ~np.eye(there.shape[1], dtype=bool)
    return found


def columns_of(network: Network, d: int) -> Ints:
    """Return where an agent's values are among those of a batch with d values a variable."""
    found: Ints = network.owner * d + np.arange(network.owner.size) - network.starts[network.owner]
    return found
