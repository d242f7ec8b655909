"""The square that bounds rows best, by descent: in single precision, since :mod:`.certificate` proves what it finds.

The bound is a sum of maxima, convex in the Gram matrix S = L Lᵀ of the vectors; with as many vectors as S has rank,
going down in L finds its minimum as well (Burer and Monteiro, Math. Program. 95, 2003), without eigenvalues. Maxima are
smoothed, less and less; the weights of their entries are the gradient, and steps are Adam's (Kingma and Ba, 2015).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.dual.tables.entry_values import THRESHOLD
from dmcmc.inference.bounds.semidefinite.certificate import places
from dmcmc.inference.bounds.semidefinite.initial_factors import spectral_start
from dmcmc.inference.bounds.semidefinite.pair_kernels import smooth_pairs
from dmcmc.inference.bounds.semidefinite.utility_matrix import Network
from dmcmc.inference.runtime.types import Floats, Ints

Singles = NDArray[np.float32]
Start = Callable[[Network, float], tuple[Singles, Singles]]

# Tried on meetings of 50 variables with both kinds of tables: temperature and step, in units, go down with the number
# of steps, whatever the time that there is.
_TEMPERATURE, _STEP, _SETTLING = 0.4, 0.03, 30.0
_AHEAD = 50  # steps that the start is worth
_COOLING, _SHORTER = 1.3, 1.2  # powers
_ROWS_WARMER = 20.0  # times: a row's bound is a sum of many maxima
MOMENTUM, SPREAD = 0.9, 0.99  # of the gradient, and of its square
DEAD = -1e9  # units
LOOK = 10  # steps between two looks at whether it is the best so far
TRIAL = 60  # steps after which it is clear how far it will get, about


class Target(NamedTuple):
    """What a descent lowers: the largest of what rows are beyond their limits.

    Attributes
    ----------
    digits : (k, interface) int64
        Of the rows.
    limits : (k,) float64
        In the network's scale.
    """

    digits: Ints
    limits: Floats


class Point(NamedTuple):
    """Vectors (n + values of the interface, r) and shifts (h, n), in units."""

    vectors: Singles
    shifts: Singles

    def copy(self) -> "Point":
        """Return a copy."""
        return Point(self.vectors.copy(), self.shifts.copy())


class Schedule(NamedTuple):
    """What a step has: one over the temperatures of pairs and of rows, its length, and what spreads are divided by."""

    slope: float
    rows: float
    step: float
    even: float


def schedule(steps: int) -> Schedule:
    """Return what the next step has after so many."""
    cooled, shorter = (1 + (_AHEAD + s) / _SETTLING for s in (steps, steps + 1))
    slope = cooled**_COOLING / _TEMPERATURE
    step = _STEP / shorter**_SHORTER / (1 - MOMENTUM ** (steps + 1))
    return Schedule(slope, slope / _ROWS_WARMER, step, 1 / (1 - SPREAD ** (steps + 1)) ** 0.5)


@dataclass
class _Room:
    """What a step works in: all of it is made anew for each run, so that only vectors and shifts are kept between."""

    utilities: Singles
    weights: Singles
    marginals: Singles
    values: Singles
    constants: Floats
    limits: Floats
    places: Ints


def room_bytes(n: int) -> int:
    """Return the bytes that a run takes for so many values."""
    return 24 * n * n  # whole numbers, singles, products, weights; at first eigenvectors and what they take


class Descent:
    """A descent for one network.

    Parameters
    ----------
    network : Network
    start : callable
        Returns the vectors of hidden values and the shifts that it begins with, for the network and the unit.

    Attributes
    ----------
    unit : float
        What it measures in, in the network's scale.
    steps : int
        That have been made.
    point : Point
        Where it is.
    means, squares : Point
        Of the gradients so far, and of their squares.
    trial : list of float
        What was left of the target after half a :data:`TRIAL`, and after all of it, in the scale, about.
    """

    def __init__(self, network: Network, start: Start = spectral_start) -> None:
        self.network, self.unit, self.steps = network, network.unit, 0
        self.trial: list[float] = []
        if self.unit <= 0:
            return  # nothing varies
        hidden, shifts = start(network, self.unit)
        vectors = np.concatenate([hidden, np.zeros((sum(network.shape), hidden.shape[1]), dtype=np.float32)])
        self.point = Point(vectors, shifts)
        self.means = Point(np.zeros_like(vectors), np.zeros_like(self.point.shifts))
        self.squares = self.means.copy()

    def run(self, target: Target, more: Callable[[int], bool]) -> Point:
        """Make steps; return the best point on the way.

        Parameters
        ----------
        more
            Told how many steps have been made now, says whether there shall be another one.
        """
        room, made = self._make_room(target), 0
        best, least = self.point.copy(), np.inf
        while True:
            beyond, gradient = self._look(room)
            goes_on = more(made)
            if (made % LOOK == 0 or not goes_on) and beyond < least:
                best, least = self.point.copy(), beyond
            if self.steps == self.told_at:
                self.trial.append(least * self.unit)
            if not goes_on:
                return best
            self._move(gradient)
            made += 1

    def scaled(self, point: Point) -> tuple[Floats, Floats]:
        """Return a point's vectors and shifts in the network's scale."""
        return point.vectors.astype(np.float64) * np.sqrt(self.unit), point.shifts.astype(np.float64) * self.unit

    def in_units(self, whole: Ints | NDArray[np.int32]) -> Singles:
        """Return whole numbers of the scale in units; what is forbidden as :data:`DEAD`."""
        found: Singles = whole.astype(np.float32) * np.float32(1 / self.unit)
        found[whole < THRESHOLD] = DEAD
        return found

    @property
    def told_at(self) -> int | None:
        """After how many steps :attr:`trial` is told next."""
        return TRIAL * (1 + len(self.trial)) // 2 if len(self.trial) < 2 else None

    def _make_room(self, target: Target) -> _Room:
        network, utilities = self.network, self.in_units(self.network.pairs)
        return _Room(
            utilities,
            np.zeros_like(utilities),
            np.zeros_like(self.point.shifts),
            self.in_units(network.values(target.digits)),
            network.constants(target.digits) / self.unit,
            target.limits / self.unit,
            places(network, target.digits) + network.owner.size,
        )

    def _look(self, room: _Room) -> tuple[float, Point]:
        """Return what is left of the target here, about, and the gradient of what it is when smoothed."""
        network, (vectors, shifts), n = self.network, self.point, self.network.owner.size
        now, owner, first = schedule(self.steps), network.owner, network.starts[:-1]
        hidden = vectors[:n]
        slope = np.float32(now.slope)
        total = smooth_pairs(
            room.utilities, hidden @ hidden.T, shifts, slope, network.starts, room.weights, room.marginals
        )
        around = vectors[room.places].sum(axis=1)
        entries = room.values + (np.einsum("ar,ar->a", hidden, hidden) + shifts.sum(axis=0)) + 2 * (around @ hidden.T)
        best = np.maximum.reduceat(entries, first, axis=1)
        squares = np.einsum("br,br->b", around, around)
        beyond = room.constants + squares + best.sum(axis=1, dtype=np.float64) + total - room.limits
        most = float(beyond.max())

        rows = np.exp((beyond - most) * now.rows)
        rows = (rows / rows.sum()).astype(np.float32)
        chosen = np.exp((entries - best[:, owner]) * slope)
        chosen *= (rows[:, None] / np.add.reduceat(chosen, first, axis=1))[:, owner]
        share = chosen.sum(axis=0)

        gradient = np.zeros_like(vectors)
        np.matmul(room.weights, hidden, out=gradient[:n])
        gradient[:n] += chosen.T @ around + share[:, None] * hidden
        outward = rows[:, None] * around + chosen @ hidden
        for column in room.places.T:
            np.add.at(gradient, column, outward)
        moved = share - room.marginals
        moved[owner, np.arange(n)] = 0
        return most, Point(gradient, moved)

    def _move(self, gradient: Point) -> None:
        """Make a step."""
        now = schedule(self.steps)
        self.steps += 1
        for here, slope, mean, square in zip(self.point, gradient, self.means, self.squares, strict=True):
            mean *= np.float32(MOMENTUM)
            mean += np.float32(1 - MOMENTUM) * slope
            slope *= slope
            square *= np.float32(SPREAD)
            square += np.float32(1 - SPREAD) * slope
            length = np.sqrt(square)
            length *= np.float32(now.even)
            length += np.float32(1e-8)
            np.divide(mean, length, out=length)
            length *= np.float32(now.step)
            here -= length
