"""What a square is for: one row of an agent, perhaps with one more variable fixed.

The interface has one value then, whose vector is the sum of the row's: the fixed variable's value adds its own.
"""

from typing import NamedTuple

import numpy as np

from dmcmc.inference.bounds.semidefinite.certificate import certified, row_vectors
from dmcmc.inference.bounds.semidefinite.descent import MOMENTUM, SPREAD, Descent, Point, Schedule, Singles
from dmcmc.inference.bounds.semidefinite.network import Network
from dmcmc.inference.runtime.types import Ints


class Case(NamedTuple):
    """A row; with ``variable``, a place among the hidden ones, fixed to ``value`` unless that is None."""

    row: int
    variable: int | None = None
    value: int = 0


class Plan(NamedTuple):
    """Steps and how temperatures and steps' lengths, in units, go down in them, by as much each time."""

    steps: int
    warm: float
    cold: float
    long: float
    short: float

    def at(self, step: int) -> Schedule:
        """Return what a step has."""
        part = step / max(1, self.steps - 1)
        slope = 1 / (self.warm * (self.cold / self.warm) ** part)
        length = self.long * (self.short / self.long) ** part / (1 - MOMENTUM ** (step + 1))
        return Schedule(slope, slope, length, 1 / (1 - SPREAD ** (step + 1)) ** 0.5)


# Tried on rows of uniform utilities with 50 variables: longer first steps lose more than they find.
ROW = Plan(200, 0.02, 0.002, 0.004, 0.0003)
NODE = Plan(60, 0.02, 0.003, 0.004, 0.001)
LONG = Plan(250, 0.02, 0.0008, 0.005, 0.0001)


def utilities_of(network: Network, case: Case) -> tuple[Ints, int]:
    """Return what each hidden value is worth by itself (n,), and what there is without them, in the scale."""
    digits = network.digits(np.array([case.row]))
    values, constant = network.values(digits)[0], int(network.constants(digits)[0])
    if case.variable is None:
        return values, constant
    at = int(network.starts[case.variable]) + case.value
    return values + network.pairs[at], constant + int(values[at])


def shared_start(descent: Descent, row: int) -> Singles:
    """Return the vector of a row where all rows share a square."""
    network, vectors = descent.network, descent.point.vectors
    found: Singles = row_vectors(network, vectors[network.owner.size :], network.digits(np.array([row])))[0]
    return found


def fixed_start(network: Network, point: Point, case: Case) -> Singles:
    """Return the vector that a row has, from its own square, with a variable fixed."""
    assert len(point.vectors) == network.owner.size + 1
    found: Singles = point.vectors[-1]
    if case.variable is not None:
        found = found + point.vectors[int(network.starts[case.variable]) + case.value]
    return found


def busiest(network: Network) -> int:
    """Return the hidden variable that shares most pairs' tables: it is fixed."""
    first = network.starts[:-1]
    shared = np.add.reduceat(np.add.reduceat(network.pairs != 0, first, axis=0, dtype=np.int64), first, axis=1) > 0
    return int(shared.sum(axis=1).argmax())


def alone(network: Network, case: Case) -> Network:
    """Return the network of a case: its interface has one value, and the fixed variable is gone."""
    values, constant = utilities_of(network, case)
    left = np.arange(network.starts.size - 1) != (-1 if case.variable is None else case.variable)
    kept = left[network.owner]
    sizes = np.diff(network.starts)[left]
    starts, owner = np.cumsum([0, *sizes], dtype=np.int64), np.repeat(np.arange(sizes.size), sizes)
    inside = (((0,), np.array([constant], dtype=np.int64)),)
    crossing = (np.zeros((1, owner.size), dtype=np.int64),)
    pairs = network.pairs[np.ix_(kept, kept)]
    return Network(starts, owner, pairs, values[kept], crossing, inside, (1,), network.scale)


def certified_alone(descent: Descent, case: Case, point: Point) -> int | None:
    """Return the bound of a case with a point, vectors of all hidden values and the row's; see :func:`certified`."""
    network, (vectors, shifts) = descent.network, descent.scaled(point)
    left = np.arange(network.starts.size - 1) != (-1 if case.variable is None else case.variable)
    kept = left[network.owner]
    found = certified(
        alone(network, case), vectors[np.append(kept, True)], shifts[np.ix_(left, kept)], np.zeros(1, dtype=np.int64)
    )
    return None if found is None else int(found[0])
